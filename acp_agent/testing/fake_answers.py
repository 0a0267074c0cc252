"""The answers that `FakeModel` gives, whatever the wire API, and what it must know of an API to speak it: a subclass of
`Wire` in a module of its own, which the API's row names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import msgspec


class Call(msgspec.Struct, frozen=True):
    """A tool call in an answer."""

    name: str
    arguments: str | dict[str, Any] = "{}"
    """JSON text sent verbatim, valid or not; an object is sent as text, too, unless `as_object`."""
    id: str | None = "auto"
    """"auto" gives `call_<number>`; `None` omits the field; any other text is sent verbatim, even repeated or empty."""
    index: int | Literal["auto"] | None = "auto"
    """Chat only: "auto" counts, `None` omits the field."""
    pieces: int = 1
    """Number of fragments the arguments are cut into; 1 sends the call whole, in one chunk."""
    as_object: bool = False
    """Chat only: the arguments are sent as a JSON object, as some servers do."""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()


class Usage(msgspec.Struct, frozen=True):
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Ways an answer fails to reach its end."""

    hang_after: int | None = None
    """Fall silent after this many deltas (writes, in a raw answer), until `FakeModel.release()`."""
    drop_after: int | None = None
    """Break the connection after this many."""


class Answer(Faults, frozen=True, kw_only=True):
    """One answer from the model."""

    text: str | tuple[str, ...] = ()
    """Text deltas, one chunk each."""
    delay: float = 0.0
    """Seconds before each delta except the first."""
    deltas: int = 0
    """Instead of `text`: this many deltas of `delta_text`, `interval_ms` apart."""
    delta_text: str = "word "
    """With `deltas`, `{number}` stands for the delta's number, counted from 0, and `{now}` for the
    moment it is written, in nanoseconds of the system's monotonic clock, which other processes share."""
    interval_ms: float = 0.0
    thought: str | tuple[str, ...] = ()
    thought_as: Literal["reasoning_content", "reasoning", "think"] = "reasoning_content"
    """Chat only: the field that carries the thought, or `<think>` tags inside the text."""
    tool_calls: tuple[Call, ...] = ()
    refusal: str = ""
    usage: Usage | None = Usage()
    finish: str | None = "auto"
    """Chat's `finish_reason`; "auto" is `tool_calls` or `stop`; `None` omits it. The other APIs translate `length`
    and `content_filter` into an incomplete response."""
    done: bool = True
    """Chat only: whether `[DONE]` is sent."""
    encrypted: str = ""
    """Encrypted content of a reasoning item (Responses), or redacted thinking (Messages)."""
    hang_before: bool = False
    """Send nothing, not even the status line, until `FakeModel.release()`."""
    repeat: bool = False
    """Repeat this answer for all further requests."""


class Failure(msgspec.Struct, frozen=True):
    """A complete HTTP response, usually an error."""

    status: int
    body: Any = None
    """Text is sent verbatim, anything else as JSON."""
    headers: dict[str, str] = {}


class RawAnswer(Faults, frozen=True):
    """Bytes sent verbatim, one write each: things no well-behaved server would send."""

    chunks: tuple[bytes, ...]
    status: int = 200
    content_type: str = "text/event-stream"


Reply = Answer | Failure | RawAnswer
Script = Sequence[Reply | str] | Callable[[dict[str, Any]], Reply | str]


class FakeRequest(msgspec.Struct, frozen=True):
    """A request as received."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]

    @property
    def model(self) -> str:
        return str(self.body.get("model", "fake-model"))


Models = Sequence[str | dict[str, Any]]
Chunks = list[tuple[bytes, bool]]
"""Pieces of an answer, each with whether it counts as a delta."""


class Wire:
    """An API, as servers speak it. The class variables also say in what the contract of all providers differs by it."""

    paths: ClassVar[tuple[str, ...]]
    """Endings of the paths of its requests for an answer."""
    lists: ClassVar[str] = "/models"
    """Ending of the path of its list of models."""
    content_type: ClassVar[str] = "text/event-stream"
    key_header: ClassVar[tuple[str, str]] = ("authorization", "Bearer {key}")
    untold: ClassVar[frozenset[str]] = frozenset()
    """What of `Usage` it has no field for."""
    refuses: ClassVar[bool] = True
    """Whether an answer can say that the model refused; otherwise models refuse in plain text."""
    explains: ClassVar[bool] = True
    """Whether the words of the refusal are in it."""
    seals: ClassVar[bool] = False
    """Whether thoughts come back sealed, so that only this API can read them."""
    strict = True
    """Refuse requests as the strictest server does."""

    def chunks(self, answer: Answer, request: FakeRequest, number: int) -> Chunks:
        raise NotImplementedError

    def listed(self, models: Models) -> Any:
        """The list of models."""
        entries = [{"id": model} if isinstance(model, str) else model for model in models]
        return {"object": "list", "data": [{"object": "model", "created": 0, "owned_by": "fake", **e} for e in entries]}

    def told(self, request: FakeRequest, path: str) -> Failure | None:
        """The answer to a request that a model has no part in; `None`: it is another one."""
        return None

    def refused(self, request: FakeRequest, path: str) -> Failure | None:
        """The words of the real server for a request that it would not take."""
        return None

    def body(self, request: FakeRequest) -> dict[str, Any]:
        """The request's JSON as scripts see it."""
        return request.body


def pieces_of(text: str | tuple[str, ...]) -> tuple[str, ...]:
    pieces = (text,) if isinstance(text, str) else text
    return tuple(piece for piece in pieces if piece)


def texts_of(answer: Answer) -> tuple[str, ...]:
    return (answer.delta_text,) * answer.deltas if answer.deltas else pieces_of(answer.text)


def cut_up(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def call_id(call: Call, number: int, index: int) -> str | None:
    return f"call_{number}_{index}" if call.id == "auto" else call.id


def event_data(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
