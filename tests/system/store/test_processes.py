"""Several processes with one store, killed at any moment; on a file here, on PostgreSQL in `test_contract`."""

import os
import random
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.store.conftest import open_at, place

__all__ = ["place"]

ROOT = Path(__file__).resolve().parents[3]

Place = tuple[str, str]


def writer(place: Place, session: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.writer", *place, session], stdout=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def acknowledged(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Lets the writer write until it has said `count` numbers, kills it, and gives every number it said."""
    assert process.stdout is not None
    with process:
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return [int(line) for line in lines if line.endswith(b"\n")]


def test_a_killed_writer_loses_nothing_it_acknowledged(place: Place) -> None:
    chance = random.Random(7)
    for _ in range(5):
        said = acknowledged(writer(place, "s"), chance.randint(1, 60))
        with closing(open_at(place)) as store:
            kept = [int(entry.payload) for entry in store.entries("s")]
        assert kept == list(range(len(kept))), "in order, without a gap"
        assert kept[-1] >= said[-1]


def test_several_processes_make_the_store_and_write_at_once(place: Place) -> None:
    assert all(acknowledged(process, 1)[0] == 0 for process in [writer(place, f"s{number}") for number in range(4)])
    writers = {name: writer(place, name) for name in ("a", "b", "c")}
    said = {name: acknowledged(process, 20) for name, process in writers.items()}
    with closing(open_at(place)) as store:
        for name, numbers in said.items():
            assert [int(entry.payload) for entry in store.entries(name)][: len(numbers)] == numbers
