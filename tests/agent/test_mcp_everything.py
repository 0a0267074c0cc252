"""The reference server that tries everything, `@modelcontextprotocol/server-everything`, in sessions."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from acp_agent.client.permissions import allow_always, allow_once, reject_once
from acp_agent.schema import acp
from tests.agent.kit import Answer, Call, rig, went

PROGRAM = Path(__file__).parents[1] / ".node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


def everything() -> acp.McpServerStdio:
    node = shutil.which("node")
    assert node is not None, "`make tools` installs it"
    return acp.McpServerStdio(name="all", command=node, args=[str(PROGRAM), "stdio"], env=[])


def calls(*made: tuple[str, dict]) -> list:
    return [Answer(tool_calls=tuple(Call(f"mcp_all_{name}", arguments) for name, arguments in made)), "done"]


async def test_progress_is_shown_in_the_card_and_links_and_structured_content_reach_the_editor(tmp_path):
    script = calls(
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}), ("get-resource-links", {"count": 2}),
        ("get-structured-content", {"location": "Chicago"}),
    )  # fmt: skip
    async with went(tmp_path, script, otherwise=allow_always, mcp_servers=[everything()]) as r:
        shown = [update for update in r.editor.updates[r.editor.session_id] if isinstance(update, acp.ToolCallUpdate)]
        assert any("1 of 2" in str(update.content) for update in shown)
        slow, links, weather = r.editor.tool_calls().values()
        assert "Long running operation completed" in slow.text()
        assert [block.content.uri for block in links.content[1:]] == [
            "demo://resource/dynamic/blob/1", "demo://resource/dynamic/text/2",
        ]  # fmt: skip
        assert weather.raw_output["temperature"] == 36
        assert "output schema" not in r.messages(2)[-1]["content"]


async def test_what_a_server_asks_the_user_is_a_form_or_a_url_of_the_client_that_names_the_server(tmp_path):
    async def answer(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        content: dict[str, Any] | None = (
            {"name": "Ada", "check": True} if isinstance(request, acp.ElicitationFormMode) else None
        )
        return acp.CreateElicitationResponse(action="accept", content=content)

    script = calls(
        ("trigger-elicitation-request", {}),
        ("trigger-url-elicitation", {"url": "https://example.com/a?b=c", "message": "Open this"}),
        ("trigger-url-elicitation", {"url": "javascript:alert(1)"}),
    )
    async with went(tmp_path, script, otherwise=allow_always, elicitation=answer, mcp_servers=[everything()]) as r:
        form, url = r.editor.elicitations
        assert isinstance(form, acp.ElicitationFormMode)
        assert form.message.startswith("The MCP server all asks: Please provide")
        assert {"name", "email", "integer"} <= set(form.requested_schema.properties)
        titled = [each for each in form.requested_schema.properties.values() if getattr(each, "one_of", None)]
        assert {"Cats", "Reptiles"} <= {choice.title for each in titled for choice in each.one_of}
        assert isinstance(url, acp.ElicitationUrlMode)
        assert (url.url, url.message) == ("https://example.com/a?b=c", "The MCP server all asks: Open this")
        told, opened, refused = r.editor.tool_calls().values()
        assert "Ada" in told.text()
        assert "accept" in opened.text()
        assert "the URL is not one of http or https" in refused.text()


async def accepts(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
    return acp.CreateElicitationResponse(action="accept")


async def test_a_url_without_which_a_server_refuses_is_opened_and_the_call_made_again(tmp_path, monkeypatch):
    """This server never tells that the user is done."""
    monkeypatch.setattr("acp_agent.mcp.mcp_client.URL_WAIT", 0.05)
    script = calls(("trigger-url-elicitation", {"url": "https://example.com/", "errorPath": True}))
    async with went(tmp_path, script, otherwise=allow_always, elicitation=accepts, mcp_servers=[everything()]) as r:
        first, then = r.editor.elicitations
        assert (first.url, then.url) == ("https://modelcontextprotocol.io", "https://example.com/")
        r.editor.tool_call().assert_finished("completed")


async def test_a_resource_that_a_prompt_names_is_read_for_the_model_or_its_absence_is_said(tmp_path):
    text = "demo://resource/dynamic/text/2"
    async with rig(tmp_path, ["ok", "ok"], config="[limits]\nmax_link_chars = 200\n", mcp_servers=[everything()]) as r:
        await r.editor.prompt(f"What is (@all:{text}), @all:demo://nothing and me@all:x or @other:y?")
        told = str(r.messages(1)[-1]["content"])
        assert f"[The resource {text} of the MCP server all, named in the prompt]" in told
        assert "This is a plaintext resource" in told
        assert told.count("could not be read") == 1
        await r.editor.prompt(" ".join(f"@all:{text}{n}" for n in range(9)))
        assert (
            f"The resource {text}8 of the MCP server all could not be read: 8 of a prompt are read" in r.editor.text()
        )
        assert "- `@all:demo://resource/static/document/" in await r.says("/mcp resources all")
        assert "- `@all:demo://resource/dynamic/text/{resourceId}`" in r.editor.text()
        assert "The resource demo://nothing of the MCP server all could not be read" in r.editor.text()


async def test_a_client_that_cannot_ask_gets_no_tools_that_need_it(tmp_path):
    async with went(tmp_path, ["ok"], mcp_servers=[everything()]) as r:
        assert "mcp_all_echo" in r.tool_names(1)
        assert not any("elicitation" in name or "sampling" in name for name in r.tool_names(1))


SAMPLING = "[mcp.servers.all]\nsampling = true\n"


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_server_may_ask_the_model_only_if_its_table_and_the_user_each_time_say_so(tmp_path, allowed):
    call, done = calls(("trigger-sampling-request", {"prompt": "Say ``` hello"}))
    script = [call, "the answer for it", done] if allowed else [call, done]
    said = [allow_once, allow_once if allowed else reject_once]
    async with went(tmp_path, script, config=SAMPLING, permissions=said, mcp_servers=[everything()]) as r:
        _, asked = r.editor.permission_requests
        assert asked.tool_call.title == "The MCP server all asks fake-model"
        assert "Say ``` hello" in str(asked.tool_call.content)
        assert [option.kind for option in asked.options] == ["allow_once", "reject_once"]
        told = r.messages(3 if allowed else 2)[-1]["content"]
        if allowed:
            assert [message["role"] for message in r.messages(2)] == ["system", "user"]
            assert r.messages(2)[0]["content"] == "You are a helpful test server."
            assert "the answer for it" in told
            assert "3 model calls" in await r.says("/cost")
        else:
            assert "the user does not let the model answer" in told
