"""What runs in a trusted folder is what the user was shown: each attack comes with a control, which succeeds."""

import shlex
import sys
from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.executors.sandbox import probe
from acp_agent.loop.shell import private_folder
from acp_agent.loop.toolbox.trusted_programs import TrustedPrograms
from acp_agent.plugins.installed import Shelf
from tests.agent.kit import bash, put, results, rig, rounds, trust, went
from tests.agent.test_plugins import claude, environ, plugin
from tests.agent.test_trusted_programs import HOOKS, said, settings, unchecked


async def test_a_module_of_the_folder_is_a_program(tmp_path):
    seen = tmp_path / "seen"

    def files(project: Path) -> None:
        put(project / "tools/check.py", f"open({str(seen)!r}, 'a').write('good ')\n")
        put(project / ".claude/settings.json", settings(f"{shlex.quote(sys.executable)} -m tools.check"))

    async with rig(tmp_path, [*rounds(bash("true")), *rounds(bash("true"))], mode="auto", before=files) as r:
        await trust(r)
        assert "- tools/check.py" in r.editor.text()
        await r.editor.prompt("go")
        assert said(seen) == ["good"]
        put(r.project / "tools/check.py", f"open({str(seen)!r}, 'a').write('evil ')\n")
        await r.editor.prompt("again")
        assert said(seen) == ["good"]


async def test_what_runs_is_the_copy_whatever_becomes_of_the_file_meanwhile(tmp_path, monkeypatch):
    """With Landlock alone a command that still runs may change it between the check and the start."""
    checked = TrustedPrograms.words
    for name, expected in (("held", "good"), ("control", "evil")):
        (home := tmp_path / name).mkdir()
        seen = home / "seen"
        script = put(home / "project" / HOOKS / "check", f"echo good >> {seen}\n")
        put(home / "project/.claude/settings.json", settings(f'sh "$CLAUDE_PROJECT_DIR/{HOOKS}/check"'))

        def swapped(self, of, words, cwd="", *, copies=True, script=script, name=name, seen=seen):
            found = checked(self, of, words, cwd, copies=copies)
            script.write_text(f"echo evil >> {seen}\n")
            return found if name == "held" else list(words)

        monkeypatch.setattr(TrustedPrograms, "words", swapped)
        async with rig(home, rounds(bash("true")), mode="auto") as r:
            await trust(r)
            await r.editor.prompt("go")
            assert said(seen) == [expected]


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock", "none"])
async def test_commands_do_not_reach_the_copies(tmp_path, kind, monkeypatch):
    """Without a sandbox, the control, they do. Where mounts hide it, the copies may be in the session's folder."""
    monkeypatch.setattr(probe, "_found", {})
    monkeypatch.setattr(probe, "_candidates", lambda config: [(kind, config)])
    place = tmp_path / ("project/tmp" if kind == "bubblewrap" else "private")
    monkeypatch.setattr(private_folder, "_parents", lambda roots: [str(place)])
    place.mkdir(parents=True)
    seen = tmp_path / "seen"
    script = put(tmp_path / "project" / HOOKS / "check", f'echo "$0" >> {seen}\n')
    put(tmp_path / "project/.claude/settings.json", settings(f"sh {HOOKS}/check"))
    evil = f"for f in {place}/*/trusted/*/{HOOKS}/check; do chmod u+w $f; echo 'echo evil >> {seen}' > $f; done"
    sandbox = kind != "none"
    async with rig(tmp_path, rounds(bash(evil), bash("true")), mode="auto", sandbox=sandbox, terminal=False) as r:
        await trust(r)
        await r.editor.prompt("go")
        copy, last = seen.read_text().splitlines()
        assert copy != str(script)
        assert (last == "evil") == (kind == "none")


async def test_a_hook_of_the_configuration_that_only_is_told_is_looked_at_too(tmp_path):
    seen = tmp_path / "seen"
    own = tmp_path / "project/.acp-coder"
    put(own / "hooks/check", f"echo good >> {seen}\n")
    put(own / "config.toml", '[[hooks.tool_before]]\ncommand = "sh .acp-coder/hooks/check"\n')
    async with rig(tmp_path, [*rounds(bash("true")), *rounds(bash("true")), *rounds(bash("true"))], mode="auto") as r:
        await trust(r)
        await r.editor.new_session(r.project)
        await r.editor.client.set_session_mode(r.editor.session_id, "auto")
        await r.editor.prompt("go")
        assert said(seen) == ["good"]
        put(own / "hooks/check", f"echo evil >> {seen}\n")
        await r.editor.prompt("go")
        assert said(seen) == ["good"]
        assert "not those that you trust" in r.editor.text()
        before = len(await r.says("/trust no"))
        assert "hook" not in (await r.says("go"))[before:]


async def test_a_plugin_that_is_changed_within_a_session_is_not_run(tmp_path, capsys, monkeypatch):
    for name in ("held", "control"):
        (home := tmp_path / name).mkdir()
        evil = home / "evil"
        plugin(home, "add", source=str(claude(home / "source")), yes=True)
        if name == "control":
            monkeypatch.setattr(TrustedPrograms, "words", unchecked)
        script = [*rounds(bash("touch forbidden")), *rounds(bash("true"))]
        async with went(home, script, mode="auto", otherwise=allow_once) as r:
            assert "not that" in results(r, 2)[0]
            put(Shelf(environ(home)).folder("tools") / "scripts/check.sh", f"touch {evil}\n")
            await r.editor.prompt("again")
            assert evil.exists() == (name == "control")


async def test_a_file_that_is_named_as_a_program_of_path_does_not_take_its_place(tmp_path):
    seen = tmp_path / "seen"

    def files(project: Path) -> None:
        put(project / "echo", "exit 1\n").chmod(0o755)
        put(project / "run.sh", f"echo script >> {seen}\n")
        put(project / "bare", f"echo bare >> {seen}\n").chmod(0o755)
        put(project / ".claude/settings.json", settings(f"echo said >> {seen}; sh run.sh; ./bare; sh ./bare; sh bare"))

    async with rig(tmp_path, rounds(bash("true")), mode="auto", before=files) as r:
        await trust(r)
        await r.editor.prompt("go")
        assert said(seen) == ["said", "script", "bare", "bare", "bare"]


@pytest.mark.parametrize(
    "command", ["cd tools && sh ./check.sh", "sh -c 'pushd tools >/dev/null; sh check.sh'", "env -C tools sh check.sh"]
)
async def test_where_a_line_goes_to_another_folder_no_file_of_the_first_takes_the_place_of_its_own(tmp_path, command):
    seen = tmp_path / "seen"

    def files(project: Path) -> None:
        put(project / "check.sh", f"echo top >> {seen}\n").chmod(0o755)
        put(project / "tools/check.sh", f"echo tools >> {seen}\n").chmod(0o755)
        put(project / ".claude/settings.json", settings(f"sh check.sh && {command.replace('sh -c', 'bash -c')}"))

    async with rig(tmp_path, rounds(bash("true")), mode="auto", before=files) as r:
        await trust(r)
        await r.editor.prompt("go")
        assert said(seen) == ["top", "tools"]
