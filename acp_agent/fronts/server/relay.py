"""A client's session that another process runs: its messages go there and back by a link.

There, the client is one of the connections to the session, so all is as if it were connected to that process. Once the
link ends, `lost` is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from acp_agent.errors import ConnectionClosed, InternalError, PeerError, RpcError
from acp_agent.fronts.server.identities import Identity
from acp_agent.fronts.server.process_links import Link
from acp_agent.protocol.codec import encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer

GONE = "the process that ran this session has gone; what it did is in the session: prompt again to go on"
LEFT = "_session/left"
"""How far a client has been sent a session when it left: between processes only."""


class Introduction(msgspec.Struct):
    """What a link begins with: who the client is."""

    identity: Identity


class Relay:
    """`client`: of whom `params` are those of `initialize`, and who asked for the session with `asked`."""

    def __init__(
        self, link: Link, client: Connection, session_id: str, asked: dict[str, Any], lost: Callable[[Relay], None]
    ) -> None:
        self.session_id = session_id
        self.asked = asked
        self.joined = False
        """Whether the client has got the session."""
        self.place = 0
        """Of the last update that the client was sent."""
        self._client = client
        self._link = link
        self._lost = lost
        self._closing = False
        self._prompts = 0
        self._far = Connection(_Paced(link, client), self, peer=Peer(encode=encode))
        self._task = asyncio.create_task(self._run())

    async def begin(self, identity: Identity, initialize: object) -> None:
        """Raises ConnectionClosed, RpcError."""
        who = msgspec.structs.replace(identity, digest="")
        await self._link.write(msgspec.json.encode(Introduction(who)) + b"\n")
        await self.ask("initialize", initialize)

    async def _run(self) -> None:
        await self._far.serve()
        if not self._closing:
            self._lost(self)

    async def ask(self, method: str, params: object) -> Any:
        """Raises RpcError."""
        self._prompts += method == "session/prompt"
        try:
            answered = await self._far.request(method, params)
        except PeerError as error:
            failed = RpcError(error.message, error.data)
            failed.code = error.code
            raise failed from error
        except ConnectionClosed as error:
            raise InternalError(GONE) from error
        finally:
            self._prompts -= method == "session/prompt"
        self._sent_until(answered)
        return answered

    def tell(self, method: str, params: object) -> None:
        self._far.notify(method, params)

    def cancel_prompt(self) -> bool:
        """Whether the client's prompt, if it is the only one, ends with an answer."""
        if self._prompts == 1:
            self.cancel()
        return self._prompts == 1

    def cancel(self) -> None:
        """As the client."""
        if self._prompts:
            self.tell("session/cancel", {"sessionId": self.session_id})

    async def close(self) -> None:
        """The client leaves; the session stays."""
        self._closing = True
        if not self._far.closed:
            self.tell(LEFT, {"sessionId": self.session_id, "seq": self.place})
        self._far.close()
        await asyncio.wait((self._task,))

    # --- what the session says and asks: the handler of the connection to it ------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        try:
            return await self._client.request(method, params)
        except PeerError as error:
            failed = RpcError(error.message, error.data)
            failed.code = error.code
            raise failed from error
        except ConnectionClosed:
            self._far.close()
            raise asyncio.CancelledError from None  # Nobody has answered.

    async def handle_notification(self, method: str, params: Any) -> None:
        self._client.notify(method, params)
        self._sent_until(params)

    def cancel_request(self, method: str, params: Any) -> bool:
        return False

    def _sent_until(self, told: Any) -> None:
        meta = told.get("_meta") if isinstance(told, dict) else None
        place = meta.get("seq") if isinstance(meta, dict) else None
        if isinstance(place, int):
            self.place = place


class _Paced:
    """Nothing is read while the client has not read what came before."""

    def __init__(self, link: Link, client: Connection) -> None:
        self._link = link
        self._client = client
        self.write = link.write
        self.close = link.close

    async def read(self) -> bytes:
        await self._client.drain()
        return await self._link.read()
