"""Each task can be solved and is not solved yet: the check fails before the reference solution and passes after it."""

import pytest

from evals.generated import write_tasks
from evals.tasks import Place, Task, check, set_up, solve
from tests.evals.test_tasks import EVERY
from tests.nightly import times


@pytest.mark.parametrize("task", EVERY, ids=[task.name for task in EVERY])
def test_the_check_fails_before_the_solution_and_passes_after_it(task: Task, tmp_path):
    place = Place(tmp_path / "place")
    set_up(task, place)
    assert not check(task, place)
    solve(task, place)
    assert check(task, place), (place.logs / "verifier" / "output.txt").read_text()


@pytest.mark.parametrize("seed", range(1, 1 + times(1)))
def test_what_a_seed_makes_can_be_solved_and_is_not_solved_yet(seed: int, tmp_path):
    tasks = write_tasks(tmp_path / "tasks", seed)
    assert len(tasks) == 24 and {task.wants for task in tasks} == {"changes", "answer"}
    for task in tasks:
        place = Place(tmp_path / "place")
        set_up(task, place)
        assert not check(task, place), task.name
        solve(task, place)
        assert check(task, place), (task.name, (place.logs / "verifier" / "output.txt").read_text())
