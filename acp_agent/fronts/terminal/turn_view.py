"""`TurnView`: a session's updates as what is printed and what is drawn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from acp_agent.fronts.terminal.call_lines import CallLines, counts, shown_path
from acp_agent.fronts.terminal.chat_commands import merged
from acp_agent.fronts.terminal.markdown_stream import MarkdownStream
from acp_agent.fronts.terminal.screens import CYAN, DIM, GREEN, RED, YELLOW, ChatScreen, CommandRow, joined
from acp_agent.fronts.view import ShownCall
from acp_agent.legible import legible
from acp_agent.llm.base import RETRYING
from acp_agent.schema import acp

MAX_FOLDED = 50
"""Folded texts that are kept."""
TAIL_LINES = 3
"""Lines of a running command's output, and of a thought, that are drawn."""
FILES_NAMED = 4
NO_LINE = ""
"""In place of why a turn has ended: what says it stands there already."""
PLAN_MARKS = {"pending": "todo", "in_progress": "doing", "completed": "done"}


class TurnView:
    """`update` takes notes; `finished` prints what will not change any more, `live` is the rest."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._style = screen.style
        self._lines = CallLines(screen.style)
        self._answer = MarkdownStream(screen.style)
        self._message: str | None = None
        """Which one the answer is of."""
        self._thought = ""
        self._thought_at = 0.0
        self._calls: dict[str, ShownCall] = {}
        self._plan: Sequence[acp.PlanEntry] = ()
        self._folded: list[tuple[str, str]] = []
        self._asked: list[acp.Diff] = []
        self._changed: dict[str, list[acp.Diff]] = {}
        """Path -> the changes of this turn."""
        self._frame = 0
        self._last = ""
        """What was printed last: text, a call, or else."""
        self.said = False
        """Whether anything has come since the turn began."""
        self.mode = self.model = ""
        self.usage: acp.UsageUpdate | None = None
        self.options: Sequence[acp.SessionConfigOption] = ()
        self.notice = ""
        """The newest that matters only now, such as a wait for the model's server."""

    # --- updates ----------------------------------------------------------------------------------------------

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        match update:
            case acp.AgentMessageChunk(content=acp.TextContent(text=text), message_id=message):
                self._heard()
                if message == self._message:
                    self._end_thought()
                else:
                    self._message = message
                    self._end_text()
                self._answer.take(legible(text))
            case acp.AgentThoughtChunk(content=acp.TextContent(text=text)):
                self._heard()
                self._thought_at = self._thought_at or time.monotonic()
                self._thought += legible(text)
            case acp.UserMessageChunk(content=acp.TextContent(text=text)):
                self.prompt(text)
            case acp.ToolCall():
                self._heard()
                self._end_text()
                self._calls[update.tool_call_id] = call = ShownCall(update.tool_call_id, "")
                call.take(update)
                self._ended(call)
            case acp.ToolCallProgress():
                self._progress(update)
            case acp.Plan(entries=entries):
                self._plan = entries
            case _:
                self._state(update)

    def _state(self, update: acp.SessionUpdate) -> None:
        match update:
            case acp.Notice(title=title) if title.startswith(RETRYING):
                wait, _, why = legible(title).partition(". ")
                self.notice = f"{wait}, Esc stops. {why}"
            case acp.Notice(severity=severity, title=title, description=description):
                colour = {"error": RED, "warning": YELLOW}.get(severity, DIM)
                more = f"\n{legible(description)}" if description else ""
                self.say(self._style.paint(colour, f"{legible(title)}{more}"))
            case acp.CompactionUpdate(status=status):
                if status == "completed":
                    self.say(self._style.paint(DIM, "The conversation was summarised to make room."))
            case acp.UsageUpdate():
                self.usage = update
            case acp.CurrentModeUpdate(current_mode_id=mode):
                self.mode = mode
            case acp.ConfigOptionUpdate(config_options=options):
                self.configured(options)
            case acp.AvailableCommandsUpdate(available_commands=commands):
                self._screen.offer(merged(CommandRow(each.name, legible(each.description)) for each in commands))

    def chose(self, mode: str) -> None:
        self.mode = mode

    def configured(self, options: Sequence[acp.SessionConfigOption]) -> None:
        self.options = options
        for option in options:
            if option.id == "model":
                self.model = legible(str(option.current_value))
            elif option.id == "mode":
                self.mode = str(option.current_value)

    def _heard(self) -> None:
        self.said, self.notice = True, ""

    def _progress(self, update: acp.ToolCallProgress) -> None:
        call = self._calls.get(update.tool_call_id)
        if call is not None:
            call.take(update)
            self._ended(call)
        elif isinstance(update.meta, dict) and isinstance(ran := update.meta.get("background"), dict):
            self.say(self._style.paint(DIM, f"Background command {ran.get('run_id')} ended: {ran.get('exit_code')}"))

    def _ended(self, call: ShownCall) -> None:
        if call.status not in ("completed", "failed"):
            return
        del self._calls[call.id]
        self._end_text()
        for diff in call.diffs if call.status == "completed" else ():
            self._changed.setdefault(diff.path, []).append(diff)
        if call.title.startswith("Plan: ") or (call.asked and call.status == "completed"):
            return  # It is there already.
        lines, folded = self._lines.ended(call, self._screen.size.columns, shown=self._asked)
        self._put("call", lines)
        if folded:
            self._fold(call.title.split("\n")[0], folded)

    # --- what is printed --------------------------------------------------------------------------------------

    def prompt(self, text: str) -> None:
        """What the user has said."""
        self._end_text()
        mark, style = self._style.mark("row"), self._style
        lines = [f"{style.paint(CYAN, mark if not number else ' ')} {line}"
                 for number, line in enumerate(legible(text).split("\n"))]  # fmt: skip
        self._put("prompt", "\n".join(lines))

    def say(self, text: str) -> None:
        """Lines of ours."""
        self._end_text()
        self._put("said", text)

    def asked(self, lines: Sequence[str], diffs: Sequence[acp.Diff]) -> None:
        """A question is shown."""
        self._end_text()
        self._put("asked", "\n".join(lines))
        self._asked += diffs

    def asks(self, call_id: str, text: str) -> None:
        """The question that a call asks the user; the call needs no line then."""
        self.say(text)
        if (call := self._calls.get(call_id)) is not None:
            call.asked = True

    def _put(self, kind: str, text: str) -> None:
        gap = self._last and kind not in ("answer",) and not (kind == self._last == "call")
        self._screen.print(f"\n{text}" if gap and kind != "under" else text)
        self._last = kind if kind != "under" else self._last

    def under(self, text: str) -> None:
        """A line that belongs to the one before."""
        self._put("under", text)

    def finished(self) -> None:
        """Prints what has been finished of the answer."""
        self._print_answer(self._answer.finished(self._screen.size.columns))

    def _print_answer(self, text: str) -> None:
        if text.strip():
            self._screen.print(f"\n{text}" if self._last != "answer" and self._last else text)
            self._last = "answer"

    def _end_text(self) -> None:
        self._print_answer(self._answer.end(self._screen.size.columns))
        self._end_thought()

    def _end_thought(self) -> None:
        if self._thought.strip():
            seconds, lines = time.monotonic() - self._thought_at, self._thought.strip()
            mark = self._style.mark("think")
            self._put("thought", self._style.paint(DIM, f"{mark} Thought for {seconds:.0f} s ({self._style.opens})"))
            self._fold("Thought", lines)
        self._thought, self._thought_at = "", 0.0

    def _fold(self, title: str, text: str) -> None:
        self._folded = [*self._folded[-MAX_FOLDED:], (title, text)]

    def unfold(self) -> None:
        """Prints what was folded last; the next time, what was folded before."""
        if not self._folded:
            self.say(self._style.paint(DIM, "Nothing more is folded."))
            return
        title, text = self._folded.pop()
        bar = self._style.paint(DIM, self._style.mark("bar"))
        self.say("\n".join([self._style.paint(DIM, title), *(f"{bar} {line}" for line in text.split("\n"))]))

    # --- turns ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._changed, self._asked, self.said, self.notice = {}, [], False, ""

    def end(self, reason: str, seconds: float, meta: Mapping[str, Any], cost: float | None) -> None:
        """The closing line, but for `NO_LINE`."""
        self._end_text()
        for call in [*self._calls.values()]:
            call.status = "failed"
            self._ended(call)
        if self._plan and any(entry.status != "completed" for entry in self._plan):
            self._put("plan", self._drawn_plan())
        self._plan = ()
        if reason == NO_LINE:
            return
        named = {"end_turn": "", "cancelled": "Stopped", "refusal": "The model refused",
                 "max_tokens": "The answer was cut off: it is too long for the model",
                 "max_turn_requests": "Stopped: too many steps"}  # fmt: skip
        parts = [self._style.paint(YELLOW, said)] if (said := named.get(reason, reason)) else []
        parts += self._files(meta)
        if failed := meta.get("failedCalls"):
            parts.append(f"{failed} call{'s' * (failed > 1)} failed")
        usage = meta.get("usage")
        if isinstance(usage, dict):
            parts.append(f"{short(usage.get('totalTokens', 0))} tokens")
        if cost:
            parts.append(f"${cost:.2f}" if cost >= 0.01 else "less than $0.01")
        parts.append(f"{seconds:.0f} s")
        dot = f" {self._style.mark('dot')} "
        lines = joined(parts, dot, self._screen.size.columns)
        self._put("end", "\n".join(self._style.paint(DIM, line) for line in lines))

    def _files(self, meta: Mapping[str, Any]) -> list[str]:
        files = [str(each["path"]) for each in meta.get("files", ())]
        number = len(files) + int(meta.get("moreFiles", 0))
        if not number:
            return []
        named = []
        for path in files[:FILES_NAMED]:
            added, removed = counts(self._changed.get(path, ()))
            facts = f" +{added} -{removed}" if added or removed else ""
            named.append(f"{shown_path(path)}{facts}")
        more = f" and {number - FILES_NAMED} more" if number > FILES_NAMED else ""
        return [f"{number} file{'s' * (number > 1)} changed: {', '.join(named)}{more}"]

    # --- what is drawn ----------------------------------------------------------------------------------------

    def live(self, words: str) -> str:
        """What still changes; `words` stand in the last line while something runs."""
        self._frame += 1
        width = self._screen.size.columns - 1
        parts: list[str] = []
        if tail := self._answer.tail(width):
            parts.append(tail)
        elif self._thought:
            last = [line for line in self._thought.split("\n") if line.strip()][-TAIL_LINES:]
            parts += [self._style.paint(DIM, f"{self._style.mark('think')} {line[-width + 3 :]}") for line in last]
        running = [call for call in self._calls.values() if call.status == "in_progress"]
        for call in running:
            parts.append(self._lines.running(call, width, self._frame))
            if call.kind == "execute" and call.text:
                last = call.text.split("\n")[-TAIL_LINES:]
                bar = self._style.mark("bar")
                parts += [self._style.paint(DIM, f"  {bar} {line[: width - 4]}") for line in last]
        if self._plan and words:
            parts.append(self._drawn_plan())
        if words and not running:
            said = self.notice or words
            parts.append(f"{self._style.paint(CYAN, self._style.frame(self._frame))} {self._style.paint(DIM, said)}")
        return "\n".join(parts)

    def _drawn_plan(self) -> str:
        width, lines = self._screen.size.columns - 5, []
        for entry in self._plan:
            colour = {"completed": GREEN, "in_progress": CYAN}.get(entry.status, DIM)
            text = legible(entry.content).split("\n")[0]
            text = text if len(text) <= width else text[: width - 1] + self._style.mark("more")
            lines.append(self._style.paint(colour, f"{self._style.mark(PLAN_MARKS[entry.status])} {text}"))
        return "\n".join(lines)

    def status(self, working: float | None) -> str:
        """The status line: as much of it as there is room for. `working`: seconds of the running turn."""
        model = self.model.removeprefix("default/")
        parts = [self.mode, "" if model == "auto" else model]  # Not a mode: the server's first, not known yet.
        if self.usage is not None and self.usage.size:
            share = 100 * self.usage.used // self.usage.size
            parts.append(f"context {share}% of {short(self.usage.size)}")
        if self.usage is not None and self.usage.cost is not None and self.usage.cost.amount:
            parts.append(f"${self.usage.cost.amount:.2f}")
        if working is not None:
            parts.append(f"{working:.0f} s")
        dot, line = f" {self._style.mark('dot')} ", ""
        for part in filter(None, parts):
            longer = f"{line}{dot}{part}" if line else part
            if len(longer) < self._screen.size.columns:
                line = longer
        return self._style.paint(DIM, line)


def short(number: int) -> str:
    """12345 as 12.3k."""
    if number < 1_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1_000:.1f}".removesuffix(".0") + "k"
    return f"{number / 1_000_000:.1f}".removesuffix(".0") + "M"
