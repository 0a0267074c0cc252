"""Benchmarks of what is long or wide: does it cost more than it is longer? `make bench-long`, or `scripts/bench_long.py
[--part N] [NAME ...]`.

Prints one table and asserts nothing. Each measurement is a row of `MEASUREMENTS`, run at three sizes, each in a process
of its own with an agent, an editor and a model in memory. `growth`: how much more the last size costs than the middle
one, divided by how much larger it is; 1 is in proportion, 0.1 of ten times is the same for both, and 10 is a square.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from acp_agent.schema import acp
from acp_agent.store.base import LogEntry
from acp_agent.store.stores import sqlite_store
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import Rig, agent_rig, rig

PATIENCE = 500.0
"""Seconds that one prompt may take."""
STEPS = 10
"""Calls of one answer."""
SERVER = """
import json, sys
tools = [{"name": f"tool{n}", "description": f"Does thing {n} with a path.", "inputSchema": {"type": "object",
    "properties": {"path": {"type": "string", "description": "A path"}}}} for n in range(int(sys.argv[1]))]
for line in sys.stdin:
    asked = json.loads(line)
    result = {"tools": tools} if asked["method"] == "tools/list" else {"protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}}, "serverInfo": {"name": "many", "version": "1"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""

Figures = dict[str, float]
"""By what was done: milliseconds, or a size."""
Work = Callable[[Path, int], Awaitable[Figures]]


async def took(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


def prompted(editor: FakeEditor, text: str = "go") -> Awaitable[float]:
    return took(editor.prompt(text, seconds=PATIENCE))


def lengthened(home: Path, session: str, prompts: int) -> Figures:
    """Puts what the log has of the last prompt into it so many times; what its index and a search cost."""
    (file,) = home.rglob("*.db")
    with closing(sqlite_store(file)) as store:
        entries = store.entries(session)
        at = max(number for number, entry in enumerate(entries) if entry.kind == "turn")
        mark = json.loads(entries[at].payload)
        more = []
        for number in range(2, prompts + 1):
            more.append(LogEntry("turn", json.dumps({**mark, "number": number}).encode()))
            more += entries[at + 1 :]
        store.append(session, more)
        store._db.change("UPDATE sessions SET turns = ?, unsearched = 1 WHERE id = ?", prompts, session)
        began = time.perf_counter()
        store.history.catch_up()
        indexed = time.perf_counter()
        store.history.search("needles")
        return {"index": (indexed - began) * 1000, "search": (time.perf_counter() - indexed) * 1000}


async def conversation(home: Path, prompts: int) -> Figures:
    """A session of so many prompts is opened, listed, looked for, and cut."""
    async with rig(home, lambda body: Answer(text="An answer of some words.\n" * 20), check=False) as made:
        session = made.editor.session_id
        await made.editor.prompt("Say something about needles.")
        await made.editor.client.close_session(session)
    found = lengthened(home, session, prompts)
    async with agent_rig(home, lambda body: Answer(text="One."), check=False) as made:
        client = made.editor.client
        found["list"] = await took(client.ask("session/list", {"cwd": str(made.project)}))
        found["resume"] = await took(made.editor.resume_session(session, made.project))
        found["first prompt"] = await prompted(made.editor)
        found["rewind"] = await prompted(made.editor, f"/undo {max(1, prompts - 5)} conversation yes")
        found["redo"] = await prompted(made.editor, "/redo yes")
        found["prompt"] = await prompted(made.editor)
        await client.close_session(session)
        found["load"] = await took(made.editor.load_session(session, made.project))
    return found


def _size(made: Rig) -> float:
    """Of the last request."""
    return len(json.dumps(made.model.requests[-1].body)) / 1000


async def calls(home: Path, count: int) -> Figures:
    """So many calls in a turn, in answers of ten."""
    answers = iter(range(count // STEPS))

    def script(body: dict[str, Any]) -> Answer:
        if (at := next(answers, None)) is None:
            return Answer(text="Done.")
        return Answer(tool_calls=tuple(Call("read", {"path": f"file{at * STEPS + n}"}) for n in range(STEPS)))

    files = {f"file{number}": f"line of file {number}\n" for number in range(count)}
    async with rig(home, script, files=files, mode="auto", check=False) as made:
        turn = await prompted(made.editor)
        return {"turn": turn, "calls": len(made.editor.tool_calls()), "last request, kB": _size(made)}


async def answer(home: Path, size: int) -> Figures:
    """An answer of so many bytes, in pieces of a hundred."""
    text = [
        f"Line {number} says {hash(str(number))}, and {number * number} in words. ".ljust(99, "x") + "\n"
        for number in range(size // 100)
    ]
    async with rig(home, [Answer(text=tuple(text)), "Next."], check=False) as made:
        turn = await prompted(made.editor)
        return {"turn": turn, "characters": len(made.editor.text()), "next turn": await prompted(made.editor)}


async def plan(home: Path, steps: int) -> Figures:
    """A plan of so many steps, sent ten times."""
    entries = [{"content": f"Do thing {number}", "status": "pending"} for number in range(steps)]
    asks = Answer(tool_calls=(Call("plan", {"entries": entries}),))
    async with rig(home, (*[asks] * STEPS, "Done."), check=False) as made:
        return {"ten plans": await prompted(made.editor)}


async def offers(home: Path, count: int) -> Figures:
    """So many tools of an MCP server, and skills: the start, and the first request."""
    for number in range(count):
        folder = home / "project" / ".agents" / "skills" / f"skill{number}"
        folder.mkdir(parents=True)
        text = f"---\nname: skill{number}\ndescription: Does thing {number} well\n---\nDo it.\n"
        (folder / "SKILL.md").write_text(text)
    server = acp.McpServerStdio(name="many", command=sys.executable, args=["-c", SERVER, str(count)], env=[])
    async with agent_rig(home, lambda body: Answer(text="One."), check=False) as made:
        start = await took(made.editor.new_session(made.project, mcp_servers=[server]))
        first = await prompted(made.editor)
        size = _size(made)
        return {"start": start, "first prompt": first, "next prompt": await prompted(made.editor), "request, kB": size}


async def deep(home: Path, depth: int) -> Figures:
    """Folders in folders, with names of 255 bytes."""

    def dig(project: Path) -> None:
        at, name = os.open(project, os.O_RDONLY), "d" * 255
        for _ in range(depth):
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(os.open("needle", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=at))
        os.close(at)

    async def asked(made: Rig, call: Call) -> float:
        script.extend([Answer(tool_calls=(call,)), Answer(text="Done.")])
        return await prompted(made.editor)

    script: list[Answer] = []
    async with rig(home, lambda body: script.pop(0), mode="auto", before=dig, check=False, terminal=False) as made:
        first = await asked(made, Call("bash", {"command": "true"}))
        found = await asked(made, Call("find_path", {"pattern": "needle"}))
        return {
            "first command": first,
            "find_path": found,
            "command": await asked(made, Call("bash", {"command": "true"})),
        }


@dataclass(frozen=True)
class Measurement:
    name: str
    work: Work
    sizes: tuple[int, int, int]


MEASUREMENTS = (
    Measurement("prompts of a session", conversation, (100, 1_000, 10_000)),
    Measurement("calls in a turn", calls, (10, 100, 1_000)),
    Measurement("bytes of an answer", answer, (50_000, 500_000, 5_000_000)),
    Measurement("steps of a plan", plan, (5, 50, 500)),
    Measurement("tools of MCP, and skills", offers, (2, 20, 200)),
    Measurement("folders in folders", deep, (2, 20, 200)),
)


def measured(row: Measurement, size: int) -> Figures:
    """In a process of its own, so that its peak memory is that of this."""
    command = [sys.executable, __file__, "--one", row.name, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr[-2000:])
        return {}
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def one(name: str, size: int) -> None:
    row = next(row for row in MEASUREMENTS if row.name == name)
    with tempfile.TemporaryDirectory() as home:
        found: Figures = asyncio.run(row.work(Path(home), size))  # type: ignore[arg-type]
    found["peak, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(found) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SIZE"), help="one measurement, as JSON")
    parser.add_argument("--part", type=int, default=1, help="a part of each size: 10 is a tenth")
    parser.add_argument("names", nargs="*", help="beginnings of names of measurements; without any, all")
    options = parser.parse_args()
    if options.one:
        one(options.one[0], int(options.one[1]))
        return
    for row in MEASUREMENTS:
        if not row.name.startswith(tuple(options.names) or ""):
            continue
        sizes = [max(size // options.part, 1) for size in row.sizes]
        found = [measured(row, size) for size in sizes]
        sys.stdout.write(f"{row.name:26}{''.join(f'{size:>12,}' for size in sizes)}   growth\n")
        for name in found[-1] or found[0]:
            values = [each.get(name, float("nan")) for each in found]
            growth = values[-1] / values[-2] / (sizes[-1] / sizes[-2])
            sys.stdout.write(f"  {name:24}{''.join(f'{value:12,.0f}' for value in values)} {growth:8.2f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
