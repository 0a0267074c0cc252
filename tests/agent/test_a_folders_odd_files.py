"""Whatever a folder's own files hold or are: sessions open, prompts are answered, trust can be taken back."""

import os
from itertools import islice
from pathlib import Path

import pytest

from acp_agent.testing.fake_editor import FakeEditor
from tests.nightly import times

from .kit import another, put, rig, trust

FILES = {
    ".acp-coder/config.toml": "[agent]\nmax_tool_iterations = 9\n", ".mcp.json": '{"mcpServers": {}}',
    ".claude/settings.json": "{}", ".acp-coder/hooks/check.sh": "exit 0\n", ".acp-coder/tools/one.py": "",
    "AGENTS.md": "Be kind.", ".agents/commands/one.md": "Say one.",
    ".agents/agents/one.md": "---\nname: one\ndescription: One.\n---\nSay one.", ".claude/commands/two.md": "Say two.",
    ".claude/agents/two.md": "---\nname: two\ndescription: Two.\n---\nSay two.",
}  # fmt: skip
DEEP = "[" * 20_000


def out_of_reach(file: Path) -> None:
    file.write_text("x")
    file.chmod(0)


WAYS = {
    "brackets": lambda file: file.write_text(
        f"a = {DEEP}" if file.suffix == ".toml" else f"---\na: {DEEP}\n---\n{DEEP}"
    ),
    "only brackets": lambda file: file.write_text(DEEP), "braces": lambda file: file.write_text('{"a":' * 20_000),
    "zeros": lambda file: file.write_bytes(b"\0" * 1000),
    "no UTF-8": lambda file: file.write_bytes(b"\xff\xfe\x80" * 1000), "a pipe": lambda file: os.mkfifo(file),
    "a folder": lambda file: put(file / "in it", "x"), "a loop": lambda file: file.symlink_to(file.name),
    "no permission": out_of_reach,
}  # fmt: skip


async def opens(editor: FakeEditor, project: Path) -> None:
    await editor.new_session(project)
    assert (await editor.prompt("hello")).stop_reason == "end_turn"
    for words in ("/trust", "/trust no"):
        assert (await editor.prompt(words)).stop_reason == "end_turn"


@pytest.mark.parametrize("way", WAYS)
async def test_any_error_of_a_folders_files_is_a_note_never_a_wall(tmp_path: Path, way: str) -> None:
    """The first alone (at night each), then all of them, in a folder that is trusted with them."""

    def prepare(project: Path) -> None:
        for name, text in FILES.items():
            put(project / name, text)

    async with rig(tmp_path, lambda body: "ok", before=prepare) as r:
        for names in (*((name,) for name in islice(FILES, times(1, len(FILES)))), tuple(FILES)):
            for name in names:
                (r.project / name).unlink()
                WAYS[way](r.project / name)
            try:
                await r.editor.new_session(r.project)
                assert await trust(r), "it is trusted as it is"
                async with another(r.environ) as fresh:
                    await opens(fresh, r.project)
            except BaseException as error:
                raise AssertionError(f"{names}: {error}") from error
            for name in names:
                file = r.project / name
                if file.is_dir() and not file.is_symlink():
                    (file / "in it").unlink()
                    file.rmdir()
                else:
                    file.unlink()
                put(file, FILES[name])
