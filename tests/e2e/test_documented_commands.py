"""The commands of the documentation run, block by block, as a reader types them at a terminal.

Each block gets a home and a project of its own, a scripted model, and a person who answers every question with "y".
"""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.documented import PAGES, ROOT, Block, blocks
from tests.files import put, puts
from tests.forked import COMMAND, forked_command

from .kit import environ

CHAT = "system/e2e/test_chat.py::test_sessions_are_gone_on_with_modes_change_and_folded_text_opens"
NOT_RUN = {
    'acp-coder prompt --ssh build-7:/srv/app "Why does the build fail?"': (
        "a host", "system/agent/test_hosts.py::test_ssh_on_the_command_line",
    ),
    'acp-coder prompt --container node:22 "Why does the build fail?"': (
        "an image",
        "system/agent/test_places.py::test_container_on_the_command_line_is_a_place_a_container_or_an_image",
    ),
    'acp-coder prompt --container web-1:/app "Why does the build fail?"': (
        "a container", "system/agent/test_inside.py::test_container_with_a_folder_on_the_command_line",
    ),
    "acp-conformance --profile opencode --tck acp-tck -- opencode": (
        "opencode and acp-tck", "conformance/test_kit.py::test_another_kit_stands_beside_it",
    ),
    "acp-coder": ("a terminal", CHAT), "acp-coder -c": ("a terminal", CHAT),
    "acp-coder -m openai/gpt-5.1": ("a terminal", CHAT),
    "acp-coder demo": ("to be run once", "e2e/test_cli.py::test_the_demo_mends_the_sample_or_fails"),
    "acp-coder serve": ("an end", "e2e/test_documented_commands.py::test_the_server_says_what_the_page_shows"),
}  # fmt: skip
"""What is not run: what it needs that is not here, and the test that covers it."""

INSTEAD = {
    " ID": ' "$(acp-coder sessions list | cut -d" " -f1 | head -n 1)"',
    "check DIR": "check ~/plugins/tools", "--only calls": "--only PERM-6",
    "acp-conformance --protocol 2": "acp-conformance --only V2-AUTH-1 --protocol 2",
    "acp-conformance client": "acp-conformance client --only CFS-1", "acp-conformance": "acp-conformance --only INIT-1",
}  # fmt: skip
"""What is put in the place of the first of these that a line has: values for placeholders, and one check instead of the
whole conformance kit, which `tests/conformance` runs."""

SAYS = {
    r"doctor( --all)?": 'Ready. Begin with `acp-coder`, or `acp-coder -p "What does this project do?"`.',
    r"-p --output-format .*": '"stopReason":"end_turn"',
    r"setup": "(ACP): ",
    r"setup codecompanion": 'adapters = { acp = { acp_coder = require("acp_coder_codecompanion") } }',
    r"setup \w+": "is written.", r"setup \w+ --undo": "is removed.", r"sessions list": "Fix the failing test",
    r"policy explain \"cargo .*": "cargo test: asks", r"policy test .*": "2 of 2",
    r"plugin list": "https://github.com/someone/plugins@v2#tools", r"plugin update tools": "tools is as it was.",
    r"replay .* --check": ", all as recorded",
    r"mcp serve .*": '"serverInfo"',
}  # fmt: skip
"""What the agent's commands say, beyond the exit status."""
KIT_SAYS = " passed, 0 failed, 0 not here"
"""What the kit's say."""
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "reader", "version": "1"},
}}  # fmt: skip
"""What `acp-coder mcp serve` is asked; then its standard input ends."""

AGENT = """\
#!/bin/sh
ACP_CODER_CONFIG="{home}/v2.toml" exec "{command}"
"""
CLIENT = """\
#!/bin/sh
for last; do :; done
cd "{root}" && exec "{python}" -m tests.conformance.small_client "{project}" "$last"
"""
"""In place of agents and clients of others."""


def sample(page: str, beginning: str) -> str:
    """The block of the page that begins so."""
    (found,) = (each.text for each in blocks("toml", "json", page=ROOT / page) if each.text.startswith(beginning))
    return found


def prepared(home: Path) -> Path:
    """The project, in a home with what the pages speak of."""
    project, tools = home / "project", home / "plugins/tools"
    puts(project, {"main.py": "print('hello')\n", "rules.test.toml": sample("docs/security.md", "# rules.test.toml")})
    profile = sample("docs/conformance.md", 'name = "mine"') + sample("docs/conformance.md", "[tools.plan]")
    for name in ("mine.toml", "acp.toml"):
        put(project / name, profile)
    put(home / "v2.toml", "[protocol]\nv2 = true\n")
    for agent in (home / "bin/my-agent", home / "bin/opencode", project / "my-agent"):
        put(agent, AGENT.format(home=home, command=forked_command())).chmod(0o700)
    put(home / "bin/my-client", CLIENT.format(root=ROOT, python=sys.executable, project=project)).chmod(0o700)
    (home / "bin/acp-conformance").symlink_to(Path(sys.executable).with_name("acp-conformance"))
    put(tools / "plugin.json", sample("docs/extending.md", '{"$schema"'))
    put(tools / "skills/deploy/SKILL.md", "---\nname: deploy\ndescription: How we deploy\n---\nRun `make deploy`.\n")
    for name in ("work", "src/app"):
        (home / name).mkdir(parents=True)
    put(
        home / ".gitconfig",
        "[user]\nname = a\nemail = a@example.com\n"
        f'[url "file://{home}/plugins"]\ninsteadOf = https://github.com/someone/plugins\n',
    )
    for folder in (project, home / "plugins"):
        line = "git init --quiet && git add . && git commit --quiet --message first && git tag v2"
        subprocess.run(["sh", "-c", line], cwd=folder, env={"HOME": str(home), "PATH": os.environ["PATH"]}, check=True)
    return project


@contextmanager
def person() -> Iterator[int]:
    """A terminal at which every question is answered with "y"."""
    theirs, ours = pty.openpty()
    try:
        os.write(theirs, b"y\n" * 20)
        yield ours
    finally:
        os.close(theirs)
        os.close(ours)


def run(line: str, home: Path, model: FakeModel) -> subprocess.CompletedProcess[str]:
    words = next((words for words in INSTEAD if words in line), "")
    line = line.replace(words, INSTEAD[words]) if words else line
    env = environ(home, model.base_url, PYTHONDONTWRITEBYTECODE="1")
    env["PATH"] = f"{Path(forked_command()).parent}:{home}/bin:{env['PATH']}"
    with person() as terminal:
        given = {"input": json.dumps(INITIALIZE) + "\n"} if "mcp serve" in line else {"stdin": terminal}
        return subprocess.run(
            ["bash", "-c", line], cwd=home / "project", env=env, capture_output=True, text=True, timeout=60, **given
        )


def said(line: str) -> list[str]:
    if line.startswith("acp-conformance"):
        return [KIT_SAYS]
    return [words for pattern, words in SAYS.items() if re.fullmatch(f"acp-coder {pattern}", line)]


def documented(page: Path | None = None) -> list[Block]:
    return [block for block in blocks("sh", "console", "yaml", page=page) if block.commands]


WITH_COMMANDS = [page for page in PAGES if documented(page)]


def costs_much(page: Path) -> bool:
    """Whether its commands are tried by `tests/system/e2e/test_long_pages.py`."""
    return page.stem == "conformance"


@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if not costs_much(page)], ids=lambda page: page.stem)
async def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    await its_commands_run(page, tmp_path)


async def its_commands_run(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(documented(page)):
        home = tmp_path / str(number)
        prepared(home)
        async with FakeModel(lambda _: "All done.") as model:
            for line in block.commands:
                if line in NOT_RUN:
                    continue
                done = await anyio.to_thread.run_sync(run, line, home, model)
                assert done.returncode == 0, f"{block.place}: {line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
                for words in said(line):
                    assert words in done.stdout, f"{block.place}: {line}\n{done.stdout[-2000:]}"


def test_the_tables_are_about_what_the_pages_have():
    lines = {line for block in documented() for line in block.commands}
    assert len(lines) > 40
    assert NOT_RUN.keys() <= lines
    for words in INSTEAD:
        assert any(words in line for line in lines), words
    assert {words for line in lines - NOT_RUN.keys() for words in said(line)} == {*SAYS.values(), KIT_SAYS}
    (lua,) = blocks("lua")
    assert SAYS["setup codecompanion"] in lua.text
    for _, test in NOT_RUN.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


async def test_the_server_says_what_the_page_shows(tmp_path: Path) -> None:
    (block,) = blocks("console", page=ROOT / "docs/server.md")
    command, *shown = block.text.splitlines()
    assert command == "$ acp-coder serve"
    argv = [forked_command(), "serve", "--port", "0"]
    with subprocess.Popen(argv, env=environ(tmp_path), stdout=subprocess.PIPE, text=True) as server:
        try:
            with anyio.fail_after(60):
                assert server.stdout is not None
                said = [await anyio.to_thread.run_sync(server.stdout.readline) for _ in shown]
        finally:
            server.terminate()
    for line, as_shown in zip(said, shown, strict=True):
        assert re.fullmatch(re.escape(as_shown).replace("…", r"\S+").replace("9801", r"\d+"), line.rstrip()), line


async def test_a_difference_from_a_recording_is_what_the_page_shows(tmp_path: Path) -> None:
    (block,) = (each for each in blocks("", page=ROOT / "docs/recordings.md") if "+++ now" in each.text)
    project = prepared(tmp_path)
    put(project / "a.txt", "one\ntwo\n")
    async with FakeModel([Answer(tool_calls=(Call("read", {"path": "a.txt"}),)), "Two lines."]) as model:
        record = "acp-coder prompt --record run.jsonl 'What is in a.txt?'"
        assert (await anyio.to_thread.run_sync(run, record, tmp_path, model)).returncode == 0
        put(project / "a.txt", "one\nTWO\n")
        done = await anyio.to_thread.run_sync(run, "acp-coder replay run.jsonl --check", tmp_path, model)
    assert done.returncode == 1
    words = re.escape(" ".join(block.text.split())).replace("…", r"\S+")
    assert re.fullmatch(words, " ".join(done.stdout.split())), done.stdout


@pytest.mark.parametrize(
    ("editor", "file"), [("zed", ".config/zed/settings.json"), ("jetbrains", ".jetbrains/acp.json")]
)
async def test_setup_writes_what_the_page_shows(editor: str, file: str, tmp_path: Path) -> None:
    (block,) = blocks("json", page=ROOT / f"docs/editors/{editor}.md")
    prepared(tmp_path)
    async with FakeModel() as model:
        done = await anyio.to_thread.run_sync(run, f"acp-coder setup {editor} --yes", tmp_path, model)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / file).read_text(encoding="utf-8"))
    assert written == json.loads(block.text.replace("/absolute/path/of/acp-coder", COMMAND))


async def test_the_page_names_the_slash_commands_that_help_lists(tmp_path: Path) -> None:
    prepared(tmp_path)
    async with FakeModel() as model:
        done = await anyio.to_thread.run_sync(run, "acp-coder prompt /help", tmp_path, model)
    text = (
        (ROOT / "docs/features.md")
        .read_text(encoding="utf-8")
        .partition("- **Slash commands**:")[2]
        .partition("Skills")[0]
    )
    assert len(named := re.findall(r"/(\w+)", text)) > 25
    assert sorted(named) == sorted(re.findall(r"^- `/(\w+)", done.stdout, re.MULTILINE))


async def test_the_skill_the_command_and_the_sub_agent_of_the_page_work(tmp_path: Path) -> None:
    project = prepared(tmp_path)
    skill, command, agent, _ = (block.text for block in blocks("markdown", page=ROOT / "docs/extending.md"))
    put(project / ".agents/skills/notes/SKILL.md", skill)
    put(project / ".agents/commands/fix.md", command.replace("openai/gpt-5", "fake-model"))
    puts(project, {".agents/agents/looks.md": agent, "docs/rules.md": "Our only rule.\n"})
    async with FakeModel(lambda _: "All done.") as model:
        done = await anyio.to_thread.run_sync(run, "acp-coder prompt '/fix 7 now'", tmp_path, model)
    assert done.returncode == 0, done.stderr
    assert "* git diff --stat" in done.stderr and "* Sub-agent scout: /fix" in done.stderr
    system, user = (str(message["content"]) for message in model.requests[0].body["messages"])
    assert "- `release-notes`: How we write release notes" in user
    assert "You look for things." in system
    assert "Fix issue 7. All that was said: 7 now\n" in user and "Our only rule." in user
