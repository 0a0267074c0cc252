"""Agents beside each other: what a user waits for and what the machine pays, each with the same client and the same
scripted model. `make compare PEERS=codex-acp,pi-acp` installs them first; without PEERS all of them.

    python scripts/compare.py [--runs N] [--write FILE] [PEER ...]

Each is started as the conformance kit's profile of it says, with an empty home, offline but for the model on the
loopback, which answers without a delay. The client offers a terminal and allows what is asked. A figure is the median
of its samples in a run; a cell has one median for each run, so that the spread is seen. Asserts nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench_client import Client, Event, text_of

from acp_agent.testing.fake_answers import Answer, Call, Reply
from acp_agent.testing.fake_model import FakeModel
from acp_conformance.profiles import Profile, environment, profile, write_files
from acp_conformance.trial import MODEL, RESULT

ROOT = Path(__file__).resolve().parents[1]
INSTALLED = ROOT / "tests" / ".agents"
PROGRAMS = {
    "claude-agent-acp": "claude-agent-acp",
    "codex-acp": "codex-acp",
    "codex-acp-2": "codex-acp",
    "gemini-cli": "gemini",
    "opencode": "opencode",
    "pi-acp": "pi-acp",
    "qwen-code": "qwen",
}
"""Of others: the folder of scripts/install_agents.sh, which is also the profile -> the command there."""
OURS = "acp-coder"

STARTS, WARM, ROUNDS, CANCELS, SESSIONS = 7, 7, 10, 5, 8
"""Samples of a start, warm prompts, tool rounds in a turn, cancelled turns, sessions at once."""
BURST, PACED, EVERY = 2000, 200, 10.0
"""Deltas at once; deltas one by one, and the milliseconds between two of these."""
LONGEST = 120.0
"""Seconds that a figure may take before its agent is ended and the cell says so."""
TASK = re.compile(r"\[\[(\w+) (\d+)\]\]")
STAMP = re.compile(r"<(\d+)>")

FIGURES = {
    "initialize": "spawn to `initialize` answered, ms",
    "session": "spawn to `session/new` answered, ms",
    "first": "spawn to the first word of the first answer, ms",
    "warm": "a later prompt to its first word, ms",
    "delta": "a delta of the model's to the client, ms",
    "burst": f"an answer of {BURST:,} deltas at once, ms",
    "round": "a tool round (`true` in a shell), ms",
    "at once": f"{SESSIONS} sessions at once, {BURST:,} deltas each, ms",
    "cancel": "cancel to the end of the turn, ms",
    "memory": "memory of all its processes after a turn, MiB",
    "request": "the first request to the model, kB",
}
"""Each with what it is; PSS for memory, so that shared pages count once."""


# --- the model ---------------------------------------------------------------------------------------------------


def answers(told: Path, tool: str) -> Callable[[dict[str, Any]], Reply]:
    """Says what the newest `[[task number]]` in the request wants. Writes down the size of each request of a turn;
    what an agent asks beside turns, without tools (a title), gets a few words."""

    def answer(body: dict[str, Any]) -> Reply:
        text = json.dumps(body, ensure_ascii=False)
        tasks = list(TASK.finditer(text))
        if f'"{tool}"' not in text or not tasks:
            return Answer(text="A title")
        with told.open("a", encoding="utf-8") as file:
            file.write(f"{len(text.encode())}\n")
        task = tasks[-1]
        kind, number = task[1], int(task[2])
        match kind:
            case "burst":
                return Answer(deltas=number)
            case "paced":
                return Answer(deltas=number, delta_text="<{now}> ", interval_ms=EVERY)
            case "rounds" if len(RESULT.findall(text, task.end())) < number:
                name, arguments = json.loads(os.environ["COMPARE_CALL"])
                return Answer(tool_calls=(Call(name, arguments),))
            case "hang":
                return Answer(text=("I begin. ", "I go on."), hang_after=1)
        return Answer(text="Done.")

    return answer


async def serve_model(told: Path, tool: str) -> None:
    model = FakeModel(answers(told, tool), models=(MODEL,))
    for wire in model.wires.values():
        wire.strict = False
    await model.start(0)
    sys.stdout.write(f"{model.base_url}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


# --- an agent ----------------------------------------------------------------------------------------------------


class Peer(Client):
    """An agent of anybody's, which is allowed what it asks."""

    def _serve(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method != "session/request_permission":
            return super()._serve(method, params)
        kinds = {option["kind"]: option["optionId"] for option in reversed(params["options"])}
        chosen = kinds.get("allow_once") or kinds["allow_always"]
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    def first_word(self, prompt: int) -> float:
        """When it came, in seconds; reads the turn to its end."""
        events: list[Event] = []
        while not text_of(events):
            events = [self.receive()]
        self.until(prompt)
        return events[0][0]


@dataclass
class Agent:
    """How one is started: its command, and the profile that tells it of the model."""

    name: str
    version: str
    command: list[str]
    profile: Profile
    home: Path
    base_url: str

    @contextmanager
    def started(self) -> Iterator[Peer]:
        """One that answered `initialize`; it is ended if it takes too long, so that no read waits for ever."""
        values = {
            "base_url": self.base_url, "root_url": self.base_url.removesuffix("/v1"), "model": MODEL,
            "home": str(self.home),
        }  # fmt: skip
        environ = environment(self.profile, values)
        environ["PATH"] = f"{Path(self.command[0]).parent}:{INSTALLED / 'node/node_modules/.bin'}:{environ['PATH']}"
        write_files(self.profile, values)
        peer = Peer(self.home, [*self.command, *self.profile.arguments], environ, {"terminal": True})
        watch = threading.Timer(LONGEST, peer.process.kill)
        watch.start()
        try:
            yield peer
        finally:
            watch.cancel()
            end(peer)


def end(peer: Peer) -> None:
    """With all that it has started: some leave it running."""
    assert peer.process.stdin is not None and peer.process.stdout is not None
    started = family(peer.process.pid)
    peer.process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        peer.process.wait(5)
    for pid in reversed(started):
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    peer.process.wait()
    peer.process.stdout.close()


def family(pid: int) -> list[int]:
    """A process and what it has started, as long as that lives."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def memory(pid: int) -> float:
    """MiB of a process and all below it."""
    total = 0
    for each in family(pid):
        with suppress(OSError):
            total += int(re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{each}/smaps_rollup").read_text(), re.M)[0])
    return total / 1024


# --- the figures -------------------------------------------------------------------------------------------------


def measured(agent: Agent, told: Path) -> dict[str, float | str]:
    """The median of each figure, or why there is none."""
    found: dict[str, float | str] = {}
    measures: dict[tuple[str, ...], Callable[[Agent], list[list[float]]]] = {
        ("initialize", "session", "first", "request"): lambda one: starts(one, told),
        ("warm", "memory"): warm,
        ("delta",): delta,
        ("burst",): burst,
        ("round",): rounds,
        ("at once",): at_once,
        ("cancel",): cancel,
    }
    for names, measure in measures.items():
        try:
            found |= dict(zip(names, map(statistics.median, measure(agent)), strict=True))
        except (RuntimeError, KeyError, IndexError, OSError) as error:
            sys.stderr.write(f"{agent.name}: {names[0]}: {error!r}\n")
            found |= dict.fromkeys(names, "failed")
    return found


def starts(agent: Agent, told: Path) -> list[list[float]]:
    initialized: list[float] = []
    made: list[float] = []
    first: list[float] = []
    for number in range(STARTS + 1):
        told.write_text("")
        with agent.started() as peer:
            answered = peer.initialize()
            session, opened = peer.new_session()
            word = peer.first_word(peer.ask(session, "[[say 1]]"))
            if number:  # The first one fills caches.
                for times, at in ((initialized, answered), (made, opened), (first, word)):
                    times.append((at - peer.spawned) * 1000)
    return [initialized, made, first, [int(told.read_text().split()[0]) / 1000]]


@contextmanager
def ready(agent: Agent) -> Iterator[tuple[Peer, str]]:
    """With a session that has had two turns."""
    with agent.started() as peer:
        peer.initialize()
        session, _ = peer.new_session()
        for _ in range(2):
            peer.prompt(session, "[[say 1]]")
        yield peer, session


def warm(agent: Agent) -> list[list[float]]:
    with ready(agent) as (peer, session):
        times = []
        for _ in range(WARM):
            begun = time.monotonic()
            times.append((peer.first_word(peer.ask(session, "[[say 1]]")) - begun) * 1000)
        return [times, [memory(peer.process.pid)]]


def delta(agent: Agent) -> list[list[float]]:
    with ready(agent) as (peer, session):
        pieces = text_of(peer.until(peer.ask(session, f"[[paced {PACED}]]")))
    return [[at * 1000 - int(stamp) / 1e6 for at, text in pieces for stamp in STAMP.findall(text)]]


def burst(agent: Agent) -> list[list[float]]:
    with ready(agent) as (peer, session):
        return [[peer.prompt(session, f"[[burst {BURST}]]") for _ in range(3)]]


def rounds(agent: Agent) -> list[list[float]]:
    with ready(agent) as (peer, session):
        peer.prompt(session, "[[rounds 1]]")
        alone = statistics.median(peer.prompt(session, "[[say 1]]") for _ in range(3))
        return [[(peer.prompt(session, f"[[rounds {ROUNDS}]]") - alone) / ROUNDS for _ in range(3)]]


def at_once(agent: Agent) -> list[list[float]]:
    with ready(agent) as (peer, first):
        sessions = [first, *(peer.new_session()[0] for _ in range(SESSIONS - 1))]
        times = []
        for _ in range(3):
            begun = time.monotonic()
            peer.until(*(peer.ask(each, f"[[burst {BURST}]]") for each in sessions))
            times.append((time.monotonic() - begun) * 1000)
        return [times[1:]]


def cancel(agent: Agent) -> list[list[float]]:
    with ready(agent) as (peer, session):
        times = []
        for _ in range(CANCELS):
            prompt = peer.ask(session, "[[hang 1]]")
            while not text_of([peer.receive()]):
                pass
            begun = time.monotonic()
            peer.notify("session/cancel", {"sessionId": session})
            times.append((peer.until(prompt)[-1][0] - begun) * 1000)
        return [times]


# --- the table ---------------------------------------------------------------------------------------------------


def command_of(name: str) -> list[str]:
    if name == OURS:
        return [str(Path(sys.executable).with_name(OURS))]
    return [str(INSTALLED / name / "node_modules" / ".bin" / PROGRAMS[name])]


def version_of(name: str) -> str:
    if name == OURS:
        return importlib.metadata.version(OURS)
    return (INSTALLED / name / ".installed").read_text().strip().rpartition("@")[2]


def compared(name: str) -> dict[str, float | str]:
    """A run of one agent, in a home of its own, with a model of its own."""
    chosen = profile(name)
    # Not below /tmp itself: codex-acp makes no helper programs in a home there.
    folder = Path(tempfile.mkdtemp(prefix="compare-", dir=os.environ.get("COMPARE_HOME")))
    call = chosen.tools["shell"].call(command="true")
    told = folder / "told"
    model = subprocess.Popen(
        [sys.executable, __file__, "--model", str(told), call[0]],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "COMPARE_CALL": json.dumps(call)},
    )  # fmt: skip
    try:
        assert model.stdout is not None
        home = folder / "home"
        home.mkdir()
        base_url = model.stdout.readline().strip()
        agent = Agent(name, version_of(name), command_of(name), chosen, home, base_url)
        return measured(agent, told)
    finally:
        model.kill()
        model.wait()
        assert model.stdout is not None
        model.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def shown(values: Sequence[float | str]) -> str:
    """The runs of a cell, the least first."""
    numbers = sorted(each for each in values if isinstance(each, float))
    if len(numbers) < len(values):
        return "failed"
    texts = [f"{each:.2f}" if each < 10 else f"{each:,.0f}" for each in numbers]
    return " – ".join(dict.fromkeys((texts[0], texts[-1])))


def table(runs: Mapping[str, Sequence[Mapping[str, float | str]]]) -> str:
    lines = [f"| | {' | '.join(f'{name} {version_of(name)}' for name in runs)} |", "|---|" + "---|" * len(runs)]
    for figure, what in FIGURES.items():
        lines.append(f"| {what} | {' | '.join(shown([run[figure] for run in each]) for each in runs.values())} |")
    return "\n".join(lines)


def machine() -> str:
    text = Path("/proc/cpuinfo").read_text()
    kind = next(iter(re.findall(r"model name\s*: (.+)", text)), platform.machine())
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} CPUs ({kind}), {system}, load {load}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Agents beside each other.")
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"of {', '.join(PROGRAMS)}; default: all")
    parser.add_argument("--runs", type=int, default=2, help="whole runs, each of all agents (2)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page whose table and machine are replaced")
    parser.add_argument("--model", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.model:
        asyncio.run(serve_model(Path(chosen.model[0]), chosen.model[1]))
        return
    names = [OURS, *(peer for peer in chosen.peers or PROGRAMS if peer != OURS)]
    for name in names:
        if name != OURS and name not in PROGRAMS:
            parser.error(f"{name} is none of {', '.join(PROGRAMS)}")
        if not Path(command_of(name)[0]).exists():
            parser.error(f"{name} is not installed: make compare PEERS={name}")
    runs: dict[str, list[dict[str, float | str]]] = {name: [] for name in names}
    before = machine()
    for number in range(chosen.runs):
        for name in names:
            sys.stderr.write(f"run {number + 1} of {chosen.runs}: {name}\n")
            runs[name].append(compared(name))
    made = f"{datetime.now(UTC):%-d %B %Y}, {chosen.runs} runs. {before} at the beginning.\n\n{table(runs)}\n"
    sys.stdout.write(made)
    if chosen.write:
        page = chosen.write.read_text(encoding="utf-8")
        begin, end_ = "<!-- made by scripts/compare.py -->\n\n", "\n<!-- end -->"
        head, tail = page.partition(begin)[0], page.partition(end_)[2]
        chosen.write.write_text(f"{head}{begin}{made}{end_}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
