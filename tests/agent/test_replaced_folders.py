"""A session's folders are those that it was opened with, whatever their names lead to later."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acp_agent.client.permissions import allow_always, allow_once
from acp_agent.config.load import Config
from acp_agent.disk import Entered, Folder
from acp_agent.errors import InvalidParams, PeerError, WorktreeError
from acp_agent.executors.sandbox import probe
from acp_agent.loop.shell.worktrees import make
from acp_agent.mcp.base import McpError, ServerSpec
from acp_agent.mcp.stdio_server import StdioServer
from acp_agent.opening import Opening
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import NewSessionRequest
from acp_agent.store.base import SessionRecord
from tests.agent.kit import bash, environ_for, put, results, rig, rounds, trust, went
from tests.repositories import committed, git, repository

SECRET = "tangerine"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the same user, beside the project."""
    put((folder := tmp_path / "outside") / "secret", SECRET)
    return folder


KINDS = pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(probe, "_found", {})
    monkeypatch.setattr(probe, "_candidates", lambda config: [(kind, config)])


@KINDS
@pytest.mark.usefixtures("only")
async def test_no_command_gets_what_another_session_put_in_the_folders_place(tmp_path: Path, outside: Path) -> None:
    script = rounds(bash("mv sub sub2 && ln -s ../outside sub; ls"))
    script += rounds(bash("cat secret; echo x > made; cat ../outside/secret"))
    script += rounds(bash("rm sub; mv sub2 sub")) + rounds(bash("cat own"))
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False) as r:
        put(r.project / "sub/own", "cherry")
        whole = r.editor.session_id
        part = (await r.editor.new_session(r.project / "sub")).session_id
        for session in (whole, part, whole, part):
            r.editor.session_id = session
            await r.editor.prompt("go")
        assert "sub2" in results(r, 2)[0]
        assert "is not the folder any more in which the session was opened" in results(r, 4)[-1]
        assert "cherry" in results(r, 8)[-1]
        assert SECRET not in str(r.model.requests[-1].body)
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


@KINDS
@pytest.mark.usefixtures("only")
async def test_a_session_by_a_link_stays_in_the_folder_that_it_led_to(tmp_path: Path, outside: Path) -> None:
    script = rounds(bash("pwd; cat own")) + rounds(bash("cat own secret; echo x > made"))
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False) as r:
        (r.project / "own").write_text("cherry")
        (link := tmp_path / "current").symlink_to(r.project)
        await r.editor.new_session(link)
        await r.editor.prompt("go")
        assert "cherry" in results(r, 2)[0]
        link.unlink()
        link.symlink_to(outside)
        await r.editor.prompt("go")
        assert "cherry" in results(r, 4)[-1] and SECRET not in results(r, 4)[-1]
        assert (r.project / "made").exists()


async def test_a_session_is_not_opened_again_where_its_name_leads_by_now(tmp_path: Path, outside: Path) -> None:
    async with went(tmp_path, ["Hello.", "Again."]) as r:
        (link := tmp_path / "current").symlink_to(r.project)
        session = (await r.editor.new_session(link)).session_id
        await r.editor.prompt("go")
        link.unlink()
        link.symlink_to(outside)
        with pytest.raises(PeerError, match=f"leads to {outside} now; this session is of {r.project}"):
            await r.editor.load_session(session, link)
        await r.editor.load_session(session, r.project)
        await r.editor.load_session(session, outside)  # Stated by the user.


def test_what_was_judged_is_what_is_opened(tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session swaps the folder while this one is being opened."""
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    opening = Opening(environ_for(tmp_path, "http://127.0.0.1:9/v1"), {}, [str(inside)])
    config = opening.config

    def swap(cwd: str | None = None) -> Config:
        (inside / "sub").rename(inside / "before")
        (inside / "sub").symlink_to(outside)
        return config(cwd)

    request = NewSessionRequest(cwd=str(inside / "sub"), mcp_servers=[])
    opened = opening.new(request)
    monkeypatch.setattr(opening, "config", swap)
    with pytest.raises(InvalidParams, match="in none of the folders that may be opened"):
        opening.new(request)
    assert opened.roots.real == (inside / "sub",)


def a_link(folder: Path, outside: Path) -> None:
    folder.rename(folder.with_name("before"))
    folder.symlink_to(outside)


def another(folder: Path, outside: Path) -> None:
    folder.rename(folder.with_name("before"))
    outside.rename(folder)


SWAPS = pytest.mark.parametrize("swap", [a_link, another])
Swap = Callable[[Path, Path], None]
GONE = "is not the folder any more in which the session was opened"


@SWAPS
async def test_nothing_outside_the_sandbox_begins_in_another_folder(tmp_path: Path, outside: Path, swap: Swap) -> None:
    """Hooks, commands that the user lets out, with a control each."""
    calls = bash("touch out", outside_sandbox=True), bash("cat secret", outside_sandbox=True)
    config = '[[hooks.tool_before]]\ncommand = "touch told"\n'
    config += '[[hooks.on]]\nevent = "PreToolUse"\ncommand = "touch asked"\n'
    more: dict[str, Any] = {"otherwise": allow_once, "mode": "auto", "config": config, "sandbox": True}
    async with went(tmp_path, rounds(*calls) * 2, notices=True, terminal=False, **more) as r:
        assert {path.name for path in r.project.iterdir()} == {"out", "told", "asked"}
        swap(r.project, outside)
        await r.editor.prompt("go")
        assert GONE in results(r)[-1]
        assert GONE in r.editor.text()
        assert SECRET not in str(r.model.requests[-1].body)
    left = outside if swap is a_link else r.project
    assert [path.name for path in left.iterdir()] == ["secret"]


@SWAPS
def test_a_server_is_started_in_the_folder_that_was_opened_or_not_at_all(tmp_path, outside: Path, swap: Swap) -> None:
    """Of MCP, of a language: whoever swaps the folder in the moment between comes too late."""
    (tmp_path / "project/sub").mkdir(parents=True)
    (tmp_path / "project/leads").symlink_to(outside)
    roots = Roots(tmp_path / "project")
    spec = ServerSpec("x", "stdio", "/bin/pwd")

    def started(cwd: Path, entered: Entered) -> str:
        server = StdioServer.of(spec, {}, cwd, entered=entered)
        said, _ = server._popen.communicate(timeout=20)
        return bytes(said).decode().strip()

    @contextmanager
    def swapped(path: Path) -> Iterator[Path]:
        with roots.entered(path) as place:
            swap(tmp_path / "project", outside)
            yield place

    assert started(tmp_path / "project/sub", roots.entered) == str(tmp_path / "project/sub")
    assert started(outside, roots.entered) == str(outside)  # As its configuration says.
    with pytest.raises(McpError, match="cannot be entered"):
        started(tmp_path / "project/leads", roots.entered)
    assert started(tmp_path / "project", swapped) == str(tmp_path / "before")
    with pytest.raises(McpError, match=GONE):
        started(tmp_path / "project", roots.entered)


@SWAPS
def test_a_worktree_is_of_the_folder_that_was_opened(tmp_path: Path, outside: Path, swap: Swap) -> None:
    project = repository(tmp_path / "project")
    git(outside, "init", "-q")
    committed(outside, "secret")
    folder, state = Folder(project), tmp_path / "home/state"
    assert make(folder, state).end() == ""
    swap(project, outside)
    with pytest.raises(WorktreeError, match=GONE):
        make(folder, state)


def test_a_session_is_seen_by_where_it_is(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "current").symlink_to(outside)
    opening = Opening(environ_for(tmp_path, "http://127.0.0.1:9/v1"), {}, [str(outside)])
    record = SessionRecord("1", str(tmp_path / "current"), real=str(tmp_path / "project"))
    assert opening.may_open(record.cwd)
    assert not opening.may_see(record) and opening.may_see(replace(record, real=str(outside)))


async def test_what_is_kept_of_a_folder_is_found_by_each_of_its_names(tmp_path: Path, outside: Path) -> None:
    """Lists, answers, trust."""
    put(tmp_path / "project/.acp-coder/config.toml", '[agent]\nmode = "auto"\n')
    async with rig(tmp_path, ["Hello."], otherwise=allow_always) as r:
        (link := tmp_path / "current").symlink_to(r.project)
        session = (await r.editor.new_session(link)).session_id
        await r.editor.prompt("go")
        mark = await trust(r)

        async def found(folder: Path) -> tuple[bool, bool]:
            listed = (await r.editor.client.list_sessions(cwd=folder)).sessions
            await r.editor.new_session(folder)
            told = (await r.says("/trust")).rpartition("Files in this folder")[2]
            return session in [each.session_id for each in listed], "They are trusted." in told

        assert mark
        assert await found(link) == await found(r.project) == (True, True)
        link.unlink()
        link.symlink_to(outside)
        assert (await found(link), await found(r.project)) == ((False, False), (True, True))


async def test_a_session_that_works_elsewhere_and_comes_back_is_in_its_folder(tmp_path: Path, outside: Path) -> None:
    async with rig(tmp_path, rounds(bash("cat secret")), mode="auto", sandbox=True, terminal=False) as r:
        session = next(iter(r.agent.sessions._sessions.values()))
        a_link(r.project, outside)
        await session._leave(session.config)
        await r.editor.prompt("go")
        assert GONE in results(r)[-1]


async def test_an_answer_for_good_is_for_the_folder_not_for_its_name(tmp_path: Path, outside: Path) -> None:
    script = rounds(bash("touch a")) + rounds(bash("touch b")) + rounds(bash("touch c"))
    async with rig(tmp_path, script, otherwise=allow_always) as r:
        (link := tmp_path / "current").symlink_to(r.project)
        for place, asked in ((link, 1), (r.project, 1), (link, 2)):
            await r.editor.new_session(place)
            await r.editor.prompt("go")
            assert len(r.editor.permission_requests) == asked
            if place == r.project:
                link.unlink()
                link.symlink_to(outside)
