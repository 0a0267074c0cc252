"""`ResponsesProvider`: OpenAI's Responses API through the `openai` package. The only module that imports it.

Supported servers: api.openai.com; Azure OpenAI under its `/openai/v1` base URL (a bare resource URL is completed; the
key is sent as `api-key`, too); any other server with the Responses API, at an explicit base URL. Azure's dated
`api-version` URLs are not supported: use the `/openai/v1` ones.

Nothing is stored on the server (`store=False`), so reasoning items come back encrypted and are returned unchanged with
the next request: `AssistantMessage.opaque` holds them. Items from another provider are left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

import anyio
import openai
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseFunctionToolCall,
    ResponseInputItemParam,
    ResponseOutputItem,
    ResponseReasoningItem,
    ResponseStreamEvent,
)
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm import chat_answer
from acp_agent.llm.choose import (
    choose_api,
    complete_base_url,
    host_of,
    is_azure,
    is_loopback,
    is_reasoning_model,
    reasoning_effort,
)
from acp_agent.llm.model_list import read_model_list
from acp_agent.llm.provider_errors import (
    ErrorInAnswer,
    error_from_object,
    error_from_status,
    idle_timeout_error,
    key_error,
    network_error,
)
from acp_agent.llm.retry import RetryPolicy, with_retries
from acp_agent.llm.sse import EventTooLong
from acp_agent.llm.streamed_text import SurrogateJoiner, clean
from acp_agent.llm.translate import RESPONSES_ID, call_id, returned, signed, tool_name

_LEAST_OUTPUT_TOKENS = 16
_DRAIN_TIMEOUT = 0.1
_MODELS_TIMEOUT = 10.0


class ResponsesProvider:
    """OpenAI and Azure OpenAI. Retries are ours, not the package's, so that both providers wait alike.

    Raises `ConfigError` for an invalid base URL.
    """

    def __init__(self, options: llm.ProviderOptions) -> None:
        self.name = options.name
        self._options = options
        self._base_url = complete_base_url(options.base_url)
        self._origin = host_of(self._base_url)
        self._policy = RetryPolicy.of(options)
        self._key = (options.api_key or "").strip()
        idle = options.idle_timeout
        timeout = openai.Timeout(connect=options.connect_timeout, read=idle, write=idle, pool=None)
        # Header names ignore case; the package's merging of them does not.
        headers = {name.lower(): value for name, value in options.headers.items()}
        authorization = headers.pop("authorization", None)
        if authorization is not None:
            headers["Authorization"] = authorization
        if self._key and is_azure(self._base_url):
            headers.setdefault("api-key", self._key)
        self._per_request: dict[str, Any] = {}
        if not self._key and authorization is None:
            self._per_request["Authorization"] = openai.Omit()
        self._client = openai.AsyncOpenAI(
            # Never `None`: the package would take the key from the environment and send it to any base URL.
            api_key=self._key or "none",
            base_url=self._base_url,
            max_retries=0,
            timeout=timeout,
            default_headers=headers,
            http_client=openai.DefaultAsyncHttpxClient(
                timeout=timeout,
                verify=not self._base_url.startswith("http://"),
                follow_redirects=False,
                trust_env=not is_loopback(self._base_url),
            ),
        )
        # The package imports an API's modules when it is first touched: do it here rather than in the first call.
        self._responses = self._client.responses

    async def stream(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        """Runs one model call; see `Provider.stream`. Close the generator to close the connection early."""
        values = (self._key, *self._options.headers.values())
        if any(not (value.isascii() and value.isprintable()) for value in values):
            raise key_error(self.name)
        params = _params(settings, on_openai=choose_api(self._options.base_url) == "responses")
        body = _body(messages, tools, self._origin)

        def attempt() -> AsyncGenerator[llm.ModelEvent, None]:
            return self._attempt(params, body)

        async with aclosing(with_retries(attempt, self._policy)) as events:
            async for event in events:
                yield event

    async def models(self) -> list[llm.ModelInfo]:
        """Returns the configured models, else those of `GET /models`. OpenAI itself reports no context windows."""
        if self._options.models:
            return [llm.ModelInfo(name) for name in self._options.models]
        try:
            # Not `models.list()`: it would drop the context windows that other servers report.
            body = await self._client.get(
                "/models",
                cast_to=object,
                options={"headers": self._per_request, "timeout": min(_MODELS_TIMEOUT, self._options.idle_timeout)},
            )
            return read_model_list(body)
        except openai.APIError as error:
            raise self._error(error, "") from error
        except (ValueError, ErrorInAnswer) as error:
            raise error_from_object(self.name, f"the list of models is malformed: {error}") from error

    async def aclose(self) -> None:
        await self._client.close()

    async def _attempt(
        self, params: ResponseCreateParamsStreaming, body: dict[str, object]
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        model = str(params.get("model", ""))
        answer = _Answer(self._origin)
        try:
            stream = await self._responses.create(**params, extra_headers=self._per_request, extra_body=body)
            async with stream:
                async for raw in stream:
                    for event in answer.feed(raw):
                        yield event
                    if answer.response is not None:
                        # Read the body's last bytes, so that the connection can be reused.
                        with anyio.move_on_after(_DRAIN_TIMEOUT):
                            async for _ in stream:
                                pass
                        break
        except openai.APIError as error:
            raise self._error(error, model) from error
        except ErrorInAnswer as error:
            raise error_from_object(self.name, error.body, model=model) from error
        except ValueError as error:  # The package decodes JSON without guarding it.
            raise error_from_object(self.name, f"the answer is malformed: {error}", model=model) from error
        response = answer.response
        if response is None:
            raise network_error(self.name, self._base_url, "the answer ended early")
        if response.status == "failed":
            raise error_from_object(
                self.name, {"error": response.error.to_dict() if response.error else {}}, model=model
            )
        for event in answer.finish(response):
            yield event

    def _error(self, error: openai.APIError, model: str) -> ProviderError:
        """Converts the package's exception, decided by its class and, for an HTTP answer, by status and body."""
        if isinstance(error, openai.APIStatusError):
            body, headers = error.response.content, error.response.headers
            where = self._base_url
            return error_from_status(self.name, error.status_code, body, headers, base_url=where, model=model)
        if isinstance(error, openai.APITimeoutError):
            if type(error.__cause__).__name__ == "ConnectTimeout":
                return network_error(
                    self.name, self._base_url, f"no connection within {self._options.connect_timeout:g} seconds"
                )
            return idle_timeout_error(self.name, self._base_url, self._options.idle_timeout)
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__
            return network_error(self.name, self._base_url, str(cause or "") or type(cause or error).__name__)
        return error_from_object(self.name, error.body or error.message, model=model)


# --- the request -------------------------------------------------------------------------------------------------


def _body(messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], origin: str) -> dict[str, object]:
    """The part of a request that grows with the conversation.

    Sent as `extra_body`, which the package passes on unchanged. As arguments it would be matched item by item against
    hundreds of types, which takes half a second for a long history.
    """
    items: list[ResponseInputItemParam] = [item for message in messages for item in _items(message, origin)]
    body: dict[str, object] = {"input": items}
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    return body


def _params(settings: llm.ModelSettings, *, on_openai: bool) -> ResponseCreateParamsStreaming:
    params: ResponseCreateParamsStreaming = {"model": settings.model, "stream": True, "store": False}
    if settings.system:
        params["instructions"] = clean(settings.system)
    if settings.max_output_tokens is not None:
        params["max_output_tokens"] = max(_LEAST_OUTPUT_TOKENS, settings.max_output_tokens)
    if settings.cache_key:
        params["prompt_cache_key"] = settings.cache_key
    effort = reasoning_effort(settings.model, settings.thought_level, openai=on_openai)
    if settings.thought_level not in (None, "off") or is_reasoning_model(settings.model):
        params["include"] = ["reasoning.encrypted_content"]
        reasoning: dict[str, Any] = {"summary": "auto"}
        if effort is not None:
            reasoning["effort"] = effort
        params["reasoning"] = cast(Any, reasoning)
    return params


def _tool(tool: llm.ToolDefinition) -> FunctionToolParam:
    # Strict mode requires every property to be required, which our schemas do not guarantee.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _items(message: llm.Message, origin: str) -> list[ResponseInputItemParam]:
    if isinstance(message, llm.UserMessage):
        return [{"role": "user", "content": cast(Any, [_part(part) for part in message.content])}]
    if isinstance(message, llm.ToolMessage):
        use = call_id(message.call_id, RESPONSES_ID)
        return [{"type": "function_call_output", "call_id": use, "output": cast(Any, _output(message))}]
    return _assistant_items(message, origin)


def _assistant_items(message: llm.AssistantMessage, origin: str) -> list[ResponseInputItemParam]:
    items = [cast(ResponseInputItemParam, item) for item in returned(message, origin, "reasoning")]
    if message.text:
        # With its type: llama.cpp does not know the short form, which OpenAI's own server takes.
        said = {"type": "output_text", "text": clean(message.text)}
        items.append(cast(ResponseInputItemParam, {"type": "message", "role": "assistant", "content": [said]}))
    for call in message.tool_calls:
        arguments = clean(call.arguments) if call.arguments.strip() else "{}"
        use, name = call_id(call.id, RESPONSES_ID), tool_name(call.name)
        items.append({"type": "function_call", "call_id": use, "name": name, "arguments": arguments})
    return items


def _output(message: llm.ToolMessage) -> str | list[dict[str, str]]:
    if all(isinstance(part, llm.TextPart) for part in message.content):
        return (
            clean("\n".join(part.text for part in message.content if isinstance(part, llm.TextPart))) or "(no output)"
        )
    return [_part(part) for part in message.content]


def _part(part: llm.Part) -> dict[str, str]:
    if isinstance(part, llm.TextPart):
        return {"type": "input_text", "text": clean(part.text)}
    if isinstance(part, llm.ImagePart):
        return {"type": "input_image", "image_url": f"data:{part.mime_type};base64,{part.data}", "detail": "auto"}
    if isinstance(part, llm.DocumentPart):
        data = f"data:{llm.PDF};base64,{part.data}"
        return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": data}
    return {"type": "input_text", "text": f"[Audio ({part.mime_type}) was left out: this API does not accept audio.]"}


# --- the answer --------------------------------------------------------------------------------------------------


class _Answer:
    """Folds the events of one response. No I/O."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self.response: Response | None = None
        """Set by the terminal event."""
        self._text = SurrogateJoiner()
        self._thought = SurrogateJoiner()
        self._opaque: list[dict[str, Any]] = []
        self._call_ids: set[str] = set()
        self._refused = False
        self._thought_parts = 0
        self._calls_size = 0

    def feed(self, event: ResponseStreamEvent) -> list[llm.ModelEvent]:
        """Raises `ErrorInAnswer` if the server reports an error as an event."""
        match event.type:
            case "response.output_text.delta":
                return _texts(self._text.feed(event.delta or ""))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return _thoughts(self._thought.feed(event.delta or ""))
            case "response.reasoning_summary_part.added":
                # Each part is a paragraph with its own heading.
                self._thought_parts += 1
                return _thoughts("\n\n" if self._thought_parts > 1 else "")
            case "response.refusal.delta":
                self._refused = True
                return _texts(self._text.feed(event.delta or ""))
            case "response.function_call_arguments.delta":
                self._calls_size += len(event.delta or "") + chat_answer.PER_FRAGMENT
                if self._calls_size > chat_answer.LONGEST_CALLS:
                    longest = chat_answer.LONGEST_CALLS
                    raise EventTooLong(f"the tool calls of one answer are longer than {longest} characters")
            case "response.output_item.done":
                return self._item(event.item)
            case "response.completed" | "response.incomplete" | "response.failed":
                self.response = event.response
            case "error":
                raise ErrorInAnswer({"code": event.code, "message": event.message})
        return []

    def finish(self, response: Response) -> list[llm.ModelEvent]:
        events = _thoughts(self._thought.finish()) + _texts(self._text.finish())
        if (usage := response.usage) is not None:
            cached, reasoning = usage.input_tokens_details, usage.output_tokens_details
            events.append(
                llm.UsageReport(
                    input_tokens=usage.input_tokens or 0,
                    output_tokens=usage.output_tokens or 0,
                    cached_tokens=(cached.cached_tokens or 0) if cached else 0,
                    reasoning_tokens=(reasoning.reasoning_tokens or 0) if reasoning else 0,
                )
            )
        events.append(llm.Finished(self._reason(response), signed(self._opaque, self._origin)))
        return events

    def _item(self, item: ResponseOutputItem) -> list[llm.ModelEvent]:
        if isinstance(item, ResponseReasoningItem):
            # Without its encrypted content the server, which stored nothing, could not recognize the item.
            if item.encrypted_content:
                self._opaque.append(item.to_dict(exclude_none=True))
            return []
        if not isinstance(item, ResponseFunctionToolCall):
            return []
        use = item.call_id or item.id or ""
        if not use or use in self._call_ids:
            use = f"{use or 'call'}_{len(self._call_ids)}"
        self._call_ids.add(use)
        held = _thoughts(self._thought.finish()) + _texts(self._text.finish())
        return [*held, llm.ToolUse(clean(use), clean(item.name or ""), clean(item.arguments or ""))]

    def _reason(self, response: Response) -> llm.FinishReason:
        if response.status == "incomplete":
            details = response.incomplete_details
            return "refusal" if details is not None and details.reason == "content_filter" else "length"
        if self._call_ids:
            return "tool_calls"
        return "refusal" if self._refused else "stop"


def _texts(text: str) -> list[llm.ModelEvent]:
    return [llm.TextDelta(text)] if text else []


def _thoughts(text: str) -> list[llm.ModelEvent]:
    return [llm.ThoughtDelta(text)] if text else []
