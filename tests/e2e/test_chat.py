"""The chat, in a real terminal: a pty, and `pyte` as what draws it."""

import codecs
import fcntl
import json
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pyte

from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.forked import forked_command

from .kit import COMMAND, environ

SECONDS = 120


class Tty:
    """The terminal of a program: its screen, what has scrolled out of it, and keys."""

    def __init__(self, pid: int, fd: int, columns: int, lines: int) -> None:
        self.pid, self.fd = pid, fd
        self.screen = pyte.HistoryScreen(columns, lines, history=5_000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.raw = ""

    @property
    def text(self) -> str:
        """All lines, those that have scrolled out first."""
        top = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*top, *self.screen.display])

    def until(self, *words: str | Callable[[str], bool]) -> str:
        """Reads until all of them are there; returns the text."""
        ends = time.monotonic() + SECONDS
        while not all(word(self.text) if callable(word) else word in self.text for word in words):
            ready, _, _ = select.select([self.fd], [], [], max(0, ends - time.monotonic()))
            assert ready and self._read(), f"{words} did not come:\n{self.text}"
        return self.text

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, 65_536)
        except OSError:
            return False
        text = self._decode(data)
        self.raw += text
        self._stream.feed(text)
        return bool(data)

    def type(self, keys: str, *words: str | Callable[[str], bool]) -> None:
        """Then reads until all of the words are there."""
        os.write(self.fd, keys.encode())
        self.until(*words)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)
        os.kill(self.pid, signal.SIGWINCH)

    def ended(self) -> int:
        """The exit status, once it has ended."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def terminal(home: Path, url: str, *arguments: str, columns=80, lines=24, program=(COMMAND,), **more: str):
    pid, fd = pty.fork()
    if pid == 0:
        (home / "project").mkdir(exist_ok=True)
        os.chdir(home / "project")
        os.execvpe(program[0], [*program, *arguments], environ(home, url, **{"TERM": "xterm-256color", **more}))
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    tty = Tty(pid, fd, columns, lines)
    try:
        yield tty
    finally:
        os.close(fd)  # It hangs up.
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


async def chat(home: Path, script: list, walk: Callable[[Tty, FakeModel], object], *arguments: str, **more):
    """Runs `walk` beside a scripted model."""
    (home / "project").mkdir(exist_ok=True)
    async with FakeModel(script) as model:

        def walked() -> None:
            with terminal(home, model.base_url, *arguments, **more) as tty:
                walk(tty, model)

        with anyio.fail_after(4 * SECONDS):
            await anyio.to_thread.run_sync(walked)


def asked(model: FakeModel, number: int) -> str:
    return json.dumps(model.requests[number].body["messages"])


MARKDOWN = """# Title

Some **bold** words and `code`, see [here](http://example.com/x).

- one
- two

| a | b |
|---|---|
| 1 | 2 |

```python
def f(x):
    return "a long line that stays whole" + x
```
"""
EDIT = Answer(text=MARKDOWN, tool_calls=(Call("edit", {"path": "a.py", "old_string": "a + b", "new_string": "a - b"}),))
RUN = Answer(tool_calls=(Call("bash", {"command": "echo before; exit 3"}),))


async def test_a_prompt_is_answered_with_markdown_calls_a_question_and_a_closing_line(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        tty.type("please \\\rwork\r", "Make this change?", "a digit, a letter, or arrows and Enter")
        shown = tty.text
        assert "❯ please\n  work\n" in shown and "**" not in shown and "(http://example.com/x)" in shown
        assert '│     return "a long line that stays whole" + x' in shown and " • two" in shown
        assert "  a.py +1 -1" in shown and "     2 -     return a + b\n     2 +     return a - b" in shown
        assert "\x1b[31m" in tty.raw and "\x1b[32m" in tty.raw  # The diff has colours.
        tty.type("y", "Run this?", "$ echo before; exit 3", lambda text: text.count("a digit, a letter") == 1)
        tty.type("1", "1 file changed: a.py +1 -1", "❯\ncode ·")
        assert "↳ Allow once" in tty.text and "● Edited a.py +1 -1" in tty.text
        assert "✗ $ echo before; exit 3 · exit code 3" in tty.text and "│ before" in tty.text
        assert "All done." in tty.text and " tokens · " in tty.text
        tty.type("\x04")
        assert tty.ended() == 0
        assert "return a - b" in (tmp_path / "project" / "a.py").read_text()

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.py").write_text("def f(a, b):\n    return a + b\n")
    await chat(tmp_path, [EDIT, RUN, "All done."], walk, program=(forked_command(),))


async def test__no_and_what_to_do_instead_reaches_the_model_and_what_was_typed_before_answers_nothing(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        tty.type("go\r", "Working")
        tty.type("yes y 1")  # Before the question: they stand in the input.
        model_released = anyio.from_thread.run_sync
        model_released(model.release)
        tty.until("Run this?", "a digit, a letter, or arrows and Enter")
        tty.type("i", "What should be done instead?")
        tty.type("use make\r", "↳ use make", "· not allowed", "Right.", "❯ yes y 1")
        assert "They say what to do instead:\\nuse make" in asked(model, 1)
        assert "Do not try to achieve" not in tty.text

    slow = Answer(text="I run it.", hang_before=True, tool_calls=(Call("bash", {"command": "touch x"}),))
    await chat(tmp_path, [slow, "Right."], walk, program=(forked_command(),))
    assert not (tmp_path / "project" / "x").exists()
