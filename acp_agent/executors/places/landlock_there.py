"""Landlock in a container: each command's access to files is restricted, by a small program that it is started with.

A container of somebody else's has no other walls: here a command sees nothing that `deny_read` hides and writes only
what it may write here, and folders of its own that stand for /tmp and the home. The program (`sandbox.inside`) is sent
along, so nothing has to be installed there. The kernel is this machine's; whether it holds is found by trying.
"""

from __future__ import annotations

import os
import platform
import shlex
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import anyio

from acp_agent.child import Child, one_line
from acp_agent.errors import ExecutorError
from acp_agent.executors.places.base import Place, There
from acp_agent.executors.places.starter import READ_IT, STATES, put
from acp_agent.executors.sandbox.base import SandboxPolicy
from acp_agent.executors.sandbox.inside import Inside
from acp_agent.executors.sandbox.landlock import DEVICE, FILE_RIGHTS, READ, READ_DIR, WRITE, Rule, abi, kind_of_rule
from acp_agent.executors.sandbox.landlock_alone import DEVICES, LEAST
from acp_agent.executors.sandbox.syscalls import ARCHES

SECONDS, WORDS = 20.0, 300
MOST_SAID = 4_194_304
SHARED = Path("/dev/shm")

LOOK = r"""
umask 077
mkdir -p {parts} || exit 1
printf {nonce}
for d in {folders}; do
  [ -d "$d" ] || continue
  printf '%s\0' "$d"
  for f in "$d"/* "$d"/.[!.]* "$d"/..?*; do
    if [ -L "$f" ] || [ ! -e "$f" ]; then continue; fi
    if [ -d "$f" ]; then printf '%s/\0' "$f"; else printf '%s\0' "$f"; fi
  done
  printf '\0'
done
printf {nonce}
"""
"""Makes our folders, and lists others."""
TRY = r"""
cd {scratch} || exit 1
{put}
printf {nonce}
{program} sh -c ': >state/probe && echo writes; : >probe && echo escapes' 2>&1
printf {nonce}
rm -f state/probe probe {program}
"""


Program = Callable[[Sequence[str]], bytes]


class LandlockThere:
    """Of one session's commands in a place. `policy`: what they may touch now, as on this machine."""

    def __init__(self, place: Place, policy: Callable[[], SandboxPolicy], folders: Sequence[Path]) -> None:
        """`folders`: those that are the same here."""
        self._place = place
        self._policy = policy
        self._folders = tuple(folders)
        self.mounts: dict[Path, Path] = {}
        """Folders there -> which of here they are."""
        self._for: There | None = None
        self._listed: dict[Path, list[tuple[Path, bool]]] = {}
        """Folders above what is hidden, as they are there: what is in them, and whether it is a folder; no links."""
        self._finding = anyio.Lock()

    async def ready(self, there: There) -> None:
        """Raises ExecutorError with a sentence if it does not hold there. Not twice for the same one."""
        async with self._finding:
            if self._for is not there:
                await self._look(there)
                self._for = there

    async def _look(self, there: There) -> None:
        if platform.machine() not in ARCHES or abi() < LEAST:
            raise self._unusable("the kernel has no Landlock, or it is too old or disabled (Linux 6.2)")
        policy, nonce, own = self._policy(), uuid.uuid4().hex, own_folders(there)
        above = dict.fromkeys(str(parent) for path in (*self._hidden(policy), own[0]) for parent in path.parents)
        parts = shlex.join(map(str, own))
        listed = await self._said(LOOK.format(parts=parts, nonce=nonce, folders=shlex.join(above)), nonce)
        self._listed = {}
        for part in listed.split("\0\0"):
            folder, *entries = part.strip("\0").split("\0")
            self._listed[Path(folder)] = [(Path("/", each.lstrip("/")), each.endswith("/")) for each in entries]
        name = f"{there.scratch}/{uuid.uuid4().hex}"
        program, scratch = self._program(("sh", "-c", ""), {"PATH": there.path}, there, policy), there.scratch
        values = {
            "scratch": shlex.quote(scratch),
            "put": f"{put(program, name)} || exit 1",
            "program": shlex.quote(name),
        }
        said = (await self._said(TRY.format(nonce=nonce, **values), nonce)).splitlines()
        if "escapes" in said:
            raise self._unusable("it does not keep a command from writing")
        if "writes" not in said:
            raise self._unusable(said[-1] if said else "what is sent there does not run")

    def _unusable(self, why: object) -> ExecutorError:
        words = f"Landlock cannot be used in {self._place.words}: {one_line(str(why), WORDS)}"
        return ExecutorError(f"{words}. `landlock = false` in its configuration does without")

    async def _said(self, text: str, nonce: str) -> str:
        """What stands between the two."""
        argv = self._place.argv("sh", "-c", READ_IT, reads=True)
        try:
            child = Child.start(f"look at {self._place.words}", argv, env=self._place.environ)
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error
        said = b""
        try:
            with anyio.fail_after(SECONDS):
                await child.send(text.encode("utf-8", "surrogateescape"))
                child.close_stdin()
                while len(said) < MOST_SAID and (data := await child.read()):
                    said += data
        except (TimeoutError, OSError) as error:
            raise self._unusable(f"no answer within {SECONDS:g} s") from error
        finally:
            with anyio.CancelScope(shield=True):
                await child.end()
            child.close()
        found = said.decode("utf-8", "surrogateescape").split(nonce)
        if len(found) != 3:
            raise self._unusable("its shell did not answer as a shell does")
        return found[1]

    def confined(self, environ: Mapping[str, str], there: There) -> tuple[dict[str, str], Program]:
        """A command's environment, and what makes the executable that becomes one like the given, confined: its own
        arguments are that one's, or as many others. Once it is ready. Raises ExecutorError if it must not run."""
        policy = self._policy()
        _, _, temporary, home = map(str, own_folders(there))
        own = {**environ, "TMPDIR": temporary, "HOME": home}
        return own, lambda argv: self._program(argv, own, there, policy)

    def _program(self, argv: Sequence[str], environ: Mapping[str, str], there: There, policy: SandboxPolicy) -> bytes:
        inside = Inside(ARCHES[platform.machine()])
        inside.restrict_files(abi(), self._rules(there, policy))
        return inside.become(argv, environ)

    def _rules(self, there: There, policy: SandboxPolicy) -> Iterator[Rule]:
        own, *parts = own_folders(there)
        for path in (*policy.writable, SHARED):
            if own.is_relative_to(path):
                raise self._unusable(f"the agent's own folder {own} would be in {path}, which commands may write")
        yield from self._reading(Path("/"), True, [*self._hidden(policy), own])
        for path in policy.writable:
            if path not in policy.hidden and os.path.exists(path):
                yield kind_of_rule(WRITE, path)
        yield from ((READ | WRITE, path) for path in (*parts, SHARED))
        yield from (kind_of_rule(DEVICE, path) for path in DEVICES)

    def _hidden(self, policy: SandboxPolicy) -> list[Path]:
        """Wherever it is mounted."""
        found = dict.fromkeys(policy.hidden)
        for there, here in self.mounts.items():
            for path in policy.hidden:
                if path.is_relative_to(here):
                    found[there / path.relative_to(here)] = None
                elif here.is_relative_to(path):
                    found[there] = None
        return list(found)

    def _children(self, path: Path) -> list[tuple[Path, bool]]:
        if any(path.is_relative_to(top) for top in self._folders):
            return _entries(path)
        tops = [there for there in self.mounts if path.is_relative_to(there)]
        if not tops:
            return self._listed.get(path, [])
        top = max(tops, key=lambda there: len(there.parts))
        found = _entries(self.mounts[top] / path.relative_to(top))
        # What is mounted below it has its own rule, or is hidden.
        below = [there for there in self.mounts if there.parent == path]
        return [*((path / child.name, folder) for child, folder in found), *((each, True) for each in below)]

    def _reading(self, path: Path, is_dir: bool, hidden: list[Path]) -> Iterator[Rule]:
        """Around what is hidden all else by its name: as it is now in the session's folders, at first in others."""
        if path in hidden:
            return
        if not hidden:
            yield (READ if is_dir else READ & FILE_RIGHTS, path)
            return
        yield (READ_DIR, path)
        for child, folder in self._children(path):
            yield from self._reading(child, folder, [each for each in hidden if each.is_relative_to(child)])


def own_folders(there: There) -> tuple[Path, Path, Path, Path]:
    """Ours in a place, and what commands may write of it: for their shell's state, /tmp and the home."""
    scratch = Path(there.scratch)
    return scratch, scratch / STATES, scratch / "tmp", scratch / "home"


def _entries(path: Path) -> list[tuple[Path, bool]]:
    try:
        with os.scandir(path) as entries:
            return [(Path(entry.path), entry.is_dir()) for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
