"""The kit against the server, over a WebSocket: the client is on the same machine (`server.near`)."""

import sys
from pathlib import Path

import pytest

from acp_conformance.kit_run import chosen, run
from acp_conformance.profiles import Profile, profile
from tests.conformance.test_kit import failed
from tests.conformance.test_kit_v2 import NOT_OURS
from tests.forked import forked_command

pytestmark = pytest.mark.anyio
BRIDGE = [sys.executable, str(Path(__file__).with_name("over_websocket.py"))]
CONFIG = "[server]\nnear = true\n"
STDIO = {
    "INIT-10": "a WebSocket begins with `initialize`, or it is closed (1002)",
    "END-1": "what ends, and with which status, is the bridge", "END-3": "what gets the signal is the bridge",
    "V2-LIFE-1": "as END-1",
}  # fmt: skip
"""What is of stdio alone, and why."""
CARDS = {"V2-SUB-1", "V2-SUB-2", "V2-SUB-4"}
"""Over a server sub-agents are cards: clients of both kinds may be at one session."""


def over_websocket() -> Profile:
    about = profile("acp-coder-v2")
    own = {"SERVER": forked_command(), "ACP_CODER_CONFIG": "{home}/config.toml"}
    return Profile(
        name="acp-coder serve", api=about.api, environment={**about.environment, **own},
        files={"config.toml": CONFIG}, tools={**profile("acp-coder").tools, **about.tools},
    )  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
async def test_the_server_keeps_all_that_is_not_of_stdio_alone(version: int) -> None:
    checks = [each for each in chosen(levels=("must", "should", "may"), version=version) if each.id not in STDIO]
    results = await run(BRIDGE, over_websocket(), checks)
    assert failed(results) == {}
    here = {each.requirement.id for each in results if each.outcome == "not here"}
    assert here == (NOT_OURS | CARDS if version == 2 else set())
