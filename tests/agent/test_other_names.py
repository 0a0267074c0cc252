"""The same file by another name, and whole trees under a policy: hard links, bind mounts, folders above."""

import os
import subprocess
from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.errors import ExecutorError
from acp_agent.executors import tree
from acp_agent.safety.folders.protect import also_mounted
from acp_agent.testing.fake_model import Call

from .kit import put, results, rig, rounds, went

# --- a policy and trees ------------------------------------------------------------------------------------------

TREES = {
    "delete": Call("delete_path", {"path": "srv"}), "move": Call("move_path", {"source": "srv", "destination": "away"}),
    "move into": Call("move_path", {"source": "new", "destination": "srv/prod"}),
    "copy over": Call("copy_path", {"source": "new", "destination": "srv", "overwrite": True}),
    "through a link": Call("delete_path", {"path": "link/../srv"}),
}  # fmt: skip


@pytest.mark.parametrize("pattern", ["*/srv/prod/*", "{project}/srv/prod/db", "*.keep"])
@pytest.mark.parametrize("how", [None, *TREES])
async def test_a_policy_that_denies_a_path_denies_every_tree_with_it(tmp_path: Path, how, pattern: str) -> None:
    paths = f'"{pattern.format(project=tmp_path / "project")}"'
    denied = f'[tools.policy]\nrules = [{{ effect = "deny", tool = "*_path", paths = [{paths}] }}]\n'
    call = TREES[how or "delete"]
    async with rig(
        tmp_path, rounds(call), mode="auto", config=denied if how is not None else "", otherwise=allow_once
    ) as r:
        for name in ("srv/prod/db", "srv/prod/x.keep", "new/db", "new/x.keep"):
            if not (how == "move into" and name.startswith("srv/prod")):
                put(r.project / name, name)
        (r.project / "srv").mkdir(exist_ok=True)
        (r.project / "link").symlink_to("new")
        before = sorted(path.relative_to(r.project) for path in r.project.rglob("*"))
        await r.editor.prompt("go")
        after = sorted(path.relative_to(r.project) for path in r.project.rglob("*"))
        assert (after == before) is (how is not None)
        if how is not None:
            assert "The policy denied this call" in results(r, 2)[0]


async def test_a_tree_without_what_the_policy_names_is_deleted(tmp_path: Path) -> None:
    denied = '[tools.policy]\nrules = [{ effect = "deny", tool = "*_path", paths = ["*/prod/*"] }]\n'
    async with rig(tmp_path, rounds(Call("delete_path", {"path": "a"})), mode="auto", config=denied) as r:
        (r.project / "a/production").mkdir(parents=True)
        await r.editor.prompt("go")
        assert not (r.project / "a").exists()


# --- the agent's own files ---------------------------------------------------------------------------------------


def can_mount(tmp_path: Path) -> bool:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    done = subprocess.run(["mount", "--bind", tmp_path / "from", tmp_path / "to"], capture_output=True, check=False)
    return done.returncode == 0 and subprocess.run(["umount", tmp_path / "to"], check=False).returncode == 0


@pytest.mark.parametrize("controlled", [False, True])
async def test_a_bind_mount_of_the_agents_folder_is_the_agents(tmp_path: Path, monkeypatch, controlled: bool) -> None:
    if not can_mount(tmp_path):
        pytest.skip("mounting is not allowed here")
    own, there = tmp_path / "home/.config/acp-coder", tmp_path / "project/mounted"
    for folder in (own, there):
        folder.mkdir(parents=True)
    (own / "memo").write_text("tangerine")
    subprocess.run(["mount", "--bind", own.parent, there], check=True)
    if controlled:
        monkeypatch.setattr("acp_agent.loop.calls.session_rules.also_mounted", lambda paths: [])
    script = rounds(
        Call("read", {"path": "mounted/acp-coder/memo"}),
        Call("write", {"path": "mounted/acp-coder/config.toml", "content": "[agent]\n"}),
        Call("delete_path", {"path": "mounted/acp-coder"}),
    )
    try:
        async with went(tmp_path, script, mode="auto") as r:
            assert ("tangerine" in results(r, 2)[0]) is controlled
            assert own.exists() is not controlled
            assert controlled or not (own / "config.toml").exists()
    finally:
        subprocess.run(["umount", there], check=True)


def test_other_places_are_read_from_the_table_of_mounts(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 8:1 /home/u/.config /mnt/my\\040dots rw - ext4 /dev/a rw\n"
        "3 1 8:1 /home/u/.config/acp-coder/skills /mnt/part rw - ext4 /dev/a rw\n"
        "4 1 8:2 / /mnt/other rw - ext4 /dev/b rw\n"
    )
    assert set(also_mounted([Path("/home/u/.config/acp-coder")], table)) == {
        Path("/home/u/.config/acp-coder"), Path("/mnt/my dots/acp-coder"), Path("/mnt/part"),
    }  # fmt: skip
    assert also_mounted([Path("/x")], tmp_path / "missing") == []


# --- hard links --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("through_editor", [True, False])
async def test_a_file_outside_does_not_change_with_its_hard_link_in_the_project(tmp_path, through_editor: bool) -> None:
    script = rounds(
        Call("read", {"path": "linked"}), Call("edit", {"path": "linked", "old_string": "words", "new_string": "evil"}),
        Call("write", {"path": "linked", "content": "more evil\n"}),
    )  # fmt: skip
    async with rig(tmp_path, script, mode="auto", fs_read=through_editor, fs_write=through_editor) as r:
        (tmp_path / "outside").write_text("words\n")
        os.link(tmp_path / "outside", r.project / "linked")
        (r.project / "control").hardlink_to(r.project / "linked")
        (r.project / "control").write_text("words\n")  # Whoever writes in place changes all of them.
        assert (tmp_path / "outside").read_text() == "words\n"
        await r.editor.prompt("go")
        assert (r.project / "linked").read_text() == "more evil\n"
        assert (tmp_path / "outside").read_text() == "words\n"
        assert "a file of its own now" in results(r, 3)[1]


# --- what is refused leaves nothing ------------------------------------------------------------------------------


def test_folders_made_for_what_is_then_refused_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").touch()
    seen = []

    def judged(doing: str, path: Path, mode: int) -> None:
        seen.append(doing)
        if seen.count("write") > 2:  # It was looked at before, and is again in its new place.
            raise ExecutorError("appeared meanwhile")

    (tmp_path / "there").mkdir()
    with pytest.raises(ExecutorError, match="appeared meanwhile"):
        tree.move(tmp_path / "a", tmp_path / "there/new/deep/a", False, 100, lambda: None, judged=judged)
    assert (tmp_path / "a/f").exists()
    assert list((tmp_path / "there").iterdir()) == []
