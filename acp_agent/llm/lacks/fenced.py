"""Tool calls for models without native support: the prompt lists the tools, calls are fenced blocks in the answer.

    ```bash        the command line, verbatim
    ```scrape      JSON arguments of `web_scrape`
    ```tool        JSON: {"name": ..., "arguments": {...}}

`Fenced` is an adapter of any provider. Text outside the blocks stays text; the blocks become `ToolUse` events. Calls
that the server reports natively are passed on as well: both may appear in one answer.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from acp_agent.errors import ProviderError
from acp_agent.lazy import pattern
from acp_agent.legible import marks_around
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm import base as llm
from acp_agent.llm.adapters import AskAgain, Pass, Request
from acp_agent.llm.lacks.written_calls import WrittenCalls
from acp_agent.llm.streamed_text import clean

log = logging.getLogger(__name__)

ToolCalling = Literal["auto", "native", "fenced"]

BASH = "bash"
SCRAPE = "web_scrape"
OPENING = pattern(r" {0,3}(`{3,}+)[ \t]*+([\w+-]*+)[ \t]*+\Z")
MAYBE_OPENING = pattern(r" {0,3}`{0,2}\Z| {0,3}`{3,}[ \t]*[\w+-]*[ \t]*\Z")
CHARS_PER_TOKEN = 12
"""More characters of tool definitions than any model's token has: JSON has three to four."""
WINDOWS = tuple(1024 * 2**power for power in range(6))
FEWEST_CHARS = 2000
"""Of tool definitions whose absence a token count shows."""
AGAIN = 20
"""Requests after which tools are sent again if only a token count spoke against them: some count what they like."""
LONGEST_OPENING = 80
"""Characters of a line that are held back because it may open a block."""

AFTER_RESULT = "If the task is done, answer the user in plain text. Otherwise make the next call."
"""Without it small models ask for the result once more."""

NO_TOOLS = pattern(r"\b(tools?|functions?|tool[_ ]choice|function[_ ]call\w*)\b", re.IGNORECASE)
REFUSES = pattern(
    r"not support|unsupported|does ?n[o']t support|not enabled|not available|no endpoints? found|not allowed|requires",
    re.IGNORECASE,
)
"""How servers say that a model does not support tool calls."""

ONE_TOOL = pattern(r"schema|parameter|argument|properties|\btools?\[\d", re.IGNORECASE)
"""Refusals of a single tool: no reason to give up on all of them."""


class Fenced:
    """Calls in fenced blocks: always (`fenced`), for models whose server has no tools (`auto`: it refuses them, says
    so, or drops them in silence, so that the model writes calls as text and a request has far fewer tokens than they
    alone), or never (`native`). Calls that a model writes in other forms are found in every mode."""

    def __init__(self, mode: ToolCalling) -> None:
        self.mode = mode
        self.doubted: set[str] = set()
        """Models whose server counted too few tokens for their tools, which may also be how it counts."""
        self.native: set[str] = set()
        """Models that have called a tool."""
        self._refused: set[str] = set()
        """Models for which the server has no tools."""
        self._uncounted: dict[str, int] = {}
        """Models whose server seems to drop them, with the requests until they are sent again."""
        self._told: set[str] = set()

    def open(self, request: Request) -> Pass:
        model = request.settings.model
        if self.mode != "fenced" and not self._has_none(model):
            return _ThroughApi(self, request)
        if self.mode != "auto" or not request.tools or model in self._told:
            return _InBlocks(request)
        self._told.add(model)
        words = f"The server passes no tools on to {model}, so it is asked to write its calls as text."
        return _InBlocks(request, (llm.Notice(words),))

    def learn(self, models: Sequence[llm.ModelInfo]) -> None:
        self._refused.update(info.id for info in models if info.tools is False)

    def refused(self, model: str) -> None:
        self._refused.add(model)

    def dropped(self, model: str, requests: int) -> None:
        """Tools are not sent for so many requests."""
        self._uncounted[model] = requests

    def _has_none(self, model: str) -> bool:
        """Whether this request is to be sent without tools."""
        left = self._uncounted.get(model, 0)
        if left > 1:
            self._uncounted[model] = left - 1
        else:
            self._uncounted.pop(model, None)
        return model in self._refused or left > 0


class _ThroughApi(Pass):
    """Calls as the server reports them; until it has reported one, also those that stand in the text. Asks again if the
    server has no tools, unless something was said already."""

    def __init__(self, adapter: Fenced, asked: Request) -> None:
        messages, tools, settings = asked
        self._calls_tools = settings.model in adapter.native or _called(messages)
        told = settings
        if settings.model in adapter.doubted and not self._calls_tools:  # It may know of none: told as text, too.
            told = _told_of(tools, settings)
        super().__init__(Request(messages, tools, told))
        self._adapter = adapter
        self._model = settings.model
        self._systems = {settings.before, told.before}
        self._written = WrittenCalls(()) if self._calls_tools else WrittenCalls(tools, settings.unsent())
        self._begun = self._said = False

    def feed(self, event: llm.ModelEvent) -> Sequence[llm.ModelEvent]:
        self._begun = self._begun or not isinstance(event, llm.Notice)
        out: list[llm.ModelEvent] = [event]
        match event:
            case llm.TextDelta(text):
                self._said = True
                out = [*self._written.feed(text)]
            case llm.ToolUse():
                self._adapter.native.add(self._model)
                self._calls_tools = True
                out = [*_text(self._written.rest()), event]
                self._written = WrittenCalls(())
            case llm.Finished(_, opaque):
                out = [*self._written.end()]
                out.append(llm.Finished("tool_calls", opaque) if self._written.called else event)
                return out
            case llm.UsageReport(tokens) if self._adapter.mode == "auto" and not self._calls_tools:
                self._count(tokens)
        if self._written.called:  # Before it invents the result.
            out.append(llm.Finished("tool_calls"))
        return out

    def _count(self, tokens: int) -> None:
        messages, tools, _ = self.request
        if not any(_dropped(messages, tools, system, tokens) for system in self._systems):
            return
        if not _called(messages, written=True):
            self._adapter.doubted.add(self._model)
        elif self._said:
            self._adapter.dropped(self._model, AGAIN)
        else:
            self._adapter.dropped(self._model, AGAIN + 1)
            raise AskAgain

    def failed(self, error: ProviderError) -> Sequence[llm.ModelEvent]:
        if self._adapter.mode == "auto" and self.request.tools and not self._begun and refuses_tools(error):
            self._adapter.refused(self._model)
            raise AskAgain
        return _text(self._written.rest())


class _InBlocks(Pass):
    """Calls as fenced blocks of the answer."""

    def __init__(self, asked: Request, before: Sequence[llm.Notice] = ()) -> None:
        messages, tools, settings = asked
        super().__init__(Request(fenced_messages(messages), (), _told_of(tools, settings)), before)
        self._reader = FenceReader([tool.name for tool in tools])
        self._written = WrittenCalls(tools, settings.unsent() if tools else ())

    def feed(self, event: llm.ModelEvent) -> Sequence[llm.ModelEvent]:
        match event:
            case llm.TextDelta(text):
                out = _unwritten(self._reader.feed(text), self._written)
            case llm.Finished(reason, _):
                out = _unwritten(self._reader.end(complete=reason != "length"), self._written)
                out += [*self._written.end(), event]
            case _:
                return (event,)
        called = next((at for at, one in enumerate(out) if isinstance(one, llm.ToolUse)), None)
        if called is None:
            return out
        # Before it invents the result, or commands made of it.
        return [*out[: called + 1], llm.Finished("tool_calls")]

    def failed(self, error: ProviderError) -> Sequence[llm.ModelEvent]:
        return _text(self._written.rest() + self._reader.rest())


def _text(text: str) -> list[llm.ModelEvent]:
    return [llm.TextDelta(text)] if text else []


def _told_of(tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings) -> llm.ModelSettings:
    """With the tools described in the system prompt."""
    if not tools:
        return settings
    return msgspec.structs.replace(settings, system=f"{settings.system.rstrip()}\n\n{catalogue(tools)}".strip())


def _dropped(messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], system: str, tokens: int) -> bool:
    """Whether a request of that many tokens cannot have had the tools in it, though it can have had the rest."""
    size, rest = len(msgspec.json.encode(tools)), len(system) + len(msgspec.json.encode(messages))
    near_a_window = any(0.9 * window <= tokens <= window for window in WINDOWS)  # The server may have cut the prompt.
    return size >= FEWEST_CHARS and not near_a_window and rest <= tokens * CHARS_PER_TOKEN < rest + size


def _called(messages: Sequence[llm.Message], *, written: bool = False) -> bool:
    """Whether the model has made a real call in this conversation; `written`: one as text."""
    calls = (call for message in messages if isinstance(message, llm.AssistantMessage) for call in message.tool_calls)
    return any(call.id.startswith((llm.WRITTEN, "fenced_")) == written for call in calls)


def refuses_tools(error: ProviderError) -> bool:
    """Whether a server says so that it has no tools for the model."""
    text = str(error)
    named = error.kind in ("bad_request", "not_found") and NO_TOOLS.search(text) is not None
    return named and REFUSES.search(text) is not None and ONE_TOOL.search(text) is None


def _unwritten(events: Sequence[llm.TextDelta | llm.ToolUse], written: WrittenCalls) -> list[llm.ModelEvent]:
    """The same with calls that stand in the text in other forms."""
    out: list[llm.ModelEvent] = []
    for event in events:
        out += written.feed(event.text) if isinstance(event, llm.TextDelta) else [*written.end(), event]
    return out


# --- request -----------------------------------------------------------------------------------------------------


def catalogue(tools: Sequence[llm.ToolDefinition]) -> str:
    """Describes the tools and how to call them, for the system prompt. Empty without tools."""
    if not tools:
        return ""
    names = {tool.name for tool in tools}
    ways = ['```tool\n{"name": "NAME", "arguments": {...}}\n```']
    if BASH in names:
        ways.append("```bash\nCOMMAND LINE\n```")
    if SCRAPE in names:
        ways.append('```scrape\n{"url": "...", "select": "..."}\n```')
    listed = "\n\n".join(
        f"## {tool.name}\n{tool.description.strip()}\nArguments (JSON schema): "
        f"{json.dumps(tool.parameters, ensure_ascii=False)}"
        for tool in tools
    )
    return (
        "<tools>\nYou call a tool with a fenced block that starts a line of your answer. The block is run and the next "
        "message contains its result: end your answer after it, one call an answer. Blocks of these kinds are always "
        "run, so use another language tag for examples.\n\n" + "\n\n".join(ways) + f"\n\n{listed}\n</tools>"
    )


def fenced_messages(messages: Sequence[llm.Message]) -> list[llm.Message]:
    """The history with calls as blocks and their results as user messages."""
    out: list[llm.Message] = []
    for message in messages:
        match message:
            case llm.AssistantMessage(text, calls):
                blocks = "".join(f"\n\n{_block(call)}" for call in calls)
                out.append(llm.AssistantMessage(text=f"{text}{blocks}".strip()))
            case llm.ToolMessage(_, name, content):
                text = "\n".join(part.text for part in content if isinstance(part, llm.TextPart))
                media = (part for part in content if not isinstance(part, llm.TextPart))
                result = f"Result of `{name}`:\n{_fence('', text.strip(chr(10)))}\n{AFTER_RESULT}"
                _add_user(out, (llm.TextPart(result), *media))
            case llm.UserMessage(content):
                _add_user(out, content)
    return out


def _add_user(out: list[llm.Message], content: tuple[llm.Part, ...]) -> None:
    last = out[-1] if out else None
    if isinstance(last, llm.UserMessage):
        out[-1] = llm.UserMessage((*last.content, *content))
    else:
        out.append(llm.UserMessage(content))


def _block(call: llm.ToolUse) -> str:
    try:
        arguments = read_loose_json(call.arguments or "{}", strict=False)
    except ValueError:
        arguments = call.arguments
    if call.name == BASH and isinstance(arguments, dict) and list(arguments) == ["command"]:
        return _fence("bash", str(arguments["command"]))
    return _fence("tool", json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False))


def _fence(tag: str, body: str) -> str:
    marks = marks_around(body)
    return f"{marks}{tag}\n{body}\n{marks}"


# --- answer ------------------------------------------------------------------------------------------------------


class FenceReader:
    """Streams text in; text and calls out. `tools`: the offered names; other blocks are text."""

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = frozenset(tools)
        self._held: list[str] = []
        """Pieces of a line that is still undecided; joined once, however long the line becomes."""
        self._line_start = True
        self._marks = ""
        """The fence of the current block."""
        self._tag = ""
        """Content of a tool block; empty within another block, whose text is passed on."""
        self._opening = ""
        self._body: list[str] = []

    def feed(self, text: str) -> list[llm.TextDelta | llm.ToolUse]:
        """Returns everything decided so far. A line is held back only while it may open or close a block."""
        out: list[llm.TextDelta | llm.ToolUse] = []
        start = 0
        while (end := text.find("\n", start)) >= 0:
            self._held.append(text[start:end])
            self._take(self._line(), "\n", out)
            self._line_start = True
            start = end + 1
        if start < len(text):
            self._held.append(text[start:])
            if not self._tag and not self._may_be_fence():
                self._take(self._line(), "", out)
                self._line_start = False
        return _joined(out)

    def end(self, *, complete: bool) -> list[llm.TextDelta | llm.ToolUse]:
        """Returns the rest. `complete`: the model ended by itself, so an unclosed block still counts as a call."""
        out: list[llm.TextDelta | llm.ToolUse] = []
        if line := self._line():
            self._take(line, "", out)
        if self._tag:
            body = "".join(self._body)
            if complete and body.strip():
                out.append(self._call(body))
            else:
                out.append(llm.TextDelta(self._opening + body))
            self._tag = ""
        return _joined(out)

    def rest(self) -> str:
        """What is held back, as it is: the stream broke."""
        held = self._opening + "".join(self._body) if self._tag else ""
        self._tag = ""
        return held + self._line()

    def _line(self) -> str:
        line = "".join(self._held)
        self._held.clear()
        return line

    def _may_be_fence(self) -> bool:
        if not self._line_start or sum(map(len, self._held)) > LONGEST_OPENING:
            return False
        return MAYBE_OPENING.match("".join(self._held)) is not None

    def _take(self, line: str, newline: str, out: list[llm.TextDelta | llm.ToolUse]) -> None:
        fence = OPENING.match(line.rstrip("\r")) if self._line_start else None
        if self._marks:
            closes = fence is not None and not fence[2] and len(fence[1]) >= len(self._marks)
            if self._tag and closes:
                out.append(self._call("".join(self._body)))
            elif self._tag:
                self._body.append(line + newline)
            else:
                out.append(llm.TextDelta(line + newline))
            if closes:
                self._marks = self._tag = ""
            return
        if fence is not None:
            self._marks = fence[1]
            tag = fence[2].lower()
            if (
                (tag == "tool" and self._tools)
                or (tag == "bash" and BASH in self._tools)
                or (tag == "scrape" and SCRAPE in self._tools)
            ):
                self._tag, self._opening, self._body = tag, line + newline, []
                return
        out.append(llm.TextDelta(line + newline))

    def _call(self, body: str) -> llm.ToolUse:
        id_ = f"fenced_{uuid.uuid4().hex}"
        if self._tag == "bash":
            return llm.ToolUse(id_, BASH, clean(json.dumps({"command": body.strip("\n")}, ensure_ascii=False)))
        if self._tag == "scrape":
            return llm.ToolUse(id_, SCRAPE, body.strip())
        return llm.ToolUse(id_, *_named(body.strip()))


def _named(body: str) -> tuple[str, str]:
    """The name and arguments of a `tool` block, in the spellings models use for them."""
    try:
        value: Any = read_loose_json(body, strict=False)
    except ValueError:
        found = re.search(r'"(?:name|tool|tool_name)"\s*:\s*"([^"]+)"', body)
        return (found[1] if found else "tool"), body
    if not isinstance(value, dict):
        return "tool", body
    name = next(
        (value[key] for key in ("name", "tool", "tool_name", "function") if isinstance(value.get(key), str)), ""
    )
    for key in ("arguments", "parameters", "args", "params", "input"):
        if key in value:
            given = value[key]
            return name or "tool", clean(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
    rest = {key: item for key, item in value.items() if item != name}
    return name or "tool", clean(json.dumps(rest, ensure_ascii=False))


def _joined(out: list[llm.TextDelta | llm.ToolUse]) -> list[llm.TextDelta | llm.ToolUse]:
    joined: list[llm.TextDelta | llm.ToolUse] = []
    for is_text, group in groupby(out, lambda one: isinstance(one, llm.TextDelta)):
        if not is_text:
            joined += group
        elif text := "".join(one.text for one in group if isinstance(one, llm.TextDelta)):
            joined.append(llm.TextDelta(text))
    return joined
