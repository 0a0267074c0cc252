"""Each task can be solved and is not solved yet: the check fails before the reference solution and passes after it."""

from evals.generated import write_tasks
from evals.tasks import TASKS, Place, check, chosen, set_up

EVERY = chosen()


def test_a_seed_makes_the_same_tasks_and_another_one_others(tmp_path):
    def words(folder: str, seed: int) -> list[str]:
        return [task.instruction for task in write_tasks(tmp_path / folder, seed)]

    assert words("a", 1) == words("b", 1)
    assert not set(words("a", 1)) & set(words("c", 2))


def test_an_answer_is_not_taken_from_what_was_said_before_the_last_tool_call(tmp_path):
    (task,) = chosen(["first-run-program"])
    place = Place(tmp_path / "place")
    set_up(task, place)
    call = '{"payload": {"update": {"sessionUpdate": "tool_call"}}}\n'
    said = '{"payload": {"update": {"sessionUpdate": "agent_message_chunk", "content": {"text": "14"}}}}\n'
    (events := place.logs / "agent" / "acp-events.jsonl").write_text(said + call)
    assert not check(task, place)
    events.write_text(call + said)
    assert check(task, place)


def test_all_tasks_have_harbors_form():
    assert len(EVERY) == 40 and sum(task.difficulty == "first-step" for task in EVERY) == 10
    assert {task.difficulty for task in EVERY} == {"first-step", "easy", "medium", "hard"}
    assert {task.wants for task in EVERY} == {"changes", "answer", "refusal"}
    for name in ("environment/Dockerfile", "tests/test.sh"):
        assert len({(task.folder / name).read_bytes() for task in EVERY}) == 1, f"{name} is the same everywhere"
    for task in EVERY:
        assert f'name = "acp-coder/{task.name}"' in (task.folder / "task.toml").read_text()
        assert task.instruction.strip() and (task.folder / "solution" / "solve.sh").is_file()
    assert {folder.name for folder in TASKS.iterdir()} == {task.name for task in EVERY}
