"""What runs in a trusted folder is what the user was shown: each attack comes with a control, which succeeds."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.executors.sandbox import probe
from acp_agent.loop.shell import private_folder
from acp_agent.loop.toolbox.trusted_programs import TrustedPrograms
from acp_agent.plugins.installed import Shelf
from tests.mcp.kit import HERE

from .kit import bash, put, puts, results, rig, rounds, trust, went
from .test_plugins import claude, environ, plugin

HOOKS = ".claude/hooks"


def unchecked(self: TrustedPrograms, of: str, words: list[str], cwd: str = "", *, copies: bool = True) -> list[str]:
    return list(words)


def settings(command: str) -> str:
    entry = {"type": "command", "command": command}
    return json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [entry]}]}})


def linked(project: Path) -> None:
    put(project / "tools/check", '#!/bin/sh\n. "$(dirname "$0")/said"\n').chmod(0o755)
    (project / HOOKS).mkdir(parents=True)
    (project / HOOKS / "check").symlink_to("../../tools/check")


def crowded(project: Path) -> None:
    for number in range(120):
        put(project / HOOKS / f"a{number:03}", "x")


def nothing(project: Path) -> None:
    pass


ATTACKS: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "changed": (f"sh {HOOKS}/check", f"{HOOKS}/check", nothing),
    "by its variable": (f'sh "$CLAUDE_PROJECT_DIR"/{HOOKS}/check', f"{HOOKS}/check", nothing),
    "deep": (f"sh {HOOKS}/a/b/c/check", f"{HOOKS}/a/b/c/check", nothing),
    "behind 100 others": (f"sh {HOOKS}/check", f"{HOOKS}/check", crowded),
    "large": (
        f"sh {HOOKS}/check", f"{HOOKS}/check", lambda project: put(project / HOOKS / "pad", "x" * 600_000).chmod(0o600),
    ),
    "elsewhere in the project": ("sh tools/check.sh", "tools/check.sh", nothing),
    "from its folder": (f"cd {HOOKS} && sh ./check", f"{HOOKS}/check", nothing),
    "target of a link": (
        f"sh {HOOKS}/link", "tools/check", lambda project: link(project, f"{HOOKS}/link", "../../tools/check"),
    ),
    "the link": (
        f"sh {HOOKS}/link", f"{HOOKS}/link", lambda project: link(project, f"{HOOKS}/link", "../../tools/check"),
    ),
    "folder of hooks that is a link": (
        f'sh "$(pwd)"/{HOOKS}/check', "tools/check", lambda project: link(project, HOOKS, "../tools"),
    ),
    "after the folder, with a default": ('sh "${CLAUDE_PROJECT_DIR:-.}"/tools/check.sh', "tools/check.sh", nothing),
    "after what a command says": ('sh "$(pwd)/tools/check.sh"', "tools/check.sh", nothing),
    "after a variable": ('sh "$PWD/tools/check.sh"', "tools/check.sh", nothing),
    "from another folder": ("cd tools && sh ./check.sh", "tools/check.sh", nothing),
    "without a mark of a program": ("sh -e tools/check", "tools/check", nothing),
    "without a mark, after a command": ('bash "$(git rev-parse --show-toplevel)"/tools/check', "tools/check", nothing),
    "without a mark, by its variable": ('sh "$CLAUDE_PROJECT_DIR"/tools/check', "tools/check", nothing),
    "sourced": (". tools/check", "tools/check", nothing),
    "sourced if it is there": (
        "if [ -e tools/more ]; then . tools/more; else sh tools/check; fi", "tools/more", nothing,
    ),
    "new beside it": (
        "if [ -e tools/more.sh ]; then sh tools/more.sh; else sh tools/check.sh; fi", "tools/more.sh", nothing,
    ),
}  # fmt: skip


def link(project: Path, name: str, target: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).symlink_to(target)


def said(seen: Path) -> list[str]:
    return seen.read_text().split() if seen.exists() else []


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_hook_that_is_not_what_was_trusted_does_not_run(tmp_path, attack, monkeypatch):
    command, target, prepare = ATTACKS[attack]
    for name, expected in (("held", ["good"]), ("control", ["good", "evil"])):
        home = tmp_path / name
        seen = home / "seen"
        home.mkdir()
        if name == "control":
            monkeypatch.setattr(TrustedPrograms, "words", unchecked)

        def files(project: Path, seen: Path = seen) -> None:
            for each in (target, "tools/check", "tools/check.sh"):
                if "/more" not in each and "link" not in each:
                    put(project / each, f"echo good >> {seen}\n")
            prepare(project)
            subprocess.run(["git", "init", "-q", project], check=True)
            put(project / ".claude/settings.json", settings(command))

        script = [*rounds(bash("true")), *rounds(bash("true"))]
        async with rig(home, script, mode="auto", before=files, otherwise=allow_once) as r:
            await trust(r)
            await r.editor.prompt("go")
            assert said(seen) == ["good"]
            (r.project / target).unlink(missing_ok=True)
            put(r.project / target, f"echo evil >> {seen}\n")
            await r.editor.prompt("again")
            assert said(seen) == expected
            told = r.editor.text().rpartition("Trusted and loaded")[2]
            assert ("trust" in told) == (name == "held")


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


@pytest.mark.parametrize("file", [".mcp.json", ".acp-coder/config.toml"])
async def test_a_server_of_a_folder_starts_only_as_it_was_trusted(tmp_path, file, monkeypatch):
    for name in ("held", "control"):
        (home := tmp_path / name).mkdir()
        evil = home / "evil"
        if name == "control":
            monkeypatch.setattr(TrustedPrograms, "words", unchecked)

        def files(project: Path) -> None:
            argv = [sys.executable, "-S", str(HERE / "raw_server.py"), "good", ""]
            put(project / "server/start.py", f"import os\nos.execv({sys.executable!r}, {argv!r})\n")
            about = {"command": sys.executable, "args": ["-S", "server/start.py"]}
            config = f"[mcp.servers.own]\ncommand = {json.dumps(sys.executable)}\nargs = ['-S', 'server/start.py']\n"
            put(project / file, json.dumps({"mcpServers": {"own": about}}) if file == ".mcp.json" else config)

        async with rig(home, ["ok", "ok"], before=files) as r:
            await trust(r)
            assert "- server/start.py" in r.editor.text()
            await r.editor.new_session(r.project)
            await r.editor.prompt("go")
            assert "mcp_own_echo" in r.tool_names(1)
            put(r.project / "server/start.py", f"open({str(evil)!r}, 'w')\n")
            await r.says("/mcp restart own", "/mcp")
            assert evil.exists() == (name == "control")
            assert ("not those that you trust" in r.editor.text()) == (name == "held")


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


async def test_the_question_names_what_is_covered_and_what_is_not(tmp_path):
    def files(project: Path) -> None:
        put(project / HOOKS / "check", "true\n")
        puts(project, {"data.db": "x", "tool": "\x7fELF\0"})
        link(project, "python", sys.executable)
        link(project, f"{HOOKS}/folder", "../..")
        command = f"./python lib/run.py --db data.db && ./tool && sh {HOOKS}/check"
        puts(project, {"lib/run.py": "pass\n", ".claude/settings.json": settings(command)})

    async with went(tmp_path, before=files, prompt="/trust") as r:
        listed = [line[2:] for line in r.editor.text().splitlines() if line.startswith("- ")]
        covered = [
            ".claude/settings.json", f"{HOOKS}/check", f"python -> {os.path.realpath(sys.executable)}", "lib/run.py",
            "tool",
        ]  # fmt: skip
        assert listed == [
            *covered, f"not covered: {HOOKS}/folder: what is in it may change",
            "not covered: data.db: it is data, so it may change",
            "not covered: other files of the project that these programs load",
        ]  # fmt: skip


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
