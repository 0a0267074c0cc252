"""`session/fork` and `/fork`: a new session with the conversation of another one, whole or up to a prompt."""

import json
import re
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.testing.fake_model import Call

from .kit import Rig, asks, refused, rig, went
from .test_undo import bash, said, write


async def fork(r: Rig, source: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    asked = {"sessionId": source, "cwd": str(r.project), "mcpServers": [], **params}
    made = await r.editor.request("session/fork", {**asked, "_meta": meta} if meta else asked)
    assert isinstance(made, dict)
    return made


def texts(r: Rig, session_id: str, kind: str = "agent_message_chunk") -> list[str]:
    """What a session has shown, as texts."""
    updates: list[Any] = r.editor.updates[session_id]
    return [each.content.text for each in updates if each.__struct_config__.tag == kind]


def conversation(r: Rig, number: int) -> list[str]:
    """The words of the n-th request, without the system prompt."""
    return [str(message.get("content")) for message in r.messages(number) if message["role"] != "system"]


def prefix(r: Rig, number: int, length: int) -> str:
    return json.dumps([r.messages(number)[:length], r.request(number)["tools"]])


async def test_the_next_request_of_a_fork_begins_with_the_bytes_of_its_source(tmp_path):
    script = [write("made.txt", "x\n"), "Made.", bash("ls"), "Listed.", "In the source.", "In the fork."]
    async with went(tmp_path, script, mode="auto", files={"AGENTS.md": "Be kind.\n"}, prompt="Make it.") as r:
        (r.project / "AGENTS.md").write_text("Be brief.\n")  # Both it and `made.txt` would change the system prompt.
        await r.editor.prompt("List it.")
        made = await fork(r, r.editor.session_id)
        await r.editor.prompt("Go on.")
        r.editor.session_id = made["sessionId"]
        await r.editor.prompt("Go on otherwise.")
        count = len(r.messages(5)) - 1
        assert count == 9
        assert prefix(r, 6, count) == prefix(r, 5, count)
        assert r.messages(6)[-1]["content"] == "Go on otherwise."
        assert made["modes"]["currentModeId"] == "auto" and made["configOptions"]
        answer = r.editor.transcript[1].message["result"]
        assert "fork" in answer["agentCapabilities"]["sessionCapabilities"], "it is advertised"


async def test_a_fork_has_the_cache_key_of_its_source(tmp_path):
    api = {"ACP_CODER_API": "responses"}
    async with went(tmp_path, ["One.", "Two.", "Three.", "Four."], environ=api, prompt="First.") as r:
        key = r.request(1)["prompt_cache_key"]
        for number in (2, 3):  # A fork, and a fork of it.
            r.editor.session_id = (await fork(r, r.editor.session_id))["sessionId"]
            await r.editor.prompt("On.")
            assert r.request(number)["prompt_cache_key"] == key
        await r.editor.new_session(r.project)
        await r.editor.prompt("New.")
        assert r.request(4)["prompt_cache_key"] != key


async def test_a_fork_before_a_prompt_knows_nothing_of_it_and_goes_on_counting(tmp_path):
    async with went(tmp_path, ["One.", "Two.", "Other."], prompt="First.") as r:
        await r.editor.prompt("Second.")
        made = await fork(r, r.editor.session_id, {"fork": {"to": 2}})
        r.editor.session_id = made["sessionId"]
        await r.editor.prompt("Else.")
        assert conversation(r, 3) == ["First.", "One.", "Else."]
        await r.editor.request("session/close", {"sessionId": made["sessionId"]})
        await r.editor.load_session(made["sessionId"], r.project)
        assert texts(r, made["sessionId"], "user_message_chunk") == ["First.", "Else."]
        points = await r.editor.request("_session/checkpoints", {"sessionId": made["sessionId"]})
        assert [each["prompt"] for each in points["checkpoints"]] == [1, 2]


async def test_the_command_makes_a_session_that_can_be_opened(tmp_path):
    async with went(tmp_path, ["One.", "Two.", "Three."], prompt="First.") as r:
        await r.editor.prompt("Second.")
        source = r.editor.session_id
        everything, before = await said(r, "/fork"), await said(r, "/fork 2")
        assert "there is no prompt 9" in await said(r, "/fork 9")
        assert "/fork 3" in await said(r, "/fork that")
        ids = [re.search(r"`([0-9a-f-]{36})`", words)[1] for words in (everything, before)]
        for id_, asked in zip(ids, (["First.", "Second."], ["First."]), strict=True):
            await r.editor.load_session(id_, r.project)
            assert texts(r, id_, "user_message_chunk") == asked
        r.editor.session_id = ids[1]
        await r.editor.prompt("Third.")
        assert conversation(r, 3) == ["First.", "One.", "Third."]
        listed = {each.session_id: each.title for each in (await r.editor.client.list_sessions()).sessions}
        assert listed[ids[0]] == f"{listed[source]} (fork)"


async def test_the_undo_of_a_fork_begins_with_it(tmp_path):
    script = [write("a.txt", "source\n"), "Done.", write("b.txt", "fork\n"), "Done."]
    async with went(tmp_path, script, mode="auto", prompt="Change it.") as r:
        made = await fork(r, r.editor.session_id)
        r.editor.session_id = made["sessionId"]
        assert "Nothing" in await said(r, "/undo 1 files yes")
        assert (r.project / "a.txt").exists()
        await r.editor.prompt("Change more.")
        await said(r, "/undo files yes")
        assert {path.name for path in r.project.iterdir()} == {"a.txt"}


async def test_a_busy_session_is_forked_up_to_its_last_finished_turn(tmp_path):
    release = anyio.Event()

    async def waits(request: Any) -> Any:
        await release.wait()
        return await allow_once(request)

    async with rig(tmp_path, ["One.", write("a.txt", "x\n"), "Two.", "Other."], permissions=[waits]) as r:
        await r.editor.prompt("First.")
        source = r.editor.session_id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(r.editor.prompt, "Second.")
            await r.editor.wait_until(lambda: r.editor.permission_requests)
            made = await fork(r, source)
            r.editor.cancel()
            release.set()
        r.editor.session_id = made["sessionId"]
        await r.editor.prompt("Else.")
        assert conversation(r, len(r.model.requests)) == ["First.", "One.", "Else."]


async def test_a_session_that_is_not_open_is_forked_and_untouched(tmp_path):
    async with went(tmp_path, ["One.", "Two."], prompt="First.") as r:
        source = r.editor.session_id
        await r.editor.request("session/close", {"sessionId": source})
        made = await fork(r, source)
        r.editor.session_id = made["sessionId"]
        await r.editor.prompt("Else.")
        assert conversation(r, 2) == ["First.", "One.", "Else."]
        await r.editor.load_session(source, r.project)
        assert texts(r, source, "user_message_chunk")[-1] == "First."


async def test_a_fork_reads_the_outputs_that_its_source_kept(tmp_path):
    script = [bash("seq 5000"), "Done."]
    async with went(tmp_path, script, mode="auto", config="[tools]\nmax_output_chars = 1000\n", prompt="Count.") as r:
        answer = next(m["content"] for m in r.messages(2) if m["role"] == "tool")
        (kept,) = set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", answer))
        r.editor.session_id = (await fork(r, r.editor.session_id))["sessionId"]
        script += [asks(Call("read_overflow", {"id": kept, "offset": 0, "limit": 50})), "Read."]
        await r.editor.prompt("Read it.")
        assert "\n7\n" in next(m["content"] for m in reversed(r.messages(4)) if m["role"] == "tool")


@pytest.mark.parametrize(
    ("kind", "left"), [("agent_message_chunk", ["Second.", "Two."]), ("user_message_chunk", ["Second."])]
)
async def test_a_fork_can_end_with_a_message(tmp_path, kind, left):
    async with rig(tmp_path, ["One.", "Two.", "Three.", "Four."]) as r:
        for prompt in ("First.", "Second.", "Third."):
            await r.editor.prompt(prompt)
        source = r.editor.session_id
        await r.editor.request("session/close", {"sessionId": source})
        await r.editor.load_session(source, r.project)
        ids = [u.message_id for u in r.editor.updates[source] if u.__struct_config__.tag == kind]
        air = {"version": 1, "messageId": ids[-2]}
        r.editor.session_id = (await fork(r, source, {"jetbrains": {"air": {"fork": air}}}))["sessionId"]
        await r.editor.prompt("Else.")
        assert "|".join(conversation(r, 4)).replace("\n", "|").split("|") == ["First.", "One.", *left, "Else."]


@pytest.mark.parametrize(("params", "meta", "code"), [
    ({"sessionId": "unknown"}, None, -32002), ({"cwd": "relative"}, None, -32602), ({}, {"fork": {"to": 7}}, -32602),
    ({}, {"fork": {"to": "1"}}, -32602),
    ({}, {"jetbrains": {"air": {"fork": {"version": 1, "messageId": "none"}}}}, -32602),
], ids=["unknown", "relative", "no prompt", "no number", "no message"])  # fmt: skip
async def test_a_fork_that_cannot_be_is_refused(tmp_path, params, meta, code):
    async with went(tmp_path, ["One."], prompt="First.") as r:
        with refused(code):
            await fork(r, r.editor.session_id, meta, **params)
        assert len((await r.editor.client.list_sessions()).sessions) == 1


async def test_a_malformed_message_to_fork_at_is_ignored(tmp_path):
    async with went(tmp_path, ["One.", "Two."], prompt="First.") as r:
        meta = {"jetbrains": {"air": {"fork": {"version": 1, "messageId": 7}}}}
        r.editor.session_id = (await fork(r, r.editor.session_id, meta))["sessionId"]
        await r.editor.prompt("Else.")
        assert conversation(r, 2) == ["First.", "One.", "Else."]
