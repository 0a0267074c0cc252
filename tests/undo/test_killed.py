"""An agent that is killed in the middle of an undo: the next start finishes it."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from acp_agent.config.model import UndoConfig
from acp_agent.undo.base import Change
from acp_agent.undo.restore import held
from acp_agent.undo.tidying import tidy

from .kit import Bench

ROUNDS = 200
FILES = 25


def undo_in_a_fork(folder: Path, session_id: str, operation: int, ready: int) -> None:
    """Takes back one operation; is killed at some moment."""
    bench = Bench(folder, session_id=session_id)
    chosen = [each for each in bench.log.operations() if each.id == operation]
    os.write(ready, b"x")
    bench.take_back(chosen)


def test_what_was_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(FILES):
        (bench.project / f"{number}.txt").write_text(f"before {number}\n" * 50)
    before = bench.state()
    bench.by_command(
        "for f in *.txt; do echo after > $f; done; rm 3.txt; mkdir -p new/er; mv 4.txt new/er; chmod 600 5.txt"
    )
    after = bench.state()
    database, state = tmp_path / "state" / "sessions.db", tmp_path / "state"
    chance, middles = random.Random(11), 0
    standing = "after"
    for _ in range(ROUNDS):
        undos = [each for each in bench.log.operations() if each.by == "undo" and each.state == "done"]
        last = undos[-1] if undos else bench.log.operations()[0]
        out, into = os.pipe()
        if (child := os.fork()) == 0:
            try:
                undo_in_a_fork(tmp_path, bench.session_id, last.id, into)
            finally:
                os._exit(0)
        os.read(out, 1)
        until = time.monotonic() + chance.random() * 0.02
        while time.monotonic() < until:
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(out)
        os.close(into)
        middles += bench.state() not in (before, after)
        words = tidy(database, state, UndoConfig())
        assert not words
        assert not bench.store.operations.running()
        now = bench.state()
        done = [each for each in bench.log.operations() if each.by == "undo"]
        standing = "after" if len(done) % 2 == 0 else "before"
        assert now == (after if standing == "after" else before)
    assert middles > ROUNDS // 20, "it was killed in the middle often enough to mean something"
    bench.close()


def test_a_live_agents_undo_is_left_to_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.project / "a").write_text("a")
    bench.by_command("echo b > a")
    plan = bench.plan(bench.operations())
    undo = bench.log.add_undo("undo", [Change(step.path, step.now, step.then) for step in plan.steps], [1], 0, 0)
    with held(bench.contents.folder.parent, undo) as ours:
        assert ours
        if (child := os.fork()) == 0:
            words = tidy(tmp_path / "state" / "sessions.db", tmp_path / "state", UndoConfig())
            os._exit(0 if not words else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (bench.project / "a").read_text() == "b\n"
    tidy(tmp_path / "state" / "sessions.db", tmp_path / "state", UndoConfig())
    assert (bench.project / "a").read_text() == "a"
    bench.close()
