"""Benchmarks: how long a user waits, and what it costs. `make bench`, or `scripts/bench.py NAME ...` for some of them.

Prints one table and asserts nothing. Times are in ms or, if they depend on how fast the machine starts Python, in units
of B: the time of `python3 -c pass` in an empty virtual environment, measured alternately with the benchmark.

The agent is the installed command, driven over pipes with blocking reads; the model is `FakeModel` in a separate
process on the loopback. "Net" excludes the model's time, measured as the same request on a plain socket.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import bench_client
import bench_compaction
import bench_extensions
import bench_lsp_diagnostics
import bench_lsp_front
import bench_output
import bench_places
import bench_proxy
import bench_sandbox
import bench_secrets
import bench_server
import bench_store
import bench_undo
from bench_client import PROMPT, finish, start, text_of

from acp_agent.config.model import ToolsConfig
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.executors.base import FindQuery, GrepQuery
from acp_agent.executors.disk_files import DiskFiles, LocalDisk
from acp_agent.executors.shell_state import with_state
from acp_agent.llm.base import AssistantMessage, Message, ModelSettings, TextPart, UserMessage
from acp_agent.llm.chat_request import Dialect, RequestEncoder
from acp_agent.loop.modes import MODES
from acp_agent.loop.toolbox.offer import Offer
from acp_agent.loop.toolbox.relevance import Relevance
from acp_agent.tools.kit.registry import builtin_registry

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).with_name("acp-coder"))
TERMINALS = {"terminal": True}
ANSWER: dict[str, Any] = {"text": "Hello."}
BASH: dict[str, Any] = {"tool_calls": [{"name": "bash", "arguments": '{"command": "true"}'}]}
SLEEP: dict[str, Any] = {"tool_calls": [{"name": "bash", "arguments": '{"command": "sleep 600"}'}]}
LOG_LINE = "2026-01-02 03:04:05.678 INFO worker-7 request 4711 served in 12 ms, 200, 5,120 bytes"
FLOOD = f"yes '{LOG_LINE}' | head -c {1 << 30}"
"""Prints 1 GiB."""

# --- the table ---------------------------------------------------------------------------------------------------


@dataclass
class Row:
    figure: str
    target: str
    samples: list[float]
    unit: str = "ms"
    note: str = ""
    base: float | None = None
    """B in ms, if the target is in B."""

    def cells(self) -> tuple[str, ...]:
        middle, least, most = statistics.median(self.samples), min(self.samples), max(self.samples)
        in_b = f"{middle / self.base:.1f} ({least / self.base:.1f} to {most / self.base:.1f})" if self.base else ""
        numbers = (f"{value:.2f} {self.unit}".strip() for value in (middle, least, most))
        return (self.figure, self.target, *numbers, in_b, self.note)


HEAD = ("figure", "target", "median", "min", "max", "in B", "")


def table(rows: Sequence[Row]) -> str:
    cells = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]]) + "\n"


def environment(home: Path, base_url: str, **more: str) -> dict[str, str]:
    """The environment the agent is started with; nothing in it comes from the user who measures."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": base_url,
        "OPENAI_MODEL": "fake-model",
        "ACP_CODER_KEYRING": "0",
        **more,
    }


# --- the agent ---------------------------------------------------------------------------------------------------


class Client(bench_client.Client):
    """Our agent."""

    def __init__(
        self,
        home: Path,
        base_url: str,
        capabilities: dict[str, Any] | None = None,
        *,
        sandbox: bool = True,
        api: str = "chat",
        environ: Mapping[str, str] | None = None,
        v2: bool = False,
    ) -> None:
        if v2:
            (home / "v2.toml").write_text("[protocol]\nv2 = true\n")
            environ = {**(environ or {}), "ACP_CODER_CONFIG": str(home / "v2.toml")}
        more = {**(environ or {}), **({} if sandbox else {"ACP_CODER_SANDBOX_DISABLED": "true"})}
        environ = environment(home, base_url, ACP_CODER_API=api, OPENAI_API_KEY="x", **more)
        super().__init__(home, [COMMAND], environ, capabilities, v2=v2)


@contextmanager
def agent(
    home: Path,
    model: Model,
    capabilities: dict[str, Any] | None = None,
    *,
    sandbox: bool = True,
    api: str = "chat",
    environ: Mapping[str, str] | None = None,
    v2: bool = False,
) -> Iterator[Client]:
    """An agent that has answered `initialize`."""
    client = Client(home, model.base_url, capabilities, sandbox=sandbox, api=api, environ=environ, v2=v2)
    try:
        client.initialize()
        yield client
    finally:
        client.close()


def settle(client: Client, session: str, turns: int = 3) -> None:
    """Waits until everything is loaded: warm figures apply long after a user has started."""
    for _ in range(turns):
        client.prompt(session)
    time.sleep(0.3)


# --- the model ---------------------------------------------------------------------------------------------------


class Model:
    """A scripted model in a separate process; the last answer of `script` repeats."""

    def __init__(self, home: Path, script: Sequence[dict[str, Any]]) -> None:
        file = home / "script.json"
        file.write_text(json.dumps([*script[:-1], {**script[-1], "repeat": True}]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "acp_agent.testing.fake_model", str(file)], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.base_url = self.process.stdout.readline().decode().strip()
        self._socket: socket.socket | None = None

    def direct(self, messages: Sequence[Message]) -> float:
        """The time in ms of the agent's request when sent by a plain socket."""
        definitions = [entry.definition for entry in builtin_registry().entries()]
        settings = ModelSettings(model="fake-model", system="x" * 2000)
        body = RequestEncoder(Dialect(openai=False)).encode(messages, definitions, settings)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        if self._socket is None:
            port = int(self.base_url.rpartition(":")[2].partition("/")[0])
            self._socket = socket.create_connection(("127.0.0.1", port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.monotonic()
        self._socket.sendall(head + body)
        answer = b""
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += self._socket.recv(1 << 16)
        return (time.monotonic() - started) * 1000

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def scripted(home: Path, *script: dict[str, Any]) -> Iterator[Model]:
    model = Model(home, script)
    try:
        yield model
    finally:
        model.close()


def user(text: str = PROMPT) -> UserMessage:
    return UserMessage((TextPart(text),))


# --- benchmarks --------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """Where benchmarks run: their own home folder and an empty virtual environment."""

    home: Path
    bare_python: str
    rows: list[Row] = field(default_factory=list)

    def add(self, figure: str, target: str, samples: list[float], **more: Any) -> None:
        self.rows.append(Row(figure, target, samples, **more))

    def start_up(self) -> None:
        """From spawn to the first answers, alternating with B."""
        bare: list[float] = []
        first: list[float] = []
        session: list[float] = []
        chunk: list[float] = []
        with scripted(self.home, ANSWER) as model:
            for number in range(24):
                started = time.monotonic()
                subprocess.run([self.bare_python, "-c", "pass"], check=True)
                took = (time.monotonic() - started) * 1000
                client = Client(self.home, model.base_url)
                initialized = client.initialize()
                session_id, made = client.new_session()
                prompt = client.ask(session_id)
                while not text_of([event := client.receive()]):
                    pass
                client.until(prompt)
                client.close()
                if number >= 3:
                    bare.append(took)
                    first.append((initialized - client.spawned) * 1000)
                    session.append((made - client.spawned) * 1000)
                    chunk.append((event[0] - client.spawned) * 1000)
        base = statistics.median(bare)
        self.add("B: python3 -c pass", "", bare)
        self.add("spawn to initialize answered", "4 B", first, base=base)
        self.add("spawn to session/new answered", "8 B", session, base=base)
        self.add("spawn to first chunk", "20 B", chunk, base=base)

    def warm_prompt(self) -> None:
        with scripted(self.home, ANSWER) as model, agent(self.home, model) as client:
            session, _ = client.new_session()
            settle(client, session, 10)
            samples = []
            for _ in range(50):
                took = client.prompt(session)
                samples.append(took - model.direct([user()]))
        self.add("warm prompt, net", "5 ms", samples)

    def early_prompts(self) -> None:
        """Turns 2 to 11 of a new process, without pauses: anything still to be loaded delays them."""
        samples = []
        with scripted(self.home, ANSWER) as model:
            for _ in range(5):
                with agent(self.home, model) as client:
                    session, _ = client.new_session()
                    client.prompt(session)
                    for _ in range(10):
                        took = client.prompt(session)
                        samples.append(took - model.direct([user()]))
        self.add("turns 2 to 11 of a process, net", "8 ms", samples)

    def stream(self) -> None:
        """2,000 deltas as fast as the model sends them."""
        expected = "".join(f"{number} " for number in range(2000))
        script = (ANSWER, {"deltas": 2000, "delta_text": "{number} "})
        taken: dict[bool, list[float]] = {False: [], True: []}
        wall, verdict = [], "whole, in order"
        with (
            scripted(self.home, *script) as model,
            scripted(self.home, *script) as other,
            agent(self.home, model) as v1,
            agent(self.home, other, v2=True) as v2,
        ):
            sessions = {client: client.new_session()[0] for client in (v1, v2)}
            for client, session in sessions.items():
                settle(client, session, 1)
            for client, session in [*sessions.items()] * 9:
                before, started = client.cpu(), time.monotonic()
                events = client.until(client.ask(session))
                if client is v1:
                    wall.append((events[-1][0] - started) * 1000)
                taken[client is v2].append(client.cpu() - before)
                got = "".join(text for _, text in text_of(events))
                if got != expected:
                    verdict = f"WRONG: {len(got)} of {len(expected)} characters"
        self.add("2,000 deltas: agent CPU", "150 ms", taken[False], note=verdict)
        self.add("2,000 deltas: wall, model included", "", wall)
        ratio = [100 * statistics.median(taken[True]) / statistics.median(taken[False]) - 100]
        self.add("2,000 deltas in v2 of ACP: more CPU than in v1", "10 %", ratio, unit="%")

    def wire_apis(self) -> None:
        """The same 2,000 deltas, and a first answer of a new process, by each wire API."""
        for api in (api for api, row in WIRE_APIS.items() if row.fake):
            cpu, first, verdict = [], [], "whole"
            script = (ANSWER, {"deltas": 2000, "delta_text": "{number} "})
            with scripted(self.home, *script) as model, agent(self.home, model, api=api) as client:
                session, _ = client.new_session()
                settle(client, session, 1)
                for _ in range(5):
                    before = client.cpu()
                    events = client.until(client.ask(session))
                    cpu.append(client.cpu() - before)
                    if "".join(text for _, text in text_of(events)) != "".join(f"{n} " for n in range(2000)):
                        verdict = "WRONG"
            with scripted(self.home, ANSWER) as model:
                for _ in range(12):
                    with agent(self.home, model, api=api) as client:
                        session, _ = client.new_session()
                        client.ask(session)
                        while not text_of([event := client.receive()]):
                            pass
                        first.append((event[0] - client.spawned) * 1000)
            self.add(f"{api}: 2,000 deltas, agent CPU", "150 ms", cpu, note=verdict)
            self.add(f"{api}: spawn to first chunk", "as chat", first)

    def pace(self) -> None:
        """A delta every 10 ms: from the model's write to the client's read."""
        self._pace("a delta every 10 ms")

    def _pace(self, what: str, environ: Mapping[str, str] | None = None) -> None:
        with (
            scripted(self.home, ANSWER, {"deltas": 300, "delta_text": "{now} ", "interval_ms": 10}) as model,
            agent(self.home, model, environ=environ) as client,
        ):
            session, _ = client.new_session()
            settle(client, session, 1)
            pieces = text_of(client.until(client.ask(session)))
        late = _delays(pieces)
        percentile = statistics.quantiles(late, n=20)[-1]
        self.add(f"{what}: median delay", "1 ms", late, note=f"{len(late)} of 300 deltas")
        self.add(f"{what}: p95 of the delay", "3 ms", [percentile])

    def bash_editor(self) -> None:
        def spawn(client: Client, copy: str) -> float:
            started = time.monotonic()
            finish(start(["bash", copy], client.project, dict(os.environ)))
            return (time.monotonic() - started) * 1000

        self._bash("one bash round in the editor's terminal, net", TERMINALS, spawn)

    def bash_local(self) -> None:
        def spawn(client: Client, copy: str) -> float:
            script = with_state("true", self.home / "bench-state")
            started = time.monotonic()
            finish(start(["bash", "-c", script], client.project, dict(os.environ)))
            return (time.monotonic() - started) * 1000

        self._bash("one bash round run locally, net", {}, spawn)
        self._bash("one bash round in the sandbox, net", {}, spawn, sandbox=True, target="15 ms")

    def _bash(
        self,
        figure: str,
        capabilities: dict[str, Any],
        spawn: Callable[[Client, str], float],
        *,
        sandbox: bool = False,
        target: str = "8 ms",
    ) -> None:
        """A turn with one call, minus one without, minus another request to the model, minus the process itself."""
        rounds = 30
        script = [*[ANSWER] * 4, *[ANSWER, ANSWER, BASH, ANSWER] * (rounds + 3)]
        copy = str(self.home / "copy.sh")
        Path(copy).write_text(f"exec </dev/null; {with_state('true', self.home / 'bench-state')}\n")
        samples = []
        with scripted(self.home, *script) as model, agent(self.home, model, capabilities, sandbox=sandbox) as client:
            session, _ = client.new_session()
            client.set_mode(session, "auto")
            settle(client, session, 4)
            for number in range(rounds + 3):
                plain, asked = client.prompt(session), model.direct([user()])
                took = client.prompt(session)
                if number >= 3:
                    samples.append(took - plain - asked - spawn(client, copy))
        self.add(figure, target, samples)

    def long_session(self) -> None:
        """Turns 196 to 215 of one session, each next to a turn 1 to 5 of a new one, which cancels out the machine's
        fluctuations. A session's very first turn, which builds what the session needs, is not included.
        """
        wall: tuple[list[float], list[float]] = ([], [])
        cpu: tuple[list[float], list[float]] = ([], [])
        with scripted(self.home, ANSWER) as model, agent(self.home, model) as client:
            old, _ = client.new_session()
            settle(client, old, 195)
            for number in range(20):
                if number % 5 == 0:
                    new, _ = client.new_session()
                    client.prompt(new)
                for which, session, turns in ((0, new, 1 + number % 5), (1, old, 195 + number)):
                    history: list[Message] = [user(), AssistantMessage("Hello.")] * turns
                    before = client.cpu()
                    took = client.prompt(session)
                    cpu[which].append(client.cpu() - before)
                    wall[which].append(took - model.direct([*history, user()]))
        for what, (early, late) in (("net wall", wall), ("agent CPU", cpu)):
            ratios = [after / before for before, after in zip(early, late, strict=True)]
            words = f"{statistics.median(early):.2f} ms, then {statistics.median(late):.2f} ms"
            self.add(f"turn 200 against turn 1: {what}", "1.3 times", ratios, unit="times", note=words)

    def many_sessions(self) -> None:
        wall, verdict = [], "whole, in order"
        expected = "".join(f"{number} " for number in range(500))
        with (
            scripted(self.home, *[ANSWER] * 8, {"deltas": 500, "delta_text": "{number} "}) as model,
            agent(self.home, model) as client,
        ):
            sessions = [client.new_session()[0] for _ in range(8)]
            for session in sessions:
                client.prompt(session)
            time.sleep(0.3)
            for _ in range(7):
                started = time.monotonic()
                events = client.until(*(client.ask(session) for session in sessions))
                wall.append((events[-1][0] - started) * 1000)
                for session in sessions:
                    own = [event for event in events if event[1].get("params", {}).get("sessionId") == session]
                    if "".join(text for _, text in text_of(own)) != expected:
                        verdict = "WRONG text"
            memory = client.peak_memory()
        self.add("eight sessions, 500 deltas each", "500 ms", wall, note=verdict)
        self.add("peak memory then", "100 MiB", [memory], unit="MiB")

    def cancel_stream(self) -> None:
        samples = []
        with (
            scripted(self.home, ANSWER, {"deltas": 10_000, "interval_ms": 5}) as model,
            agent(self.home, model) as client,
        ):
            session, _ = client.new_session()
            settle(client, session, 1)
            for _ in range(15):
                prompt = client.ask(session)
                while not text_of([client.receive()]):
                    pass
                time.sleep(0.05)
                samples.append(self._cancel(client, session, prompt))
        self.add("cancel to answer, streaming", "3 ms", samples)

    def cancel_command(self) -> None:
        samples = []
        with scripted(self.home, ANSWER, SLEEP) as model, agent(self.home, model) as client:
            session, _ = client.new_session()
            client.set_mode(session, "auto")
            settle(client, session, 1)
            for _ in range(8):
                prompt = client.ask(session)
                while client.receive()[1].get("params", {}).get("update", {}).get("status") != "in_progress":
                    pass
                time.sleep(0.1)
                samples.append(self._cancel(client, session, prompt))
        self.add("cancel to answer, a command running", "200 ms", samples)

    def _cancel(self, client: Client, session: str, prompt: int) -> float:
        started = time.monotonic()
        client.notify("session/cancel", {"sessionId": session})
        at, answer = client.until(prompt)[-1]
        if answer["result"]["stopReason"] != "cancelled":
            raise RuntimeError(str(answer))
        return (at - started) * 1000

    def end(self) -> None:
        samples = []
        with scripted(self.home, ANSWER) as model:
            for _ in range(10):
                client = Client(self.home, model.base_url)
                client.initialize()
                session, _ = client.new_session()
                settle(client, session, 1)
                samples.append(client.close())
        self.add("end of stdin to gone, idle", "60 ms", samples)

    def definitions(self) -> None:
        """The definitions sent with each request: read from the generated file, and encoded again."""
        registry = builtin_registry()
        choices: Any = SimpleNamespace(mode=lambda: MODES["code"], model="")
        always: Any = SimpleNamespace(why=lambda tool: None, hides=lambda tool: None)
        code = "import time; from acp_agent.tools.kit.registry import builtin_registry; s = time.perf_counter(); "
        code += "[e.definition for e in builtin_registry().entries()]; print((time.perf_counter() - s) * 1000)"
        cold = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(10)]
        offer = Offer(registry, ToolsConfig(), choices, always, Relevance(), always)
        warm = [_timed(offer.definitions) for _ in range(50)]
        note = (
            f"{len(registry.entries())} tools, {len(json.dumps([e.parameters for e in registry.entries()]))} B schema"
        )
        self.add("tool definitions, first build", "", cold, note=note)
        self.add("tool definitions, each request", "", warm)

    def request_tokens(self) -> None:
        """The first request of a session, by a real server's count."""
        if not (ROOT / "tests" / ".editors" / "bin" / "llama-server").exists():
            sys.stderr.write("request_tokens: llama.cpp is not installed, see scripts/install_model_server.sh\n")
            return
        command = [sys.executable, "-m", "scripts.bench_tokens"]
        printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        for name, most in (("default", "4,500"), ("small", "2,500")):
            found = json.loads(printed.splitlines()[-1])[name]
            words = f"tools {found['tools']}, system prompt {found['system']}"
            self.add(f"tokens of a request, {name} window", most, [sum(found.values())], unit="", note=words)

    def search(self) -> None:
        """`grep` and `find_path` over 50,000 files, against `grep -r` and `find`."""
        tree = self.home / "tree"
        for folder in range(500):
            (tree / f"d{folder % 25}" / f"s{folder}").mkdir(parents=True)
            for number in range(100):
                text = f"line one\nvalue {folder * number}\nneedle {number}\n" if number == 7 else "line one\nvalue\n"
                (tree / f"d{folder % 25}" / f"s{folder}" / f"f{number}.txt").write_text(text)
        files = DiskFiles(LocalDisk(os.environ))

        async def ours() -> None:
            for _ in range(5):
                begun = time.perf_counter()
                found = await files.grep(GrepQuery("needle", tree, True, 10_000, 120.0))
                grep.append((time.perf_counter() - begun) * 1000)
                assert len(found.matches) == 500
                begun = time.perf_counter()
                found = await files.find(FindQuery("f7.txt", tree, 10_000, 120.0))
                find.append((time.perf_counter() - begun) * 1000)
                assert len(found.matches) == 500

        grep: list[float] = []
        find: list[float] = []
        theirs_grep, theirs_find = [], []
        for _ in range(5):
            theirs_grep.append(_timed(lambda: subprocess.check_output(["grep", "-rn", "needle", str(tree)])))
            theirs_find.append(_timed(lambda: subprocess.check_output(["find", str(tree), "-name", "f7.txt"])))
        anyio.run(ours)
        against = statistics.median(grep) / statistics.median(theirs_grep)
        self.add("grep, 50,000 files", "", grep, note=f"{against:.1f} x `grep -r`")
        self.add("`grep -r`, the same", "", theirs_grep)
        against = statistics.median(find) / statistics.median(theirs_find)
        self.add("find_path, 50,000 files", "", find, note=f"{against:.1f} x `find`")
        self.add("`find`, the same", "", theirs_find)

    def filter_log(self) -> None:
        samples = [bench_output.filter_log() * 1000 for _ in range(5)]
        self.add("filter a pytest log of 100,000 lines", "1,000 ms", samples)

    def sandbox(self) -> None:
        if not bench_sandbox.available():
            sys.stderr.write("sandbox: bubblewrap is not installed\n")
            return
        rounds = [bench_sandbox.sandbox_cost() for _ in range(3)]
        self.add("sandbox, added to a command", "12 ms", [without for without, _ in rounds], unit="ms")
        self.add("the same with Landlock", "15 ms", [within for _, within in rounds], unit="ms")

    def proxy(self) -> None:
        rounds = [bench_proxy.proxy_cost() for _ in range(3)]
        self.add("proxy for commands", ">= 100 MB/s", [speed for speed, _ in rounds], unit="MB/s")
        self.add("proxy for commands, added to a connection", "1 ms", [added for _, added in rounds])

    def redaction(self) -> None:
        self.add("redaction", ">= 20 MB/s", [bench_secrets.redaction() / 1e6 for _ in range(3)], unit="MB/s")
        self.add("redaction of a stream", "", [bench_secrets.streaming() / 1e6 for _ in range(3)], unit="MB/s")

    def compaction(self) -> None:
        samples = [bench_compaction.compaction() for _ in range(20)]
        self.add("make room among 500 messages, net", "50 ms", samples)

    def undo(self) -> None:
        """What recording and taking back cost; in a repository of 50,000 files, and in a folder of large ones."""
        for figure, target, samples, unit in bench_undo.measure(self.home):
            self.add(figure, target, samples, unit=unit)

    def store(self) -> None:
        """Lists, pages and searches in a file and on a server; deltas with the sessions on the server."""
        for figure, target, samples, unit in bench_store.measure(self.home):
            self.add(figure, target, samples, unit=unit)
        with bench_store.server() as server:
            self._pace("a delta every 10 ms, sessions on PostgreSQL", {"ACP_CODER_STORE_URL": server.url()})

    def server(self) -> None:
        """What a WebSocket adds to a delta, alternating with stdio; what one process of `acp-coder serve` carries."""
        deltas = {"deltas": 300, "delta_text": "{now} ", "interval_ms": 10}
        added = []
        for _ in range(5):
            with scripted(self.home, ANSWER, deltas) as model, agent(self.home, model) as client:
                session, _ = client.new_session()
                settle(client, session, 1)
                direct = _delays(text_of(client.until(client.ask(session))))
            with scripted(self.home, ANSWER, deltas) as model:
                late = bench_server.delays(self.home, [COMMAND], environment, model.base_url)
            added.append(statistics.median(late) - statistics.median(direct))
        self.add("WebSocket: added to a delta, median", "0.5 ms", added)
        for figure, target, samples, unit in bench_server.measure(self.home, [COMMAND], environment):
            self.add(figure, target, samples, unit=unit)

    def places(self) -> None:
        """Commands and files in a container and on a host, over the same by the program that leads there."""
        figures, missing = bench_places.measure(self.home)
        for figure, target, samples, unit in figures:
            self.add(figure, target, samples, unit=unit)
        for words in missing:
            sys.stderr.write(f"places: {words}\n")

    def vscode(self) -> None:
        """Three windows of VS Code with the extension, one after the other."""
        if not (ROOT / "tests" / ".editors" / "node_modules").exists():
            sys.stderr.write("vscode: it is not installed, see scripts/install_editors.sh\n")
            return
        command = [sys.executable, "-m", "scripts.bench_vscode"]
        printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        figures = json.loads(printed.splitlines()[-1])
        self.add("VS Code: activation of the extension", "300 ms", figures["activation"])
        self.add("VS Code: longest gap between frames, 2,000 deltas", "200 ms", figures["longest_gap"])

    def lsp_front(self) -> None:
        """The same with the language-server front between the agent and the editor, alternating with without it."""
        added, all_late = [], []
        for _ in range(3):
            deltas = {"deltas": 300, "delta_text": "{now} ", "interval_ms": 10}
            with scripted(self.home, ANSWER, deltas) as model, agent(self.home, model) as client:
                session, _ = client.new_session()
                settle(client, session, 1)
                pieces = text_of(client.until(client.ask(session)))
            direct = _delays(pieces)
            with scripted(self.home, ANSWER, deltas) as model:
                project = self.home / "project"
                late = bench_lsp_front.delays([COMMAND], project, environment(self.home, model.base_url))
            added.append(statistics.median(late) - statistics.median(direct))
            all_late += late
        self.add("LSP front: added to a delta, median", "5 ms", added, note=f"{len(all_late)} of 900 deltas")

    def lsp_diagnostics(self) -> None:
        """An edit of a Python file of 2,000 lines: the time beyond the slower of basedpyright and ruff."""
        samples = bench_lsp_diagnostics.measure()
        self.add("errors after an edit, net of the servers", "500 ms", [took - own for took, own in samples])
        self.add("the servers' own time", "", [own for _, own in samples])

    def flood(self) -> None:
        """A command that prints 1 GiB: the agent's peak memory above that after a small command."""
        call = {"name": "bash", "arguments": json.dumps({"command": FLOOD, "timeout": 600})}
        above, against, peak = [], [], []
        for _ in range(3):
            plain = _timed(lambda: subprocess.run(["bash", "-c", f"{FLOOD} | cat >/dev/null"], check=True))
            script = [BASH, ANSWER, {"tool_calls": [call]}, ANSWER]
            with scripted(self.home, *script) as model, agent(self.home, model) as client:
                session, _ = client.new_session()
                client.set_mode(session, "auto")
                settle(client, session, 1)
                idle = client.memory()
                took = client.prompt(session)
                peak.append(client.peak_memory())
                above.append(peak[-1] - idle)
                against.append(took / plain)
        note = f"peak {statistics.median(peak):.0f} MiB"
        self.add("a command prints 1 GiB: memory above idle", "64 MiB", above, unit="MiB", note=note)
        self.add("the same: time against `| cat >/dev/null`", "", against, unit="times")

    def extensions(self) -> None:
        """Hooks and plugins."""
        for figure, target, samples, unit in bench_extensions.measure(self.home):
            self.add(figure, target, samples, unit=unit)

    def conformance(self) -> None:
        """All MUSTs of the conformance kit."""
        kit = ROOT / "tests" / "conformance"
        agents = {
            "a small agent": [str(kit / "small.toml"), "--", sys.executable, str(kit / "small_agent.py")],
            "this agent": ["acp-coder", "--", COMMAND],
        }
        for name, words in agents.items():
            command = [COMMAND, "conformance", "--level", "must", "--profile", *words]
            took = _timed(partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL))
            self.add(f"conformance kit: all MUSTs, {name}", "60 s", [took / 1000], unit="s")


def _delays(pieces: Sequence[tuple[float, str]]) -> list[float]:
    """In ms, of text that says when the model wrote it."""
    return [(at - int(stamp) / 1e9) * 1000 for at, text in pieces for stamp in text.split()]


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


BENCHES: dict[str, Callable[[Bench], None]] = {
    "start_up": Bench.start_up,
    "warm_prompt": Bench.warm_prompt,
    "early_prompts": Bench.early_prompts,
    "stream": Bench.stream,
    "wire_apis": Bench.wire_apis,
    "pace": Bench.pace,
    "bash_editor": Bench.bash_editor,
    "bash_local": Bench.bash_local,
    "long_session": Bench.long_session,
    "many_sessions": Bench.many_sessions,
    "cancel_stream": Bench.cancel_stream,
    "cancel_command": Bench.cancel_command,
    "end": Bench.end,
    "definitions": Bench.definitions,
    "request_tokens": Bench.request_tokens,
    "search": Bench.search,
    "filter_log": Bench.filter_log,
    "redaction": Bench.redaction,
    "sandbox": Bench.sandbox,
    "proxy": Bench.proxy,
    "compaction": Bench.compaction,
    "lsp_front": Bench.lsp_front,
    "lsp_diagnostics": Bench.lsp_diagnostics,
    "store": Bench.store,
    "server": Bench.server,
    "undo": Bench.undo,
    "places": Bench.places,
    "flood": Bench.flood,
    "vscode": Bench.vscode,
    "extensions": Bench.extensions,
    "conformance": Bench.conformance,
}


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.stderr.write(f"There is no {', '.join(unknown)}; the figures are {', '.join(BENCHES)}.\n")
        return 2
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(Path(__file__).parents[1] / "acp_agent")], check=True)
    home = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        venv.create(home / "bare", with_pip=False, symlinks=True)
        bench = Bench(home, str(home / "bare" / "bin" / "python3"))
        for name in names or BENCHES:
            BENCHES[name](bench)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    sys.stdout.write(table(bench.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
