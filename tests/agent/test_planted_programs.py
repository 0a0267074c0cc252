"""A repository brings programs of its own: with a PATH that leads into it, none of them is what the agent starts.

Each planted program writes its name to a log and goes on as the real one, or fails, as an attacker likes. The control
in each test is that the real lookup along that PATH finds the plant.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.executors.sandbox import bubblewrap, probe
from acp_agent.own_programs import find_bash, find_program, search_path, with_search_path
from acp_agent.schema import acp
from acp_agent.testing.fake_model import Answer, Call

from .kit import asks, bash, put, rig, rounds, went

REAL = "/usr/local/bin:/usr/bin:/bin"
PLANTED = (
    "bash sh rg git bwrap setsid systemd-run node python python3 env true chromium google-chrome cat tsc ruff".split()
)


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """The folder, its log; the process works in it, as an agent does that an editor started there."""
    folder = tmp_path / "project"
    log = folder / "planted.log"  # where a confined command can write, too
    (folder / "bin").mkdir(parents=True)
    for name in PLANTED:
        (program := folder / "bin" / name).write_text(f"#!/bin/sh\necho {name} >>{log}\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.chdir(folder)
    probe._found.clear()
    yield folder, log
    probe._found.clear()


@pytest.mark.parametrize(
    "args", [["-m", "server"], ["-c", "import server"], ["-X", "utf8", "-um", "server"]], ids=" ".join
)
async def test_no_module_of_the_repository_is_loaded_by_a_server_of_the_users(tmp_path, args):
    for own in ([], [acp.EnvVariable(name="PYTHONSAFEPATH", value="")]):
        home = tmp_path / str(len(own))
        put(home / "project/server.py", f"open('{tmp_path}/ran', 'w')\n")
        server = acp.McpServerStdio(name="own", command=sys.executable, args=args, env=own)
        async with went(home, ["ok"], mcp_servers=[server]):
            assert (tmp_path / "ran").exists() == bool(own)


async def test_a_script_of_the_users_finds_what_is_beside_it(tmp_path):
    put(tmp_path / "own/beside.py", f"open('{tmp_path}/ran', 'w')\n")
    script = put(tmp_path / "own/server.py", "import beside\n")
    server = acp.McpServerStdio(name="own", command=sys.executable, args=[str(script), "-m", "x"], env=[])
    async with went(tmp_path, ["ok"], mcp_servers=[server]):
        assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("args", [["@scope/some-server@1.2"], ["--bun", "some-server"], ["-p", "other", "some-server"]])
async def test_bunx_does_not_run_a_package_of_the_repository(tmp_path, args):
    program = put(tmp_path / "bin/bunx", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    server = acp.McpServerStdio(name="fetched", command=str(program), args=args, env=[])
    for held in (True, False):
        home = tmp_path / str(held)
        put(home / "project/node_modules/.bin" / ("some-server" if held else "another"), "")
        async with went(home, ["ok"], mcp_servers=[server]) as r:
            assert (tmp_path / "ran").exists() != held
            assert ("would run node_modules/.bin/some-server" in r.editor.text()) == held


def paths(folder: Path) -> dict[str, str]:
    (link := folder.parent / "link").symlink_to(folder)
    return {
        "relative": f"bin:{REAL}", "dots": f"./bin:{REAL}", "inside": f"{folder}/bin:{REAL}",
        "dotted": f"{folder}/../{folder.name}/bin:{REAL}", "through a link": f"{link}/bin:{REAL}",
    }  # fmt: skip


CALLS = (
    bash("echo out; echo x > made"), Call("grep", {"pattern": "needle"}),
    bash("bash -c 'echo inner' && git init -q repo && git -C repo status"),
)  # fmt: skip


@pytest.mark.parametrize("kind", ["relative", "dots", "inside", "dotted", "through a link"])
@pytest.mark.parametrize("terminal", [False, True], ids=["here", "in the editor"])
async def test_no_program_of_the_repository_is_started_by_the_agent(kind, terminal, planted, tmp_path, monkeypatch):
    folder, log = planted
    path = paths(folder)[kind]
    monkeypatch.setenv("PATH", path)
    assert os.path.samefile(shutil.which("bash"), folder / "bin/bash")  # the control
    # An absolute entry is the user's own choice: commands see it, but the agent starts nothing from it.
    script = [Answer(tool_calls=CALLS if kind in ("relative", "dots") else CALLS[:2]), Answer(text="done")]
    (folder / "text").write_text("a needle\n")
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=terminal, environ={"PATH": path}) as r:
        results = [m["content"] for m in r.messages(2) if m["role"] == "tool"]
        assert "out" in results[0] and "needle" in results[1]
        assert all("inner" in text for text in results[2:])
        assert r.editor.permission_requests == []
        sandboxes = {item.sandbox.kind for item in probe._found.values()}
        if bubblewrap.USUAL.exists():
            assert sandboxes == {"bubblewrap"}
    assert not log.exists() or log.read_text() == ""


@pytest.mark.parametrize("answer", [reject_once, allow_once])
async def test_a_failing_sandbox_is_not_no_sandbox_without_a_question(planted, tmp_path, monkeypatch, answer):
    """A yes holds for the session."""
    monkeypatch.setattr(probe, "_candidates", lambda config: [])
    script = [asks(bash("touch one"), bash("touch two")), Answer(text="done")]
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=False, otherwise=answer) as r:
        asked = r.editor.permission_requests
        assert len(asked) == (1 if answer is allow_once else 2)
        assert all("no sandbox works here" in str(request.tool_call.content) for request in asked)
        assert [option.kind for option in asked[0].options] == ["allow_once", "reject_once"]
        assert [(r.project / name).exists() for name in ("one", "two")] == [answer is allow_once] * 2


MCP = """
[mcp.servers.tools]
command = "python3"
args = ["-c", "import sys; sys.exit(3)"]
"""

HOOK = """
[[hooks.tool_before]]
command = "cat /dev/null"
"""


@pytest.mark.parametrize("kind", ["relative", "dots", "inside", "dotted", "through a link"])
async def test_mcp_servers_and_hooks_are_not_programs_of_the_repository(kind, planted, tmp_path, monkeypatch):
    folder, log = planted
    path = paths(folder)[kind]
    monkeypatch.setenv("PATH", path)
    hooks = HOOK if kind in ("relative", "dots") else ""
    script = [Answer(tool_calls=[Call("grep", {"pattern": "x"})]), Answer(text="done")]
    async with rig(tmp_path, script, config=MCP + hooks, terminal=False, environ={"PATH": path}) as r:
        await r.editor.prompt("go")
    assert not log.exists()


@pytest.mark.parametrize("line", ["[x/run ]", '["x"/run ]', "! [x/run ]"])
async def test_a_program_whose_name_looks_like_a_test_is_asked_about(line, tmp_path):
    def files(project: Path) -> None:
        put(project / "[x/run", "#!/bin/sh\ntouch made\n").chmod(0o755)

    for answer, ran in ((reject_once, False), (allow_once, True)):
        (home := tmp_path / str(ran)).mkdir()
        async with went(home, rounds(bash(line)), before=files, otherwise=answer, mode="code") as r:
            assert len(r.editor.permission_requests) == 1
            assert (r.project / "made").exists() == ran  # The control: what bash makes of it.


async def test_a_program_of_the_projects_own_folder_on_path_is_not_changed_unasked(tmp_path):
    """Hooks run it by its name, outside the sandbox."""
    tool, other = ".venv/bin/tool", "bin/tool"

    def files(project: Path) -> None:
        for name in (tool, other):
            put(project / name, "#!/bin/sh\necho good\n").chmod(0o755)

    environ = {"PATH": f"{tmp_path}/project/.venv/bin:{REAL}"}
    edits = [Call("edit", {"path": name, "old_text": "good", "new_text": "evil"}) for name in (tool, other)]
    script = rounds(*(Call("read", {"path": name}) for name in (tool, other)), *edits)
    async with went(tmp_path, script, before=files, otherwise=reject_once, mode="auto", environ=environ) as r:
        assert len(r.editor.permission_requests) == 1
        assert "good" in (r.project / tool).read_text()
        assert "evil" in (r.project / other).read_text()  # The control: not on PATH.


async def test_the_browser_is_not_a_program_of_the_repository(planted, tmp_path, monkeypatch):
    from acp_agent.config.model import BrowserConfig
    from acp_agent.tools.net.chromium import find_chromium

    folder, _ = planted
    for path in paths(folder).values():
        monkeypatch.setenv("PATH", path)
        found = find_chromium(BrowserConfig(), [folder])
        assert not found or not Path(found).is_relative_to(folder)


def test_programs_are_looked_for_on_absolute_entries_outside(tmp_path):
    project, other = tmp_path / "project", tmp_path / "other"
    for place in (project / "bin", other):
        put(place / "tool", "#!/bin/sh\n")
        (place / "tool").chmod(0o755)
    (other / "linked").symlink_to(project / "bin/tool")
    entries = ["", ".", "bin", "../other", str(project / "bin"), str(project).upper() + "/bin", str(other)]
    environ = {"PATH": os.pathsep.join(entries)}
    assert search_path(environ["PATH"], [project]) == str(other)
    assert find_program("tool", environ, [project]) == str(other / "tool")
    assert find_program("linked", environ, [project]) is None
    assert find_program("tool", {"PATH": "bin:."}, [project]) is None
    assert find_bash({"PATH": str(project / "bin")}, [project]) == "/bin/bash"
    assert find_program(sys.executable, {}, [project]) == sys.executable
    assert with_search_path({"A": "b"}) == {"A": "b"}
    assert with_search_path({"PATH": f":.:bin:{other}"}) == {"PATH": str(other)}
    assert with_search_path({"PATH": "bin"})["PATH"] != "bin"
