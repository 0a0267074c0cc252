"""A shell in a terminal that several commands share, and the user who watches: one after the other, as typed.

Where a command's output begins and ends is said by marks that the shell prints with its prompt, as terminals know them
(OSC 133: `A` before the prompt, `B` behind it, `C` before the output, `D` behind it, with exit code and folder); ours
have a nonce. They are taken from what the terminal passes on, never from its screen, and draw nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import anyio

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, ExitStatus, OutputChunk, Process, Terminal, TerminalView
from acp_agent.executors.buffer import KeptOutput

BEGINS = 15.0
"""Seconds for the shell to show its first prompt."""
CLEARS = 3.0
"""Seconds for a new prompt after `^C`."""
CLOSES = 10.0
"""Seconds for its end."""
STOPS = 1.0
"""Seconds for a command to end after `^C`."""
INTERRUPT, CLEAR = b"\x03", b"\x15\x15"
"""`^C`; `^U`, which empties the line in each of readline's modes, twice: after `^V` the first is a character."""
PASTE, PASTED = b"\x1b[200~", b"\x1b[201~"
KEYS = re.compile(r"[^\n\t -~\x80-\U0010ffff]|[\x7f-\x9f]")
"""What a shell may take for keys although it is pasted."""
LONGEST_MARK = 5_000
"""Characters of a mark, with the folder in it."""

OLD = "the shell is older than bash 4.4, and prints no marks"
SETUP = r"""
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || { echo 'OLD'; exit 1; }
unset HISTFILE
HISTCONTROL=ignoreboth
bind 'set enable-bracketed-paste on' 2>/dev/null
PS0='\e]133;C;NONCE\a'
PS1='\[\e]133;A;NONCE\a\]\w \$ \[\e]133;B;NONCE\a\]'
PROMPT_COMMAND='printf "\e]133;D;NONCE;%s;%s;%s\a" "$?" "${__run-}" "${PWD//[[:cntrl:]]/?}"; __run='
readonly PS0 PS1 PROMPT_COMMAND
"""


class SharedShell:
    """`process`: runs `script` in a terminal."""

    def __init__(self, process: Process, command: Command, nonce: str) -> None:
        assert process.terminal is not None
        self.process = process
        self.command = command
        self.nonce = nonce
        self.terminal: Terminal = process.terminal
        self._folder = command.cwd
        """Its working directory, as it said last."""
        self.ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._gone = anyio.Event()
        self._marks = re.compile(rf"\x1b\]133;([ABCD]);{nonce}(?:;(\d*);(\d*);([^\x07]*))?\x07")
        self._rest = ""
        self._state = ""
        """The last mark."""
        self._typed = False
        """Whether something was printed behind the prompt: somebody has typed."""
        self._news = anyio.Event()
        self._run: SharedRun | None = None
        self._number = 0

    @staticmethod
    def script(nonce: str) -> str:
        """What becomes the shell."""
        setup = SETUP.replace("NONCE", nonce).replace("OLD", OLD)
        return f"exec bash --noprofile --rcfile <(printf %s {shlex.quote(setup)}) +H -i"

    async def live(self) -> None:
        """Follows what it prints, until it ends or is closed."""
        try:
            with self._scope:
                async for chunk in self.process.output():
                    self._take(chunk.text)
        finally:
            self.ended.set()
            if self._run is not None:
                self._over(None)
            self._tell()
            with anyio.CancelScope(shield=True):
                await self.process.close()
            self._gone.set()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    def _take(self, text: str) -> None:
        text, at = self._rest + text, 0
        for mark in self._marks.finditer(text):
            self._printed(text[at : mark.start()])
            at = mark.end()
            self._state, self._typed = mark[1], False
            if mark[1] == "D":
                if mark[4]:
                    self._folder = Path(mark[4])
                if self._run is not None and mark[3] == str(self._number):
                    self._over(int(mark[2]))
                elif self._run is not None and self._run.begun:  # Its number is gone; it is over all the same.
                    self._over(None)
            elif mark[1] == "C" and self._run is not None:
                self._run.begun = True
        begins = text.rfind("\x1b", at)
        whole = begins < 0 or len(text) - begins > LONGEST_MARK or "\x07" in text[begins:]
        self._rest = "" if whole else text[begins:]
        self._printed(text[at : len(text) - len(self._rest)])
        self._tell()

    def _printed(self, text: str) -> None:
        if not text:
            return
        self._typed = self._typed or self._state == "B"
        if self._run is not None and self._run.begun:
            self._run.add(text)

    def _over(self, code: int | None) -> None:
        run, self._run = self._run, None
        assert run is not None
        run.end(code)

    async def ready(self) -> None:
        """Once it has shown its prompt. Raises ExecutorError."""
        if not await self._comes("B", BEGINS):
            said = self.process.combined.strip().splitlines()
            raise ExecutorError(f"no shell came up in the terminal: {said[-1][:200] if said else 'it said nothing'}")

    async def _comes(self, mark: str, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while self._state != mark and not self.ended.is_set():
                await self._news.wait()
        return self._state == mark and not self.ended.is_set()

    @property
    def folder(self) -> Path:
        """Its working directory: as the system has it, else as it said last."""
        found = self.terminal.foreground()
        return found.folder if found.prompts and found.folder is not None else self._folder

    @property
    def busy(self) -> str:
        """Why no command can be typed now; empty: one can."""
        if self.ended.is_set():
            return "its shell has ended"
        if self._run is not None:
            return "another command runs in it"
        found = self.terminal.foreground()
        prompts = found.prompts or not found.program
        return "" if self._state == "B" and prompts else f"{found.program or 'another program'} runs in it"

    async def run(self, command: Command, begins: Callable[[], None] = lambda: None) -> SharedRun:
        """Types it; `begins` is called before, once it is certain that no other runs. Raises ExecutorError."""
        if KEYS.search(command.script):
            raise ExecutorError("the command line has characters that a shell takes for keys")
        if self._state in ("A", "D"):
            await self._comes("B", CLEARS)
        if busy := self.busy:
            raise ExecutorError(busy)
        begins()
        self._number += 1
        run = self._run = SharedRun(self, command)
        try:
            if self._typed or self.terminal.pending != "":
                self._state = ""
                await self.terminal.type(INTERRUPT)
                if not await self._comes("B", CLEARS):
                    raise ExecutorError("somebody is typing in it")
            line = f" __run={self._number}; eval {shlex.quote(command.script)}"
            await self.terminal.type(CLEAR + PASTE + line.encode() + PASTED + b"\r")
        except BaseException:
            self._run = None
            raise
        self.terminal.pending = ""
        return run

    async def stop(self, run: SharedRun) -> None:
        """Ends a command as a user would: `^C`; then by force, where it can be seen what runs."""
        if self._run is not run:
            return
        with anyio.CancelScope(shield=True):
            with suppress(ExecutorError):  # Its window is gone, and it ends with that.
                await self.terminal.type(INTERRUPT)
            with anyio.move_on_after(STOPS):
                await run.ended.wait()
            if self._run is run and not self.terminal.force():
                run.remark = "it did not stop at ^C, and may still run there; `tmux_kill_pane` ends it with its shell"
            with anyio.move_on_after(STOPS):
                await run.ended.wait()
            if self._run is run:
                self._over(None)

    async def close(self) -> None:
        """Ends it and what runs in it."""
        self._scope.cancel()
        with anyio.move_on_after(CLOSES, shield=True):
            await self._gone.wait()


class SharedRun(KeptOutput):
    """One command in it. Implements `Process`; it ends, and its shell goes on."""

    view: TerminalView | None = None
    terminal: Terminal | None = None

    def __init__(self, shell: SharedShell, command: Command) -> None:
        super().__init__(command.output_limit)
        self._shell = shell
        self._code: int | None = None
        self._news = anyio.Event()
        self.remark = ""
        self.begun = False
        """Its output has begun."""
        self.ended = anyio.Event()

    def add(self, text: str) -> None:
        self._add("stdout", text.replace("\r\n", "\n"))
        self._tell()

    def end(self, code: int | None) -> None:
        self._code = code
        self.ended.set()
        self._no_more()
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def output(self) -> AsyncIterator[OutputChunk]:
        while True:
            news, (chunks, self._ready) = self._news, (self._ready, [])
            for chunk in chunks:
                yield chunk
            if self.ended.is_set() and not self._ready:
                return
            if not chunks:
                await news.wait()

    async def wait(self) -> ExitStatus:
        await self.ended.wait()
        return ExitStatus(self._code, None)

    async def look(self) -> None:
        """All is there already."""

    async def kill(self) -> None:
        if not self.ended.is_set():
            await self._shell.stop(self)

    async def close(self) -> None:
        await self.kill()
