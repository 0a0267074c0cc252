"""What is judged is what is mounted: somebody puts another folder or a link there between the two."""

import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acp_agent.disk import Folder
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import Invocation, SandboxPolicy

from .kit import needs_sandbox
from .runner import SECRET, Place, sandboxes, start

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="bubblewrap and Landlock are Linux's")

LOOKS = """
for each in . pkg pkg/.git pkg/.git/hooks .env.d; do cat "$ROOT/$each/secret" "$ROOT/$each/sub/secret"; done
echo x >"$ROOT/made"; echo x >"$ROOT/pkg/made"; echo x >"$ROOT/pkg/.git/made"; echo x >"$ROOT/pkg/.git/hooks/made"
"""
Swap = Callable[[Place], None]


def a_link(name: str) -> Swap:
    """In the place of that folder, to another one of the same user."""

    def swap(place: Place) -> None:
        folder = place.root / name
        folder.rename(place.files / "before")
        folder.symlink_to(place.out)

    return swap


def another(name: str) -> Swap:
    """A folder that is there no longer by its old name."""

    def swap(place: Place) -> None:
        folder = place.root / name
        folder.rename(place.files / "before")
        place.out.rename(folder)

    return swap


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    (made.root / "pkg/.git/hooks").mkdir(parents=True)
    (made.root / ".env.d").mkdir()
    (made.out / "sub").mkdir()
    (made.out / "sub/secret").write_text(SECRET)
    yield made
    made.close()


def policy_of(place: Place, opened: Folder) -> SandboxPolicy:
    assert opened.identity is not None
    protected = (place.root / "pkg/.git/hooks", place.root / "pkg/.git/config")
    return SandboxPolicy(
        writable=(place.root,), protected=protected, scratch=place.scratch,
        hidden=tuple(place.root / name for name in (".env.d", ".env")),
        home=Path("/home/acp-nobody"), opened={place.root: opened.identity},
    )  # fmt: skip


def ran(place: Place, name: str, swap: Swap | None) -> tuple[int, str, str]:
    """What a command says that was confined before the swap, and started behind it."""
    if name != "landlock":
        needs_sandbox()
    sandbox, policy = sandboxes()[name], policy_of(place, Folder(place.root))
    confined = sandbox.confine(Invocation(("/bin/sh", "-c", LOOKS), place.root, place.env), policy, place.files)
    try:
        if swap is not None:
            swap(place)
        with start(confined, leak=False) as process:
            said, trouble = process.communicate(timeout=30)
        return process.returncode, said, trouble
    finally:
        confined.close()


SWAPS = [(how, name) for how in (a_link, another) for name in ("", "pkg", "pkg/.git", "pkg/.git/hooks")]


@pytest.mark.parametrize("kind", ["bubblewrap", "bubblewrap alone"])
@pytest.mark.parametrize(("how", "name"), [*SWAPS, (a_link, ".env.d")])
def test_nothing_else_is_mounted_than_was_judged(place: Place, kind: str, name: str, how: Callable[[str], Swap]):
    before = sorted(str(path.relative_to(place.out)) for path in place.out.rglob("*"))
    status, said, trouble = ran(place, kind, how(name))
    assert SECRET not in said and status != 0
    assert "was replaced while the sandbox was made" in trouble or "bwrap: " in trouble
    assert not list(place.out.glob("made")) + list(place.root.glob("**/made"))
    if kind == "bubblewrap":  # On old kernels bubblewrap itself makes what it mounts something on.
        out = place.out if place.out.exists() else place.root / name
        assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == before


@pytest.mark.parametrize("name", [".env.d", ".env"])
def test_what_is_hidden_is_what_was_to_be_hidden(place: Place, name: str) -> None:
    """Somebody moves it to where it is seen, and puts something of its kind in its place."""
    (place.root / ".env.d/secret").write_text(SECRET)

    def swap(place: Place) -> None:
        moved = (place.root / name).rename(place.root / "pkg/sub")
        (place.root / name).mkdir() if moved.is_dir() else (place.root / name).write_text("")

    status, said, trouble = ran(place, "bubblewrap", swap)
    assert (status, SECRET in said) == (126, False) and f"{name} was replaced while the sandbox was made" in trouble


@pytest.mark.parametrize("kind", ["bubblewrap", "bubblewrap alone"])
def test_what_stays_where_it_is_is_mounted(place: Place, kind: str) -> None:
    _, said, trouble = ran(place, kind, None)
    assert (SECRET in said, "replaced" in trouble) == (False, False)
    assert {str(path.relative_to(place.root)) for path in place.root.glob("**/made")} == {
        "made", "pkg/made", "pkg/.git/made"
    }  # fmt: skip


@pytest.mark.parametrize("how", [a_link, another])
def test_landlock_allows_nothing_else_than_was_judged(place: Place, how: Callable[[str], Swap]) -> None:
    status, said, trouble = ran(place, "landlock", how(""))
    assert SECRET not in said
    assert (status, "was replaced while the sandbox was made" in trouble or "cannot be" in trouble) == (126, True)
    assert not list(place.out.glob("made")) + list(place.root.glob("made"))


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("how", [a_link, another])
def test_a_folder_is_the_one_that_was_opened(place: Place, kind: str, how: Callable[[str], Swap]) -> None:
    policy = policy_of(place, Folder(place.root))
    how("")(place)
    with pytest.raises(ExecutorError, match="not the folder any more|has become a link"):
        sandboxes()[kind].confine(Invocation(("true",), place.root, place.env), policy, place.files)


def test_an_opened_folder_keeps_its_number(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder = Folder(tmp_path / "a")
    assert folder.is_there
    os.rmdir(tmp_path / "a")
    for _ in range(200):
        (tmp_path / "a").mkdir()
        assert not folder.is_there
        os.rmdir(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "a").symlink_to("b")
    assert Folder(tmp_path / "a").identity is None
