"""A call as rules see it: its texts, paths and hosts, in every spelling."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from acp_agent.lazy import load
from acp_agent.safety.access import Access, ExecuteAccess, NetworkAccess, PathAccess, ToolAccess, Where
from acp_agent.safety.folders.paths import Roots

if TYPE_CHECKING:
    from acp_agent.disk import Disk
    from acp_agent.safety.lines.examined import Examined

EXAMINE = "acp_agent.safety.lines.examine:examine"
"""Loaded with the first command: it imports tree-sitter."""

MAX_PATHS = 500
"""Paths of one call that are resolved."""
WORD = re.compile(r"[^\s\"'`;|&()<>{}\[\],]+")


STANDS_FOR: Mapping[tuple[str, str], Sequence[str]] = {
    ("apply_patch", "write"): ("edit", "write"),
    ("apply_patch", "delete"): ("delete_path", "move_path"),
}
"""Tool and access -> the tools that do the same: what rules forbid these, they forbid it."""


class Step(msgspec.Struct, frozen=True):
    """One call, in the form that is compared with others."""

    tool: str
    words: tuple[str, ...]
    """Words of its arguments, in order."""


class SaidByHook(Struct, frozen=True):
    """What the hooks of the configuration said about a call."""

    effect: Literal["allow", "ask", "deny"]
    reason: str
    name: str
    """Of the hook."""

    @property
    def rule(self) -> str:
        return f"hook {self.name}"

    @property
    def because(self) -> str:
        return f": {self.reason}" if self.reason else ""

    @property
    def denial(self) -> str:
        """For the model and the user."""
        return f"The hook `{self.name}` does not allow this call{self.because}. It was not run."


class CallFacts(Struct, frozen=True):
    """A call to be judged."""

    tool: str
    arguments: Mapping[str, Any]
    accesses: Sequence[Access]
    call_id: str = ""
    written: bool = False
    """Whether it stood in the text of the model's answer."""
    place: Where | None = None
    """Where it runs, if not on this machine."""
    leaves: bool = False
    """Whether that is another place than the session's."""
    apart: bool = False
    """Whether files are others there: no answer is kept then."""
    hooked: SaidByHook | None = None
    agent: Mapping[str, str] = {}
    """What hooks are told of the sub-agent that makes it, if one does."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The tool, and those that it stands for in this call."""
        modes = dict.fromkeys(access.mode for access in self.accesses if isinstance(access, PathAccess))
        return (self.tool, *(name for mode in modes for name in STANDS_FOR.get((self.tool, mode), ())))

    def confined_by(self, sandbox: str) -> str:
        """As the audit log has it. `sandbox`: what confines commands on this machine."""
        outside = any(isinstance(access, ExecuteAccess) and not access.confined for access in self.accesses)
        if (there := self.place) is not None:
            return there.words if outside or there.sandbox in ("", "none") else f"{there.words}: {there.sandbox}"
        return "none" if outside else sandbox

    @property
    def acts(self) -> bool:
        """Whether it may change something."""
        for access in self.accesses:
            match access:
                case PathAccess(mode) if mode != "read":
                    return True
                case ExecuteAccess() | ToolAccess(changes=True) | NetworkAccess(sends=True):
                    return True
        return False


class Subject(Struct, frozen=True, eq=False, dict=True):
    """Everything is computed when a rule first needs it."""

    call: CallFacts
    roots: Roots
    steps: tuple[Step, ...] = ()
    """The call as a step: as given, and in further spellings of its command."""
    made: tuple[Step, ...] = ()
    """Earlier calls of the session."""
    _examined: dict[int, Examined] = msgspec.field(default_factory=dict)

    @property
    def tool(self) -> str:
        return self.call.tool

    def examined(self, access: ExecuteAccess) -> Examined:
        if id(access) not in self._examined:
            self._examined[id(access)] = load(EXAMINE)(access.command, self.roots, access.cwd)
        return self._examined[id(access)]

    @cached_property
    def commands(self) -> tuple[tuple[ExecuteAccess, Examined], ...]:
        return tuple(
            (access, self.examined(access)) for access in self.call.accesses if isinstance(access, ExecuteAccess)
        )

    @cached_property
    def parses(self) -> tuple[Examined, ...]:
        return tuple(parse for _, parse in self.commands)

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        """A command line and its simple commands in all their spellings."""
        return tuple(text for parse in self.parses for text in parse.candidates)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The arguments and `spellings`: compared with deny rules."""
        return tuple(map(_plain, (*texts_of(self.call.arguments), *self.spellings)))

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """Texts that an allow must match, all of them: the arguments, or the simple commands of a line."""
        whole = [part.spelled or part.text for parse in self.parses for part in parse.parts]
        return tuple(map(_plain, whole or texts_of(self.call.arguments)))

    @cached_property
    def parts(self) -> tuple[str, ...] | None:
        """The simple commands of a command line; "" for one that is not literal, and if the line is not understood.
        `None` without a command line."""
        if not self.parses:
            return None
        parts = [part.spelled for parse in self.parses for part in parse.parts]
        return tuple(parts if all(parse.understood for parse in self.parses) else [*parts, ""])

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        return tuple(access.name for access in self.call.accesses if isinstance(access, NetworkAccess))

    @cached_property
    def _own_paths(self) -> tuple[Path, ...]:
        return tuple(access.path for access in self.call.accesses if isinstance(access, PathAccess))

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Paths that an allow must match, all of them; no more than MAX_PATHS are resolved."""
        words = [access.cwd / word for access, parse in self.commands for word in _named(parse) if "/" in word]
        found = (*self._own_paths, *words)
        return (*map(self._resolved, found[:MAX_PATHS]), *map(_lexical, found[MAX_PATHS:]))

    @cached_property
    def named(self) -> tuple[Path, ...]:
        """Additional paths compared with deny rules: everything in a command line that may be a path."""
        named = [
            access.cwd / word
            for access, parse in self.commands
            for word in (*_named(parse), *_expanded(parse, access.cwd, self.roots.disk))
        ]
        return (*map(self._resolved, named[:MAX_PATHS]), *map(_lexical, named[MAX_PATHS:]))

    @cached_property
    def meant(self) -> tuple[Path, ...]:
        """The paths of the call as far as known: limits apply to them."""
        paths = list(self._own_paths)
        for access, parse in self.commands:
            targets = {link.target for part in parse.parts for link in part.redirects}
            words = [word for word in _named(parse) if word in targets or _is_path(word, access.cwd, self.roots.disk)]
            paths += [self._resolved(access.cwd / word) for word in words if word != os.devnull]
        return tuple(paths)

    def _resolved(self, path: Path) -> Path:
        try:
            return self.roots.disk.real_path(path)
        except (OSError, RuntimeError, ValueError):
            return _lexical(path)


def touched(call: CallFacts, roots: Roots) -> tuple[str, ...] | None:
    """What a pattern for this call may be written for: its commands, paths and hosts, and its arguments. `None` for a
    command line that is not understood, which may touch anything."""
    subject = Subject(call, roots)
    if not all(parse.understood for parse in subject.parses):
        return None
    paths = [text for path in (*subject._own_paths, *subject.named) for text in (roots.display(path), str(path))]
    urls = [access.what.rpartition(" ")[2] for access in call.accesses if isinstance(access, NetworkAccess)]
    return tuple(dict.fromkeys((*subject.spellings, *paths, *urls, *subject.hosts, *texts_of(call.arguments))))


def texts_of(value: object) -> tuple[str, ...]:
    """Every text in the arguments of a call, except the keys of objects."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(text for item in value.values() for text in texts_of(item))
    if isinstance(value, list | tuple):
        return tuple(text for item in value for text in texts_of(item))
    return () if value is None else (str(value),)


def step_of(tool: str, text: str) -> Step:
    return Step(tool, tuple(WORD.findall(text)))


def _named(parse: Examined) -> list[str]:
    """Words of a command line that may be paths: arguments, values of options, redirection targets."""
    words = [word for part in parse.parts for word in (part.words or ())[1:]]
    words += [link.target for part in parse.parts for link in part.redirects if link.target]
    return [value for word in words for value in (word, word.partition("=")[2]) if value]


def _is_path(word: str, cwd: Path, disk: Disk) -> bool:
    """Whether a word seems to be a path."""
    try:
        return "/" in word or disk.kind(cwd / word) is not None
    except (OSError, ValueError):
        return True


def _expanded(parse: Examined, cwd: Path, disk: Disk) -> list[str]:
    """Names that the wildcards of a line currently match, where bash would expand them."""
    texts = {text for part in parse.parts if part.words is None for text in part.text.split()}
    found: list[str] = []
    for pattern in texts:
        if any(char in pattern for char in "*?["):
            with suppress(OSError, ValueError, re.error):
                found += disk.matches(pattern.strip("'\""), cwd, MAX_PATHS)
    return found[:MAX_PATHS]


def _plain(text: str) -> str:
    """Replaces lone surrogates, which regular expressions reject."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _lexical(path: Path) -> Path:
    return Path(os.path.normpath(path))
