"""Tool calls beyond execution: feedback, repair, limits, cached results, hooks, questions, modes."""

import json
import uuid
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.schema.acp import CreateElicitationResponse, CurrentModeUpdate, PlanUpdate, SelectedPermissionOutcome
from acp_agent.schema.acp import Plan as OldPlan
from acp_agent.testing.fake_model import Answer, Call, Failure
from acp_agent.tools.kit.registry import builtin_registry, user_words
from tests.tables import table

from .kit import asks, bash, cancels, reloads, results, rig, rounds, went


def said(r) -> str:
    return str(r.editor.text())


# --- feedback ----------------------------------------------------------------------------------------------------


@table(("call", "category", "error"), [
    (Call("teleport", {}), "tool_not_found", "Unknown tool `teleport`"),
    (Call("attempt_completion", {"result": "x"}), "tool_not_found", "to end, answer the user in words"),
    (Call("read", {}), "invalid_parameters", "- path: Field required"),
    (Call("read", {"path": "a", "limit": "many"}), "type_mismatch", "- limit: "),
    (Call("read", {"path": "/etc/passwd"}), "policy_blocked", "outside this session's folders"),
    (Call("read", {"path": "missing"}), "invalid_parameters", "missing"),
    (Call("edit", {"path": "a.txt", "old_string": "no", "new_string": "x"}), "permanent_failure", "a.txt"),
    (Call("edit", {"path": "a.txt", "old_string": "", "new_string": ""}), "invalid_parameters", "`old_string`"),
    (Call("read", {"pth": "a"}), "invalid_parameters", "`path`"),
    (Call("read", "{not json"), "invalid_parameters", "not a JSON object"),
    (Call("read", "[1]"), "invalid_parameters", "not a JSON object"),
    (Call("read", {"path": "../outside.txt"}), "policy_blocked", "outside this session's folders"),
    (Call("read", {"path": "a\0b"}), "invalid_parameters", "NUL"), (bash("  "), "invalid_parameters", "empty"),
    (Call("write", {"path": "/etc/made", "content": "x"}), "policy_blocked", "outside this session's folders"),
    (Call("edit", {"path": "b.txt", "old_string": "x", "new_string": "y"}), "invalid_parameters", "does not exist"),
])  # fmt: skip
async def test_the_model_gets_the_feedback_block_and_the_person_the_plain_error(again, call, category, error):
    async with again(rounds(call), files={"a.txt": "one\n"}) as r:
        (text,) = results(r, 2)
        lines = text.splitlines()
        if category == "policy_blocked":
            assert lines[:2] == ["[tool_error]", f"category: {category}"] and lines[2].startswith("error: ")
            assert lines[-2].startswith("suggestion: ") and lines[-1] == "retryable: false"
        else:  # The message says what the category would repeat; a suggestion is the error's own.
            assert lines[0].startswith("[tool_error] ")
            assert not [line for line in lines if line.startswith(("category: ", "retryable: "))]
            assert not [line for line in lines[:-1] if line.startswith("suggestion: ")]
        assert error in text
        (shown,) = r.editor.tool_calls().values()
        shown.assert_finished("failed")
        told = shown.content[0].content.text
        assert "[tool_error]" not in told and "suggestion" not in told and "again" not in told and "Use `" not in told
        own = error.startswith(("- ", "not a JSON", "`"))  # What the model has to know of its own mistake.
        plain = "did not say which text" if error == "`old_string`" else "arguments that do not fit" if own else error
        assert plain in told and (error in told) != own
        assert shown.meta["toolError"] == {"category": category, "retryable": False}
        assert r.editor.permission_requests == []


async def test_a_refusal_of_the_person_is_told_as_needing_confirmation(tmp_path):
    async with went(tmp_path, rounds(bash("touch x")), permissions=[reject_once]) as r:
        assert "category: confirmation_required" in results(r, 2)[0]
        assert not (r.project / "x").exists()


@table(("arguments", "repaired"), [
    ({"file_path": "a.txt"}, {"path": "a.txt"}), ({"filePath": "a.txt"}, {"path": "a.txt"}),
    ({"path": "a.txt", "offset": "2"}, {"path": "a.txt", "offset": "2"}),
    ({"filename": "a.txt", "limit": "1"}, {"path": "a.txt", "limit": 1}),
])  # fmt: skip
async def test_arguments_that_are_wrong_in_form_only_are_mended_once(again, arguments, repaired):
    async with again(rounds(Call("read", arguments)), files={"a.txt": "one\ntwo\n"}) as r:
        (shown,) = r.editor.tool_calls().values()
        shown.assert_finished("completed")
        assert shown.raw_input == repaired


MEANT = {
    "rename": ({"path": "sub/a.txt", "new_name": "b.txt"}, "move_path", "sub/b.txt"),
    "move": ({"source": "sub/a.txt", "destination": "c.txt"}, "move_path", "c.txt"),
    "create_file": ({"file_path": "new.txt", "content": "x"}, "write", "new.txt"),
    "replace_in_file": ({"path": "sub/a.txt", "old_text": "one", "new_text": "two"}, "edit", "sub/a.txt"),
    "run": ({"cmd": "touch ran"}, "bash", "ran"),
    "python": ({"code": "open('made', 'w').write('END')\n"}, "bash", "made"), "search": ({"query": "one"}, "grep", ""),
    "openFile": ({"filename": "sub/a.txt"}, "read", ""),
    "delete_path": ({"path": "sub/a.txt", "recursive": None}, "delete_path", ""),
}  # fmt: skip


@pytest.mark.parametrize("written", [False, True], ids=["made", "written"])
@table("name", MEANT)
async def test_a_name_that_models_make_up_is_the_tool_that_it_means(again, name, written):
    arguments, tool, there = MEANT[name]
    text = json.dumps({"name": name, "arguments": arguments})
    script = [f"```json\n{text}\n```", "Done."] if written else rounds(Call(name, arguments))
    async with again(script, files={"sub/a.txt": "one\n"}, mode="auto") as r:
        (shown,) = r.editor.tool_calls().values()
        shown.assert_finished("completed")
        assert shown.meta["tool_name"] == tool
        assert not there or (r.project / there).exists()


@table("arguments", ['"{\\"path\\": \\"sub\\"}"', "null", '"null"', "", "None"])
async def test_arguments_may_be_encoded_twice_or_be_null(again, arguments):
    async with again(rounds(Call("list_directory", arguments)), files={"sub/a.txt": "one\n"}) as r:
        (shown,) = r.editor.tool_calls().values()
        shown.assert_finished("completed")


async def test_a_call_of_no_tool_as_the_whole_answer_fails_in_words_and_the_turn_goes_on(tmp_path):
    async with went(tmp_path, ['{"name": "rite_file", "arguments": {"path": "a", "content": "x"}}', "So not."]) as r:
        assert "Did you mean `write(path, content" in r.messages(2)[-1]["content"]
        assert r.editor.text() == "So not."


# --- what repeats itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "looks"), [
    (Call("read", {"path": "missing"}), [Call("list_directory", {})] * 2),
    (Call("edit", {"path": "a", "old_string": "nowhere", "new_string": "x"}), [bash("ls"), bash("ls -a")]),
], ids=["a tool looks in between", "commands look in between"])  # fmt: skip
async def test_the_same_failure_is_not_run_a_third_time_and_the_remedy_says_so(tmp_path, call, looks):
    script = rounds(call, looks[0], call, looks[1], call)
    async with went(tmp_path, script, config="[agent]\ndoom_loop = 9\n", mode="auto", files={"a": "one\n"}) as r:
        texts = results(r, 6)
        assert "has failed 2 times" not in texts[2]
        assert f"This exact call of `{call.name}` has failed 2 times in the same way and was not run again." in texts[4]
        assert "suggestion: Do one of these:" in texts[4]


async def test_a_change_in_between_lets_the_call_run_again(tmp_path):
    missing = Call("read", {"path": "late.txt"})
    async with went(tmp_path, rounds(missing, missing, bash("echo there > late.txt"), missing), mode="auto") as r:
        assert "there" in results(r, 5)[-1]


async def test_three_rounds_with_the_same_call_end_the_turn_before_the_third_runs_and_the_session_goes_on(tmp_path):
    async with rig(tmp_path, [*rounds(*[bash("echo x >> count")] * 3)[:3], "here I am"], mode="auto") as r:
        assert (await r.editor.prompt("go")).stop_reason == "max_turn_requests"
        assert (r.project / "count").read_text() == "x\nx\n"
        assert "asked for the same `bash` 3 times in a row" in said(r)
        assert len(r.model.requests) == 3
        assert (await r.editor.prompt("and now?")).stop_reason == "end_turn"
        assert [message["role"] for message in r.messages(4)][-2:] == ["tool", "user"]


async def test_three_rounds_with_the_same_output_end_the_turn(tmp_path):
    script = [asks(bash(f"echo same; false # {number}")) for number in range(9)]
    async with went(tmp_path, script, mode="auto", ends="max_turn_requests") as r:
        assert "the same output 3 times in a row" in said(r)
        assert len(r.model.requests) == 3


async def test_changes_that_succeed_without_a_word_are_no_doom_loop(tmp_path):
    async with went(tmp_path, rounds(*(bash(f"touch f{number}") for number in range(5))), mode="auto") as r:
        assert (r.project / "f4").exists()


# --- limits ------------------------------------------------------------------------------------------------------


async def test_the_quota_counts_messages_blocks_everything_after_and_ends_with_clear(tmp_path):
    two = asks(Call("list_directory", {}), Call("find_path", {"pattern": "*"}))
    async with went(tmp_path, [two, two, "done", two, "done"], config="[tools]\nmax_tool_calls_per_session = 1\n") as r:
        first, second = results(r, 3)[:2], results(r, 3)[2:]
        assert not any("quota_blocked" in text for text in first)
        assert all("quota_blocked" in text and "policy_blocked" in text for text in second)
        await r.says("/clear", "again")
        assert not any("quota_blocked" in text for text in results(r, 5))


async def test_the_quota_survives_a_restart(tmp_path):
    script = rounds(Call("list_directory", {})) + rounds(Call("list_directory", {}))
    async with went(tmp_path, script, config="[tools]\nmax_tool_calls_per_session = 1\n") as r:
        session = r.editor.session_id
        await r.editor.client.close_session(session)
        await r.editor.resume_session(session, r.project)
        await r.editor.prompt("go")
        assert "quota_blocked" in results(r, 4)[-1]


async def test_a_window_nobody_told_of_stops_nothing(tmp_path):
    script = [asks(Call("read", {"path": "big"})), "done"]
    async with rig(tmp_path, script, config="[tools]\nmax_output_chars = 900000\n") as r:
        (r.project / "big").write_text("word word word\n" * 50_000)
        assert (await r.editor.prompt("go")).stop_reason == "end_turn"


# --- the cache ---------------------------------------------------------------------------------------------------


async def test_a_repeated_reading_call_is_answered_from_memory_and_says_so(tmp_path):
    call = Call("grep", {"pattern": "one"})
    async with went(tmp_path, rounds(call, Call("list_directory", {}), call), files={"a.txt": "one\n"}) as r:
        first, _, again = results(r, 4)
        assert again == f"[unchanged since the same call before]\n{first}"


@pytest.mark.parametrize("how", ["us", "bash", "disk", "editor"])
async def test_a_path_that_changed_is_read_again(tmp_path, how):
    read = Call("read", {"path": "a.txt"})
    between = {
        "us": Call("edit", {"path": "a.txt", "old_string": "one", "new_string": "two"}),
        "bash": bash("echo two > a.txt"), "disk": Call("list_directory", {}), "editor": Call("list_directory", {}),
    }[how]  # fmt: skip
    buffers: dict = {}
    script = [asks(read), asks(between), Answer(tool_calls=(read,), hang_before=True), "done"]
    async with rig(tmp_path, script, mode="auto", buffers=buffers) as r:
        (file := r.project / "a.txt").write_text("one\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(r.editor.prompt, "go")
            await r.model.wait_for_request(3)
            if how == "disk":
                file.write_text("two\n")
            if how == "editor":
                buffers[file] = "two\n"
            r.model.release()
        again = results(r, 4)[-1]
        assert "two" in again and "[unchanged" not in again


async def test_bash_is_never_remembered(tmp_path):
    script = rounds(bash("echo x >> n; wc -l < n"), Call("list_directory", {}), bash("echo x >> n; wc -l < n"))
    async with went(tmp_path, script, mode="auto") as r:
        assert [results(r, 4)[at].partition("\n")[0] for at in (0, 2)] == ["1", "2"]


# --- hooks -------------------------------------------------------------------------------------------------------


async def test_hooks_run_around_tools_and_after_changes_with_the_facts_as_variables(tmp_path):
    log = tmp_path / "hooks.log"
    line = f"echo $ACP_CODER_EVENT $ACP_CODER_TOOL $ACP_CODER_FILE$ACP_CODER_CWD$ACP_CODER_TOOL_STATUS >> {log}"
    config = "".join(
        f"[[hooks.{event}]]\ncommand = '{line}'\n"
        for event in ("tool_before", "tool_after", "file_changed", "cwd_changed")
    )
    script = rounds(Call("write", {"path": "a.txt", "content": "x"}), bash("mkdir sub && cd sub"))
    async with went(tmp_path, script, mode="auto", config=config) as r:
        assert log.read_text().splitlines() == [
            "tool_before write", f"file_changed write {r.project / 'a.txt'}", "tool_after write completed",
            "tool_before bash", f"cwd_changed bash {r.project / 'sub'}", "tool_after bash completed",
        ]  # fmt: skip


async def test_a_hook_that_fails_is_reported_once_and_the_call_goes_on(tmp_path):
    config = "[[hooks.tool_before]]\ncommand = 'echo broken >&2; exit 3'\ntools = ['list_directory']\n"
    script = rounds(
        Call("list_directory", {}), Call("list_directory", {"path": "."}), Call("find_path", {"pattern": "*"})
    )
    async with went(tmp_path, script, config=config) as r:
        r.editor.assert_tool_calls_finished()
        assert all(call.status == "completed" for call in r.editor.tool_calls().values())
        assert said(r).count("exit code 3: broken") == 1


async def test_a_hook_that_hangs_is_killed_after_its_timeout(tmp_path):
    config = "[[hooks.tool_after]]\ncommand = 'sleep 600'\ntimeout = 0.1\n"
    async with went(tmp_path, rounds(Call("list_directory", {})), config=config) as r:
        assert "ran longer than 0.1 s" in said(r)


async def test_the_turn_context_reaches_commands_only_when_enabled(tmp_path):
    command = bash("echo turn=$ACP_CODER_TURN_ID session=$ACP_CODER_SESSION_ID at=$ACP_CODER_TURN_TIMESTAMP_MS")
    async with went(tmp_path, rounds(command), mode="auto") as r:
        assert results(r, 2)[0].strip() == "turn= session= at="
    (tmp_path / "on").mkdir()
    async with went(tmp_path / "on", rounds(command), mode="auto", config="[tools.bash]\nturn_context = true\n") as r:
        turn, session, at = (word.partition("=")[2] for word in results(r, 2)[0].split())
        assert len(turn) == 36
        assert session == r.editor.session_id
        assert at.isdigit()


# --- questions ---------------------------------------------------------------------------------------------------

ASK = Call("ask_user", {"question": "Which one?", "choices": ["red", "blue"]})


def form(content):
    async def answer(request):
        return CreateElicitationResponse(action="accept", content=content)

    return answer


async def never(request):
    await anyio.sleep_forever()


@pytest.mark.parametrize("choices", ["choices", "options"])
async def test_a_question_is_a_form_where_the_editor_has_forms(tmp_path, choices):
    ask = Call("ask_user", {"question": "Which one?", choices: ["red", "blue"]})
    async with went(tmp_path, rounds(ask), elicitation=form({"answer": "blue"})) as r:
        assert results(r, 2) == ["The user answered: blue"]
        (asked,) = r.editor.elicitations
        assert asked.message == "Which one?"
        assert asked.requested_schema.properties["answer"].enum == ["red", "blue"]
        (call,) = r.editor.tool_calls().values()
        assert asked.tool_call_id == call.id
        (tool,) = (tool for tool in r.request(1)["tools"] if tool["function"]["name"] == "ask_user")
        assert set(tool["function"]["parameters"]["properties"]) == {"question", "choices", "several"}


async def test_questions_of_one_message_come_one_after_the_other_in_the_models_order(tmp_path):
    said: list[str] = []

    async def one_at_a_time(request):
        said.append(request.message)
        await anyio.wait_all_tasks_blocked()  # Another question would come now.
        said.append("answered")
        return CreateElicitationResponse(action="accept", content={"answer": request.message})

    words = ["First?", "Second?", "Third?"]
    questions = [Call("ask_user", {"question": each}) for each in words]
    async with went(tmp_path, [asks(*questions), "done"], elicitation=one_at_a_time) as r:
        assert said == ["First?", "answered", "Second?", "answered", "Third?", "answered"]
        assert results(r, 2) == [f"The user answered: {each}" for each in words]


@pytest.mark.parametrize(
    "content", [None, {}, {"answer": "green"}, {"answer": 5}, {"answer": ["red", "green"]}, {"other": " x "}], ids=str
)
async def test_what_a_form_gives_is_checked_again(tmp_path, content):
    async with went(tmp_path, rounds(ASK), elicitation=form(content)) as r:
        answered = {"['red', 'green']": "red", " x ": "x"}.get(str(next(iter((content or {}).values()), "")))
        declined = "The user declined to answer. Continue with what you know, or state your assumptions."
        assert results(r, 2) == [f"The user answered: {answered}" if answered else declined]


async def test_without_forms_a_question_with_choices_is_asked_like_a_permission(tmp_path):
    async def blue(request):
        option = next(option for option in request.options if option.name == "blue")
        return SelectedPermissionOutcome(option_id=option.option_id)

    async with went(tmp_path, rounds(ASK), permissions=[blue]) as r:
        assert results(r, 2) == ["The user answered: blue"]
        (asked,) = r.editor.permission_requests
        assert asked.tool_call.title == "Which one?"
        assert not asked.tool_call.status, "the call is not set back"


async def test_without_forms_and_choices_the_question_ends_the_turn_and_the_next_prompt_answers(tmp_path):
    async with went(tmp_path, [asks(Call("ask_user", {"question": "What name?"})), "thanks"]) as r:
        assert "What name?" in said(r)
        assert len(r.model.requests) == 1
        await r.editor.prompt("Ada")
        assert r.messages(2)[-1]["content"] == "Ada"


async def test_a_question_nobody_answers_ends_by_its_timeout(tmp_path):
    async with went(tmp_path, rounds(ASK), elicitation=never, config="[tools]\nask_timeout = 0.05\n") as r:
        assert "No answer in time" in results(r, 2)[0]


async def test_a_question_is_cancelled_with_its_turn(tmp_path):
    async with rig(tmp_path, rounds(ASK), elicitation=never) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.elicitations)
        await cancels(r, turn)


# --- modes -------------------------------------------------------------------------------------------------------


async def test_switch_mode_leaves_architect_after_asking_every_time(tmp_path):
    plan = Call("switch_mode", {"mode": "code", "plan": "1. do it"})
    async with went(tmp_path, rounds(plan, Call("write", {"path": "x", "content": "x"})), mode="architect") as r:
        assert "switch_mode" in r.tool_names(1) and "write" not in r.tool_names(1) and "write" in r.tool_names(2)
        assert "switch_mode" not in r.tool_names(2)
        assert (r.project / "x").read_text() == "x"
        asked = r.editor.permission_requests[0]
        assert {option.kind for option in asked.options} == {"allow_once", "reject_once"}
        assert "1. do it" in json.dumps(asked.tool_call.content, default=str)
        modes = [u for u in r.editor.updates[r.editor.session_id] if isinstance(u, CurrentModeUpdate)]
        assert modes[-1].current_mode_id == "code"


PLAN = "# The plan\n\n1. do it"
PROPOSES = Call("switch_mode", {"plan": PLAN})


@pytest.mark.parametrize("mode", ["code", "auto"])
async def test_an_approved_plan_is_carried_out_in_the_mode_that_the_user_chose(tmp_path, mode):
    async def pick(request: Any) -> Any:
        return SelectedPermissionOutcome(option_id=mode)

    script = rounds(PROPOSES, Call("write", {"path": "x", "content": "x"}))
    async with went(tmp_path, script, mode="architect", permissions=[pick]) as r:
        review, *asked = r.editor.permission_requests
        assert review.tool_call.kind == "switch_mode"
        assert [item.content.text for item in review.tool_call.content] == [PLAN]
        assert len(asked) == (mode == "code")
        assert f"The mode is `{mode}` now" in results(r, 2)[0]
        assert PLAN in next(iter(r.editor.tool_calls().values())).text()


async def test_plans_are_documents_where_the_client_takes_them(tmp_path):
    """The steps, too, after a reload as well: never both forms on one connection."""
    steps = Call("plan", {"entries": [{"content": "do it", "priority": "high", "status": "pending"}]})
    async with went(tmp_path, rounds(steps, PROPOSES), mode="architect", plan_documents=True) as r:
        session_id = r.editor.session_id
        (review,) = r.editor.permission_requests
        assert [item.content.text for item in review.tool_call.content] == [PLAN]
        methods = [line.message.get("method") for line in r.editor.transcript]
        asked = methods.index("session/request_permission")
        before = json.dumps([line.message for line in r.editor.transcript[:asked]])
        assert json.dumps(PLAN) in before and '"planId": "proposal"' in before
        seen = [*r.editor.updates[session_id]]
        await r.editor.load_session(session_id, r.project)
        plans = [each for each in (*seen, *r.editor.updates[session_id]) if isinstance(each, PlanUpdate | OldPlan)]
        assert [each.plan.plan_id for each in plans if isinstance(each, PlanUpdate)] == [
            "steps", "proposal", "steps", "proposal",
        ]  # fmt: skip
        assert plans[2].plan.entries[0].content == "do it"
        assert not [each for each in plans if isinstance(each, OldPlan)]


async def test_a_plan_that_is_not_approved_ends_the_turn_and_the_next_prompt_says_why(tmp_path):
    async with went(tmp_path, [asks(PROPOSES), "Then so."], mode="architect", permissions=[reject_once]) as r:
        assert len(r.model.requests) == 1
        await r.editor.prompt("Smaller steps.")
        assert "write" not in r.tool_names(2)
        assert "category: confirmation_required" in results(r, 2)[0]


async def test_the_users_words_about_a_plan_reach_the_model_where_there_are_forms(tmp_path):
    words = form({"words": "Smaller steps."})
    async with went(tmp_path, rounds(PROPOSES), mode="architect", permissions=[reject_once], elicitation=words) as r:
        assert "Smaller steps." in results(r, 2)[0]
        assert "write" not in r.tool_names(2)


@pytest.mark.parametrize(("plan", "trouble"), [
    ("x" * 1001, "1001 characters, more than 1000"), ("do \u202eti", "would not see"),
    ("do it <!-- and that -->", "would not see"), (" \n", "is empty"),
], ids=["long", "reversed", "hidden", "empty"])  # fmt: skip
async def test_a_plan_that_cannot_be_shown_whole_is_not_put_before_the_user(tmp_path, plan, trouble):
    config = "[tools]\nmax_plan_chars = 1000\n"
    async with went(tmp_path, rounds(Call("switch_mode", {"plan": plan})), mode="architect", config=config) as r:
        assert not r.editor.permission_requests
        assert trouble in results(r, 2)[0]
        assert "write" not in r.tool_names(2)


# --- the registry, and models without tool calls -----------------------------------------------------------------


async def test_without_any_tool_no_tools_are_sent_and_a_call_is_told_why_it_is_not_there(tmp_path):
    config = f"[tools]\ndisabled = {json.dumps([entry.name for entry in builtin_registry().entries()])}\n"
    async with went(tmp_path, rounds(Call("read", {"path": "a"})), config=config) as r:
        assert "tools" not in r.request(1)
        assert "disabled in the configuration" in results(r, 2)[0]


async def test_a_model_without_tool_calls_works_by_fenced_blocks(tmp_path):
    block = '```tool\n{"name": "write", "arguments": {"path": "a.txt", "content": "made"}}\n```\n'
    script = [f"I write.\n{block}It is written.", "```bash\ncat a.txt\n```\n", "It says made."]
    async with went(tmp_path, script, config="[providers.default]\ntool_calling = 'fenced'\n", mode="auto") as r:
        assert "tools" not in r.request(1)
        assert "<tools>" in r.messages(1)[0]["content"]
        write, ran = r.editor.tool_calls().values()
        write.assert_finished("completed")
        ran.assert_finished("completed")
        assert len({uuid.UUID(write.id), uuid.UUID(ran.id)}) == 2
        assert said(r) == "I write.\nIt says made."
        told = r.messages(3)
        assert [message["role"] for message in told] == ["system", *["user", "assistant"] * 2, "user"]
        assert "Result of `bash`" in str(told[-1]["content"]) and "made" in str(told[-1]["content"])
        await reloads(r)
        assert len(r.editor.tool_calls()) == 2


async def test_a_server_that_refuses_tools_is_asked_again_in_blocks(tmp_path):
    refusal = Failure(400, {"error": {"message": "gemma does not support tools"}})
    async with went(tmp_path, [refusal, "```bash\necho hi\n```\n", "done"], mode="auto") as r:
        (call,) = r.editor.tool_calls().values()
        call.assert_finished("completed")
        assert call.raw_output["stdout"] == "hi\n"


# --- what a user sees and a model is told ----------------------------------------------------------------------


async def test_calls_behind_an_open_question_are_not_run(tmp_path):
    question, write = Call("ask_user", {"question": "Delete all?"}), Call("write", {"path": "x", "content": "x"})
    async with went(tmp_path, [asks(question, question, write), "ok"], mode="auto") as r:
        assert not (r.project / "x").exists()
        asked, other, written = r.editor.tool_calls().values()
        asked.assert_finished("completed")
        other.assert_finished("failed")
        written.assert_finished("failed")
        await r.editor.prompt("no")
        assert all("has not answered an earlier question" in each for each in results(r, 2)[1:])


async def test_a_question_shows_what_will_be_sent(tmp_path):
    arguments = {"method": "POST", "url": "https://8.8.8.8/up", "headers": {"X-Key": "k"}, "body": "the secret plan"}
    async with went(tmp_path, rounds(Call("http_request", arguments)), permissions=[reject_once]) as r:
        (asked,) = r.editor.permission_requests
        assert asked.tool_call.content[0].content.text == (
            "```http\nPOST https://8.8.8.8/up\nX-Key: k\n\nthe secret plan\n```"
        )


async def test_a_timeout_and_a_missing_program_are_told_in_the_terms_of_the_taxonomy(tmp_path):
    slow = bash("echo begun; sleep 600", timeout=0.2)
    async with went(tmp_path, rounds(slow, bash("no-such-program-here")), mode="auto", terminal=False) as r:
        first, second = results(r, 3)
        assert first.startswith("begun\n")
        assert "[killed: the command ran longer than 0.2 s. " in first and "[tool_error]" not in first
        assert "[tool_error] a program in this command line was not found\nsuggestion: " in second
        assert "command -v" in second
        calls = list(r.editor.tool_calls().values())
        assert [call.meta["toolError"]["category"] for call in calls] == ["timeout", "permanent_failure"]
        assert calls[0].raw_output["stdout"] == "begun\n"


async def test_hooks_after_a_call_run_only_where_those_before_did(tmp_path):
    log = tmp_path / "hooks.log"
    config = "".join(
        f"[[hooks.{event}]]\ncommand = 'echo {event} >> {log}'\n" for event in ("tool_before", "tool_after")
    )
    script = rounds(Call("read", {"path": "/etc/passwd"}), Call("read", {"path": "missing"}))
    async with went(tmp_path, script, config=config):
        assert log.read_text().splitlines() == ["tool_before", "tool_after"]


def test_each_tool_has_a_sentence_for_the_user():
    words = user_words()
    assert list(words) == [entry.name for entry in builtin_registry().entries()]
    assert all(text[0].isupper() and text.endswith(".") and len(text) <= 60 for text in words.values())


async def test_tools_are_disabled_by_patterns_too_and_what_is_not_there_is_said_by_name(tmp_path):
    config = '[tools]\ndisabled = ["web_*", "memory_[rs]*", "glob", "nonsense"]\n'
    async with went(tmp_path, ["ok"], config=config, prompt="hello") as r:
        names = r.tool_names(1)
        assert "bash" in names and not names & {"web_search", "web_scrape", "memory_recall", "memory_store"}
        await r.editor.wait_for(lambda u: "`nonsense`" in str(getattr(u, "content", "")))
        await r.editor.prompt("/tools")
        away = "`find_path`, `fetch`, `web_scrape`, `web_search`, `memory_recall`, `memory_store`"
        sent, _, found = said(r).partition("\n\nAdded when the model looks for them:\n")
        assert "- `bash`: Runs a command.\n" in sent and "`run_shell`" not in sent
        assert "- `time`: Looks at the clock." in found and "`time`" not in sent
        assert f"- {away}: disabled in the configuration" in found
        assert "- `bash_output`, `bash_kill`, `bash_list`: Nothing was started" in said(r)
