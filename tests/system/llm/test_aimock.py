"""Whole turns with `aimock`, a double of the model servers that nobody of this project wrote, over each wire API."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from tests.agent.kit import connect, environ_for, put

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "tests/.node/node_modules/@copilotkit/aimock/dist/cli.js"
NODE = ROOT / "tests/.node-program/node_modules/node/bin"
APIS = {"chat": "/v1", "responses": "/v1", "messages": "/v1", "ollama": "", "bedrock": ""}
"""With the path of their base URL. Of Vertex AI it has Gemini's own API, which we do not speak."""
PROVIDER = {"retry_base_delay": 0.01, "models": '["fake-model"]'}
"""It answers for more models than it lists."""
LONG = "one two three four five six seven"
PIECES = range(1, 12)
CLOUD = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


def on(words: str, response: dict[str, Any], match: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"match": {"userMessage": words, **(match or {})}, "response": response, **more}


def reads(*paths: str) -> dict[str, Any]:
    calls = [{"name": "read", "arguments": {"path": path}, "id": f"call_{path[0]}"} for path in paths]
    return {"toolCalls": calls}


def limited(**more: Any) -> dict[str, Any]:
    return {"error": {"message": "Slow down", "type": "rate_limit_error"}, "status": 429, **more}


FIXTURES = [
    on("say hello", {"content": "Hello from the double."}),
    on("think first", {"content": "Done.", "reasoning": "Let me see."}),
    on("read one", {"content": "One is read."}, {"hasToolResult": True}),
    on("read one", reads("a.txt")),
    on("read two", {"content": "Two are read."}, {"hasToolResult": True}),
    on("read two", reads("a.txt", "b.txt")),
    *(
        on(f"{api} {how}", response, {"sequenceIndex": 0})
        for api in APIS
        for how, response in (("is told when", limited(retryAfter=1)), ("is not told when", limited()))
    ),
    on("told when", {"content": "Now."}),
    on("wrong key", {"error": {"message": "Incorrect API key", "type": "authentication_error"}, "status": 401}),
    *(on(f"cut it after {n}!", {"content": LONG}, chunkSize=6, latency=5, truncateAfterChunks=n) for n in PIECES),
    *(on(f"cut the call after {n}!", reads("a.txt"), chunkSize=6, latency=5, truncateAfterChunks=n) for n in (1, 3)),
]


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = f"{NODE}{os.pathsep}{os.environ['PATH']}"
    node = shutil.which("node", path=path)
    assert node is not None
    assert PROGRAM.exists(), "`make tools` installs it"
    file = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    file.write_text(json.dumps({"fixtures": FIXTURES}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [node, str(PROGRAM), "-p", str(port), "-f", str(file), "--strict", "--validate-on-load"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "listening" in line.lower():
                break
        else:
            pytest.fail("".join(said))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@asynccontextmanager
async def session(double: str, api: str, folder: Path, **provider: Any) -> AsyncIterator[FakeEditor]:
    """A session whose model is the double's, by that API."""
    config = folder / "config.toml"
    lines = [f"{key} = {value}" for key, value in {**PROVIDER, **provider}.items()]
    config.write_text("[providers.default]\n" + "\n".join(lines))
    put(folder / "project/a.txt", "The first.\n")
    put(folder / "project/b.txt", "The second.\n")
    more = {"ACP_CODER_API": api, "OPENAI_API_KEY": "mock-key", "ACP_CODER_CONFIG": str(config), **CLOUD}
    async with connect(environ_for(folder, double + APIS[api], **more), otherwise=allow_always) as (editor, _):
        await editor.start()
        await editor.new_session(folder / "project")
        yield editor


@pytest.mark.parametrize("api", APIS)
async def test_text_thinking_and_calls_one_by_one_and_at_once(api: str, double: str, tmp_path: Path):
    async with session(double, api, tmp_path) as editor:
        for prompt in ("say hello", "think first", "read one", "read two"):
            assert (await editor.prompt(prompt)).stop_reason == "end_turn"
        assert editor.text() == "Hello from the double.Done.One is read.Two are read."
        thoughts = [each for each in editor.updates[editor.session_id] if isinstance(each, acp.AgentThoughtChunk)]
        if api != "ollama":  # It has them in a field that Ollama does not have.
            assert "".join(str(getattr(each.content, "text", "")) for each in thoughts) == "Let me see."
        calls = list(editor.tool_calls().values())
        assert [(call.title, call.status) for call in calls] == [
            (f"Read {name}.txt", "completed") for name in ("a", "a", "b")
        ]
        assert ["The first." in call.text() for call in calls] == [True, True, False]


@pytest.mark.parametrize("how", ["is told when", "is not told when"])
@pytest.mark.parametrize("api", APIS)
async def test_a_limit_is_waited_out(api: str, how: str, double: str, tmp_path: Path):
    async with session(double, api, tmp_path) as editor:
        assert (await editor.prompt(f"{api} {how}")).stop_reason == "end_turn"
        assert editor.text().endswith("Now.")


@pytest.mark.parametrize("api", APIS)
async def test_a_stream_that_is_cut_anywhere_ends_the_turn_with_what_came_and_the_reason(
    api: str, double: str, tmp_path: Path
):
    async with session(double, api, tmp_path, max_retries=0) as editor:
        shown, cut = "", 0
        for pieces in PIECES:
            await editor.new_session(tmp_path / "project")  # Where no answer came, the next request has both prompts.
            try:
                assert (await editor.prompt(f"cut it after {pieces}!")).stop_reason == "end_turn"
                assert editor.text() == LONG  # What was left had nothing for us.
            except PeerError as error:
                cut += 1
                assert re.search(r"ended early|connection to .* failed|incomplete", error.message)
                assert LONG.startswith(editor.text())
            shown = max(shown, editor.text(), key=len)
        assert cut > 4
        assert shown  # Some of it came, and was shown.
        await editor.new_session(tmp_path / "project")
        with pytest.raises(PeerError):
            await editor.prompt(f"cut the call after {1 if api == 'ollama' else 3}!")  # There it is one piece.
        assert not [call for call in editor.tool_calls().values() if call.status == "completed"]
        await editor.new_session(tmp_path / "project")
        assert (await editor.prompt("say hello")).stop_reason == "end_turn"


@pytest.mark.parametrize("api", APIS)
async def test_a_refused_key_is_told_as_that(api: str, double: str, tmp_path: Path):
    async with session(double, api, tmp_path) as editor:
        with pytest.raises(PeerError) as told:
            await editor.prompt("wrong key")
        assert told.value.code == -32000
        assert (await editor.prompt("say hello")).stop_reason == "end_turn"


def test_each_request_that_it_got_was_one_that_it_knows(double: str):
    """It is strict: what it does not know is answered by 503."""
    with urlopen(f"{double}/__aimock/journal", timeout=20) as answer:
        journal = json.load(answer)
    assert not [entry for entry in journal if entry.get("response", {}).get("status") in (400, 404, 503)]
