"""`HttpProvider`: what the providers that we speak HTTP for have in common.

The logic is elsewhere: `http_client` has the connection, `sse` reads the answer's events, `provider_errors` classifies
errors, `retry` decides about retries. This module has the timeouts and the control flow.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

import anyio
import msgspec

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ConfigError, ProviderError
from acp_agent.limits.decoding import read_json
from acp_agent.llm import base as llm
from acp_agent.llm import provider_errors
from acp_agent.llm.choose import is_loopback, shown_url
from acp_agent.llm.model_list import is_llama_cpp, is_lm_studio, read_model_list, with_lm_studio, with_properties
from acp_agent.llm.transport import http_client as http
from acp_agent.llm.transport.retry import RetryPolicy, when_loaded, with_retries
from acp_agent.llm.transport.sse import AnswerReader, BytesReader, EventTooLong, FoldedAnswer, WebPage

log = logging.getLogger(__name__)

_LONGEST_ERROR_BODY = 64 * 1024
_LONGEST_LIST = 32 * 1024 * 1024
_MODELS_TIMEOUT = 10.0
_DRAIN_TIMEOUT = 0.1
"""How long to wait for the end of an answer after its last event, so that the connection can be reused."""


class Exchange(msgspec.Struct, frozen=True):
    """One request, and what becomes of its answer."""

    body: bytes
    answer: FoldedAnswer
    learn: Callable[[str], bool]
    """Takes the words of a refusal; true if the request is worth sending again, in another form."""
    path: str = ""
    """Of the request, below the base URL, where it depends on the model."""
    headers: Mapping[str, str] = {}
    """In place of those of the same names."""


class HttpProvider:
    """A server with a wire API of its own. One HTTP client with pooled connections serves all streams. Proxies from the
    environment are honoured, except for servers on this machine. Raises `ConfigError` for an invalid base URL.
    """

    path = ""
    """Of model calls, below the base URL."""
    models_path = "/models"
    reader: Callable[[FoldedAnswer], BytesReader] = AnswerReader

    def __init__(self, options: ProviderOptions, base_url: str, headers: dict[str, str]) -> None:
        """`headers`: of every request; the configured ones go before them."""
        self.name = options.name
        self._options = options
        self._base_url = base_url
        self._shown = shown_url(base_url)
        self.label = provider_errors.server_label(options.name, base_url)
        """What errors call it."""
        self._headers = headers
        self._policy = RetryPolicy.of(options)
        try:
            self._client = http.HttpClient(
                base_url,
                connect_timeout=options.connect_timeout,
                idle_timeout=options.idle_timeout,
                proxied=not is_loopback(base_url),
            )
        except ValueError as error:
            raise ConfigError(f"{options.name}: {error}") from error

    def _exchange(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> Exchange:
        raise NotImplementedError

    def stream(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        """Runs one model call; see `Provider.stream`. Close the generator to close the connection early."""
        headed = llm.with_context(settings.context, messages)
        return with_retries(lambda: self._attempt(headed, tools, settings), self._policy)

    async def models(self) -> list[llm.ModelInfo]:
        """Returns the configured models, else those that the server lists."""
        return [llm.ModelInfo(name) for name in self._options.models] or await self._listed()

    async def _listed(self) -> list[llm.ModelInfo]:
        """Those of `GET /models`, with context windows if the server has them."""
        content = await when_loaded(lambda: self._ask("GET", self.models_path), self._policy)
        try:
            body = read_json(content)
            models = read_model_list(body)
            if is_llama_cpp(body):
                return with_properties(models, await self._properties("/props"))
            if is_lm_studio(body):
                return with_lm_studio(models, await self._properties("/api/v0/models"))
            return models
        except (msgspec.DecodeError, provider_errors.ErrorInAnswer) as error:
            raise provider_errors.error_from_object(self.label, f"the list of models is malformed: {error}") from error

    async def _ask(self, method: str, path: str, body: bytes | None = None, *, base: str | None = None) -> bytes:
        """The response to a short request about the server or its models. Raises `ProviderError`."""
        try:
            with anyio.fail_after(_MODELS_TIMEOUT + self._options.connect_timeout):
                timeout = min(_MODELS_TIMEOUT, self._options.idle_timeout)
                async with aclosing(await self._send(method, path, body, timeout=timeout, base=base)) as response:
                    limit = _LONGEST_LIST if response.status == 200 else _LONGEST_ERROR_BODY
                    content = await response.read(limit)
        except TimeoutError:
            raise provider_errors.idle_timeout_error(self.label, self._shown, _MODELS_TIMEOUT) from None
        except http.FAILURES as error:
            raise self._transport_error(error) from error
        if response.status != 200:
            raise provider_errors.error_from_status(self.label, response.status, content, response.headers)
        return content

    async def _properties(self, path: str) -> object:
        """What a server says beyond what OpenAI's API has; `None` if it does not."""
        try:
            return read_json(await self._ask("GET", path, base=self._base_url.removesuffix("/v1")))
        except (ProviderError, msgspec.DecodeError) as error:
            log.info("%s: no properties: %s", self.name, error)
            return None

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _asked(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> tuple[http.HttpResponse, FoldedAnswer]:
        """The response, with status 200, to one request, which is sent once more immediately if the server's refusal
        taught us what it accepts. Raises `ProviderError`."""
        while True:
            exchange = self._exchange(messages, tools, settings)
            try:
                response = await self._send("POST", exchange.path or self.path, exchange.body, more=exchange.headers)
                if response.status == 200:
                    return response, exchange.answer
                async with aclosing(response):
                    body = await response.read(_LONGEST_ERROR_BODY)
            except http.FAILURES as error:
                raise self._transport_error(error) from error
            words = provider_errors.read_vendor_error(body).message
            if response.status in (400, 422, 500) and exchange.learn(words):
                log.info("%s: asking again in another form: %s", self.name, words)
                continue
            status, headers, where = response.status, response.headers, self._shown
            raise provider_errors.error_from_status(
                self.label, status, body, headers, base_url=where, model=settings.model
            )

    async def _attempt(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        """Yields the events of an answer."""
        response, answer = await self._asked(messages, tools, settings)
        model = settings.model
        heard = _Heard(answer)
        reader = self.reader(heard)
        try:
            async with aclosing(response), aclosing(response.chunks()) as chunks:
                try:
                    async for chunk in chunks:
                        for event in reader.feed(chunk):
                            yield event
                        if answer.done:
                            await _drain(chunks)
                            break
                except http.FAILURES:
                    # The connection broke, or fell silent, after everything that matters had arrived.
                    if not answer.ended:
                        raise
            for event in reader.end():
                yield event
            last = answer.finish() if answer.ended else []
            if heard.complaint is not None and not (heard.said or any(map(_says, last))):
                raise provider_errors.ErrorInAnswer(heard.complaint)
        except http.FAILURES as error:
            raise self._transport_error(error) from error
        except provider_errors.ErrorInAnswer as error:
            raise provider_errors.error_from_object(self.label, error.body, model=model) from error
        except EventTooLong as error:
            raise provider_errors.error_from_object(self.label, str(error), model=model) from error
        except RecursionError as error:
            raise provider_errors.error_from_object(
                self.label, "the answer is nested too deeply", model=model
            ) from error
        except WebPage as error:
            raise provider_errors.web_page_error(self.label, self._shown) from error
        if not answer.ended:
            raise provider_errors.network_error(self.label, self._shown, "the answer ended early")
        for event in last:
            yield event

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        timeout: float = 0,
        base: str | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> http.HttpResponse:
        headers = {"Accept": "text/event-stream, application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(self._headers)
        headers.update((name, value) for name, value in self._options.headers.items() if name.lower() not in more)
        headers.update(more)
        url, question, query = (self._base_url if base is None else base).partition("?")
        address = f"{url}{path}{question}{query}"
        headers.update(await self._authorized(method, address, body))
        if any(not (value.isascii() and value.isprintable() and value == value.strip()) for value in headers.values()):
            raise provider_errors.key_error(self.label)
        try:
            return await self._client.send(method, address, headers, body, timeout=timeout)
        except ValueError as error:
            words = f"{self.label}: {self._shown!r} is not a usable base URL: {error}"
            raise ProviderError("bad_request", words) from error

    async def _authorized(self, method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        """Headers that let one request in, of servers that take more than a key. Raises `ProviderError`."""
        return {}

    def _transport_error(self, error: Exception) -> ProviderError:
        if isinstance(error, http.SILENCE):
            return provider_errors.idle_timeout_error(self.label, self._shown, self._options.idle_timeout)
        if isinstance(error, http.NO_CONNECTION_IN_TIME):
            return provider_errors.network_error(
                self.label, self._shown, f"no connection within {self._options.connect_timeout:g} seconds"
            )
        if isinstance(error, http.NO_CONNECTION) and "ssl" in str(error).lower():
            return provider_errors.tls_error(self.label, self._shown, str(error))
        if isinstance(error, http.NO_CONNECTION) and is_loopback(self._base_url):
            return provider_errors.nobody_listens_error(self.label, self._shown)
        return provider_errors.network_error(self.label, self._shown, str(error) or type(error).__name__)


class _Heard:
    """An answer, and what the server complains of where it should be."""

    def __init__(self, answer: FoldedAnswer) -> None:
        self._answer = answer
        self.finish = answer.finish
        self.said = False
        self.complaint: dict[str, Any] | None = None

    @property
    def done(self) -> bool:
        return self._answer.done

    @property
    def ended(self) -> bool:
        return self._answer.ended

    def feed(self, data: bytes) -> list[llm.ModelEvent]:
        events = self._answer.feed(data)
        if not self.said:
            self.said = any(map(_says, events))
            if not events:
                self.complaint = self.complaint or provider_errors.complaint(data)
        return events


def _says(event: llm.ModelEvent) -> bool:
    return isinstance(event, llm.TextDelta | llm.ToolUse)


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    with anyio.move_on_after(_DRAIN_TIMEOUT):
        async for _ in chunks:
            pass
