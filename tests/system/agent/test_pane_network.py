"""Commands in a shared pane reach the network through the proxy, each asked about for itself."""

from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.executors.tmux.shared_shell import SharedShell
from acp_agent.loop.beside.panes import Panes
from acp_agent.testing.fake_model import Call
from tests.agent.test_command_network import NEAR, names, ran, session, web_server

__all__ = ["names"]


@pytest.mark.parametrize("drawing", [False, True])
async def test_each_command_in_a_pane_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawing: bool):
    """What was allowed once held for the command before, not for the shell that both share. `drawing`: its prompt is
    there only while the next command waits for it."""
    needed, waits = Panes.needed, SharedShell._comes
    held: set[SharedShell] = set()

    def drawn(self: Panes, key: tuple[str, str]) -> SharedShell:
        shell = needed(self, key)
        if shell._state == "B":
            shell._state = "D"
            held.add(shell)
        return shell

    async def comes(self: SharedShell, state: str, seconds: float) -> bool:
        if self in held:
            held.remove(self)
            self._state = state
        return await waits(self, state, seconds)

    if drawing:
        monkeypatch.setattr(Panes, "needed", drawn)
        monkeypatch.setattr(SharedShell, "_comes", comes)
    async with web_server() as (port, _):
        lines = [f"curl -sS http://registry.test:{port}/{number}" for number in range(2)]
        calls = [Call("bash", {"command": line, "pane": "shared"}) for line in lines]
        tmux = '[tools.tmux]\nsession = "main"\n'
        async with session(tmp_path, *calls, permissions=[allow_once] * 2, config=NEAR + tmux) as made:
            assert "hello" in await ran(made) and "hello" in await ran(made)
        assert len(made.editor.permission_requests) == 2
        for line, asked in zip(lines, made.editor.permission_requests, strict=True):
            assert f"(for `{line}`)" in str(asked.tool_call.title)
