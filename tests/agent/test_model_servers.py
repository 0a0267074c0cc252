"""What real model servers refuse, drop and take their time for, in their own words."""

import base64
import json
import socket

import pytest

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.schema.acp import ImageContent, TextContent
from acp_agent.testing.fake_model import Answer, Failure, Usage
from acp_agent.testing.fake_openai import ChatCompletions
from tests.llm.test_images import png
from tests.tables import table

from .kit import agent_rig, bash, rig, went

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = [TextContent(text="what is this?"), ImageContent(data=PIXEL, mime_type="image/png")]
INSTEAD = "[an image, which this model cannot see]"
FAST = "[providers.default]\nretry_base_delay = 0.01\n"


def error(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


IMAGE_REFUSED = {
    "llama.cpp": Failure(500, error(
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj", code=500,
        type="server_error",
    )),
    "vLLM": Failure(400, error("At most 0 image(s) may be provided in one prompt.", type="BadRequestError")),
    "Ollama": Failure(500, error("this model is missing data required for image input", type="api_error")),
    "OpenAI": Failure(400, error("Invalid content type. image_url is only supported by certain models.")),
    "OpenRouter": Failure(404, error("No endpoints found that support image input", code=404)),
    "DeepSeek": Failure(400, error("messages[0]: unknown variant `image_url`, expected `text`")),
    "Groq": Failure(400, error("messages[1].content must be a string")),
}  # fmt: skip


@pytest.mark.parametrize("refusal", IMAGE_REFUSED.values(), ids=IMAGE_REFUSED)
async def test_a_server_that_refuses_images_is_believed_once(tmp_path, refusal):
    async with went(tmp_path, [refusal, "a text", "later", "text alone"], config=FAST, prompt=PICTURE) as r:
        assert r.editor.text().count("fake-model cannot see images, so they are left out.") == 1
        assert r.editor.text().endswith("a text")
        assert len(r.model.requests) == 2
        assert PIXEL not in str(r.messages(2)) and INSTEAD in str(r.messages(2))
        await r.editor.prompt(PICTURE)
        assert len(r.model.requests) == 3, "not tried again"
        await r.editor.prompt("and now?")
        assert str(r.messages(4)).count(INSTEAD) == 2
        assert r.editor.text().count("cannot see images") == 1


async def test_a_bad_image_is_no_sign_that_a_model_sees_none(tmp_path):
    bad = Failure(400, error("Unsupported image format: image/bmp is not supported"))
    async with went(tmp_path, [bad, "not seen", "seen"], prompt=PICTURE) as r:
        assert "it is left out" in r.editor.text()
        other = base64.b64encode(png(2, 2)).decode()
        await r.editor.prompt([ImageContent(data=other, mime_type="image/png")])
        assert other in str(r.messages(3)) and PIXEL not in str(r.messages(3)) and INSTEAD not in str(r.messages(3))


async def test_the_list_of_models_says_what_a_model_takes(tmp_path):
    known = [{"id": "fake-model", "architecture": {"input_modalities": ["text"]}}]
    async with went(tmp_path, ["hello", "a text"], models=known, prompt="hi") as r:
        await r.editor.prompt(PICTURE)
        assert len(r.model.requests) == 2
        assert INSTEAD in str(r.messages(2))
        assert "cannot see images" in r.editor.text()


async def test_a_refused_reasoning_effort_is_left_out_from_then_on(tmp_path):
    refused = Failure(400, error("Unsupported parameter: 'reasoning_effort' is not supported with this model."))
    async with went(tmp_path, [refused, "one", "two"], config='[agent]\nthought_level = "high"\n', prompt="hi") as r:
        await r.editor.prompt("hi")
        assert ["reasoning_effort" in request.body for request in r.model.requests] == [True, False, False]
        assert "takes no reasoning effort" in r.editor.text()


# --- tools -------------------------------------------------------------------------------------------------------

FENCED = "```bash\necho out\n```\n"


async def test_a_server_started_without_jinja_gets_calls_as_text(tmp_path):
    refused = Failure(500, error("tools param requires --jinja flag", code=500, type="server_error"))
    async with went(tmp_path, [refused, FENCED, "done"], config=FAST) as r:
        assert r.editor.text().startswith("The server passes no tools on to fake-model")
        assert r.editor.text().endswith("done")
        assert ["tools" in request.body for request in r.model.requests] == [True, False, False]
        assert "out" in str(r.messages(3)[-1])


async def test_tools_dropped_in_silence_are_noticed_by_the_servers_own_count(tmp_path):
    few = Answer(text="I see.", usage=Usage(700, 5))
    async with went(tmp_path, [few, FENCED, few, FENCED, "done"]) as r:
        assert r.editor.text() == "I see."
        assert "The server passes no tools on to" not in await r.says("do it")
        assert "<tools>" in r.messages(2)[0]["content"], "the model may know of none: it is told as text, too"
        assert "The server passes no tools on to fake-model" in await r.says("do it again")
        assert ["tools" in request.body for request in r.model.requests] == [True, True, True, False, False]
        assert "out" in str(r.messages(5)[-1])


@table("script", [
    [Answer(text="hello", usage=Usage(9_000, 5)), "again"], [Answer(text="hello", usage=None), "again"],
    [*[Answer(tool_calls=(bash("echo one"),), usage=Usage(600, 5))] * 2, "done", "again"],
])  # fmt: skip
async def test_other_counts_are_no_sign_of_it(again, script):
    async with again(script) as r:
        await r.editor.prompt("go")
        assert all("tools" in request.body for request in r.model.requests)


async def test_llama_cpp_says_so_before_the_first_request(tmp_path):
    known = [{"id": "fake-model", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}]
    async with agent_rig(tmp_path, ["hello", FENCED, "done"], models=known) as r:
        r.model.speaking(ChatCompletions).properties = {
            "default_generation_settings": {"n_ctx": 16384}, "chat_template_caps": {"supports_tools": False},
        }  # fmt: skip
        await r.editor.new_session(r.project)
        await r.says("go", "go")
        assert "tools" not in r.model.requests[-1].body
        assert any(getattr(u, "size", 0) == 16384 for u in r.editor.updates[r.editor.session_id]), "its real window"


async def test_a_call_written_as_text_runs_and_is_not_shown_as_an_answer(tmp_path):
    written = 'I look.\n```json\n{"name": "bash", "arguments": {"command": "echo found"}}\n```\nIt printed: lost'
    async with went(tmp_path, [Answer(text=(written[:30], written[30:60], written[60:])), "done"]) as r:
        assert r.editor.text() == "I look.\ndone"
        (call,) = r.editor.tool_calls().values()
        assert call.status == "completed"
        said, result = r.messages(2)[-2:]
        assert said["content"] == "I look.\n" and said["tool_calls"][0]["function"]["name"] == "bash"
        assert "found" in result["content"]


async def test_a_written_call_may_name_a_tool_by_another_name_and_one_that_is_not_sent(tmp_path):
    made_up = (
        'I rename it.\n```json\n{"name": "rename_file", "arguments": {"old": "a", "new": "b"}}\n```\nIt is renamed.'
    )
    async with went(tmp_path, [json.dumps({"name": "mkdir", "arguments": {"path": "data"}}), made_up, "done"]) as r:
        assert "create_directory" not in r.tool_names(1)
        assert (r.project / "data").is_dir()
        assert r.editor.text() == "I rename it.\ndone" and "a does not exist" in r.messages(3)[-1]["content"]


async def test_a_written_call_that_changes_something_is_asked_about_even_in_auto_until_one_was_allowed(tmp_path):
    def write(word: str) -> str:
        return json.dumps({"name": "bash", "arguments": {"command": f"touch {word}"}})

    look = json.dumps({"name": "bash", "arguments": {"command": "cat two"}})
    agent = json.dumps({"name": "delegate", "arguments": {"prompt": "Delete all."}})
    script = [look, agent, write("one"), "done", write("two"), write("three"), "done"]
    async with went(tmp_path, script, mode="auto", permissions=[reject_once, reject_once, allow_once]) as r:
        assert len(r.editor.permission_requests) == 2, "a sub-agent, too, since its calls are not asked about"
        assert all("it may only be showing it" in str(each.tool_call.content) for each in r.editor.permission_requests)
        assert not (r.project / "one").exists()
        await r.editor.prompt("go")
        assert len(r.editor.permission_requests) == 3
        assert (r.project / "two").exists() and (r.project / "three").exists()


# --- waiting -----------------------------------------------------------------------------------------------------

LOADING = Failure(503, error("Loading model", code=503, type="unavailable_error"))


async def test_a_server_that_loads_its_model_is_waited_for_with_words(tmp_path):
    async with went(tmp_path, [*[LOADING] * 8, "here"], config=FAST, prompt="hi") as r:
        assert len(r.model.requests) == 9
        assert r.editor.text().count("is still loading the model") == 1 and r.editor.text().endswith("here")


async def test_the_wait_for_it_has_an_end(tmp_path):
    async with rig(tmp_path, [LOADING] * 50, config=FAST + "loading_wait = 0.1\n") as r:
        with pytest.raises(Exception, match="still loading the model"):
            await r.editor.prompt("hi")
        assert len(r.model.requests) < 20


async def test_the_list_of_models_is_waited_for_too(tmp_path):
    async with agent_rig(tmp_path, ["here"], config=FAST, environ={"OPENAI_MODEL": ""}) as r:
        r.model.models = LOADING
        await r.editor.new_session(r.project)
        turn = r.editor.begin("hi")
        await r.editor.wait_until(lambda: r.editor.lines("from_agent"))
        r.model.models = ("late-model",)
        assert (await turn.response()).stop_reason == "end_turn"
        assert r.model.requests[0].body["model"] == "late-model"


async def test_where_no_server_listens_on_this_machine_the_error_says_so(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    async with rig(tmp_path, [], config=FAST, environ={"OPENAI_BASE_URL": address}) as r:
        with pytest.raises(Exception, match=f"No server listens at {address}. Start it"):
            await r.editor.prompt("hi")
