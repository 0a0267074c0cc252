"""Files that may keep keys or passwords: each is asked about in every mode, by tools as in command lines."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.client.permissions import allow_always, reject_once
from acp_agent.config.safety_settings import KEY_FILES
from acp_agent.safety.access import Allow
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.protect import PathRules
from acp_agent.safety.lines.examine import examine
from acp_agent.testing.fake_model import Call
from tests.tables import packed, table

from .kit import bash, confined, results, rig, rounds, went
from .test_links import link

SECRET = "tangerine"
NONE = "[tools.files]\nkey_files = []\n"


def fill(project: Path) -> None:
    (project / "sub").mkdir()
    for name in (".env", "sub/server.key", "plain.txt", ".env.example"):
        (project / name).write_text(f"word {SECRET}\n")
    (project / "link").symlink_to(".env")
    (project / "folder").symlink_to("sub")


TOOLS = {
    "read": Call("read", {"path": ".env"}), "through a link": Call("read", {"path": "link"}),
    "through a linked folder": Call("read", {"path": "folder/server.key"}),
    "by a way round": Call("read", {"path": "sub/../.env"}),
    "grep in the file": Call("grep", {"pattern": SECRET[:3], "path": ".env"}),
    "copy": Call("copy_path", {"source": ".env", "destination": "copied.txt"}),
    "copy of the folder": Call("copy_path", {"source": "sub", "destination": "other"}),
    "move": Call("move_path", {"source": "sub/server.key", "destination": "moved.txt"}),
    "edit": Call("edit", {"path": ".env", "old_string": "word", "new_string": "words"}),
    "delete": Call("delete_path", {"path": ".env"}), "cat": bash("cat .env"), "wildcard": bash("cat sub/*.key"),
    "input": bash("cat < .env"), "source": bash(". ./.env; echo $word"), "variable": bash('x=.env; cat "$x"'),
    "code": bash("python3 -c 'print(open(\".env\").read())'"), "upload": bash("curl -s -d @.env http://127.0.0.1:1/"),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["ask", "code", "auto"])
async def test_a_key_file_is_asked_about_in_every_mode(tmp_path: Path, mode: str) -> None:
    ways = {how: call for how, call in TOOLS.items() if mode != "ask" or call.name in ("read", "grep")}
    script = [answer for call in ways.values() for answer in rounds(call)]
    async with rig(tmp_path, script, mode=mode, otherwise=reject_once, before=fill) as r:
        for number, how in enumerate(ways, 1):
            await r.editor.prompt("go")
            assert len(r.editor.permission_requests) == number, how
            asked = r.editor.permission_requests[-1]
            assert "may keep keys or passwords" in str(asked.tool_call.content), how
        assert f"word {SECRET}" not in str(r.messages(len(script)))


async def test_without_the_list_nothing_is_asked_in_auto(tmp_path: Path) -> None:
    """But what is a high risk anyhow."""
    ways = {how: call for how, call in TOOLS.items() if how != "upload"}
    script = [answer for call in ways.values() for answer in rounds(call)]
    async with rig(tmp_path, script, mode="auto", config=NONE, otherwise=reject_once, before=fill) as r:
        for how in ways:
            await r.editor.prompt("go")
            assert not r.editor.permission_requests, how
        assert f"word {SECRET}" in str(r.messages(len(script)))


async def test_always_covers_one_file_only_for_tools_and_commands_alike(tmp_path: Path) -> None:
    calls = [Call("read", {"path": ".env"}), Call("grep", {"pattern": "word", "path": ".env"}), bash("cat .env")]
    other = Call("read", {"path": "sub/server.key"})
    async with went(tmp_path, rounds(*calls, other), mode="auto", otherwise=allow_always, before=fill) as r:
        assert [str(r.project / name) in option.name for asked, name in zip(
            r.editor.permission_requests, (".env", "sub/server.key"), strict=True
        ) for option in asked.options if option.kind == "allow_always"] == [True, True]  # fmt: skip
        assert all("word" in text for text in results(r, 5))


async def test_a_search_shows_nothing_of_them_and_says_so_whether_or_not_they_match(tmp_path: Path) -> None:
    script = rounds(
        Call("grep", {"pattern": SECRET}), Call("grep", {"pattern": "absent"}), Call("grep", {"pattern": "^word tan"}),
        Call("find_path", {"pattern": SECRET}),
    )  # fmt: skip
    async with rig(tmp_path, script, mode="auto", before=fill) as r:
        os.remove(r.project / "plain.txt")
        os.remove(r.project / ".env.example")
        await r.editor.prompt("go")
        found, absent, third, by_name = results(r, 5)
        assert SECRET not in found.replace(f"`{SECRET}`", "") and found.replace(SECRET, "absent") == absent
        assert third.replace("^word tan", "absent") == absent
        assert "may keep keys or passwords" in absent
        assert "server.key" not in by_name and ".env" not in by_name


async def test_a_rule_answers_only_if_it_names_the_file(tmp_path: Path) -> None:
    config = "".join(
        f'[[tools.permissions.{tool}]]\npattern = "{pattern}"\naction = "allow"\n'
        for tool, pattern in (("read", "*"), ("bash", "cat *"), ("bash", "head .env"))
    )
    script = rounds(Call("read", {"path": ".env"}), bash("cat .env"), bash("head .env"))
    async with went(tmp_path, script, mode="auto", config=config, otherwise=reject_once, before=fill) as r:
        assert len(r.editor.permission_requests) == 2
        assert "word" in results(r, 4)[2]


async def test_instructions_that_include_one_do_not_bring_it_to_the_model(tmp_path: Path) -> None:
    async with rig(tmp_path, ["ok", "ok"], before=fill) as r:
        (r.project / "AGENTS.md").symlink_to(".env")
        await r.editor.prompt([link(f"file://{r.project}/.env")])
        assert SECRET not in str(r.request(1))


async def test_a_build_that_reads_one_by_itself_works(tmp_path: Path) -> None:
    more = {"files": {"build.sh": "wc -l < .env; echo built\n"}, "before": fill}
    async with confined(tmp_path, "sh build.sh", **more) as r:
        assert "built" in results(r, 2)[0]
        assert not r.editor.permission_requests


# --- the list ----------------------------------------------------------------------------------------------------

NAMED = packed("""
env -C sub cat server.key ¦ git -C sub diff --no-index /dev/null server.key ¦ tar -C sub -cf - server.key
find sub -name server.key -exec cat {} + ¦ echo .env | xargs cat ¦ ls .env | xargs cat ¦ printf .env | parallel cat
sed -n 'r .env' plain.txt ¦ awk 'BEGIN{while((getline l<".env")>0)print l}' ¦ sqlite3 :memory: '.read .env'
""")


def test_lines_that_name_one_in_other_ways_are_asked_about(tmp_path: Path) -> None:
    fill(tmp_path)
    roots = Roots(tmp_path, rules=PathRules(home=tmp_path.parent))
    without = Roots(tmp_path, rules=PathRules(home=tmp_path.parent, key_files=()))
    for line in (*NAMED, f"cat ~/{tmp_path.name}/.env"):
        assert "key file" in examine(line, roots, tmp_path).verdict.rule, line
        assert "key file" not in examine(line, without, tmp_path).verdict.rule, "the control"


NAMES = [name.replace("*", "x") for name in KEY_FILES if not name.startswith("!")]


@table("name", NAMES)
def test_each_name_counts_in_any_folder_and_spelling(name: str) -> None:
    rules = PathRules()
    assert rules.key_name(f"/a/b/{name}") and rules.key_name(f"/a/{name.upper()}/below") and rules.key_name(name)
    assert not rules.key_name(f"/a/_{name}_.txt")


@table("name", [".env.example", "ca.pem", "server-cert.pem", "fullchain.pem", "id_rsa.pub", "keys.py", "env", "monkey"])
def test_what_is_public_is_no_key_file(name: str) -> None:
    assert PathRules().key_name(f"/a/{name}") is None


def test_a_session_that_was_opened_in_a_folder_of_such_a_name_is_not_asked_about_all_of_it(tmp_path: Path) -> None:
    (project := tmp_path / "our.key").mkdir()
    (project / "a").touch()
    assert PathRules(bases=[project]).key_file(project / "a") is None
    assert PathRules(bases=[tmp_path]).key_file(project / "a") is not None


QUIET = packed("""
ls .env ¦ test -f .env ¦ [ -f .env ] ¦ cat .env.example ¦ cat missing/.env ¦ cp .env.example new.txt ¦ cat plain.txt
npm test ¦ git status ¦ echo .env ¦ sed -n 1p plain.txt
""")


def test_lines_that_do_not_open_one_are_not_asked_about_for_it(tmp_path: Path) -> None:
    fill(tmp_path)
    for line in QUIET:
        assert "key file" not in examine(line, Roots(tmp_path), tmp_path).verdict.rule, line


PROGRAMS = st.sampled_from(["cat {}", "head -n 1 {}", "grep -n a {}", "sort < {}", "git diff {}", "cargo run {}"])
AROUND = st.sampled_from(
    ["{}", "true; {}", "ls && {}", "{} | wc -l", "bash -c '{}'", "cd sub; cd ..; {}", "(( 1 )); {}"]
)
WAYS = st.sampled_from([
    *(".env", "./.env", "sub/../.env", "link", ".en*", "'.env'", '".env"', "$PWD/.env", "sub/server.key"),
    *(".{env,x}", "{x,sub/server.key}", ".{e..e}nv", ".{x,e{y,nv}}", ".en[[:alpha:]]", "~+/.env", "${x:-.env}"),
])  # fmt: skip


@given(PROGRAMS, AROUND, WAYS)
def test_a_line_that_names_one_never_runs_without_a_question(tmp_path_factory, program, around: str, way: str) -> None:
    project = tmp_path_factory.getbasetemp() / "keys"
    if not project.exists():
        project.mkdir()
        fill(project)
    if "'" in way and "'" in around:
        return
    verdict = examine(around.format(program.format(way)), Roots(project), project).verdict
    assert not isinstance(verdict, Allow)
    assert verdict.by_person
