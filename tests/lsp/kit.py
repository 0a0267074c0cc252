"""Language servers of a session in a test's folder."""

import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from acp_agent.config.language_settings import LanguageServerConfig, LspConfig
from acp_agent.lsp.base import Document, Launch
from acp_agent.lsp.own_servers import OwnServers
from acp_agent.schema.lsp_types import Position

HERE = Path(__file__).parent
NODE = HERE.parent / ".node" / "node_modules"
BIN = Path(sys.executable).parent
START = Position(0, 0)


@dataclass
class Kit:
    folder: Path
    servers: OwnServers
    told: list[str] = field(default_factory=list)
    """What the user was told."""
    launches: list[tuple[str, ...]] = field(default_factory=list)
    started: int = 0
    closed: int = 0

    def write(self, name: str, text: str) -> Document:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return Document(path, text)

    def heard(self, method: str = "") -> list[dict[str, Any]]:
        """What the raw server was sent."""
        place = self.folder / "heard"
        lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
        return [each for each in [json.loads(line) for line in lines] if not method or each.get("method") == method]

    async def hears(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until the raw server was sent `count` of these."""
        with anyio.fail_after(60):
            while len(found := self.heard(method)) < count:
                await anyio.sleep(0.01)
        return found

    async def state(self, wanted: str) -> None:
        """Waits until the only server is in this state."""
        with anyio.fail_after(60):
            while [each.state for each in self.servers.states()] != [wanted]:
                await anyio.sleep(0.01)


@asynccontextmanager
async def running(
    folder: Path, config: LspConfig, *, path: str = "", folders: Sequence[Path] = (), **env: str
) -> AsyncIterator[Kit]:
    environ = {**os.environ, "HEARD": str(folder / "heard"), **env, "PATH": path or os.environ["PATH"]}

    async def launch(argv: Sequence[str], cwd: Path) -> Launch:
        kit.launches.append(tuple(argv))

        def started() -> None:
            kit.started += 1

        def close() -> None:
            kit.closed += 1

        return Launch(argv, cwd, environ, started=started, close=close)

    told: list[str] = []
    servers = OwnServers(
        config, folders or [folder], launch, environ=environ, hides=lambda path: path.name.startswith("secret"),
        tell=told.append,
    )  # fmt: skip
    kit = Kit(folder, servers, told)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        try:
            yield kit
        finally:
            tasks.cancel_scope.cancel()
    assert kit.started == kit.closed == len(kit.launches)


def raw(*faults: str, languages: dict[str, str] | None = None, **rest: Any) -> LspConfig:
    """The server of `raw_server.py`, for files `*.raw`, with short times."""
    command = [sys.executable, str(HERE / "raw_server.py"), *faults]
    server = LanguageServerConfig(
        command=command, languages=languages or {".raw": "raw"}, settings={"raw": {"deep": {"level": 3}}}
    )
    times: dict[str, Any] = {"start_timeout": 15.0, "request_timeout": 10.0, "edit_wait": 10.0, **rest}
    return LspConfig(servers={"raw": server}, **times)


def messages(found: Sequence[tuple[Path, Any]]) -> list[tuple[str, str]]:
    return [(path.name, item.message) for path, item in found]
