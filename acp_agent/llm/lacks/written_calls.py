"""Calls that a model writes as text instead of making them, as many local models do.

Known forms, each at the start of a line:

    ```json {"name": ..., "arguments": {...}} ```      the same without a fence, or as a list
    <tool_call>{...}</tool_call>                       Qwen, Hermes; small ones write <tool_response>
    <function=NAME><parameter=KEY>VALUE</parameter></function>
    [TOOL_CALLS][{...}]  [TOOL_CALLS]NAME{...}         Mistral
    NAME(key="value")                                  in a code block or alone on its line
    ```bash ... ```                                    if it is the whole answer: the command line

Only what names an offered tool and fits its schema is a call; everything else, and what is announced as an example,
stays text. An answer that is nothing but a call is one whatever it names: it fails in words instead of ending the turn.
"""

from __future__ import annotations

import ast
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from acp_agent.lazy import pattern
from acp_agent.llm import base as llm
from acp_agent.llm.streamed_text import clean

TAGS = frozenset(("", "json", "tool", "tool_call", "tool_code", "tool_calls", "function", "python", "py", "xml"))
"""Language tags of code blocks that may hold a call."""

OPENINGS = ("```", "~~~", "{", "[{", "<tool_call>", "<tool_response>", "<function=", "[TOOL_CALLS]")
ENDS = frozenset("}])>`\n")
LONGEST_OPENING = 40
"""Characters from which it is clear what a text may be."""
LONGEST = 64_000
"""Characters that are held back because they may be a call."""

FENCE = pattern(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\r\n]*?)[ \t]*\r?\n")
INDENT = pattern(r" {0,3}(?=\S)|\Z")
FIRST_KEY = pattern(r'[\s\[]*\{\s*"(name|tool|tool_name|function|arguments|parameters|type|id|tool_calls)"')
PARAMETER = pattern(r"<parameter=([\w-]+)>\n?")
FUNCTION = pattern(r"\s*<function=([\w-]+)>(.*?)</function>", re.DOTALL)
EXAMPLE = pattern(
    r"\bexamples?\b|\bfor instance|\bsuch as\b|\blooks? like|\be\.g\.|\bcontains?\b|\bsays?\b|\bholds?\b"
    r"|\b(?:you|one|we) (?:would|could|can|should|may)\b",
    re.IGNORECASE,
)
"""In the line before: what follows is shown, not made."""
RESULT = pattern(r"\b(?:results?|outputs?|responses?) (?:is|are|was|would be)\b", re.IGNORECASE)
"""The same, but where a call ends the answer: it is no result, so it is meant to be made."""
ALONE = pattern(r"\s*(?:`{3,}[\w+-]*[ \t]*\r?\n\s*)?(?:<tool_(?:call|response)>\s*)?(?=\[?\s*\{)")
"""What may stand before a call that is the whole answer."""
SHELL = pattern(r"\s*(`{3,})(?:bash|sh|shell)[ \t]*\r?\n")
SHAPE = pattern(
    r'\[?\s*\{\s*"(?:name|tool|tool_name|function)"\s*:\s*"[\w.:-]{1,64}'
    r'(?:\Z|"\s*(?:\Z|,\s*(?:\Z|"\w*\Z|"(?:arguments|parameters|args|input)")))'
)
"""How it begins, as far as it is there."""
TAG = pattern(r"<tool_(?:call|response)>\s*")
"""The second is for results, which the model does not write."""
TAG_ENDS = ("", "</tool_call>", "</tool_response>")
MORE_KEYS = frozenset(("id", "type", "tool_call_id"))

_decoder = json.JSONDecoder(strict=False)


class WrittenCalls:
    """Streams text in; text and calls out. Nothing is read after the first call: `called`."""

    def __init__(self, tools: Sequence[llm.ToolDefinition], more: Sequence[llm.ToolDefinition] = ()) -> None:
        self._tools = {tool.name: tool.parameters for tool in (*more, *tools)}
        self._functions = {tool.name for tool in tools}
        """Those that may be written as Python; the names of `more` are too common in code."""
        self._openings = (*OPENINGS, *(f"{name}(" for name in self._functions))
        self._held = ""
        """Begins at the start of a line as long as it may be a call."""
        self._line_start = True
        self._fence = ""
        """The fence of the code block that the text is in."""
        self._current: list[str] = []
        """The line that is being read, in pieces: it may be as long as the answer."""
        self._before = ""
        """The last one before it that was not blank."""
        self._waiting = False
        """Whether nothing can be decided before a character that ends something."""
        self.called = False
        self._said = False
        """Whether a text came before."""

    def feed(self, text: str) -> list[llm.TextDelta | llm.ToolUse]:
        """Returns everything decided so far."""
        if not self._tools:
            return [llm.TextDelta(text)]
        self._held += text
        if self._waiting and ENDS.isdisjoint(text) and len(self._held) < LONGEST:
            return []
        self._waiting = False
        return self._decide(complete=False)

    def end(self) -> list[llm.TextDelta | llm.ToolUse]:
        """Returns the rest."""
        return self._decide(complete=True)

    def rest(self) -> str:
        """What is held back, as it is: the stream broke."""
        held, self._held = self._held, ""
        return held

    def _decide(self, *, complete: bool) -> list[llm.TextDelta | llm.ToolUse]:
        said: list[str] = []
        calls: list[llm.ToolUse] = []
        while self._held and not self.called:
            if self._fence and self._line_start and "\n" not in self._held and not complete:
                break  # It may be the end of the block.
            kind = "" if self._fence else self._kind(complete)
            if kind is None:
                break
            if kind:
                found: list[tuple[str, str]] | None = []
                if not EXAMPLE.search(self._before):
                    found = self._last(complete) if RESULT.search(self._before) else self._calls(kind, complete)
                if found == [] and not self._said:
                    found = self._whole_answer(complete)
                if found is None and not complete and len(self._held) < LONGEST:
                    self._waiting = len(self._held) > LONGEST_OPENING
                    break
                if found:
                    calls = [llm.ToolUse(f"{llm.WRITTEN}{uuid.uuid4().hex}", name, args) for name, args in found]
                    self.called, self._held = True, ""
                    break
            said.append(self._line())
            self._said = self._said or bool(said[-1].strip())
        text = "".join(said)
        return [*([llm.TextDelta(text)] if text else []), *calls]

    def _kind(self, complete: bool) -> str | None:
        """The opening that the held text begins with, "" for none; `None`: more text may tell."""
        if not self._line_start:
            return ""
        if INDENT.match(self._held) is None:
            return "" if self._held.strip(" ") or len(self._held) > 3 else (None if not complete else "")
        start = self._held.lstrip(" ")
        if not complete and any(opening.startswith(start) for opening in self._openings):
            return None
        found = next((opening for opening in self._openings if start.startswith(opening)), "")
        if found in ("```", "~~~") and "\n" not in start and not complete:
            return None
        return found

    def _line(self) -> str:
        """Takes the held text up to the end of its first line."""
        line, newline, self._held = self._held.partition("\n")
        if self._line_start:
            fence = FENCE.fullmatch(f"{line.rstrip()}\n")
            if self._fence:
                closes = fence is not None and not fence[2] and fence[1].startswith(self._fence)
                self._fence = "" if closes else self._fence
            elif fence is not None:
                self._fence = fence[1]
        self._line_start = bool(newline)
        self._current.append(line)
        if newline:
            whole, self._current = "".join(self._current), []
            self._before = whole if whole.strip() else self._before
        return line + newline

    # --- what it holds --------------------------------------------------------------------------------------------

    def _calls(self, opening: str, complete: bool) -> list[tuple[str, str]] | None:
        """The calls, `[]` if it is text after all, `None` if more text may tell."""
        if opening in ("```", "~~~"):
            return self._in_fence(complete)
        if opening.endswith("(") or opening in ("{", "[{"):
            # Alone in its paragraph: what goes on after it talks about it.
            whole, blank, _ = self._held.partition("\n\n")
            return self._in_body(whole, complete or bool(blank))
        return self._in_body(self._held, complete)

    def _last(self, complete: bool) -> list[tuple[str, str]] | None:
        """The call in a block that ends the answer; see `_calls`."""
        if (fence := FENCE.match(self._held)) is None:
            return []
        body, closing, after = self._held[fence.end() :].partition(f"\n{fence[1]}")
        if after.strip() or FIRST_KEY.match(body) is None:
            return None if not (complete or closing) and len(body) < LONGEST_OPENING else []
        return self._in_fence(complete=True) if complete else None

    def _whole_answer(self, complete: bool) -> list[tuple[str, str]] | None:
        """The calls that are all of the answer, of whatever tools; see `_calls`."""
        if (shell := SHELL.match(self._held)) is not None and "bash" in self._functions:
            lines, closing, after = self._held[shell.end() :].partition(f"\n{shell[1]}")
            if not complete or not closing or after.strip() or not lines.strip():
                return None if not complete and not after.strip("` \t\r\n") else []
            return [("bash", clean(json.dumps({"command": lines}, ensure_ascii=False)))]
        before = ALONE.match(self._held)
        if before is None or SHAPE.match(self._held, before.end()) is None:
            return []
        try:
            value, end = _decoder.raw_decode(self._held, before.end())
        except (ValueError, RecursionError):
            return [] if complete else None
        rest = self._held[end:].strip("` \t\r\n")
        if rest not in TAG_ENDS and (complete or not any(end.startswith(rest) for end in TAG_ENDS)):
            return []
        if not complete:
            return None
        pairs = [pair for one in _each(value) if (pair := _pair(one)) is not None and isinstance(pair[1], dict)]
        if len(pairs) < len([*_each(value)]):
            return []
        return [(name, clean(json.dumps(given, ensure_ascii=False))) for name, given in pairs]

    def _in_fence(self, complete: bool) -> list[tuple[str, str]] | None:
        fence = FENCE.match(self._held)
        if fence is None:
            return []
        if fence[2].lower() not in TAGS or fence[1][0] == "~":
            return []
        body = self._held[fence.end() :]
        closing = re.search(rf"^ {{0,3}}`{{{len(fence[1])},}}[ \t]*$", body, re.MULTILINE)
        inside = body[: closing.start()] if closing else body
        closed = complete or (closing is not None and body[closing.end() :][:1] == "\n")
        found = self._in_body(inside, closed, alone=True)
        return found if closed or found == [] else None  # What follows in the block decides, too.

    def _in_body(self, body: str, complete: bool, *, alone: bool = False) -> list[tuple[str, str]] | None:
        """`complete`: nothing more belongs to it. `alone`: nothing else may stand in it."""
        start = body.lstrip()
        if not start:
            return [] if complete else None
        lines = start if complete else start[: start.rfind("\n") + 1]
        if start.startswith("<"):
            found = self._tagged(start)
        elif start.startswith("[TOOL_CALLS]"):
            found = self._mistral(start.removeprefix("[TOOL_CALLS]").lstrip())
        elif start[0] in "{[":
            if len(start) > LONGEST_OPENING and not FIRST_KEY.match(start):
                return []
            found = self._json(lines, alone=alone) if lines.rstrip()[-1:] in ("}", "]") or alone else None
        elif any(start.startswith(f"{name}(") for name in self._functions):
            found = self._python(lines) if lines.rstrip().endswith(")") else None
            if found is None and lines.count("(") == lines.count(")") > 0:
                return []  # More than a call, or talk about it.
        elif not complete and any(f"{name}(".startswith(start) for name in self._functions):
            return None
        else:
            return []
        return found if found is not None or not complete else []

    def _tagged(self, text: str) -> list[tuple[str, str]] | None:
        tag = TAG.match(text)
        inner = text[tag.end() :] if tag else text
        if inner.startswith(("{", "[")):
            return self._json(inner)
        match = FUNCTION.match(inner)
        if match is None:
            known = text.startswith(("<tool_", "<function="))
            return None if known and (not inner or "<function=".startswith(inner[:10])) else []
        name, body = match[1], match[2]
        if body.strip().startswith("{"):
            return self._named(name, _loads(body.strip()))
        properties = _dict(self._tools.get(name, {}).get("properties"))
        given = {key: _as_typed(value, _dict(properties.get(key))) for key, value in _parameters(body)}
        return self._named(name, given)

    def _mistral(self, text: str) -> list[tuple[str, str]] | None:
        if not text or text[0] in "{[":
            return self._json(text)
        match = re.match(r"([\w-]+)(?:\[ARGS\])?\s*(?=\{)", text)
        if match is None:
            return None
        value = _loads(text[match.end() :])
        return None if value is None else self._named(match[1], value)

    def _json(self, text: str, *, alone: bool = False) -> list[tuple[str, str]] | None:
        try:
            value, end = _decoder.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        rest = text[end:] if alone else text[end:].partition("\n")[0]
        if rest.strip() not in TAG_ENDS:
            return []  # A sentence about it.
        calls: list[tuple[str, str]] = []
        for one in _each(value):
            found = self._one(one)
            if not found:
                return []
            calls += found
        return calls

    def _one(self, value: object) -> list[tuple[str, str]]:
        pair = _pair(value)
        return [] if pair is None else self._named(*pair)

    def _python(self, text: str) -> list[tuple[str, str]] | None:
        try:
            tree = ast.parse(text.strip())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        match tree.body:
            case [ast.Expr(ast.Call(ast.Name(name), args, keywords))] if name in self._functions and all(
                one.arg for one in keywords
            ):
                try:
                    given = {str(one.arg): ast.literal_eval(one.value) for one in keywords}
                    required = [one for one in self._tools.get(name, {}).get("required") or [] if isinstance(one, str)]
                    if len(args) == 1 and len(required) == 1 and not keywords:
                        given = {required[0]: ast.literal_eval(args[0])}
                    elif args:
                        return []
                except (ValueError, TypeError, RecursionError):
                    return []
                return self._named(name, given)
        return []

    def _named(self, name: str, given: object) -> list[tuple[str, str]]:
        """The call if it fits the tool's schema."""
        schema = self._tools.get(name)
        if schema is None or not isinstance(given, dict):
            return []
        properties, required = _dict(schema.get("properties")), schema.get("required")
        needed = {one for one in required if isinstance(one, str)} if isinstance(required, list) else set()
        unknown = given.keys() - properties.keys()
        if needed - given.keys() or (unknown and schema.get("additionalProperties") is not True):
            return []
        if any(_dict(properties.get(key)).get("type") == "string" and not isinstance(given[key], str) for key in given):
            return []
        try:
            return [(name, clean(json.dumps(given, ensure_ascii=False, allow_nan=False)))]
        except (TypeError, ValueError, RecursionError):
            return []


def shown_call(text: str, tools: Sequence[llm.ToolDefinition]) -> llm.ToolUse | None:
    """The one call, or command, that an answer shows in a code block instead of making it."""
    found: dict[tuple[str, str], llm.ToolUse] = {}
    blocks = text.split("\n```")
    for at in range(0 if text.startswith("```") else 1, len(blocks), 2):
        block = f"```{blocks[at].removeprefix('```')}\n```"
        reader = WrittenCalls(tools)
        for event in (*reader.feed(block), *reader.end()):
            if isinstance(event, llm.ToolUse):
                found[event.name, event.arguments] = event
    return next(iter(found.values())) if len(found) == 1 else None


def _pair(value: object) -> tuple[str, Any] | None:
    """The name and arguments of an object that holds nothing else."""
    if not isinstance(value, dict):
        return None
    if isinstance(inner := value.get("function"), dict):
        return _pair(inner)
    names = [key for key in ("name", "tool", "tool_name", "function") if isinstance(value.get(key), str)]
    inputs = [key for key in ("arguments", "parameters", "args", "input") if key in value]
    if len(names) != 1 or len(inputs) != 1 or value.keys() - MORE_KEYS - {names[0], inputs[0]}:
        return None
    given = value[inputs[0]]
    return value[names[0]], _loads(given) if isinstance(given, str) else given


def _parameters(body: str) -> Iterator[tuple[str, str]]:
    """One pass: an expression for the whole looks for the end again for each beginning."""
    at = 0
    while (begin := PARAMETER.search(body, at)) and (end := body.find("</parameter>", begin.end())) >= 0:
        yield begin[1], body[begin.end() : end].removesuffix("\n")
        at = end


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _each(value: object) -> Iterator[object]:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    yield from value if isinstance(value, list) and value else [value]


def _loads(text: str) -> Any:
    """The JSON value that the text begins with; `None` if it is not whole."""
    try:
        return _decoder.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _as_typed(value: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "string":
        return value
    found = _loads(value.strip())
    return value if found is None else found
