"""`LiveScreen`: input, status line and questions below the scrollback, drawn by prompt_toolkit.

Only this module and `prompt_completion` are loaded before the first prompt can be typed.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import anyio
from msgspec import Struct, field
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.containers import VerticalAlign
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output.vt100 import Vt100_Output

from acp_agent.fronts.terminal.prompt_completion import PromptCompleter
from acp_agent.fronts.terminal.screens import (
    BOLD,
    CYAN,
    DIM,
    YELLOW,
    CommandRow,
    EventKind,
    Pick,
    Picked,
    PickRow,
    ScreenEvent,
    TerminalStyle,
    wrapped,
)

QUIET_SECONDS = 0.6
"""How long no key must have been pressed before keys answer a question."""
WORDS_SECONDS = 2.0
"""The same after words were typed at the question."""
HELD_SECONDS = 0.3
"""A key answers if no other follows within these: else it begins a sentence."""
PASTED_LINES = 6
PASTED_CHARS = 800
"""A paste of more is shown as a placeholder."""
INPUT_LINES = 10
MENU_LINES = 6
LIVE_LINES = 10
"""Lines of the part that changes."""
BELOW_LINES = 4
"""Lines of the window that the changing part leaves free."""
COMPLETING = (Keys.Tab, Keys.BackTab)
SYNCHRONIZED, SHOWN = "\x1b[?2026h", "\x1b[?2026l"
"""What is between them is shown at once, where the terminal can."""


class _Asked(Struct):
    """A question that is open."""

    pick: Pick
    at: int
    armed: bool = False
    """Whether keys answer it."""
    held: str = ""
    """A key that answers it unless another follows."""
    quiet: float = QUIET_SECONDS
    pressed: anyio.Event = field(default_factory=anyio.Event)
    row: PickRow | None = None
    """The row that is answered in words."""
    marked: set[str] = field(default_factory=set)
    answer: Picked = Picked()
    done: anyio.Event = field(default_factory=anyio.Event)


class LiveScreen:
    """As `ChatScreen`."""

    def __init__(self, style: TerminalStyle, folder: Path, history: History) -> None:
        self.style = style
        self._send, self.events = anyio.create_memory_object_stream[ScreenEvent](math.inf)
        self.commands: Sequence[CommandRow] = ()
        self._completer = PromptCompleter(folder)
        self._buffer = Buffer(
            multiline=True, history=history, completer=ThreadedCompleter(self._completer), complete_while_typing=True,
            tempfile_suffix=".md",
        )  # fmt: skip
        self._pending: list[str] = []
        self._live = self._status = ""
        self._asked: _Asked | None = None
        self._kept = ""
        """What stood in the input when it began to take the words of an answer."""
        self._one_at_a_time = anyio.Lock()
        self._pastes: list[str] = []
        self._typed_at = -math.inf
        self._output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        self._output.enable_cpr = False  # No answers of the terminal among the keys.
        self._app: Application[None] = Application(
            layout=self._layout(), key_bindings=self._keys(), output=self._output, erase_when_done=True,
            include_default_pygments_style=False,
        )  # fmt: skip
        self._app.timeoutlen, self._app.ttimeoutlen = 0.3, 0.05
        self._app.key_processor.before_key_press += self._pressed

    # --- the contract -----------------------------------------------------------------------------------------

    @property
    def size(self) -> os.terminal_size:
        size = self._output.get_size()
        return os.terminal_size((size.columns, size.rows))

    def offer(self, commands: Sequence[CommandRow]) -> None:
        self.commands = commands
        self._completer.know(commands)

    def use_vi_keys(self) -> None:
        self._app.editing_mode = EditingMode.VI

    def print(self, text: str) -> None:
        self._pending.append(text if text.endswith("\n") else f"{text}\n")

    def paint(self, live: str, status: str) -> None:
        if self._app._running_in_terminal or not self._app.is_running:
            return  # An editor has the terminal, or a shell.
        changed = (live, status) != (self._live, self._status)
        self._live, self._status = live, status
        if self._pending:
            text, self._pending = "".join(self._pending).replace("\n", "\r\n"), []
            self._output.write_raw(SYNCHRONIZED)
            self._app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(text)
            self._app._redraw()
            self._output.write_raw(SHOWN)
            self._output.flush()
        elif changed:
            self._app.invalidate()

    def give_back(self, text: str) -> None:
        kept = self._buffer.text
        self._write(f"{text}\n{kept}" if kept else text)

    def clear(self) -> bool:
        found = bool(self._buffer.text)
        self._buffer.reset()
        return found

    async def ask(self, pick: Pick) -> Picked:
        async with self._one_at_a_time:
            self._asked = asked = _Asked(pick, pick.start)
            self._typed_at = max(self._typed_at, time.monotonic())
            self._app.invalidate()
            try:
                while not asked.done.is_set():
                    while (left := self._typed_at + asked.quiet - time.monotonic()) > 0:  # noqa: ASYNC110
                        await anyio.sleep(left)
                    self._arm(asked)
                    await self._answered_or_not(asked)
            finally:
                if asked.row is not None:
                    self._write(self._kept)
                self._asked = None
                self._app.invalidate()
            return asked.answer

    def signal(self, sequence: str) -> None:
        self._output.write_raw(sequence)
        self._output.flush()

    async def run(self) -> None:
        try:
            await self._app.run_async(handle_sigint=False)
        finally:
            self._output.write_raw("".join(self._pending))
            self._output.flush()
            self._send.close()

    def leave(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    # --- questions --------------------------------------------------------------------------------------------

    async def _answered_or_not(self, asked: _Asked) -> None:
        """Until it is answered, or a sentence was begun."""
        while asked.armed and not asked.done.is_set():
            asked.pressed = anyio.Event()
            with anyio.move_on_after(HELD_SECONDS if asked.held else math.inf) as waited:
                await asked.pressed.wait()
            if waited.cancelled_caught and asked.held:
                row, asked.held = self._row_of(asked, asked.held), ""
                if row is not None:
                    self._mark_or_choose(asked, row)

    def _row_of(self, asked: _Asked, key: str) -> PickRow | None:
        """The row that a key means."""
        found = asked.pick.rows
        if key.isdecimal():
            return found[int(key) - 1] if 0 < int(key) <= len(found) else None
        return next((row for row in found if row.key and row.key == key.lower()), None)

    def _words_begin(self, asked: _Asked, text: str) -> None:
        """What is typed is no answer: it goes into the input, and keys answer again after a pause."""
        asked.held, asked.armed, asked.quiet = "", False, WORDS_SECONDS
        self._buffer.insert_text(text)
        asked.pressed.set()

    def _arm(self, asked: _Asked) -> None:
        asked.armed = True
        if not asked.pick.rows:
            self._take_words(asked, PickRow("", ""))
        self._app.invalidate()

    def _take_words(self, asked: _Asked, row: PickRow) -> None:
        asked.row, self._kept = row, self._buffer.text
        self._write("")

    def _choose(self, asked: _Asked, row: PickRow) -> None:
        if row.words:
            self._take_words(asked, row)
        else:
            self._answer(asked, Picked(tuple(sorted(asked.marked)) or (row.id,)))

    def _answer(self, asked: _Asked, answer: Picked) -> None:
        asked.answer = answer
        asked.done.set()
        asked.pressed.set()

    def _question(self) -> StyleAndTextTuples:
        asked, style = self._asked, self.style
        if asked is None:
            return []
        text, width = [style.paint(BOLD, asked.pick.title)], self.size.columns
        if asked.row is not None:
            return _fragments(style.paint(BOLD, asked.pick.words))
        drawn = []
        for number, row in enumerate(asked.pick.rows):
            chosen = number == asked.at and asked.armed
            box = f"[{'x' if row.id in asked.marked else ' '}] " if asked.pick.several and not row.words else ""
            key = f" ({row.key})" if row.key else ""
            first, *more = wrapped(f"{number + 1}. {box}{row.name}{key}", width - 3, "   ").split("\n")
            line = "\n".join([f"{style.mark('row') if chosen else ' '} {first}", *(f"  {each}" for each in more)])
            drawn.append(style.paint(BOLD, line) if chosen else line if asked.armed else style.paint(DIM, line))
        return _fragments("\n".join(text + _around(drawn, asked.at, max(3, self.size.lines - BELOW_LINES - 2))))

    # --- drawing ----------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        def lines(text: FormattedTextControl, *, wrap: bool = False) -> Window:
            return Window(text, dont_extend_height=True, wrap_lines=wrap)

        asking = Condition(lambda: self._asked is not None)
        answering = Condition(lambda: self._asked is None or not self._asked.armed or self._asked.row is not None)
        menu = Condition(lambda: self._buffer.complete_state is not None)
        shown = Window(
            BufferControl(self._buffer, input_processors=[BeforeInput(self._prompt)]), wrap_lines=True,
            dont_extend_height=True, height=lambda: Dimension(min=1, max=INPUT_LINES),
        )  # fmt: skip
        parts = [
            ConditionalContainer(lines(FormattedTextControl(self._drawn)), Condition(lambda: bool(self._live))),
            ConditionalContainer(lines(FormattedTextControl(self._question), wrap=True), asking),
            ConditionalContainer(shown, answering),
            ConditionalContainer(lines(FormattedTextControl(self._menu)), menu),
            lines(FormattedTextControl(lambda: _fragments(self._bottom()))),
        ]
        return Layout(HSplit(parts, align=VerticalAlign.TOP), focused_element=shown)

    def _prompt(self) -> StyleAndTextTuples:
        bang = self._buffer.text.startswith("!")
        return _fragments(self.style.paint(YELLOW if bang else CYAN, self.style.mark("row")) + " ")

    def _drawn(self) -> StyleAndTextTuples:
        used = BELOW_LINES + min(INPUT_LINES, self._buffer.document.line_count)
        used += len(self._asked.pick.rows) + 1 if self._asked is not None else 0
        return _fragments("\n".join(self._live.split("\n")[-max(1, min(self.size.lines - used, LIVE_LINES)) :]))

    def _bottom(self) -> str:
        asked = self._asked
        if asked is None:
            return self._status
        if not asked.armed:
            words = "Keys go into the input until you pause"
        elif asked.row is not None:
            words = f"Enter sends, Esc {'goes back' if asked.pick.rows else 'does not answer'}"
        else:
            words = f"{'Space marks, ' if asked.pick.several else ''}a digit, a letter, or arrows and Enter"
        return self.style.paint(DIM, words[: self.size.columns - 1])

    def _menu(self) -> StyleAndTextTuples:
        state = self._buffer.complete_state
        if state is None:
            return []
        at, width, found = state.complete_index, self.size.columns - 1, state.completions
        first = max(0, min((at or 0) - MENU_LINES // 2, len(found) - MENU_LINES))
        rows: StyleAndTextTuples = []
        shown = found[first : first + MENU_LINES]
        name_width = min(max((len(each.display_text) for each in shown), default=0), max(12, width // 2))
        for number, each in enumerate(shown, first):
            line = f"  {each.display_text:<{name_width}}  {each.display_meta_text}".rstrip()[:width]
            rows.append(("bold" if number == at else "fg:ansibrightblack", line if number == first else f"\n{line}"))
        return rows

    # --- keys -------------------------------------------------------------------------------------------------

    def _pressed(self, _: object) -> None:
        self._typed_at = time.monotonic()

    def _say(self, kind: EventKind, text: str = "") -> None:
        self._send.send_nowait(ScreenEvent(kind, text))

    def _write(self, text: str) -> None:
        self._buffer.document = Document(text, len(text))

    def _submit(self, kind: EventKind) -> None:
        text = self._buffer.text
        for number, pasted in enumerate(self._pastes, 1):
            text = text.replace(_placeholder(number, pasted), pasted)
        if not text.strip():
            return
        self._buffer.history.append_string(text)
        self._pastes.clear()
        self._buffer.reset()
        self._say(kind, text)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        rows = Condition(lambda: self._asked is not None and self._asked.armed and self._asked.row is None)
        words = Condition(lambda: self._asked is not None and self._asked.row is not None)
        menu = Condition(lambda: self._buffer.complete_state is not None)
        vi_state = Condition(
            lambda: self._app.editing_mode == EditingMode.VI and self._app.vi_state.input_mode != InputMode.NAVIGATION
        )
        self._add_input(keys, ~rows & ~words, menu, vi_state)
        self._add_always(keys)
        self._add_rows(keys, rows)

        @keys.add("enter", filter=words)
        def _(event: KeyPressEvent) -> None:
            if self._asked is not None and self._asked.row is not None and self._buffer.text.strip():
                row = self._asked.row
                marked = sorted(self._asked.marked)
                self._answer(self._asked, Picked((*marked, row.id), self._buffer.text.strip()))

        @keys.add("escape", filter=words)
        def _(event: KeyPressEvent) -> None:
            if (asked := self._asked) is not None:
                if asked.pick.rows:
                    asked.row = None
                    self._write(self._kept)
                else:
                    self._answer(asked, Picked())

        return keys

    def _add_input(self, keys: KeyBindings, typing: Filter, menu: Filter, vi_insert: Filter) -> None:
        @keys.add("enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            buffer, state = self._buffer, self._buffer.complete_state
            by_tab = bool(event.previous_key_sequence) and event.previous_key_sequence[-1].key in COMPLETING
            if state is not None and state.current_completion is not None and not by_tab:
                buffer.complete_state = None  # An arrow has chosen it.
            elif buffer.document.char_before_cursor == "\\":
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                self._submit("submit")

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        @keys.add("tab", filter=typing)
        def _(event: KeyPressEvent) -> None:
            if self._buffer.complete_state is not None:
                self._buffer.complete_next()
            elif self._buffer.text.strip():
                self._submit("queue")

        @keys.add("s-tab", filter=menu)
        def _(event: KeyPressEvent) -> None:
            self._buffer.complete_previous()

        @keys.add("s-tab", filter=~menu)
        def _(event: KeyPressEvent) -> None:
            self._say("mode")

        @keys.add("escape", filter=menu & ~vi_insert)
        def _(event: KeyPressEvent) -> None:
            self._buffer.cancel_completion()

        @keys.add("escape", filter=typing & ~menu & ~vi_insert)
        def _(event: KeyPressEvent) -> None:
            self._say("interrupt")

        @keys.add("c-g", filter=typing)
        def _(event: KeyPressEvent) -> None:
            self._buffer.open_in_editor()

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            self._paste(event.data)

    def _paste(self, data: str) -> None:
        text = data.replace("\r\n", "\n").replace("\r", "\n")
        if text.count("\n") >= PASTED_LINES or len(text) > PASTED_CHARS:
            self._pastes.append(text)
            text = _placeholder(len(self._pastes), text)
        self._buffer.insert_text(text)

    def _add_always(self, keys: KeyBindings) -> None:
        @keys.add("c-c", eager=True)
        def _(event: KeyPressEvent) -> None:
            self._say("cancel")

        @keys.add("c-d", filter=Condition(lambda: not self._buffer.text))
        def _(event: KeyPressEvent) -> None:
            self._say("leave")

        @keys.add("c-o", eager=True)
        def _(event: KeyPressEvent) -> None:
            self._say("unfold")

        @keys.add("c-z", eager=True)
        def _(event: KeyPressEvent) -> None:
            self._app.suspend_to_background()

    def _add_rows(self, keys: KeyBindings, rows: Filter) -> None:
        """Keys that answer. Others do nothing then."""

        @keys.add(Keys.Any, filter=rows, eager=True)
        def _(event: KeyPressEvent) -> None:
            asked = self._asked
            if asked is None:
                return
            if not event.data.isprintable():
                return
            if asked.held or self._row_of(asked, event.data) is None:
                self._words_begin(asked, asked.held + event.data)
            else:
                asked.held = event.data
                asked.pressed.set()

        @keys.add("up", filter=rows, eager=True)
        def _(event: KeyPressEvent) -> None:
            self._move(-1)

        @keys.add("down", filter=rows, eager=True)
        def _(event: KeyPressEvent) -> None:
            self._move(1)

        several = Condition(lambda: self._asked is not None and self._asked.pick.several and not self._asked.held)

        @keys.add(" ", filter=rows & several, eager=True)
        def _(event: KeyPressEvent) -> None:
            if (asked := self._asked) is not None:
                self._mark_or_choose(asked, asked.pick.rows[asked.at])

        @keys.add("enter", filter=rows, eager=True)
        def _(event: KeyPressEvent) -> None:
            if (asked := self._asked) is not None:
                held, asked.held = asked.held, ""
                self._choose(asked, self._row_of(asked, held) or asked.pick.rows[asked.at])

        @keys.add(Keys.BracketedPaste, filter=rows, eager=True)
        def _(event: KeyPressEvent) -> None:
            if (asked := self._asked) is not None:
                self._words_begin(asked, asked.held)
                self._paste(event.data)

        @keys.add("escape", filter=rows, eager=True)  # Before the key that is any.
        def _(event: KeyPressEvent) -> None:
            if self._asked is not None:
                self._answer(self._asked, Picked())
            self._say("interrupt")

    def _mark_or_choose(self, asked: _Asked, row: PickRow) -> None:
        if asked.pick.several and not row.words:
            asked.marked ^= {row.id}
            self._app.invalidate()
        elif row.lasts:
            asked.at = asked.pick.rows.index(row)  # Enter says that it is meant.
            self._app.invalidate()
        else:
            self._choose(asked, row)

    def _move(self, by: int) -> None:
        if (asked := self._asked) is not None:
            asked.held = ""
            asked.at = (asked.at + by) % len(asked.pick.rows)
            self._app.invalidate()


def _around(rows: Sequence[str], at: int, room: int) -> list[str]:
    """As many of them as have room, in lines; `at` is in the middle where it can be."""
    shown = list(enumerate(rows))
    while len(shown) > 1 and sum(row.count("\n") + 1 for _, row in shown) > room:
        shown.pop(-1 if shown[-1][0] - at >= at - shown[0][0] else 0)
    return [row for _, row in shown]


def _fragments(text: str) -> StyleAndTextTuples:
    """Text with colours as prompt_toolkit has it. `ANSI` makes a fragment of each character, which is slow to draw."""
    found: StyleAndTextTuples = []
    for number, line in enumerate(text.split("\n")):
        found += [("", "\n")] if number else []
        found += _line_fragments(line)
    return found


@lru_cache(512)
def _line_fragments(line: str) -> StyleAndTextTuples:
    merged: StyleAndTextTuples = []
    for fragment in ANSI(line).__pt_formatted_text__():
        if merged and merged[-1][0] == fragment[0]:
            merged[-1] = (fragment[0], merged[-1][1] + fragment[1])
        else:
            merged.append((fragment[0], fragment[1]))
    return merged


def _placeholder(number: int, text: str) -> str:
    return f"[pasted text {number}: {text.count(chr(10)) + 1} lines, {len(text)} characters]"
