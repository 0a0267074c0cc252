"""A project folder with everything that records and takes back, without a session: real files, real commands."""

import os
import subprocess
import sys
import tempfile
import traceback
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

import anyio

from acp_agent.config.model import UndoConfig
from acp_agent.executors.users import find_user
from acp_agent.store.base import SessionRecord
from acp_agent.store.stores import sqlite_store
from acp_agent.undo import folder_looks
from acp_agent.undo.base import Change, Operation
from acp_agent.undo.contents import Contents
from acp_agent.undo.folder_looks import FolderLooks, Limits
from acp_agent.undo.folder_watch import Watch
from acp_agent.undo.operation_log import Log, rows_of
from acp_agent.undo.pictures import Camera
from acp_agent.undo.recording_files import RecordingFiles
from acp_agent.undo.restore import make
from acp_agent.undo.tidying import tidy
from acp_agent.undo.undo_plan import Plan, make_plan
from tests.executors.kit import local_files

State = dict[str, tuple[str, int, bytes]]
folder_looks.PIECE = 10.0  # The first look is whole, also on a busy machine.


class Bench:
    """`close` it."""

    def __init__(
        self, folder: Path, *, limits: Limits | None = None, quota: int = 0, session_id: str | None = None,
        watching: bool = True,
    ) -> None:  # fmt: skip
        """`session_id`: one that is in the store already. `watching`: whether the system tells what changes."""
        self.project = folder / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        self.contents = Contents(folder / "state" / "undo" / "contents", quota=quota)
        self.store = sqlite_store(folder / "state" / "sessions.db")
        self.session_id = session_id or str(uuid.uuid4())
        if session_id is None:
            self.store.create(SessionRecord(self.session_id, str(self.project)))
        self.log = Log(self.store.operations, self.session_id)
        self.camera = Camera(self.contents, 1_000_000)
        watch = Watch()
        if not watching:
            watch.close()
        self.looks = FolderLooks([self.project], self.contents, limits or Limits(10_000, 100_000), watch=watch)
        self.told: list[str] = []

    def close(self) -> None:
        self.looks.close()
        self.store.close()

    # --- who changes files ------------------------------------------------------------------------------------

    def by_tool(self, work: Callable[[RecordingFiles], Awaitable[object]], prompt: int = 1) -> str:
        """One call of our own tools; its id."""
        call = str(uuid.uuid4())
        files = RecordingFiles(local_files(), self.camera, self.log.begin(prompt, call, "call", "a tool"), self)
        anyio.run(work, files)
        return call

    def by_command(self, script: str, prompt: int = 1) -> str:
        """A command of the model's; the id of its call."""
        command = ["bash", "-ec", script]
        return self.by_program(
            lambda: subprocess.run(command, cwd=self.project, check=True, capture_output=True), prompt
        )

    def by_program(self, work: Callable[[], object], prompt: int = 1) -> str:
        """What a command does, done by `work`."""
        self.looks.look(1.0, report=False)
        work()
        call = str(uuid.uuid4())
        if changes := self.looks.look(1.0):
            self.log.begin(prompt, call, "call", "a command").changed(rows_of(changes))
        return call

    def changing(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        return self.looks.held(paths)

    def changed(self, changes: Sequence[Change]) -> None:
        self.looks.absorb([(each.path, each.after) for each in changes if each.after is not None])

    def not_kept(self, words: str) -> None:
        self.told.append(words)

    # --- taking back ------------------------------------------------------------------------------------------

    def operations(self, prompt: int = 1) -> list[Operation]:
        return [each for each in self.log.operations() if each.prompt >= prompt]

    def plan(self, operations: Sequence[Operation], *, merging: bool = False) -> Plan:
        return make_plan(self.log.changes(operations), self.camera.take, self.contents, merging=merging)

    def take_back(self, operations: Sequence[Operation], *, merging: bool = False, prompt: int = 1) -> Plan:
        """Takes them back, as an operation of that prompt (a redo takes that back)."""
        plan = self.plan(operations, merging=merging)
        changes = [Change(step.path, step.now, step.then) for step in plan.steps]
        undo = self.log.add_undo("undo", changes, [each.id for each in operations], 0, prompt)
        self.told += make(plan.steps, self.camera)
        self.log.settle(undo)
        self.looks.absorb([(step.path, step.then) for step in plan.steps])
        return plan

    def redo(self, prompt: int = 1) -> Plan:
        return self.take_back([[each for each in self.log.operations() if each.by == "undo"][-1]], prompt=prompt)

    def state(self) -> State:
        return state_of(self.project)


def as_a_user(work: Callable[[Path], object]) -> None:
    """Does that in an empty folder, as a user who is not root."""
    with tempfile.TemporaryDirectory(prefix="acp-undo-") as name:
        if (user := find_user("nobody") if os.geteuid() == 0 else None) is None:
            work(Path(name))
            return
        warm = Bench(Path(name, "warm"))  # That user may not be able to read Python's own files.
        warm.by_command("echo > a")
        warm.take_back(warm.operations())
        warm.close()
        os.chown(name, user.uid, user.gid)
        if (child := os.fork()) == 0:
            failed = 1
            try:
                os.setgroups([])
                os.setgid(user.gid)
                os.setuid(user.uid)
                work(Path(name))
                failed = 0
            finally:
                if failed:
                    traceback.print_exc()
                    sys.stderr.flush()
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0


def small_bench(folder: Path) -> Bench:
    """Contents of more than 1000 bytes are not kept in it."""
    bench = Bench(folder, limits=Limits(10_000, 1000))
    bench.camera = Camera(bench.contents, 1000)
    return bench


def state_of(folder: Path) -> State:
    """Kind, mode and content of everything below a folder."""
    found: State = {}
    for here, folders, files in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in (*folders, *files):
            path = Path(here, name)
            seen = path.lstat()
            content = b""
            if path.is_symlink():
                kind, content = "link", os.fsencode(os.readlink(path))
            elif path.is_dir():
                kind = "dir"
            elif path.is_file():
                kind, content = "file", path.read_bytes()
            else:
                kind = "other"
            found[str(path.relative_to(folder))] = (kind, 0 if kind == "link" else seen.st_mode & 0o7777, content)
    return found


def tidied(database: Path, state: Path, config: UndoConfig) -> list[str]:
    with closing(sqlite_store(database)) as store:
        return tidy(store, state, config)
