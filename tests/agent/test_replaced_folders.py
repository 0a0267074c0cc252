"""A session's folders are those that it was opened with, whatever their names lead to later."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.config.load import Config
from acp_agent.errors import InvalidParams, PeerError
from acp_agent.executors.sandbox import probe
from acp_agent.opening import Opening
from acp_agent.schema.acp import NewSessionRequest
from tests.agent.kit import bash, environ_for, results, rig, rounds, went

SECRET = "tangerine"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the same user, beside the project."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
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
        (r.project / "sub").mkdir()
        (r.project / "sub/own").write_text("cherry")
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
        link = tmp_path / "current"
        link.symlink_to(r.project)
        await r.editor.new_session(link)
        await r.editor.prompt("go")
        assert "cherry" in results(r, 2)[0]
        link.unlink()
        link.symlink_to(outside)
        await r.editor.prompt("go")
        assert "cherry" in results(r, 4)[-1]
        assert SECRET not in results(r, 4)[-1]
        assert (r.project / "made").exists()


async def test_a_session_is_not_opened_again_where_its_name_leads_by_now(tmp_path: Path, outside: Path) -> None:
    async with went(tmp_path, ["Hello.", "Again."]) as r:
        link = tmp_path / "current"
        link.symlink_to(r.project)
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


async def test_an_answer_for_good_is_for_the_folder_not_for_its_name(tmp_path: Path, outside: Path) -> None:
    script = rounds(bash("touch a")) + rounds(bash("touch b")) + rounds(bash("touch c"))
    async with rig(tmp_path, script, otherwise=allow_always) as r:
        link = tmp_path / "current"
        link.symlink_to(r.project)
        for place, asked in ((link, 1), (r.project, 1), (link, 2)):
            await r.editor.new_session(place)
            await r.editor.prompt("go")
            assert len(r.editor.permission_requests) == asked
            if place == r.project:
                link.unlink()
                link.symlink_to(outside)
