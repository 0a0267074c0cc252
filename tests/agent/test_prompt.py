"""Turns: what goes to the model, what comes back, and how turns end."""

import base64
import json

import pytest

from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_model import Answer, Call, Failure, Usage
from tests.llm.test_images import png

from .kit import asks, bash, refused, rig, went, without_context


def blob(uri: str, content: bytes) -> acp.EmbeddedResource:
    return acp.EmbeddedResource(resource=acp.BlobResourceContents(uri=uri, blob=base64.b64encode(content).decode()))


PIXEL = base64.b64encode(png()).decode()


async def test_text_and_thoughts_stream_in_order_and_the_turn_ends(tmp_path):
    async with rig(tmp_path, [Answer(thought=("hm", "m"), text=("Hel", "lo ", "world"))]) as r:
        assert (await r.editor.prompt("hi")).stop_reason == "end_turn"
        assert r.editor.text() == "Hello world"
        assert r.editor.thoughts() == "hmm"
        system, user = r.messages(1)
        assert str(r.project) in r.context() and str(r.project) not in system["content"]
        assert user["content"] == "hi"


async def test_chunks_of_one_message_share_an_id_and_messages_do_not(tmp_path):
    async with went(tmp_path, [Answer(text=("a", "b"), thought=("t",)), Answer(text="c")], prompt="one") as r:
        await r.editor.prompt("two")
        chunks = [u for u in r.editor.updates[r.editor.session_id] if hasattr(u, "message_id")]
        ids = {}
        for chunk in chunks:
            ids.setdefault(chunk.content.text, set()).add(chunk.message_id)
        assert len({i for group in ids.values() for i in group}) == 3


async def test_later_turns_carry_the_earlier_ones_and_tool_results(tmp_path):
    script = [asks(Call("list_directory", {"path": "."})), Answer(text="one"), Answer(text="two")]
    async with went(tmp_path, script, files={"a.txt": "x"}, prompt="first") as r:
        await r.editor.prompt("second")
        roles = [m["role"] for m in r.messages(3)]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
        assert r.messages(3)[3]["content"] == "[file] a.txt"


async def test_every_block_kind_reaches_the_model(tmp_path):
    async with rig(tmp_path, ["ok"]) as r:
        await r.editor.prompt([
            acp.TextContent(text="look"), acp.ResourceLink(name="app.py", uri="file:///srv/my%20app.py#L10"),
            acp.ResourceLink(name="#", uri="file:///srv/a#b.txt"), acp.ResourceLink(name="x", uri="/srv/x.py"),
            acp.EmbeddedResource(resource=acp.TextResourceContents(uri="file:///srv/b.txt", text="inside b")),
            blob("file:///srv/c.txt", b"inside c"), blob("file:///srv/d.bin", b"\0\1"),
            acp.ImageContent(data=PIXEL, mime_type="image/png"),
        ])  # fmt: skip
        content = r.messages(1)[1]["content"]
        text = "\n".join(part["text"] for part in content if part["type"] == "text")
        assert "[app.py](/srv/my app.py L10)" in text and "[x](/srv/x.py)" in text and "[#](/srv/a#b.txt)" in text
        assert "inside b" in text and "inside c" in text and "binary, 2 bytes" in text
        assert [p["image_url"]["url"] for p in content if p["type"] == "image_url"] == [
            f"data:image/png;base64,{PIXEL}"
        ]


@pytest.mark.parametrize(("block", "words"), [
    (acp.AudioContent(data="AAAA", mime_type="audio/wav"), ""),
    (acp.ImageContent(data="not base64!", mime_type="image/png"), "$.prompt[0]"),
], ids=["audio, which is not advertised", "an image that is no base64"])  # fmt: skip
async def test_a_block_that_cannot_be_taken_is_refused_without_harm(tmp_path, block, words):
    async with rig(tmp_path, ["ok"]) as r:
        with refused(-32602, words):
            await r.editor.prompt([block])
        with refused(-32002):
            await r.editor.prompt("hi", session_id="nope")
        assert (await r.editor.prompt("hi")).stop_reason == "end_turn"


@pytest.mark.parametrize("blocks", [[], [acp.TextContent(text="  \n")]])
async def test_an_empty_prompt_is_answered(tmp_path, blocks):
    async with went(tmp_path, [], prompt=blocks) as r:
        assert r.model.requests == []


@pytest.mark.parametrize(("answer", "reason", "words"), [
    (Answer(text="cut", finish="length"), "max_tokens", 'at 5 tokens (`agent.max_output_tokens`). Say "continue"'),
    (Answer(text="", refusal="no", finish="content_filter"), "refusal", ""),
    (Answer(text="x", finish="stop"), "end_turn", "x"),
])  # fmt: skip
async def test_finish_reasons_become_stop_reasons_and_a_cut_answer_says_how_to_go_on(tmp_path, answer, reason, words):
    async with went(tmp_path, [answer], ends=reason, prompt="hi") as r:
        assert words in r.editor.text()


async def test_a_turn_goes_on_for_many_rounds_and_its_limit_is_told_to_user_and_model(tmp_path):
    (tmp_path / "project").mkdir()
    for number in range(12):
        (tmp_path / "project" / f"file{number}").write_text(str(number))
    rounds = [asks(Call("read", {"path": f"file{number}"})) for number in range(12)]
    async with rig(tmp_path, [*rounds, "done"]) as r:
        assert (await r.editor.prompt("hi")).stop_reason == "end_turn"
    async with rig(tmp_path, rounds, environ={"ACP_CODER_MAX_TOOL_ITERATIONS": "8"}) as r:
        assert (await r.editor.prompt("hi")).stop_reason == "max_turn_requests"
        assert len(r.model.requests) == 8
        r.editor.assert_tool_calls_finished()
        ended = 'The turn ended after 8 answers of the model (`agent.max_tool_iterations`). Say "continue" to go on.'
        assert r.editor.text().endswith(ended)
        told = [number for number in range(8) if "more answers are possible" in str(r.model.requests[number].body)]
        assert told == [6, 7], "in the last result of the sixth round, and from then on in the history"
        assert "[2 more answers are possible in this turn" in str(r.model.requests[6].body)


async def test_a_circle_of_different_calls_is_a_doom_loop(tmp_path):
    circle = [asks(bash(f"echo {word}")) for word in ("one", "two", "three")]
    async with went(tmp_path, [*circle * 3, "never asked for"], prompt="hi", ends="max_turn_requests") as r:
        assert len(r.model.requests) == 9
        assert "the same circle of 3 rounds 3 times" in r.editor.text() and "`agent.doom_loop`" in r.editor.text()


async def test_a_call_that_the_limit_of_an_answer_cut_in_two_is_told_as_that(tmp_path):
    cut = Call("write", '{"path": "a.txt", "content": "half of')
    async with rig(tmp_path, [Answer(tool_calls=(bash("touch ran"), cut), finish="length"), "sorry"]) as r:
        assert (await r.editor.prompt("hi")).stop_reason == "end_turn"
        assert not (r.project / "ran").exists()
        assert not r.editor.tool_calls()
        sent = str(r.model.requests[1].body["messages"])
        assert sent.count("was cut off at 5 tokens, the limit of one answer") == 2
        assert "_invalid" not in sent and "half of" not in sent


@pytest.mark.parametrize("unit", ["I will now read the file.\n", "na ", "-"])
async def test_a_model_that_babbles_is_stopped(tmp_path, unit):
    async with rig(tmp_path, [Answer(text=("Well: ", *[unit * 20] * 4000), repeat=True)]) as r:
        assert (await r.editor.prompt("hi")).stop_reason == "max_turn_requests"
        said = r.editor.text()
        assert "The model repeated itself and was stopped (`agent.max_repetition`)" in said and len(said) < 20_000
        await r.editor.prompt("again")
        (kept,) = [m["content"] for m in r.model.requests[1].body["messages"] if m["role"] == "assistant"]
        assert kept.startswith("Well: ") and len(kept) < len(said) - 7_000, "it does not read all of it again"


async def test_usage_is_reported_after_each_model_call_with_the_window_that_the_server_tells(tmp_path):
    look = Answer(tool_calls=(Call("list_directory", {}),), usage=Usage(100, 10))
    script = [look, Answer(text="ok", usage=Usage(200, 20)), "two"]
    async with went(tmp_path, script, models=[{"id": "fake-model", "context_length": 4096}], prompt="hi") as r:
        await r.editor.prompt("again")  # the first did not wait for the list of models
        told = [u for u in r.editor.updates[r.editor.session_id] if isinstance(u, acp.UsageUpdate)]
        assert [u.used for u in told][:2] == [110, 220] and told[-1].size == 4096


async def test_the_title_comes_from_the_first_prompt_only(tmp_path):
    async with went(tmp_path, [Answer(text="a", usage=None), "b"], prompt="Fix the parser\nplease") as r:
        update = await r.editor.wait_for(lambda u: isinstance(u, acp.UsageUpdate))
        assert update.used > 0 and update.size == 128_000, "estimated where the server tells none"
        await r.editor.prompt("And now the lexer")
        titles = [u.title for u in r.editor.updates[r.editor.session_id] if isinstance(u, acp.SessionInfoUpdate)]
        assert titles == ["Fix the parser"]
        assert (await r.editor.client.list_sessions()).sessions[0].title == "Fix the parser"


@pytest.mark.parametrize(("failure", "code", "words"), [
    (Failure(401, {"error": {"message": "bad key"}}), -32000, "bad key"),
    (Failure(404, {"error": {"message": "no such model"}}), -32603, "no such model"),
])  # fmt: skip
async def test_a_provider_failure_is_a_clear_error_and_the_session_goes_on(tmp_path, failure, code, words):
    async with rig(tmp_path, [failure, "fine"]) as r:
        with refused(code, words):
            await r.editor.prompt("hi")
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"
        assert [m["role"] for m in r.messages(2)] == ["system", "user"]


async def test_a_broken_stream_keeps_what_was_said(tmp_path):
    async with rig(tmp_path, [Answer(text=("half ", "an ", "answer"), drop_after=2), "whole"]) as r:
        with pytest.raises(PeerError):
            await r.editor.prompt("hi")
        await r.editor.prompt("again")
        assert [m["role"] for m in r.messages(2)] == ["system", "user", "assistant", "user"]


async def test_a_second_prompt_waits_for_the_first(tmp_path):
    async with rig(tmp_path, [Answer(text=("a",), hang_after=1), "b"]) as r:
        first = r.editor.begin("one")
        await r.model.wait_for_request(1)
        second = r.editor.begin("two")
        r.model.release()
        assert (await first.response()).stop_reason == "end_turn"
        assert (await second.response()).stop_reason == "end_turn"
        assert [m["role"] for m in r.messages(2)] == ["system", "user", "assistant", "user"]


async def test_sessions_stream_side_by_side(tmp_path):
    async with rig(tmp_path, lambda body: Answer(text=without_context(body["messages"])[-1]["content"] + "!")) as r:
        one = r.editor.session_id
        two = (await r.editor.new_session(r.project)).session_id
        turns = [r.editor.begin("one", session_id=one), r.editor.begin("two", session_id=two)]
        for turn in turns:
            await turn.response()
        assert r.editor.text(session_id=one) == "one!" and r.editor.text(session_id=two) == "two!"


async def test_any_text_passes_unchanged_both_ways(tmp_path):
    text = 'nul \0 c0 \x01 bidi \u202e sep \u2028\u2029\x85 astral \U0001f600 quote " \\ \r\n end'
    async with went(
        tmp_path, lambda body: Answer(text=without_context(body["messages"])[-1]["content"]), prompt=text
    ) as r:
        assert r.messages(1)[1]["content"] == text
        assert r.editor.text() == text


async def test_lone_surrogates_are_replaced(tmp_path):
    async with rig(tmp_path, ["ok"]) as r:
        line = (
            '{"jsonrpc":"2.0","id":"s","method":"session/prompt","params":{"sessionId":"SESSION",'
            '"prompt":[{"type":"text","text":"a\\ud83d b"}]}}'
        )
        await r.editor.send_line(line.replace("SESSION", r.editor.session_id).encode())
        await r.editor.wait_until(lambda: [m for m in r.editor.lines("from_agent") if m.get("id") == "s"])
        assert r.messages(1)[1]["content"] == "a\ufffd b"


async def test_an_image_that_no_model_takes_is_words_and_the_user_is_told(tmp_path):
    async with rig(tmp_path, ["One.", "Two."]) as r:
        cut = base64.b64encode(png()[:-4]).decode()
        await r.editor.prompt([acp.TextContent(text="look"), acp.ImageContent(data=cut, mime_type="image/png")])
        assert "An image was left out: it is broken or cut off." in r.editor.text()
        assert "[an image was left out: it is broken or cut off]" in str(r.messages(1)[1])
        assert "image_url" not in str(r.messages(1)[1])
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"


async def test_an_image_that_the_server_refuses_is_left_out_named_and_the_turn_goes_on(tmp_path):
    refusal = Failure(400, {"error": {"message": "Could not process image"}})
    async with rig(tmp_path, ["One.", refusal, "Two.", "Three."]) as r:
        await r.editor.prompt([acp.TextContent(text="a"), acp.ImageContent(data=PIXEL, mime_type="image/png")])
        other = base64.b64encode(png(2, 2)).decode()
        await r.editor.prompt([acp.TextContent(text="b"), acp.ImageContent(data=other, mime_type="image/png")])
        assert "does not take an image (image/png); it is left out" in r.editor.text()
        assert r.editor.text().endswith("Two.")
        await r.editor.prompt("and now?")
        for number in (3, 4):
            sent = json.dumps(r.messages(number))
            assert PIXEL in sent and other not in sent and "[an image, which the server could not take]" in sent
