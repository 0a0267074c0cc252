"""The runner, with the real agent and a scripted model."""

import os
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from acp_agent.errors import UsageError
from acp_agent.testing.fake_answers import Usage
from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel, Reply
from evals.results import Run, compared, read_run, summary
from evals.run import Plan, run
from evals.tasks import chosen
from evals.trial import SOLVED, Result
from tests.agent.kit import without_context
from tests.forked import forked_command

USAGE = Usage(1_000, 50, 250)


def bash(command: str) -> Answer:
    return Answer(tool_calls=(Call("bash", {"command": command}),), usage=USAGE)


def model_of_the_tests(request: dict[str, Any]) -> Reply | str:
    """Knows by the task what to do, right or wrong."""
    messages = without_context(request["messages"])
    task = next(message["content"] for message in messages if message["role"] == "user")
    round_ = sum(message["role"] == "assistant" for message in messages)
    done = Answer(text="Done.", usage=USAGE)
    steps: dict[str, list[Reply]] = {
        "hello.txt": [bash("echo hello world >hello.txt"), done],
        "mow the lawn": [bash("echo mow >>notes.txt"), done], "plumber": [Answer(text="Wait", hang_before=True)],
        "old.txt": [done, done], "count_words": [Failure(400, {"error": {"message": "this model is out of order"}})],
        "unittest": [bash("echo 1"), bash("echo 2"), bash("echo a"), bash("echo b"), bash("echo c")],
        "update.sh": [Answer(text="I cannot help with stealing credentials.", usage=USAGE)],
        "circle_area": [Answer(text="", refusal="That is not allowed.", usage=USAGE)],
    }  # fmt: skip
    return next(answers[round_] for words, answers in steps.items() if words in str(task))


async def test_each_end_of_a_task_is_told_apart(tmp_path, capsys):
    wanted = {
        "first-new-file": SOLVED, "first-append-line": "wrong", "first-change-word": "timeout",
        "first-delete-file": "gave up", "first-rename-function": "error", "first-run-tests": "round limit",
        "first-find-function": "refused", "refuse-theft": SOLVED,
    }  # fmt: skip
    tasks = [replace(task, seconds=2.0) if wanted[task.name] == "timeout" else task for task in chosen(list(wanted))]
    async with FakeModel(model_of_the_tests, models=("first", "wanted")) as model:
        environ = {
            "PATH": os.environ["PATH"], "OPENAI_BASE_URL": model.base_url, "ACP_CODER_MAX_TOOL_ITERATIONS": "4",
            "ACP_CODER_SANDBOX_DISABLED": "true",
        }  # fmt: skip
        plan = Plan("default/wanted", tasks, environ, tmp_path / "out.json", jobs=2, command=[forked_command()])
        with anyio.fail_after(90):
            done = await run(plan)
        bodies = [request.body for request in model.requests]
        assert {body["model"] for body in bodies} == {"wanted"}
        first_steps = [body["messages"] for body in bodies if "update.sh" not in str(body["messages"][1])]
        assert len({messages[0]["content"] for messages in first_steps}) == 1, "read once by a small server"
    results = {result.task: result for result in done.results}
    assert {name: result.outcome for name, result in results.items()} == wanted, done.results
    first = results["first-new-file"]
    assert (first.rounds, first.input_tokens, first.output_tokens, first.cached_tokens) == (2, 2_000, 100, 500)
    assert first.cost == 0 and "out of order" in results["first-rename-function"].said
    assert results["first-append-line"].questions >= 1
    assert read_run(tmp_path / "out.json") == done
    kept = {folder.name for folder in (tmp_path / "out").iterdir()}
    assert kept == {name for name, outcome in wanted.items() if outcome != SOLVED}
    lines = list(summary(done))
    assert lines[0].startswith("sum ") and "2 of 8" in lines[0] and "timeout: 1 (first-change-word)" in lines
    printed = capsys.readouterr().out
    assert all(name in printed for name in wanted)


def test_two_runs_are_compared_by_the_tasks_that_both_have(tmp_path):
    def result(task: str, outcome: str, tokens: int) -> Result:
        return Result(task, outcome, 2, tokens, 10, 0, 0.25, 1.0, 0, "")

    before = Run("a/b", "1", 2.0, [result("x", SOLVED, 100), result("y", "wrong", 200), result("z", SOLVED, 300)])
    after = Run("a/b", "2", 2.0, [result("x", "wrong", 150), result("y", SOLVED, 250), result("new", SOLVED, 1)])
    assert list(compared(before, after)) == [
        "against a/b with 1, 2 tasks: 1 solved before, 1 now", "  x: solved -> wrong", "  y: wrong -> solved",
        "  model calls: 4 -> 4", "  tokens read: 300 -> 400", "  tokens written: 20 -> 20",
    ]  # fmt: skip
    assert "$0.7500" in next(summary(after))
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(UsageError, match="no results"):
        read_run(tmp_path / "none.json")


def test_tasks_are_chosen_by_name_pattern_or_difficulty():
    assert [task.name for task in chosen(["crlf", "first-run-*"])] == ["crlf", "first-run-program", "first-run-tests"]
    assert {task.difficulty for task in chosen(["hard"])} == {"hard"}
    with pytest.raises(UsageError, match="no task is named 'nothing'"):
        chosen(["nothing"])
