"""A server's process on stdio, and descriptions of its failures."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from acp_agent.child import Child, User, one_line
from acp_agent.disk import Entered
from acp_agent.errors import ExecutorError
from acp_agent.mcp.base import SAFE_PATH, McpError, ServerSpec
from acp_agent.own_programs import find_program, with_search_path

log = logging.getLogger(__name__)

APART = {
    ("npx",): ("--prefix=/dev/null",), ("npm", "exec"): ("--prefix=/dev/null",), ("npm", "x"): ("--prefix=/dev/null",),
    ("uvx",): ("--no-config",), ("uv", "tool"): ("--no-config",),
}  # fmt: skip
"""Programs that fetch what they run, and what keeps them from the folder in which they start: commands can put a
package of that name there (`node_modules`), or say where packages come from (`.npmrc`, `uv.toml`)."""
LOCAL_FIRST = (("bunx",), ("bun", "x"), ("bun", "--bun", "x"))
"""Programs that take a package from `node_modules` of the folder if it is there, and cannot be told not to."""
PACKAGE = re.compile(r"((?:@[\w.-]+/)?(\w[\w.-]*))(?:@.*)?")
"""Its name, and that of its program."""
PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
MODULE_OR_CODE = re.compile(r"-[bBdEiIOPqRsSuvx]*[mc].*")


class StdioServer(Child):
    """Created by `of`. Sends one message per line."""

    log_level = logging.INFO
    _junk = ""
    too_long = 0
    """The line limit in bytes that the server exceeded; 0: none."""

    @classmethod
    def of(
        cls,
        spec: ServerSpec,
        environ: Mapping[str, str],
        cwd: Path,
        user: Callable[[], User | None] = lambda: None,
        entered: Entered = nullcontext,
    ) -> StdioServer:
        """Raises McpError if it cannot be started."""
        try:
            other = user()
            own = other.environment if other is not None else {}
            env = with_search_path({**environ, **own, **spec.env}, (cwd,))
            plain = os.sep not in spec.command and "\0" not in spec.command
            command = find_program(spec.command, env) if plain else spec.command
            if command is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), spec.command)
            if not spec.cwd and PYTHON.fullmatch(os.path.basename(spec.command)) and _runs_module(spec.args):
                env.setdefault(SAFE_PATH, "1")
            with entered(cwd) as place:
                _refuse_local(spec, cwd)
                return cls.start(spec.name, [command, *_args(spec)], cwd=place, env=env, user=other)
        except ExecutorError as error:
            raise McpError("policy_blocked", str(error)) from error
        except (OSError, ValueError) as error:
            raise _not_started(spec, cwd, error) from error

    async def lines(self, limit: int) -> AsyncGenerator[bytes]:
        """Yields the lines of its stdout until that ends, or until a line exceeds `limit` bytes."""
        buffer = bytearray()
        while chunk := await self.read():
            start = len(buffer)
            buffer += chunk
            while (end := buffer.find(b"\n", start)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                start = 0
                if line.strip():
                    yield line
            if len(buffer) > limit:
                self.too_long = limit
                return

    def heard_junk(self, line: bytes) -> None:
        """Records a line of stdout that is not a message; reported only if stderr, which is more useful, is empty."""
        if not self._junk:
            log.warning("%s printed something that is not an MCP message", self._name)
        self._junk = one_line(line.decode("utf-8", "replace"), 100)
        log.info("%s: %s", self._name, self._junk)

    def end_words(self) -> str:
        return f"it sent a message of more than {self.too_long} bytes" if self.too_long else super().end_words()

    def said(self) -> str:
        if not (said := super().said()) and self._junk:
            return f"; it printed something that is not an MCP message: {self._junk}"
        return said


def _args(spec: ServerSpec) -> list[str]:
    """Not where the configuration names a folder: it is meant to be used."""
    name = os.path.basename(spec.command)
    more = () if spec.cwd else APART.get((name,)) or APART.get((name, *spec.args[:1])) or ()
    return [*more, *spec.args]


def _runs_module(args: Sequence[str]) -> bool:
    """Whether Python, started with these, runs no script of a name."""
    for before, word in zip(("", *args), args, strict=False):
        if MODULE_OR_CODE.fullmatch(word):
            return True
        if not word.startswith("-") and before not in ("-W", "-X"):
            return False
    return False


def _refuse_local(spec: ServerSpec, cwd: Path) -> None:
    """Raises McpError if what the folder has of that name would run."""
    words = [os.path.basename(spec.command), *spec.args]
    if spec.cwd or not (runner := next((each for each in LOCAL_FIRST if tuple(words[: len(each)]) == each), ())):
        return
    packages = [found for word in words[len(runner) :] if (found := PACKAGE.fullmatch(word))][:2]
    for place in (name for each in packages for name in (f"node_modules/.bin/{each[2]}", f"node_modules/{each[1]}")):
        if os.path.lexists(cwd / place):
            raise McpError(
                "policy_blocked",
                f"`{' '.join(runner)}` would run {place} of the session's folder, which commands can change: "
                "start it with npx, or give the server a `cwd`",
            )


def _not_started(spec: ServerSpec, cwd: Path, error: OSError | ValueError) -> McpError:
    if not cwd.is_dir():
        return McpError("not_found", f"its working directory {cwd} does not exist")
    if isinstance(error, FileNotFoundError):
        return McpError("not_found", f"the program `{spec.command}` was not found")
    if isinstance(error, PermissionError):
        return McpError("policy_blocked", f"the program `{spec.command}` is not executable")
    words = error.strerror if isinstance(error, OSError) else str(error)
    return McpError("invalid_input", f"the program `{spec.command}` could not be started: {words}")
