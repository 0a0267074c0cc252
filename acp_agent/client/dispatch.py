"""The methods a client serves, dispatched by jsonrpcserver: the only module that imports it.

The connection has parsed the line and checked its envelope, so the library gets the parsed request, not JSON text. It
finds the method (-32601) and calls it; the method decodes its params by ACP's schema (-32602) and serves them. An
unexpected failure becomes -32603.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jsonrpcserver import JsonRpcError, Result, Success, async_dispatch_to_serializable

from acp_agent.errors import InternalError, InvalidParams, MethodNotFound, RpcError
from acp_agent.schema.decode import decode_params

Serve = Callable[[Any], Awaitable[Any]]
"""Answers one method: the Struct of its params in, the Struct of its result (or None) out. Raises RpcError."""


class Dispatcher:
    """`serves`: the function that answers each of ACP's client methods served."""

    def __init__(self, serves: Mapping[str, Serve]) -> None:
        self._methods = {name: _method(name, serve) for name, serve in serves.items()}

    async def dispatch(self, method: str, params: Any) -> Any:
        """The result, a Struct or plain JSON data. Raises RpcError with the code of the error answer."""
        request = {"jsonrpc": "2.0", "id": 0, "method": method}
        answer = await async_dispatch_to_serializable(
            "", self._methods, context=params, deserializer=lambda _: request, validator=lambda parsed: parsed
        )
        if not isinstance(answer, dict):
            raise InternalError(f"{method} was not answered")
        if "error" in answer:
            raise _rpc_error(method, answer["error"])
        return answer["result"]


def _method(name: str, serve: Serve) -> Callable[[Any], Awaitable[Result]]:
    async def call(params: Any) -> Result:
        try:
            return Success(await serve(decode_params(name, params, "client")))
        except RpcError as error:
            raise JsonRpcError(error.code, error.message, error.data) from error

    return call


def _rpc_error(method: str, error: dict[str, Any]) -> RpcError:
    code, message, data = error["code"], error["message"], error.get("data")
    if code == MethodNotFound.code:
        return MethodNotFound(f"Method not found: {method}")
    if code == InvalidParams.code:
        return InvalidParams(message, data)
    other = RpcError(message, data)
    other.code = code
    return other
