"""Requests of every shape: each is answered, none with an internal error, and the agent keeps running."""

import random

from acp_agent.errors import PeerError
from acp_agent.schema.acp import AGENT_METHODS
from tests.nightly import times

from .kit import rig

SEED = 20_261_121
ROUNDS = times(400)

SCALARS = [None, 0, 1, -1, 2**63, 1.5, "", "x", "/tmp", "\0", True, False]
NAMES = [
    "sessionId", "cwd", "mcpServers", "prompt", "modeId", "configId", "value", "type", "methodId", "cursor", "_meta",
    "additionalDirectories", "protocolVersion", "clientCapabilities", "text", "uri", "name", "command", "args", "env",
    "resource", "data", "mimeType", "requestId", "blob", "url", "headers",
]  # fmt: skip
TYPES = ["text", "image", "audio", "resource", "resource_link", "http", "sse", "stdio", "boolean", "nonsense"]


def anything(rng: random.Random, session_id: str, depth: int = 0) -> object:
    kind = rng.random()
    if depth > 3 or kind < 0.45:
        return rng.choice([*SCALARS, session_id, *TYPES, "code", "mode", "/"])
    if kind < 0.65:
        return [anything(rng, session_id, depth + 1) for _ in range(rng.randint(0, 3))]
    names = rng.sample(NAMES, rng.randint(0, 6))
    return {name: anything(rng, session_id, depth + 1) for name in names}


async def test_every_request_is_answered_and_never_with_an_internal_error(tmp_path):
    rng = random.Random(SEED)
    methods = [method for method in AGENT_METHODS if method != "session/cancel"]
    async with rig(tmp_path, lambda body: "ok") as r:
        for _ in range(ROUNDS):
            method = rng.choice(methods)
            params = anything(rng, r.editor.session_id)
            if isinstance(params, dict) and rng.random() < 0.5:
                params = {"sessionId": r.editor.session_id, "cwd": str(r.project), "mcpServers": [], **params}
            try:
                await r.editor.request(method, params)
            except PeerError as error:
                # An agent that needs no login does not offer `logout`: -32601.
                assert error.code in (-32602, -32002, -32601, -32000), (method, params, error)
        await r.editor.new_session(r.project)
        assert (await r.editor.prompt("still here?")).stop_reason == "end_turn"
