"""What the programs of a trusted folder and of plugins run: the bytes that the user was shown.

Before each run the folder's files are read again, and must be those that the user trusts. They are copied to a folder
that no command reaches, laid out as in the user's, and what a command line names of them becomes the name of the copy.
Everything else is there as a link, but in the folders of hooks, which are what was shown and nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from acp_agent.config.safety_settings import OF_FOLDER
from acp_agent.errors import NotAsTrusted
from acp_agent.loop.shell.private_folder import PREFIX
from acp_agent.loop.toolbox.trust import are_trusted
from acp_agent.mcp.base import SAFE_PATH, ServerSpec
from acp_agent.safety.folders.folder_trust import (
    HOOK_FOLDERS,
    LEADS_TO,
    MAY_CHANGE,
    Program,
    look,
    mark_of,
    named_in,
    scope_of,
)
from acp_agent.store.session_store import SessionStore

CHANGED = "the folder's files are not those that you trust; `/trust` shows them"
PROJECT = r"""(?:(?:"\$\{?CLAUDE_PROJECT_DIR\}?"|\$\{?CLAUDE_PROJECT_DIR\}?|@)/|(?:\./)+)"""
"""What may stand before a path of the project, `@` for its own."""
MOVES = re.compile(r"(?<![\w./-])(?:(?:cd|pushd)\s+(?:-\S+\s+)*|-C\s*|--chdir[=\s]\s*)(?:[^\s;&|)]+|$)")
"""Behind it, a name means something in another folder."""


class TrustedPrograms:
    """Of one session. Blocks."""

    def __init__(
        self,
        folder: Path,
        store: SessionStore,
        place: Callable[[], Path],
        is_whole: Callable[[str], bool] = lambda plugin: False,
        within: Sequence[Path] = (),
    ) -> None:
        """`place`: a private folder for the copies. `is_whole`: whether the files of a plugin are those that the user
        accepted. `within`: the folders that commands may change."""
        self._folder = Path(os.path.realpath(folder))
        self._store = store
        self._place = place
        self._is_whole = is_whole
        self._copying = threading.Lock()
        self._within = [os.path.realpath(path) for path in within]

    def server(self, of: str, spec: ServerSpec, *, copies: bool = True) -> ServerSpec:
        """An MCP server as it is to be started. Raises NotAsTrusted."""
        first, *words = self.words(of, (spec.command, *spec.args, *spec.env.values()), spec.cwd, copies=copies)
        env = dict(zip(spec.env, words[len(spec.args) :], strict=True))
        if of.startswith(OF_FOLDER):
            env.setdefault(SAFE_PATH, "")  # Its modules are what is trusted.
        return replace(spec, command=first, args=tuple(words[: len(spec.args)]), env=env)

    def words(self, of: str, words: Sequence[str], cwd: str = "", *, copies: bool = True) -> list[str]:
        """What is run in the place of these: a command line, or a program, its arguments and variables. `of`: the
        folder's or a plugin's, empty for the user's own. `copies`: whether who runs it can read the copies. Raises
        NotAsTrusted."""
        if not of:
            return list(words)
        if not of.startswith(OF_FOLDER):
            if not self._is_whole(of):
                raise NotAsTrusted(f"the files of the {of} are not those that you accepted")
            return list(words)
        program = Program(tuple(words), cwd)
        found = look(self._folder, program)
        if not are_trusted(str(self._folder), files := found.files, self._store):
            raise NotAsTrusted(CHANGED)
        kept = {name: why for name in named_in(program, self._folder) if (why := found.uncovered.get(name, ""))}
        kept = {name: why for name, why in kept.items() if why not in MAY_CHANGE}
        if not_covered := [*found.more, *(f"{name} ({why})" for name, why in kept.items())]:
            raise NotAsTrusted(f"trust does not cover {', '.join(not_covered)}")
        if not copies:
            return list(words)
        top = self._place() / "trusted" / mark_of(scope_of(files))
        with self._copying:
            if not top.exists():
                self._copy(files, top)
        names = sorted((*(name.partition(LEADS_TO)[0] for name in files), *HOOK_FOLDERS), key=len, reverse=True)
        moved = [any(MOVES.search(word) for word in words[:number]) for number in range(len(words))]
        return [self._renamed(word, names, top, cwd, moved[number]) for number, word in enumerate(words)]

    def _copy(self, files: Mapping[str, bytes], top: Path) -> None:
        """Everything is there at once, or nothing."""
        new = top.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        folders = {above for each in HOOK_FOLDERS for above in Path(each).parents}
        for each in HOOK_FOLDERS:
            (new / each).mkdir(parents=True, mode=0o700)
        for name, data in files.items():
            path, _, target = name.partition(LEADS_TO)
            copy = new / path
            folders |= set(Path(path).parents)
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if target:
                copy.symlink_to(self._target(target, top))
            else:
                copy.write_bytes(data)
                copy.chmod(0o500)
        for folder in folders:
            if not str(folder).startswith(HOOK_FOLDERS):
                self._link(folder, new)
        new.rename(top)

    def _target(self, target: str, top: Path) -> Path:
        path = Path(target)
        if path.is_relative_to(self._folder):
            return top / path.relative_to(self._folder)
        if any(path.is_relative_to(place) for place in self._within):
            raise NotAsTrusted(f"{target} can be changed by commands, so trust does not cover it")
        return path

    def _link(self, folder: Path, new: Path) -> None:
        """Links what else is in a folder."""
        with suppress(OSError):
            for name in os.listdir(self._folder / folder):
                if not os.path.lexists(copy := new / folder / name):
                    copy.symlink_to(self._folder / folder / name)

    def _renamed(self, word: str, names: Sequence[str], top: Path, cwd: str, moved: bool) -> str:
        """With the names of the copies in the place of the files'. `moved`: before it, the line goes elsewhere."""
        if cwd and not moved and not os.path.isabs(word):
            name = os.path.relpath(os.path.join(self._folder, cwd, word), self._folder)
            return f"{top}/{name}" if name in names else word
        project = PROJECT.replace("@", re.escape(str(self._folder)))
        # A word alone is what PATH has, or an argument; `run.py` is no program of PATH.
        plain, alone = [name for name in names if set(name) & set("/.")], [name for name in names if "." not in name]
        known, bare = ("|".join(map(re.escape, each)) or "(?!)" for each in (plain, alone))
        pattern = rf"(?<![\w./~$}}-])(?:{project}?(?P<a>{known})|{project}(?P<b>{bare}))(?![\w.-])"
        move = MOVES.search(word)
        stays = 0 if moved else len(word) if move is None else move.end()

        def copy(found: re.Match[str]) -> str:
            relative = not found[0].startswith(("$", '"', str(self._folder)))
            return found[0] if relative and found.start() >= stays else f"{top}/{found['a'] or found['b']}"

        return re.sub(pattern, copy, word)


@contextmanager
def programs_here(folder: Path, store: SessionStore, is_whole: Callable[[str], bool]) -> Iterator[TrustedPrograms]:
    """Without a session."""
    with TemporaryDirectory(prefix=PREFIX) as place:
        yield TrustedPrograms(folder, store, lambda: Path(place), is_whole)
