"""Deleting, moving and copying whole folders: nothing special is touched with them, and nobody's "always" covers it.

The session is the home folder, in which the agent's own configuration, database and audit log are.
"""

from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_always, allow_once, reject_once
from acp_agent.testing.fake_model import Answer, Call

from .kit import Rig, bash, put, results, rig

STATE = ".local/state/acp-coder"
EVIL = '[[mcp.servers]]\nname = "evil"\ncommand = "touch"\n'

ANY = "".join(
    f'[[tools.permissions.{tool}]]\npattern = "*"\naction = "allow"\n'
    for tool in ("copy_path", "move_path", "delete_path", "apply_patch")
)


def delete(path: str) -> Call:
    return Call("delete_path", {"path": path})


def copy(source: str, destination: str, *, overwrite: bool = False) -> Call:
    return Call("copy_path", {"source": source, "destination": destination, "overwrite": overwrite})


def move(source: str, destination: str, *, overwrite: bool = False) -> Call:
    return Call("move_path", {"source": source, "destination": destination, "overwrite": overwrite})


def patch(text: str) -> Call:
    return Call("apply_patch", {"input": f"*** Begin Patch\n{text}\n*** End Patch"})


def rounds(*calls: Call) -> list[Answer]:
    return [Answer(tool_calls=calls), Answer(text="done")]


def write(path: Path, text: str = "x\n") -> Path:
    put(path, text)
    return path


def plant(home: Path) -> None:
    write(home / "evil/acp-coder/config.toml", EVIL)
    write(home / "evil2/.CONFIG/ACP-Coder/config.toml", EVIL)
    write(home / "deep/.local/state/acp-coder/audit.jsonl", "")
    (home / "evil-link").symlink_to("evil")
    (home / "in-link").mkdir()
    (home / "in-link" / "acp-coder").symlink_to(home / "evil/acp-coder")
    write(home / "file")
    (home / "alias").symlink_to(".")
    write(home / "plain/a")


async def in_home(r: Rig, mode: str) -> Path:
    home = r.project.parent / "home"
    await r.editor.new_session(home)
    await r.editor.client.set_session_mode(r.editor.session_id, mode)
    return home


REMEMBERED = [Call("write", {"path": "new", "content": "x"}), delete("new")]
"""Answered with an "always", which is then remembered for edits and deletions."""

ON_OWN = [
    delete(".local"), delete(".local/state"), delete("alias/.local"), move(".local", "elsewhere"),
    move(".local/state", "plain/state"), move("alias/.local/state", "elsewhere"), copy(".local", "elsewhere"),
    copy("deep/.local", ".local", overwrite=True), move("deep/.local", ".local", overwrite=True),
]  # fmt: skip

ON_MISSING = [
    copy("evil", ".config"), copy("evil", "alias/.config"), copy("evil", ".Config"), copy("evil2/.CONFIG", ".config"),
    copy("evil-link", ".config"), copy("in-link", ".config"), copy("file", ".config"), move("evil", ".config"),
    move("evil2/.CONFIG", ".CONFIG"), move("evil-link", ".config"), move("in-link", ".config"), move("file", ".config"),
    patch("*** Update File: file\n*** Move to: .config\n@@\n-x\n+y"),
]  # fmt: skip
"""Where the configuration would be, but there is none yet."""

ON_EXISTING = [
    copy("evil", ".config", overwrite=True), move("evil", ".config", overwrite=True), move(".config", "elsewhere"),
    delete(".config"),
]  # fmt: skip

ON_LINKS = [
    delete(".config"), move(".config", "elsewhere"), delete("dots"), move("dots", "elsewhere"), delete("dots/conf"),
    delete("alias/dots/conf"), move("evil", "dots/conf", overwrite=True), copy("evil", "dots/conf", overwrite=True),
    copy("evil-link", ".config", overwrite=True), move("evil-link", ".config", overwrite=True),
    patch("*** Delete File: .config"),
]  # fmt: skip
"""The folder of the configuration is a link to another."""


@pytest.mark.parametrize("mode", ["auto", "code", "rules"])
@pytest.mark.parametrize(("place", "calls"), [
    ("missing", [*ON_OWN, *ON_MISSING]), ("existing", ON_EXISTING), ("link", ON_LINKS),
], ids=["missing", "existing", "link"])  # fmt: skip
async def test_the_agents_own_files_are_not_reached_through_a_folder_above(place, calls, mode, tmp_path):
    home = tmp_path / "home"
    plant(home)
    if place == "existing":
        write(home / ".config/other/settings")
    if place == "link":
        write(home / "dots/conf/other/settings")
        (home / ".config").symlink_to("dots/conf")
    before = [*REMEMBERED] if mode == "code" else []
    config = ANY if mode == "rules" else ""
    async with rig(tmp_path, rounds(*before, *calls), terminal=False, config=config, otherwise=allow_always) as r:
        await in_home(r, "auto" if mode == "auto" else "code")
        state = sorted(path.name for path in (home / STATE).iterdir())
        tree = sorted(str(path) for path in home.rglob("*") if STATE not in str(path))
        await r.editor.prompt("go")
        assert len(r.editor.permission_requests) == len(before)
        texts = results(r)[len(before) :]
        refused = ("must not be", "not replaced", "is a folder")
        assert [text for text in texts if not any(words in text for words in refused)] == []
        assert set(state) <= {path.name for path in (home / STATE).iterdir()}
        assert sorted(str(path) for path in home.rglob("*") if STATE not in str(path)) == tree


ON_TRUSTED = [
    delete("kit"), delete("deep/kit"), move("kit", "elsewhere"), copy("kit", "elsewhere"), copy("KIT", "elsewhere"),
    move("shell", "sub/.config"), copy("shell", "sub/.config"), copy("shell", "sub/.CONFIG"),
    copy("shell-link", "sub/.config"), move("shell-link", "sub/.config"), copy("in-link", "sub"),
    copy("plain", "kit", overwrite=True), move("plain", "kit", overwrite=True), copy("alias/kit", "alias/elsewhere"),
    copy("plain", "sub/.vscode"), patch("*** Update File: plain/a\n*** Move to: .vscode/tasks.json\n@@\n-x\n+y"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "code", "rules"])
async def test_what_other_programs_trust_is_asked_about_in_every_mode(mode, tmp_path):
    before = [*REMEMBERED] if mode == "code" else []
    async with rig(
        tmp_path, rounds(*before, *ON_TRUSTED), terminal=False, config=ANY if mode == "rules" else "",
        permissions=[allow_always] * len(before), otherwise=reject_once, mode="auto" if mode == "auto" else "code",
    ) as r:  # fmt: skip
        at = r.project
        for path in (
            "kit/.vscode/tasks.json", "KIT/.VSCode/tasks.json", "deep/kit/.git/config", "shell/fish/config.fish",
        ):  # fmt: skip
            write(at / path)
        (at / "shell-link").symlink_to("shell")
        (at / "in-link").mkdir()
        (at / "in-link/.config").symlink_to(at / "shell")
        (at / "alias").symlink_to(".")
        write(at / "plain/a")
        tree = sorted(str(path) for path in at.rglob("*"))
        await r.editor.prompt("go")
        asked = r.editor.permission_requests[len(before) :]
        assert [request.tool_call.raw_input for request in asked] == [call.arguments for call in ON_TRUSTED]
        assert sorted(str(path) for path in at.rglob("*")) == tree


async def test_an_always_for_a_tree_does_not_cover_the_next_one(tmp_path):
    calls = [copy("kit", "x"), copy("kit", "x", overwrite=True)]
    async with rig(tmp_path, rounds(*calls), terminal=False, otherwise=allow_always) as r:
        write(r.project / "kit/.vscode/tasks.json")
        await r.editor.prompt("go")
        asked = r.editor.permission_requests
        assert [[option.kind for option in request.options] for request in asked] == [["allow_once", "reject_once"]] * 2
        assert (r.project / "x/.vscode/tasks.json").exists()


HIDDEN = '[tools.files]\ndeny_read = ["keys", "a.pem", "hid/*"]\n'


async def test_hidden_files_are_not_touched_with_the_folder_above(tmp_path):
    calls = [
        *(delete("deep"), move("deep", "x"), copy("deep", "x"), copy("plain", "deep", overwrite=True)),
        *(move("plain", "deep", overwrite=True), copy("plain", "hid"), move("plain", "hid"), copy("named", "hid2")),
        *(copy("plain/a", "a.pem"), delete("alias/deep"), delete("repo"), copy("repo", "x")),
    ]
    async with rig(tmp_path, rounds(*calls), terminal=False, config=HIDDEN, mode="auto") as r:
        at = r.project
        for path in ("deep/keys/k", "named/sub/A.PEM", "plain/a", "repo/.git/keys/k"):
            write(at / path)
        (at / "alias").symlink_to(".")
        tree = sorted(str(path) for path in at.rglob("*"))
        await r.editor.prompt("go")
        assert r.editor.permission_requests == []
        assert [text for text in results(r) if "must not be read or changed" not in text] == []
        assert sorted(str(path) for path in at.rglob("*")) == tree


@pytest.mark.parametrize("call", [delete("src"), copy("src", "x"), move("src", "x")], ids=lambda call: call.name)
async def test_what_appears_while_the_question_is_open_was_not_judged(call, tmp_path):
    async def plants(request):
        write(at / "src/sub/.vscode/tasks.json")
        return await allow_once(request)

    async with rig(tmp_path, rounds(call), terminal=False, permissions=[plants], otherwise=reject_once) as r:
        at = r.project
        write(at / "src/a")
        write(at / "src/sub/b")
        await r.editor.prompt("go")
        assert "src/sub/.vscode must not be touched" in results(r)[0] or "x/sub/.vscode must" in results(r)[0]
        found = sorted(str(path.relative_to(at)) for path in at.rglob("*") if path.is_file())
        assert found == ["src/a", "src/sub/.vscode/tasks.json", "src/sub/b"]
        assert not (at / "x").exists()


async def test_ordinary_trees_are_not_asked_about(tmp_path):
    calls = [copy("src", "x"), move("x", "y"), copy("src", "y", overwrite=True), delete("y")]
    async with rig(tmp_path, rounds(*calls), terminal=False, mode="auto") as r:
        write(r.project / "src/sub/b")
        await r.editor.prompt("go")
        assert r.editor.permission_requests == []
        assert [text.split(" (")[0] for text in results(r)] == [
            *("src was copied to x", "x was moved to y", "src was copied to y", "y was deleted")
        ]


async def test_a_command_that_could_replace_a_link_to_the_agents_own_files_is_asked_about(tmp_path):
    home = tmp_path / "home"
    write(home / "dots/conf/other")
    (home / ".config").symlink_to("dots/conf")
    calls = [bash("rm .config; mkdir -p .config/acp-coder; echo > .config/acp-coder/config.toml"), bash("ls")]
    async with rig(tmp_path, rounds(*calls), terminal=False, sandbox=True, otherwise=reject_once) as r:
        await in_home(r, "auto")
        await r.editor.prompt("go")
        (request,) = r.editor.permission_requests
        assert f"it could replace the link {home}/.config" in request.tool_call.content[-1].content.text
        assert [option.kind for option in request.options] == ["allow_once", "reject_once"]
        assert (home / ".config").is_symlink()
