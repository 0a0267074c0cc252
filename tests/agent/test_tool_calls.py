"""Tool calls as the editor sees them, over every mix of capabilities."""

import itertools
import json
import uuid

import pytest
from msgspec import UNSET

from acp_agent.own_programs import find_bash
from acp_agent.schema.acp import Diff, Plan, Terminal, ToolCall, ToolCallProgress
from acp_agent.testing.fake_editor import AnswersError, AnswersGarbage, NeverAnswers
from acp_agent.testing.fake_model import Answer, Call
from tests.llm.test_images import png
from tests.nightly import NIGHTLY
from tests.tables import table

from .kit import asks, bash, put, rig, rounds, went


def calls(*wanted: Call) -> list[Answer]:
    return [Answer(tool_calls=wanted), Answer(text="done")]


MIXES = [
    dict(zip(("fs_read", "fs_write", "terminal", "terminal_output_meta"), mix, strict=True))
    for mix in itertools.product((True, False), repeat=4)
    if NIGHTLY or sum(mix) % 2 == 0
]
"""By day each three of them in every way."""


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: "-".join(k for k, v in mix.items() if v) or "nothing")
async def test_edit_and_bash_work_with_every_mix_of_capabilities(tmp_path, mix):
    script = [
        asks(Call("read", {"path": "a.txt"})),
        asks(
            Call("edit", {"path": "a.txt", "old_string": "one", "new_string": "two"}), bash("cat a.txt; echo err >&2")
        ),
        Answer(text="done"),
    ]
    async with went(tmp_path, script, **mix, files={"a.txt": "one\n"}) as r:
        read, edit, ran = r.editor.tool_calls().values()
        for call in (read, edit, ran):
            call.assert_finished("completed")
        assert (r.project / "a.txt").read_text() == "two\n"
        (diff,) = [item for item in edit.content if isinstance(item, Diff)]
        assert (diff.path, diff.old_text, diff.new_text) == (str(r.project / "a.txt"), "one\n", "two\n")
        assert ran.raw_output["exit_code"] == 0 and "two\n" in ran.raw_output["stdout"]
        if not mix["terminal"]:
            assert ran.raw_output["stderr"] == "err\n"
        asked = {line["method"] for line in r.editor.lines("from_agent") if "id" in line and "method" in line}
        assert ("fs/read_text_file" in asked) == mix["fs_read"]
        assert ("fs/write_text_file" in asked) == mix["fs_write"]
        assert ("terminal/create" in asked) == mix["terminal"]
        tool_text = [m["content"] for m in r.messages(3) if m["role"] == "tool"]
        assert "two" in tool_text[2] and "err" in tool_text[2]


async def test_the_first_report_has_all_and_ids_are_uuids(tmp_path):
    files = {"a.txt": "1\n2\n"}
    async with went(tmp_path, calls(Call("read", {"path": "a.txt", "offset": 2}, id="same")), files=files) as r:
        first = await r.editor.wait_for(lambda u: isinstance(u, ToolCall))
        uuid.UUID(first.tool_call_id)
        assert first.title == "Read a.txt from line 2"
        assert first.kind == "read"
        assert first.status == "pending"
        assert first.name == "read"
        assert first.locations[0].path == str(r.project / "a.txt") and first.locations[0].line == 2
        assert first.raw_input == {"path": "a.txt", "offset": 2}
        assert first.meta["tool_name"] == "read" and first.meta["claudeCode"]["toolName"] == "read"


async def test_ids_the_model_repeats_do_not_collide(tmp_path):
    script = [
        asks(Call("list_directory", {}, id="x"), Call("list_directory", {}, id="x")),
        asks(Call("list_directory", {}, id="x")), "done",
    ]  # fmt: skip
    async with went(tmp_path, script) as r:
        assert len(r.editor.tool_calls()) == 3
        r.editor.assert_tool_calls_finished()


@table(("name", "arguments", "own"), [
    ("Read", {"file_path": "a.txt", "offset": 0}, "read"), ("LS", {}, "list_directory"),
    ("Bash", {"command": "true", "description": "Nothing"}, "bash"), ("Grep", {"pattern": "one", "path": "."}, "grep"),
    ("ReadFile", {"path": "a.txt"}, "read"), ("TodoWrite", {"entries": [{"content": "x"}]}, "plan"),
    ("str_replace", {"path": "a.txt", "old_str": "one", "new_str": "two"}, "edit"),
    ("MultiEdit", {"file_path": "a.txt", "edits": [{"old_string": "one", "new_string": "two"}]}, "edit"),
    ("run_command", {"command": "echo hi"}, "bash"), ("ls", {}, "list_directory"),
])  # fmt: skip
async def test_names_that_models_know_from_other_agents_run_the_same_tool(again, name, arguments, own):
    looks = Call("read", {"path": "a.txt"})
    async with again(calls(looks, Call(name, arguments)), mode="auto", files={"a.txt": "one\n"}) as r:
        call = list(r.editor.tool_calls().values())[-1]
        assert (call.name, call.status) == (own, "completed"), call.text()


async def test_the_terminal_is_embedded_before_the_command_ends_and_released_after_the_last_update(tmp_path):
    async with went(tmp_path, calls(bash("echo hi"))) as r:
        lines = [line for line in r.editor.lines("from_agent") if "method" in line]
        marks = []
        for line in lines:
            update = line["params"].get("update", {})
            if any(item.get("type") == "terminal" for item in update.get("content") or [] if isinstance(item, dict)):
                marks.append(update.get("status", "embedded"))
            elif line["method"].startswith("terminal/"):
                marks.append(line["method"])
        assert marks[0] == "terminal/create"
        assert marks.index("embedded") < marks.index("completed")
        assert marks[-1] == "terminal/release"
        assert marks.count("terminal/release") == 1
        assert r.editor.terminals.open == 0


async def test_the_terminal_runs_a_program_with_one_script_as_its_only_argument(tmp_path):
    async with went(tmp_path, calls(bash("printf '%s|' \"a  b\" $HOME; pwd; exit 7"))) as r:
        create = next(line for line in r.editor.lines("from_agent") if line.get("method") == "terminal/create")
        assert create["params"]["command"] == find_bash() and len(create["params"]["args"]) == 1
        assert " " not in create["params"]["args"][0] and create["params"]["cwd"] == str(r.project)
        assert r.editor.tool_call().raw_output["exit_code"] == 7
        r.editor.tool_call().assert_finished("failed")


@pytest.mark.parametrize("terminal", [True, False])
async def test_folder_and_variables_carry_over_within_a_turn_and_not_beyond(tmp_path, terminal):
    script = [
        asks(bash("mkdir sub && cd sub && export FOO=bar"), bash("pwd; echo $FOO")), "one",
        asks(bash("pwd; echo [$FOO]")), "two",
    ]  # fmt: skip
    async with went(tmp_path, script, terminal=terminal) as r:
        await r.editor.prompt("again")
        _, second, third = r.editor.tool_calls().values()
        assert second.raw_output["stdout"] == f"{r.project}/sub\nbar\n"
        assert third.raw_output["stdout"] == f"{r.project}\n[]\n"


@pytest.mark.parametrize("editor", [{}, {"wait_never_answers_after_kill": True}, {"terminal": False}], ids=str)
async def test_a_timeout_kills_the_command_and_keeps_its_output(tmp_path, editor):
    async with went(tmp_path, calls(bash("echo begun; sleep 600", timeout=0.3)), **editor) as r:
        call = r.editor.tool_call()
        call.assert_finished("failed")
        assert call.raw_output["stdout"] == "begun\n" and call.raw_output["exit_code"] is None
        assert "ran longer than 0.3 s" in r.messages(2)[-1]["content"]


async def test_without_terminals_live_output_is_content(tmp_path):
    flag = tmp_path / "flag"
    command = f"echo first; while [ ! -e {flag} ]; do read -t 0.05 < <(:) || true; done; echo second"
    async with rig(tmp_path, calls(bash(command)), terminal=False) as r:
        turn = r.editor.begin("go")

        def shown(update: object) -> bool:
            return isinstance(update, ToolCallProgress) and update.status is UNSET and "first" in str(update.content)

        await r.editor.wait_for(shown)
        flag.touch()
        await turn.response()
        r.editor.tool_call().assert_finished("completed")
        assert r.editor.tool_call().text().startswith("first\nsecond")


async def test_a_client_that_draws_terminals_from_meta_gets_them(tmp_path):
    async with went(tmp_path, calls(bash("printf 'a\\nb\\n'; exit 2")), terminal=False, terminal_output_meta=True) as r:
        first = await r.editor.wait_for(lambda u: isinstance(u, ToolCall))
        assert first.meta["terminal_info"] == {"terminal_id": first.tool_call_id, "cwd": str(r.project)}
        assert first.content == [Terminal(terminal_id=first.tool_call_id)]
        metas = [u.meta for u in r.editor.updates[r.editor.session_id] if isinstance(u, ToolCallProgress) and u.meta]
        data = "".join(meta["terminal_output"]["data"] for meta in metas if "terminal_output" in meta)
        assert data == "a\r\nb\r\n"
        assert metas[-1]["terminal_exit"] == {"terminal_id": first.tool_call_id, "exit_code": 2, "signal": None}
        assert Terminal(terminal_id=first.tool_call_id) in r.editor.tool_call().content


@pytest.mark.parametrize("bad", [AnswersError(-32000, "no terminals today"), AnswersError(-32601, "what?")])
async def test_a_terminal_that_cannot_be_created_falls_back_to_local(tmp_path, bad):
    async with went(tmp_path, calls(bash("echo hi")), misbehave={"terminal/create": bad}) as r:
        r.editor.tool_call().assert_finished("completed")
        assert r.editor.tool_call().raw_output["stdout"] == "hi\n"


@pytest.mark.parametrize("method", ["terminal/wait_for_exit", "terminal/output", "terminal/release"])
@pytest.mark.parametrize("bad", [AnswersError(-32603, "lost"), AnswersGarbage()], ids=["error", "garbage"])
async def test_a_misbehaving_terminal_fails_at_most_its_call(tmp_path, method, bad):
    async with went(tmp_path, calls(bash("echo hi")), misbehave={method: bad}) as r:
        r.editor.assert_tool_calls_finished()


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/release"])
async def test_a_client_that_never_answers_holds_nothing_up_for_ever(tmp_path, method):
    config = "[limits]\nclient_timeout = 0.3\nkill_timeout = 0.3\n"
    script = calls(Call("write", {"path": "n.txt", "content": "x"}), Call("read", {"path": "n.txt"}), bash("echo hi"))
    async with went(tmp_path, script, misbehave={method: NeverAnswers()}, config=config) as r:
        r.editor.assert_tool_calls_finished()


async def test_unsaved_text_of_the_editor_is_read_and_edited(tmp_path):
    edit = Call("edit", {"path": "a.txt", "old_string": "unsaved", "new_string": "changed"})
    script = rounds(Call("read", {"path": "a.txt"}), edit)
    path = tmp_path / "project/a.txt"
    async with went(tmp_path, script, buffers={path: "unsaved text\n"}, save=False, files={"a.txt": "on disk\n"}) as r:
        r.editor.assert_tool_calls_finished()
        assert r.messages(2)[-1]["content"].startswith("     1\tunsaved text")
        assert r.editor.files.buffers[path] == "changed text\n"
        assert path.read_text() == "on disk\n"
        writes = [line for line in r.editor.lines("from_agent") if line.get("method") == "fs/write_text_file"]
        assert len(writes) == 1


@pytest.mark.parametrize("unsaved", [True, False])
async def test_mixed_line_ends_are_kept_through_the_editor(tmp_path, unsaved):
    edit = Call("edit", {"path": "a.txt", "old_string": "a\r\nb", "new_string": "a\nnew\nB"})
    path, mixed, wanted = tmp_path / "project/a.txt", "a\r\nb\nc\r\n", "a\r\nnew\nB\nc\r\n"
    editor = {"buffers": {path: mixed}, "save": False} if unsaved else {"reads_lossy": True}
    async with rig(tmp_path, rounds(Call("read", {"path": "a.txt"}), edit), **editor) as r:
        path.write_bytes(b"on disk\n" if unsaved else mixed.encode())
        await r.editor.prompt("go")
        r.editor.assert_tool_calls_finished()
        assert (r.editor.files.buffers[path] if unsaved else path.read_bytes().decode()) == wanted


@pytest.mark.parametrize("failure", [AnswersError(-32603, "busy"), NeverAnswers()], ids=["error", "silence"])
async def test_unsaved_text_that_the_editor_did_not_return_is_never_overwritten(tmp_path, failure):
    edit = Call("edit", {"path": "a.txt", "old_string": "on disk", "new_string": "changed"})
    project = tmp_path / "project"
    buffers = {project / "a.txt": "unsaved text\n"}
    misbehave = {"fs/read_text_file": failure}
    config = "[limits]\nclient_timeout = 0.3\n"
    async with rig(tmp_path, calls(edit), buffers=buffers, save=False, misbehave=misbehave, config=config) as r:
        (project / "a.txt").write_text("on disk\n")
        await r.editor.prompt("go")
        r.editor.tool_call().assert_finished("failed")
        assert "may have unsaved changes, so nothing was written" in r.editor.tool_call().text()
        assert buffers[project / "a.txt"] == "unsaved text\n"
        assert (project / "a.txt").read_text() == "on disk\n"


@pytest.mark.parametrize("editor", [{}, {"reads_lossy": True}, {"fs_read": False}], ids=str)
async def test_a_file_that_is_not_utf8_keeps_its_encoding_whatever_the_editor_makes_of_it(tmp_path, editor):
    script = rounds(
        Call("read", {"path": "a.txt"}), Call("edit", {"path": "a.txt", "old_string": "café", "new_string": "thé"})
    )
    async with rig(tmp_path, script, **editor) as r:
        (r.project / "a.txt").write_bytes("le café\r\nà\r\n".encode("cp1252"))
        await r.editor.prompt("go")
        r.editor.assert_tool_calls_finished()
        assert "     1\tle café\n     2\tà\n[It is in windows-1252" in r.messages(2)[-1]["content"]
        assert (r.project / "a.txt").read_bytes() == "le thé\r\nà\r\n".encode("cp1252")
        told = "which the editor does not show: the file on the disk is used."
        assert editor == {"fs_read": False} or told in r.messages(3)[-1]["content"]


@pytest.mark.parametrize("shown", [False, True], ids=["not open", "the editor shows the old text"])
async def test_a_file_that_changed_since_the_model_read_it_is_not_edited(tmp_path, shown):
    edit = Call("edit", {"path": "a.txt", "old_string": "old", "new_string": "new"})
    script = rounds(Call("read", {"path": "a.txt"}), bash("echo from-bash >> a.txt"), edit)
    buffers = {tmp_path / "project/a.txt": "one\nold\n"} if shown else {}
    async with went(tmp_path, script, buffers=buffers, files={"a.txt": "one\nold\n"}) as r:
        call = list(r.editor.tool_calls().values())[-1]
        call.assert_finished("failed")
        assert "changed since it was read" in call.text()
        assert (r.project / "a.txt").read_text() == "one\nold\nfrom-bash\n"


@pytest.mark.parametrize("quirk", ["missing_file_reads_empty", "write_answers_null", "write_does_nothing"])
async def test_clients_with_quirks_still_read_and_write(tmp_path, quirk):
    script = calls(Call("read", {"path": "gone.txt"}), Call("write", {"path": "new/n.txt", "content": "x"}))
    async with went(tmp_path, script, **{quirk: True}) as r:
        read, write = r.editor.tool_calls().values()
        read.assert_finished("failed")
        assert "does not exist" in read.text()
        write.assert_finished("completed")
        assert (r.project / "new" / "n.txt").read_text() == "x"


async def test_a_client_error_on_write_fails_the_call_and_not_the_turn(tmp_path):
    script = calls(Call("write", {"path": "n.txt", "content": "x"}))
    async with went(tmp_path, script, misbehave={"fs/write_text_file": AnswersError(-32603, "read-only buffer")}) as r:
        r.editor.tool_call().assert_finished("failed")
        assert "read-only buffer" in r.editor.tool_call().text()
        assert not (r.project / "n.txt").exists()


async def test_reading_calls_of_one_message_run_together_and_answer_in_order(tmp_path):
    async with rig(tmp_path, calls(*(Call("read", {"path": f"{n}.txt"}) for n in range(4)))) as r:
        for n in range(4):
            (r.project / f"{n}.txt").write_text(f"text {n}\n")
        await r.editor.prompt("go")
        results = [m["content"] for m in r.messages(2) if m["role"] == "tool"]
        assert [f"text {n}" in result for n, result in enumerate(results)] == [True] * 4
        ids = [m["tool_call_id"] for m in r.messages(2) if m["role"] == "tool"]
        assert len(set(ids)) == 4


async def test_a_plan_is_shown_with_all_its_entries(tmp_path):
    entries = [{"content": "a", "status": "completed", "priority": "high"}, {"content": "b"}]
    async with went(tmp_path, calls(Call("plan", {"entries": entries}))) as r:
        plan = await r.editor.wait_for(lambda u: isinstance(u, Plan))
        assert [(e.content, e.status, e.priority) for e in plan.entries] == [
            ("a", "completed", "high"), ("b", "pending", "medium"),
        ]  # fmt: skip


async def test_an_image_is_shown_to_the_person_and_to_the_model(tmp_path):
    async with rig(tmp_path, calls(Call("read", {"path": "p.png"}))) as r:
        (r.project / "p.png").write_bytes(png())
        await r.editor.prompt("go")
        (content,) = r.editor.tool_call().content
        assert content.content.mime_type == "image/png"
        assert "image_url" in str(r.messages(2)[-1]["content"])


async def test_files_of_an_additional_directory_can_be_used(tmp_path):
    put((extra := tmp_path / "extra") / "e.txt", "extra\n")
    async with rig(tmp_path, calls(Call("read", {"path": str(extra / "e.txt")}))) as r:
        await r.editor.new_session(r.project, additional_directories=[extra])
        await r.editor.prompt("go")
        r.editor.tool_call().assert_finished("completed")


async def test_reading_calls_are_announced_in_the_models_order(tmp_path):
    warm = [asks(Call("list_directory", {})), "warm"]
    async with rig(tmp_path, [*warm, *calls(*(Call("list_directory", {"path": f"d{n}"}) for n in range(6)))]) as r:
        await r.says("a first call loads the tool", "go")
        titles = [call.title for call in r.editor.tool_calls().values()]
        assert titles == ["List .", *(f"List d{n}" for n in range(6))]


@pytest.mark.parametrize("meta", [True, False])
async def test_a_flood_of_output_reaches_the_editor_in_messages_of_sane_size(tmp_path, meta):
    script = calls(bash("head -c 8000000 /dev/zero | tr '\\0' 'x'"))
    async with went(tmp_path, script, mode="auto", terminal=False, terminal_output_meta=meta) as r:
        r.editor.tool_call().assert_finished("completed")
        sizes = [len(json.dumps(line)) for line in r.editor.lines("from_agent")]
        assert max(sizes) < 600_000
        assert r.editor.tool_call().raw_output["truncated"]


async def test_a_buffer_that_was_saved_meanwhile_may_be_edited(tmp_path):
    buffers = {tmp_path / "project/a.txt": "unsaved\n"}
    edit = Call("edit", {"path": "a.txt", "old_string": "unsaved", "new_string": "new"})
    script = rounds(Call("read", {"path": "a.txt"}), bash("cp saved a.txt"), edit)
    async with went(tmp_path, script, buffers=buffers, files={"a.txt": "on disk\n", "saved": "unsaved\n"}) as r:
        list(r.editor.tool_calls().values())[-1].assert_finished("completed")
        assert (r.project / "a.txt").read_text() == "new\n"
