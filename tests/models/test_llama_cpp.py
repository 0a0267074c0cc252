"""The whole agent with a real model server: what its weights say is noise, the wire is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from acp_agent.errors import PeerError
from acp_agent.schema.acp import ImageContent, TextContent, UsageUpdate
from tests.agent.kit import connect, environ_for, rig

from .kit import ROOT, Server, llama

pytestmark = pytest.mark.anyio

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CONFIG = """
[agent]
max_output_tokens = 24
max_tool_iterations = 4
[tools]
{tools}
[providers.default]
base_url = "{url}"
"""
SECONDS = 300.0
TEMPLATE = str(ROOT / "tests" / "models" / "tools.jinja")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """As Debian starts it: with the template of the weights, which knows no tools."""
    with llama(tmp_path_factory.mktemp("llama") / "log", "-c", "8192", "--jinja") as running:
        yield running


@pytest.fixture(scope="module")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("-c", "8192", "--jinja", "--chat-template-file", TEMPLATE)
    with llama(tmp_path_factory.mktemp("llama") / "log", *options) as running:
        yield running


@asynccontextmanager
async def session(tmp_path, server: Server, tools: str = ""):
    (tmp_path / "project").mkdir()
    (tmp_path / "config.toml").write_text(CONFIG.format(url=server.base_url, tools=tools))
    environ = environ_for(tmp_path, server.base_url, ACP_CODER_CONFIG=str(tmp_path / "config.toml"), OPENAI_MODEL="")
    async with connect(environ) as (editor, _):
        await editor.start()
        await editor.new_session(tmp_path / "project")
        yield editor


def sizes(editor) -> list[int]:
    return [update.size for update in editor.updates[editor.session_id] if isinstance(update, UsageUpdate)]


async def test_an_answer_streams_and_its_tokens_are_the_servers_own(tmp_path, with_tools):
    async with session(tmp_path, with_tools) as editor:
        answer = await editor.prompt("Say hello.", seconds=SECONDS)
        assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")
        usage = answer.meta["usage"]
        assert 1000 < usage["inputTokens"] < 8192 * 4
        assert sizes(editor)[-1] == 8192, "the window of a request, from /props"


@pytest.mark.parametrize(("window", "most"), [(128_000, 4_500), (16_384, 2_500)])
async def test_the_first_request_is_lean_by_the_servers_own_count(tmp_path, server, window, most):
    async with rig(tmp_path, ["ok"], config=f"[providers.default]\ncontext_window = {window}\n") as r:
        await r.editor.prompt("hi")
        body = r.model.requests[0].body
    tools = sum(server.tokens(json.dumps(tool["function"], ensure_ascii=False)) for tool in body["tools"])
    assert tools + server.tokens(body["messages"][0]["content"]) <= most


async def test_a_template_without_tools_leads_to_calls_as_text_with_a_word(tmp_path, server):
    async with session(tmp_path, server) as editor:
        await editor.prompt("Say hello.", seconds=SECONDS)
        await editor.prompt("Say it again.", seconds=SECONDS)
        assert editor.text().count("The server passes no tools on to") == 1


async def test_a_server_without_jinja_refuses_tools_and_gets_calls_as_text(tmp_path):
    with llama(tmp_path / "log", "-c", "8192", "--no-jinja") as plain:
        async with session(tmp_path, plain) as editor:
            await editor.prompt("Say hello.", seconds=SECONDS)
            assert "The server passes no tools on to" in editor.text()


async def test_an_image_does_not_wedge_the_session(tmp_path, server):
    async with session(tmp_path, server) as editor:
        picture = [TextContent(text="What is it?"), ImageContent(data=PIXEL, mime_type="image/png")]
        await editor.prompt(picture, seconds=SECONDS)
        assert "cannot see images, so they are left out" in editor.text()
        await editor.prompt("And now?", seconds=SECONDS)


async def test_a_server_that_is_loading_is_waited_for(tmp_path):
    with llama(tmp_path / "log", "-c", "4096", "--jinja", wait=False) as loading:
        async with session(tmp_path, loading) as editor:
            answer = await _prompt_when_it_listens(editor, loading)
            assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")


async def _prompt_when_it_listens(editor, server: Server):
    with anyio.fail_after(SECONDS):
        while True:
            try:
                return await editor.prompt("Say hello.", seconds=SECONDS)
            except PeerError as error:
                assert "no server listens" in str(error), error
                await anyio.sleep(0.1)


async def test_a_cancel_ends_the_computing_of_the_server(tmp_path, with_tools):
    async with session(tmp_path, with_tools) as editor:
        turn = editor.begin("Count to a thousand.")
        with anyio.fail_after(SECONDS):
            while not any(slot["is_processing"] for slot in with_tools.ask("/slots")):
                await anyio.sleep(0.05)
            editor.cancel()
            assert (await turn.response()).stop_reason == "cancelled"
            while any(slot["is_processing"] for slot in with_tools.ask("/slots")):
                await anyio.sleep(0.05)


async def test_a_conversation_longer_than_the_window_goes_on(tmp_path):
    with llama(tmp_path / "log", "-c", "4096", "-np", "1", "--jinja") as small:
        async with session(tmp_path, small) as editor:
            (tmp_path / "project" / "long.txt").write_text(
                "".join(f"line {number} of many\n" for number in range(3000))
            )
            for _ in range(3):
                answer = await editor.prompt("What is in @long.txt? " + "word " * 300, seconds=SECONDS)
                assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")


async def test_the_prompt_cache_of_the_server_is_kept_over_rounds(tmp_path, with_tools):
    async with session(tmp_path, with_tools) as editor:
        first = (await editor.prompt("Say one.", seconds=SECONDS)).meta["usage"]
        for number in range(4):
            usage = (await editor.prompt(f"Say {number}.", seconds=SECONDS)).meta["usage"]
            assert usage["cachedReadTokens"] >= first["inputTokens"] * 0.9, (first, usage)
