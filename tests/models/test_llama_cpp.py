"""The whole agent with a real model server: what its weights say is noise, the wire is real."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest

from acp_agent.errors import PeerError
from acp_agent.schema.acp import AgentMessageChunk, ImageContent, TextContent, UsageUpdate
from tests.agent.kit import connect, environ_for, rig, without_context

from .kit import KEY, ROOT, Proxy, Server, litellm, llama

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CONFIG = """
[agent]
max_output_tokens = {tokens}
max_tool_iterations = 4
[tools]
{tools}
[providers.default]
{provider}
"""
SECONDS = 300.0
FEW = '[tools.scoped]\nallowed_tools = ["time"]'
"""For tests that are not about the request: a quarter of its tokens, which one thread reads as slowly as it writes."""
READ = re.compile(r"prompt eval time = .*?/ +(\d+) tokens")
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
async def session(
    tmp_path, server: Server | Proxy, tools: str = "", provider: str = "", tokens: int = 32, name: str = "project"
):
    """What precedes the conversation is in the server's cache after the first test."""
    project = tmp_path.parent / name
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    provider = provider or f'base_url = "{server.base_url}"'
    (tmp_path / "config.toml").write_text(CONFIG.format(provider=provider, tools=tools, tokens=tokens))
    environ = environ_for(
        tmp_path, server.base_url, ACP_CODER_CONFIG=str(tmp_path / "config.toml"), OPENAI_MODEL="", OPENAI_API_KEY=KEY
    )
    async with connect(environ) as (editor, _):
        await editor.start()
        await editor.new_session(project)
        yield editor


async def test_an_answer_streams_and_its_tokens_are_the_servers_own(tmp_path, with_tools):
    async with session(tmp_path, with_tools) as editor:
        answer = await editor.prompt("Say hello.", seconds=SECONDS)
        assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")
        usage = answer.meta["usage"]
        assert 1000 < usage["inputTokens"] < 8192 * 4
        sizes = [update.size for update in editor.updates[editor.session_id] if isinstance(update, UsageUpdate)]
        assert sizes[-1] == 8192, "the window of a request, from /props"


@pytest.mark.parametrize(("window", "most"), [(128_000, 4_500), (16_384, 2_500)])
async def test_the_first_request_is_lean_by_the_servers_own_count(tmp_path, server, window, most):
    async with rig(tmp_path, ["ok"], config=f"[providers.default]\ncontext_window = {window}\n") as r:
        await r.editor.prompt("hi")
        body = r.model.requests[0].body
    tools = sum(server.tokens(json.dumps(tool["function"], ensure_ascii=False)) for tool in body["tools"])
    before = r.context() + body["messages"][0]["content"]
    assert tools + server.tokens(before) <= most


@pytest.mark.parametrize("options", [(), ("--chat-template-file", TEMPLATE)], ids=["as text", "native"])
async def test_the_first_word_in_another_project_waits_for_what_is_new_alone(tmp_path, options):
    """By the server's own count of the tokens that it read."""
    log = tmp_path / "log"
    with llama(log, "-c", "8192", "--jinja", *options) as server:
        async with session(tmp_path, server, name="first") as editor:
            await editor.prompt("Say hello.", seconds=SECONDS)
        read = len(READ.findall(log.read_text()))
        assert read
        async with session(tmp_path, server, name="second") as editor:
            await editor.prompt("Rename the folder, then look up a page and plan the rest.", seconds=SECONDS)
        first, *more = [int(count) for count in READ.findall(log.read_text())[read:]]
        assert first <= 400, more


async def test_an_image_does_not_wedge_the_session(tmp_path, server):
    async with session(tmp_path, server, FEW) as editor:
        picture = [TextContent(text="What is it?"), ImageContent(data=PIXEL, mime_type="image/png")]
        await editor.prompt(picture, seconds=SECONDS)
        assert "cannot see images, so they are left out" in editor.text()
        await editor.prompt("And now?", seconds=SECONDS)


async def test_a_server_that_is_loading_is_waited_for(tmp_path):
    with llama(tmp_path / "log", "-c", "4096", "--jinja", wait=False) as loading:
        async with session(tmp_path, loading, FEW) as editor:
            answer = await _prompt_when_it_listens(editor, loading)
            assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")


async def _prompt_when_it_listens(editor, server: Server):
    with anyio.fail_after(SECONDS):
        while True:
            try:
                return await editor.prompt("Say hello.", seconds=SECONDS)
            except PeerError as error:
                assert "No server listens" in str(error), error
                await anyio.sleep(0.1)


async def test_a_cancel_ends_the_computing_of_the_server(tmp_path, with_tools):
    async with session(tmp_path, with_tools, FEW) as editor:
        turn = editor.begin("Count to a thousand.")
        with anyio.fail_after(SECONDS):
            while not any(slot["is_processing"] for slot in with_tools.ask("/slots")):
                await anyio.sleep(0.05)
            editor.cancel()
            assert (await turn.response()).stop_reason == "cancelled"
            while any(slot["is_processing"] for slot in with_tools.ask("/slots")):
                await anyio.sleep(0.05)


async def test_a_server_that_is_lost_in_the_middle_of_an_answer_is_an_error_and_the_session_goes_on(tmp_path):
    """The next prompt finds the server that was started anew."""

    def short(number: int, body: dict) -> None:
        body.pop("tools", None)
        del body["messages"][1:-1]
        body["messages"][0]["content"] = "You tell long stories."

    options = ("-c", "8192", "--jinja", "--chat-template-file", TEMPLATE)
    with llama(tmp_path / "first.log", *options) as first, Proxy(first, short) as proxy:
        provider = f'base_url = "{proxy.base_url}"\nmax_retries = 0'
        async with session(tmp_path, proxy, provider=provider, tokens=2000) as editor:
            turn = editor.begin("Tell a story.")
            await editor.wait_for(lambda update: isinstance(update, AgentMessageChunk), seconds=SECONDS)
            assert first.process is not None
            first.process.kill()
            with pytest.raises(PeerError, match="The connection to .* failed|ended early"):
                await turn.response()
            said = editor.text()
            assert said.strip()
            with pytest.raises(PeerError, match="The connection to .* failed"):
                await editor.prompt("Go on.", seconds=SECONDS)
            with llama(tmp_path / "second.log", *options, port=first.port):
                again = editor.begin("Go on.")
                await editor.wait_for(lambda update: len(editor.text()) > len(said), seconds=SECONDS)
                editor.cancel()
                assert (await again.response()).stop_reason == "cancelled"


async def test_a_conversation_longer_than_the_window_goes_on(tmp_path):
    with llama(tmp_path / "log", "-c", "4096", "-np", "1", "--jinja") as small:
        async with session(tmp_path, small, FEW) as editor:
            (tmp_path.parent / "project" / "long.txt").write_text(
                "".join(f"line {number} of many\n" for number in range(3000))
            )
            for _ in range(3):
                answer = await editor.prompt("What is in @long.txt? " + "word " * 300, seconds=SECONDS)
                assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")


def _shown(number: int) -> list[dict]:
    """A round that the small model copies: the same question, a call, an answer."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    return [
        {"role": "user", "content": "What time is it?"}, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"10:0{number}"},
        {"role": "assistant", "content": f"It is 10:0{number}."},
    ]  # fmt: skip


async def test_whole_tool_rounds_with_calls_that_the_server_itself_parses_and_streams(tmp_path, with_tools):
    def shown(number: int, body: dict) -> None:
        body["tools"] = [tool for tool in body["tools"] if tool["function"]["name"] == "time"]
        said = without_context(body["messages"])[1:]
        body["messages"] = [{"role": "system", "content": "You are."}, *_shown(1), *_shown(2), *said]

    with Proxy(with_tools, shown) as proxy:
        async with session(tmp_path, proxy, "[tools.schema_filter]\nenabled = false\n") as editor:
            answer = await editor.prompt("What time is it?", seconds=SECONDS)
            (call, *_) = editor.tool_calls().values()
            assert call.status == "completed" and call.name == "time"
            assert proxy.asked >= 2, "the model has read the result"
            assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")


async def test_the_prompt_cache_is_kept_over_ten_rounds_with_a_background_command_between(tmp_path, with_tools):
    """By the server's own count: what it has read once it never reads again."""

    def calls(number: int, body: dict) -> tuple[str, object] | None:
        body.pop("tool_choice", None)
        if number == 4:
            return "bash", {"command": "sleep 600", "background": True}
        return ("list_directory", {"path": "."}) if number < 12 and number % 2 == 0 else None

    with Proxy(with_tools, calls) as proxy:
        async with session(tmp_path, proxy) as editor:
            (tmp_path.parent / "project" / "a.txt").write_text("a")
            for number in range(10):
                await editor.prompt(f"Say {number}.", seconds=SECONDS)
            counted = [(timing["cache_n"], timing["prompt_n"]) for timing in proxy.timings]
    assert len(counted) >= 10
    for (known, read), (cached, _) in pairwise(counted):
        assert cached >= known + read - 1, counted  # The last token is always read again.


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_litellms_other_apis_answer_with_the_same_model(tmp_path, with_tools, api):
    with litellm(tmp_path, with_tools) as url:
        more = f'api = "{api}"\nbase_url = "{url}"\nmodels = ["small"]\ncontext_window = 8192\n'
        async with session(tmp_path, with_tools, provider=more) as editor:
            answer = await editor.prompt("Say hello.", seconds=SECONDS)
            assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")
            assert editor.text().strip()
            first = answer.meta["usage"]["inputTokens"]
            assert first > 1000
            assert (await editor.prompt("Again.", seconds=SECONDS)).meta["usage"]["inputTokens"] > first


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_llama_cpps_own_doors_of_the_other_apis(tmp_path, with_tools, api):
    """The same server without a proxy between: its Messages and Responses APIs are independent implementations."""
    more = f'api = "{api}"\nbase_url = "{with_tools.base_url}"\nmodels = ["small"]\ncontext_window = 8192\n'
    async with session(tmp_path, with_tools, provider=more) as editor:
        answer = await editor.prompt("Say hello.", seconds=SECONDS)
        assert answer.stop_reason in ("end_turn", "max_tokens", "max_turn_requests")
        first = answer.meta["usage"]
        assert first["inputTokens"] > 1000 and first["outputTokens"] > 0
        again = (await editor.prompt("Again.", seconds=SECONDS)).meta["usage"]
        assert again["inputTokens"] > first["inputTokens"]
        assert again["cachedReadTokens"] > 1000, "the server read what it knew out of its cache, and says so"
