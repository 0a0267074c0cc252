"""The extension's real `initialize` matches the recording used by other tests (tests/captured)."""

import json
import os
from pathlib import Path

import anyio

from .chat import Chat
from .kit import VsCode
from .raw_agent import raw_agent

CAPTURED = Path(__file__).parents[1] / "captured" / "acp-vscode-acp-coder.json"
SECONDS = 60


async def test_the_captured_initialize_is_what_the_extension_sends(code: VsCode, tmp_path: Path) -> None:
    """`UPDATE_GOLDEN=1` writes it anew."""
    (project := tmp_path / "project").mkdir()
    async with raw_agent() as agent, code.window(project, agent.settings) as window:
        await Chat(window).open()
        with anyio.fail_after(SECONDS):
            while not agent.received:
                await anyio.sleep(0.02)
        sent = agent.received[0]
    assert sent["method"] == "initialize"
    if os.environ.get("UPDATE_GOLDEN"):
        CAPTURED.write_text(json.dumps(sent["params"], indent=1) + "\n", encoding="utf-8")
    assert sent["params"] == json.loads(CAPTURED.read_text(encoding="utf-8"))
