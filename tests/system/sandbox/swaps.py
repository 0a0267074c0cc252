"""Commands of two sessions run, and sessions are opened, while somebody of the same user swaps their folders for links:
`-m tests.system.sandbox.swaps UID KIND ROUNDS`. Prints what came out of the folders and what was changed elsewhere.
"""

import configparser
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace

from acp_agent.config.model import ToolsConfig
from acp_agent.disk import Folder
from acp_agent.errors import AgentError
from acp_agent.executors.base import Command
from acp_agent.executors.sandbox import landlock_alone, visible_paths
from acp_agent.executors.sandbox.base import REPLACED, Invocation
from acp_agent.executors.sandbox.bubblewrap import Bubblewrap
from acp_agent.executors.sandbox.probe import Found
from acp_agent.loop.shell.folder_sandbox import FolderSandbox
from acp_agent.loop.shell.private_folder import PrivateFolder
from acp_agent.opening import Opening
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import NewSessionRequest
from tests.agent.kit import environ_for
from tests.executors.races import exchange
from tests.executors.sandbox.runner import PYTHON, sandboxes, start

LOADED = (configparser, tomllib)
"""What is imported later, when this user may not read it any more."""
CANARY = "tangerine"
NAIVE = " naive"
"""What trusts names: the control, where the swap comes at the right moment."""
HOLDS = 0.006
"""Seconds for which a swap lasts at most: about as long as it takes to start a command."""
PLACES = {"pkg": "out", "pkg/.git": "out/.git", "pkg/.git/hooks": "out/.git/hooks", "sub": "out", "open": "out"}

SUB = f".link{list(PLACES).index('sub')}"

SWAPPER = f"""
import ctypes, random, sys, time
swap = ctypes.CDLL(None).renameat2
print("began", flush=True)
while True:
    one, other = random.choice({[(name, f".link{number}") for number, name in enumerate(PLACES)]})
    for _ in range(2):
        swap(-100, one.encode(), -100, other.encode(), 2)
        time.sleep(random.random() * {HOLDS})
"""

LOOKS = """
for each in . pkg pkg/.git pkg/.git/hooks sub .. ../.git ../.git/hooks; do
  read -r line <$each/secret && echo "$line"; echo x >$each/made; done
printf '[user]\\n\\tname = x%s\\n' $RANDOM >>pkg/.git/config; read -r line <pkg/.git/config; echo "$line"
read -r line <../.git/config && echo "$line"
"""


known = cache(sandboxes)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class Race:
    def __init__(self, base: Path, kind: str) -> None:
        self.project, self.out = base / "project", base / "out"
        for git in (self.project / "pkg/.git", self.out / ".git"):
            for name in ("objects", "refs", "hooks"):
                (git / name).mkdir(parents=True)
            put(git / "HEAD", "ref: refs/heads/main\n")
            put(git / "config", "[core]\n\tbare = false\n")
        for name in ("secret", ".git/secret", ".git/hooks/secret"):
            put(self.out / name, f"{CANARY}\n")
        put(self.out / ".git/config", f"# {CANARY}\n[core]\n\tbare = false\n")
        for name in ("sub", "open", "pkg/inner"):
            (self.project / name).mkdir()
        for number, target in enumerate(PLACES.values()):
            (self.project / f".link{number}").symlink_to(base / target)
        self.meant = Folder(self.project / "open").identity
        self.opening = Opening(environ_for(base, "http://127.0.0.1:9/v1"), {}, [str(self.project)])
        self.before = self.elsewhere()
        self.naive = kind.endswith(NAIVE)
        sandbox = known()[kind.removesuffix(NAIVE)]
        if isinstance(sandbox, Bubblewrap) and self.naive:
            sandbox = replace(sandbox, copies=False)
        self.found = Found(sandbox, kind)
        self.env = {"PATH": "/usr/bin:/bin", "HOME": "/home/acp-nobody"}
        folders = (self.project, self.project / "sub", self.project / "pkg/inner")  # The last: in a repository.
        self.sessions = [self.session(Roots(folder)) for folder in folders]
        self.counts: Counter[str] = Counter()
        self.leaked: list[str] = []

    def session(self, roots: Roots) -> tuple[Roots, FolderSandbox]:
        made = FolderSandbox(ToolsConfig(), roots, self.env, Path("/home/acp-nobody"), PrivateFolder(roots))
        made.found = self.found
        if made.kind == "landlock":
            made.paths.follow()
        return roots, made

    def elsewhere(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(self.out.rglob("*"))}

    def round(self, roots: Roots, session: FolderSandbox, between: Callable[[], None] = lambda: None) -> None:
        """One command; `between`: what happens between the look at the folders and the start."""
        try:
            session.paths.look()
            confined = session.confine(
                Invocation(("/bin/bash", "-c", LOOKS), roots.cwd, self.env), Command("", roots.cwd)
            )
        except (AgentError, OSError) as error:
            self.counts["refused"] += 1
            self.leaked += [str(error)] if CANARY in str(error) else []
            return
        said, trouble = "", ""
        between()
        try:
            with start(confined, leak=False) as process:
                said, trouble = process.communicate(timeout=30)
        except OSError:
            self.counts["not started"] += 1
        finally:
            said += confined.close()
        self.counts["replaced" if REPLACED in trouble else "ran"] += 1
        if CANARY in said + trouble:
            self.leaked.append(said + trouble)

    def open(self, name: str) -> Roots | None:
        """Of a session, if one may be opened there."""
        try:
            opened = self.opening.new(NewSessionRequest(cwd=str(self.project / name), mcp_servers=[]))
        except (AgentError, OSError):
            self.counts["not opened"] += 1
            return None
        self.counts["opened"] += 1
        return opened.roots

    def openings(self, number: int) -> None:
        meant = self.project / "open"
        for _ in range(number):
            if (roots := self.open("open")) is not None:
                each = roots.opened[0]
                if each.path != meant or each.identity not in (None, self.meant):
                    self.leaked.append(f"opened {each.path}")

    def run(self, rounds: int) -> dict[str, object]:
        if self.naive:
            self.round(*self.sessions[1], partial(exchange, self.project / "sub", self.project / SUB))
        else:
            self.race(rounds)
        return {"counts": self.counts, "leaked": self.leaked[:3], "changed": self.changed()}

    def changed(self) -> list[str]:
        after = self.elsewhere()
        return sorted(path for path in {*self.before, *after} if self.before.get(path) != after.get(path))

    def close(self) -> None:
        for _, session in self.sessions:
            session.folder.close()

    def race(self, rounds: int) -> None:
        swapper = subprocess.Popen([PYTHON, "-c", SWAPPER], cwd=self.project, stdout=subprocess.PIPE)
        assert swapper.stdout is not None
        try:
            swapper.stdout.readline()
            for number in range(rounds):
                self.round(*self.sessions[number % 3])
            self.openings(rounds)
        finally:
            swapper.kill()
            swapper.wait()
            swapper.stdout.close()


def trust_names() -> None:
    for module in (visible_paths, landlock_alone):
        vars(module).update(identity_of=lambda path: None, check_opened=lambda policy: None)
    Folder.need = lambda self: None  # type: ignore[method-assign]


def main() -> None:
    uid, kind, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    sys.executable = PYTHON  # Ours may be in the home of another user.
    if kind.endswith(NAIVE):
        trust_names()
    made = tempfile.TemporaryDirectory(prefix="acp-swaps-")
    with made as folder, closing(Race(Path(os.path.realpath(folder)), kind)) as race:
        sys.stdout.write(json.dumps(race.run(rounds)) + "\n")


if __name__ == "__main__":
    main()
