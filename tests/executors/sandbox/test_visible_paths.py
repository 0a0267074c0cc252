"""Which paths are visible and how, as data; the attacks show that it is what happens."""

import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import SandboxPolicy
from acp_agent.executors.sandbox.holders import hold, is_place_holder, release
from acp_agent.executors.sandbox.visible_paths import View, plan


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def treatments(view: View, base: Path) -> dict[str, str]:
    return {
        str(spot.path.relative_to(base)): spot.treatment
        for spot in view.spots
        if spot.path.is_relative_to(base) and spot.path != base
    }


def test_parents_stand_before_what_is_below_them(base: Path) -> None:
    for name in ("a/b/c/d", "a/x"):
        (base / name).mkdir(parents=True)
    policy = SandboxPolicy(
        writable=(base / "a/b/c", base / "a"), readable=(base / "a/b",), protected=(base / "a/x/.git/config",)
    )
    view = plan(policy, scratch=None)
    places = [spot.path for spot in view.spots]
    for index, path in enumerate(places):
        assert not any(later != path and path.is_relative_to(later) for later in places[index + 1 :])
    assert treatments(view, base) == {
        "a": "write", "a/b": "read", "a/b/c": "write", "a/x": "keep", "a/x/.git": "absent",
    }  # fmt: skip
    assert view.missing == (base / "a/x/.git",)


def test_every_folder_above_a_protected_path_is_kept_from_the_topmost_one_that_may_be_written(base: Path) -> None:
    (base / "all/mine/.git/hooks").mkdir(parents=True)
    policy = SandboxPolicy(writable=(base / "all", base / "all/mine"), protected=(base / "all/mine/.git/hooks",))
    assert treatments(plan(policy, scratch=None), base) == {
        "all": "write", "all/mine": "write", "all/mine/.git": "keep", "all/mine/.git/hooks": "protect",
    }  # fmt: skip


def test_what_is_hidden_stays_hidden_below_and_above_what_is_protected(base: Path) -> None:
    (base / "r/.config/fish").mkdir(parents=True)
    (base / "r/.git").mkdir()
    (base / "r/.git/config").write_text("")
    policy = SandboxPolicy(
        writable=(base / "r",),
        hidden=(base / "r/.config", base / "r/.git/config", base / "elsewhere", base / "r/missing"),
        protected=(base / "r/.config/fish", base / "r/.git/config"),
    )
    assert treatments(plan(policy, scratch=None), base) == {
        "r": "write", "r/.config": "hide", "r/.git": "keep", "r/.git/config": "hide",
    }  # fmt: skip


def test_what_is_shown_nowhere_is_not_hidden(base: Path) -> None:
    """A mount point for it would be made in the folder that is there instead."""
    (base / "home/.ssh").mkdir(parents=True)
    (base / "scratch").mkdir()
    view = plan(SandboxPolicy(writable=(), home=base / "home", hidden=(base / "home/.ssh",)), scratch=base / "scratch")
    assert treatments(view, base) == {"home": "stand-in"} and not view.sees(base / "other")


def test_the_persons_home_may_be_read_or_written_where_that_is_asked_for(base: Path) -> None:
    (base / "home").mkdir()
    for policy, expected in (
        (SandboxPolicy(writable=(), home=base / "home"), "empty"),
        (SandboxPolicy(writable=(), readable=(base / "home",), home=base / "home"), "read"),
        (SandboxPolicy(writable=(base / "home",), home=base / "home"), "write"),
    ):
        assert treatments(plan(policy, scratch=None), base) == {"home": expected}


def test_a_file_where_a_folder_would_be_is_protected_and_a_link_not_followed(base: Path) -> None:
    (base / ".git").write_text("gitdir: /elsewhere")
    view = plan(SandboxPolicy(writable=(base,), protected=(base / ".git/hooks",)), scratch=None)
    assert treatments(view, base) == {".git": "protect"}
    (base / "r").mkdir()
    (base / "r/out").symlink_to("/etc")
    with pytest.raises(ExecutorError, match="has become a link"):
        plan(SandboxPolicy(writable=(base / "r", base / "r/out")), scratch=None)


@pytest.mark.parametrize("link", [".git", ".git/hooks"])
def test_a_protected_path_that_is_a_link_is_an_error_that_says_what_to_do(link: str, base: Path) -> None:
    (base / "real/hooks").mkdir(parents=True)
    (base / link).parent.mkdir(exist_ok=True)
    (base / link).symlink_to(base / "real")
    with pytest.raises(ExecutorError, match=r"is a link.*tools\.sandbox\.protect"):
        plan(SandboxPolicy(writable=(base,), protected=(base / ".git/hooks",)), scratch=None)


def test_another_agents_place_holder_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "p"
    code = (
        "import sys; from pathlib import Path; from acp_agent.executors.sandbox.holders import hold, release\n"
        "held = hold([Path(sys.argv[1])]); print(len(held), flush=True); sys.stdin.read(); release(held)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdin is not None and other.stdout is not None and other.stdout.readline() == b"1\n"
        assert hold([path]) == [path]
        release([path])
        assert path.exists()
    assert other.returncode == 0
    assert not path.exists()


def test_what_a_killed_agent_left_is_taken_over_and_removed(tmp_path: Path) -> None:
    (path := tmp_path / ".mcp.json").mkdir()
    path.chmod(0o1555)
    view = plan(
        SandboxPolicy(writable=(tmp_path.resolve(),), protected=(tmp_path.resolve() / path.name,)), scratch=None
    )
    assert view.missing == (tmp_path.resolve() / path.name,)
    assert hold([path]) == [path]
    release([path])
    assert not path.exists()


def test_what_the_person_puts_there_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / ".vscode"
    assert hold([path]) == [path]
    path.chmod(0o700)
    (path / "settings.json").write_text("{}")
    release([path])
    assert (path / "settings.json").read_text() == "{}" and hold([path]) == []


def test_a_place_holder_goes_with_the_last_who_needs_it_and_never_what_is_the_persons(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    assert hold([tmp_path / ".vscode"]) == [] and (tmp_path / ".vscode").is_dir()
    path = tmp_path / ".mcp.json"
    assert hold([path]) == hold([path]) == [path] and is_place_holder(path.lstat())
    release([path])
    assert path.exists()
    release([path])
    assert not path.exists()
