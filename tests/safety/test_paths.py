"""Which paths are inside the folders of a session."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_agent.errors import ToolError
from acp_agent.safety.folders import survey
from acp_agent.safety.folders.paths import Roots, real_path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "app" / "src").mkdir(parents=True)
    (tmp_path / "app-evil").mkdir()
    (tmp_path / "app" / "file.txt").write_text("x")
    (tmp_path / "app-evil" / "file.txt").write_text("x")
    return tmp_path


@pytest.fixture
def roots(base: Path) -> Roots:
    return Roots(base / "app")


@pytest.mark.parametrize("text", [
    "file.txt", "./file.txt", "src/../file.txt", "src/new/deep/file.txt", ".", "a b/ü.txt", "{base}/app/file.txt",
])  # fmt: skip
def test_relative_paths_are_below_the_working_directory(text: str, roots: Roots, base: Path) -> None:
    text = text.format(base=base)
    assert roots.resolve(text) == Path(os.path.normpath(base / "app" / text))


@pytest.mark.parametrize("text", [
    "../app-evil/file.txt", "..", "../app-evil", "src/../../x", "/etc/passwd", "/", "file:///etc/passwd",
    "file://{base}/app/%2e%2e/app-evil/file.txt",
])  # fmt: skip
def test_paths_outside_are_refused_in_words(text: str, roots: Roots, base: Path) -> None:
    with pytest.raises(ToolError, match="outside this session's folders") as error:
        roots.resolve(text.format(base=base))
    assert str(base / "app") in str(error.value)


def test_a_folder_whose_name_begins_alike_is_not_inside(roots: Roots, base: Path) -> None:
    assert not roots.contains(base / "app-evil" / "file.txt") and not roots.contains(base)
    assert roots.contains(base / "app") and roots.contains(base / "app" / "not" / "yet")


def test_a_link_that_leads_out_is_out_and_one_that_stays_inside_is_followed(roots: Roots, base: Path) -> None:
    """`..` after a link means the parent of its target."""
    (base / "app-evil" / "deep").mkdir()
    for link, target in (("link", base / "app-evil"), ("file-link", base / "app-evil/file.txt"), ("inside", "src")):
        (base / "app" / link).symlink_to(target)
    (base / "app" / "deep").symlink_to(base / "app-evil" / "deep")
    for text in ("link", "link/file.txt", "link/new.txt", "file-link", "link/../../app-evil/file.txt", "deep/../x"):
        with pytest.raises(ToolError, match="outside"):
            roots.resolve(text)
    assert roots.resolve("inside/x.py") == base / "app" / "src" / "x.py"


def test_a_dangling_link_counts_for_where_it_would_lead_and_a_loop_is_refused(roots: Roots, base: Path) -> None:
    (base / "app" / "out").symlink_to(base / "nowhere" / "x")
    (base / "app" / "in").symlink_to(base / "app" / "later")
    with pytest.raises(ToolError, match="outside"):
        roots.resolve("out")
    assert roots.resolve("in") == base / "app" / "later"
    (base / "app" / "a").symlink_to("b")
    (base / "app" / "b").symlink_to("a")
    with pytest.raises(ToolError, match="cannot be resolved"):
        roots.resolve("a")
    with pytest.raises(ToolError):
        roots.resolve("a/x")


def test_a_root_that_is_a_link_is_the_folder_behind_it(base: Path) -> None:
    (base / "alias").symlink_to("app")
    roots = Roots(base / "alias")
    assert roots.resolve("file.txt") == base / "app" / "file.txt" and roots.is_root(base / "app")
    assert roots.display(base / "app" / "src") == "src"


def test_several_roots_are_all_inside(base: Path) -> None:
    roots = Roots(base / "app", [base / "app-evil"])
    assert roots.resolve("../app-evil/file.txt") == base / "app-evil" / "file.txt"
    assert roots.display(base / "app-evil" / "file.txt") == str(base / "app-evil" / "file.txt")
    assert roots.display(base / "app") == "."


@pytest.mark.parametrize(("uri", "name"), [
    ("a%20b.txt", "a b.txt"), ("a#b.txt", "a#b.txt"), ("a%23b.txt", "a#b.txt"), ("a?b", "a?b"), ("a.py#L10", "a.py"),
    ("a.py#L10-L12", "a.py"), ("a.py#L1C2-L3C4", "a.py"), ("a.py#12:3", "a.py"), ("C#1/a.txt", "C#1/a.txt"),
    ("[a", "[a"), ("a%20b%23%C3%BC.txt", "a b#ü.txt"),
])  # fmt: skip
def test_a_file_uri_stands_for_its_path_whatever_is_in_the_name(uri: str, name: str, base: Path) -> None:
    assert Roots(base / "app").resolve(f"file://{base}/app/{uri}") == base / "app" / name
    assert Roots(base / "app").resolve(f"file://localhost{base}/app/{uri}") == base / "app" / name


@pytest.mark.parametrize(("text", "words"), [
    ("", "empty"), ("a\0b", "NUL"), ("file:///x%00y", "NUL"), ("file://", "empty"), ("\ud800", "UTF-8"),
    ("x" * 5000, "longer than"), ("a/" * 2500, "longer than 4095 bytes"), ("ü" * 2100, "longer than 4095 bytes"),
    ("x" * 300, "cannot be resolved: a name in it has 300 bytes, more than the maximum of 255"),
    ("a/" + "ü" * 128 + "/b", "a name in it has 256 bytes"), ("file://other-machine/x", "another machine"),
    ("file://user@localhost/x", "another machine"), ("file://[/x", "not a valid file:// URI"), ("~", "not expanded"),
    ("~/x", "not expanded, and nothing has that name here; give an absolute path"), ("$HOME/.ssh/id", "not expanded"),
    ("${HOME}/x", "not expanded"),
])  # fmt: skip
def test_malformed_paths_are_refused_in_words(text: str, words: str, roots: Roots) -> None:
    for resolve in (roots.resolve, roots.entry):
        with pytest.raises(ToolError, match=words) as error:
            resolve(text)
        assert len(str(error.value)) < 1000, "a long path is not repeated"


@pytest.mark.parametrize("text", [
    "~", "~/x", "~root/x", "$HOME/x", "${HOME}", "*.py", "[ab]/?", "{a,b}", "!x", "a;b", "a b", "`id`", "$(id)",
])  # fmt: skip
def test_nothing_in_a_path_is_expanded(text: str, roots: Roots, base: Path) -> None:
    (base / "app" / text.partition("/")[0]).mkdir()
    assert roots.resolve(text) == base / "app" / text and roots.entry(text) == base / "app" / text


@pytest.mark.parametrize(
    "text", ["$id.tsx", "src/~/x", "src/$HOME", "~x", "~x/y", "$HOME", "a*b/c?", "file:", "file:/x", "a%20b"]
)
def test_names_that_only_look_so_need_not_exist(text: str, roots: Roots, base: Path) -> None:
    assert roots.resolve(text) == base / "app" / text


@pytest.mark.parametrize("text", ["src/", "src//", "src/.", "./src/./", "src/../src/", "//src"])
def test_slashes_and_dots_at_the_end_change_nothing(text: str, roots: Roots, base: Path) -> None:
    if text.startswith("//"):
        with pytest.raises(ToolError, match="outside"):
            roots.resolve(text)
        return
    assert roots.resolve(text) == base / "app" / "src" and roots.entry(text) == base / "app" / "src"


def test_very_many_links_and_a_path_that_becomes_too_long_are_refused_in_words(roots: Roots, base: Path) -> None:
    for number in range(1500):
        (base / "app" / f"link-{number}").symlink_to(f"link-{number + 1}")
    with pytest.raises(ToolError, match="cannot be resolved: too many"):
        roots.resolve("link-0/x")
    with pytest.raises(ToolError, match="longer than 4095 bytes"):
        roots.resolve("/".join(["x" * 250] * 16) + "/y" * 39)


@pytest.mark.parametrize(("root", "path", "inside"), [
    ("/srv/app", "/srv/app/x", True), ("/srv/app", "/srv/app", True), ("/srv/app", "/srv/app-evil/x", False),
    ("/srv/app", "/srv/app.git", False), ("/srv/app", "/srv/ap", False), ("/srv/app", "/srv/APP/x", False),
    ("/srv/app", "/x/srv/app/x", False), ("/srv/app", "/srv", False), ("/", "/etc/passwd", True), ("/", "/proc", False),
    ("/", "/process/x", True), ("/", "/devel/x", True), ("/dev/shm/app", "/dev/shm/app/x", True),
    ("/proc/1", "/proc/1/environ", False),
])  # fmt: skip
def test_names_are_compared_one_by_one(root: str, path: str, inside: bool) -> None:
    roots = Roots(Path(root))
    assert roots.contains(Path(path)) is inside
    if inside:
        assert roots._inside(path, Path(path)) == Path(path)
    else:
        with pytest.raises(ToolError):
            roots._inside(path, Path(path))


# --- what the kernel keeps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "/proc/self/environ", "/proc/1/root/etc/shadow", "/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper",
    "/dev/sda", "/dev/null", "/dev/mem", "/dev/tcp/example.org/80", "/dev", "/proc", "proc/self/mem",
    "../../proc/version", "file:///proc/self/environ",
])  # fmt: skip
def test_a_root_that_is_the_whole_system_is_without_the_kernel_s_own(text: str) -> None:
    roots = Roots(Path("/"))
    for resolve in (roots.resolve, roots.entry):
        if text == "/proc/1/root/etc/shadow" and os.geteuid() == 0:
            continue  # who may follow the link is where it leads
        with pytest.raises(ToolError, match=r"a kernel file system \(/proc, /sys, /dev\)|permission denied"):
            resolve(text)


@pytest.mark.parametrize("target", ["/proc/self/environ", "/dev/zero", "/sys/kernel"])
def test_a_link_into_the_kernel_s_own_is_not_followed(target: str, base: Path) -> None:
    (base / "app" / "link").symlink_to(target)
    for roots in (Roots(base / "app"), Roots(Path("/"))):
        with pytest.raises(ToolError, match="kernel file system"):
            roots.resolve(str(base / "app" / "link"))


def test_files_in_memory_are_files(base: Path) -> None:
    assert Roots(Path("/")).resolve("/dev/shm/x") == Path("/dev/shm/x")


def test_real_path_adds_what_does_not_exist_yet(base: Path) -> None:
    assert real_path(base / "app" / "x" / ".." / "y") == base / "app" / "y"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.lists(st.sampled_from(["..", ".", "src", "link", "/", "a"])).map("/".join))
def test_whatever_resolves_is_inside(text: str, roots: Roots, base: Path) -> None:
    link = base / "app" / "link"
    if not link.is_symlink():
        link.symlink_to(base / "app-evil")
    try:
        path = roots.resolve(text)
    except ToolError:
        return
    inside = base / "app"
    assert roots.contains(path)
    assert path == inside or inside in path.parents
    assert Path(os.path.realpath(path)) == path


def test_a_configuration_that_is_too_large_to_be_read_is_not_taken_for_read(tmp_path):
    (tmp_path / ".git").mkdir()
    for size in (10, survey.MAX_CONFIG + 1):
        (tmp_path / ".git/config").write_text(" " * size)
        assert survey.survey(Roots(tmp_path)).complete == (size == 10)
