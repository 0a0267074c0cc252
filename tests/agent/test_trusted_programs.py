"""What runs in a trusted folder is what the user was shown: each attack comes with a control, which succeeds."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.loop.toolbox.trusted_programs import TrustedPrograms
from tests.mcp.kit import HERE

from .kit import bash, put, puts, rig, rounds, trust, went

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
    seen = tmp_path / "seen"

    def files(project: Path) -> None:
        for each in (target, "tools/check", "tools/check.sh"):
            if "/more" not in each and "link" not in each:
                put(project / each, f"echo good >> {seen}\n")
        prepare(project)
        subprocess.run(["git", "init", "-q", project], check=True)
        put(project / ".claude/settings.json", settings(command))

    script = [step for _ in range(3) for step in rounds(bash("true"))]
    async with rig(tmp_path, script, mode="auto", before=files, otherwise=allow_once) as r:
        await trust(r)
        await r.editor.prompt("go")
        assert said(seen) == ["good"] and "trust" not in r.editor.text().rpartition("Trusted and loaded")[2]
        (r.project / target).unlink(missing_ok=True)
        put(r.project / target, f"echo evil >> {seen}\n")
        await r.editor.prompt("again")
        assert said(seen) == ["good"] and "trust" in r.editor.text().rpartition("Trusted and loaded")[2]
        monkeypatch.setattr(TrustedPrograms, "words", unchecked)
        await r.editor.prompt("once more, the control")
        assert said(seen) == ["good", "evil"]


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
