"""How often one edit reads its file: each layer is given the version that another has read."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Call
from tests.agent.kit import rig, rounds

NAME = "counted.txt"
EDIT = Call("edit", {"path": NAME, "old_string": "two", "new_string": "zwei"})


class Reads:
    """Opens of the file to read it, by its bare name: the agent's, in an open folder; the editor's have the path."""

    def __init__(self) -> None:
        self.counted: int | None = None
        self.counted_last = 0
        sys.addaudithook(self.heard)

    def heard(self, event: str, about: tuple[Any, ...]) -> None:
        if self.counted is not None and event == "open" and about[0] == NAME:
            self.counted += about[2] & os.O_ACCMODE == os.O_RDONLY

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.counted = 0
        try:
            yield
        finally:
            self.counted_last, self.counted = self.counted, None


@pytest.fixture(scope="module")
def reads() -> Reads:
    return Reads()


def asked(editor: FakeEditor) -> int:
    lines = (line.message for line in editor.transcript if line.direction == "from_agent")
    return sum(message.get("method") == "fs/read_text_file" for message in lines)


@pytest.mark.parametrize(("mode", "editors", "from_editor"), [
    ("auto", True, 1), ("auto", False, 0), ("code", True, 2),
], ids=["nobody is asked", "no editor's files", "the user is asked meanwhile"])  # fmt: skip
async def test_one_edit_reads_its_file_at_most_four_times(
    tmp_path: Path, reads: Reads, mode: str, editors: bool, from_editor: int
) -> None:
    config = "[undo]\ncopy_seconds = 0\n"  # Else the first look reads it, too.
    about = {"mode": mode, "config": config, "fs_read": editors, "fs_write": editors, "otherwise": allow_once}
    files = {NAME: "one\ntwo\nthree\n"}
    async with rig(tmp_path, [*rounds(Call("read", {"path": NAME})), *rounds(EDIT)], files=files, **about) as r:
        await r.editor.prompt("read it")
        before = asked(r.editor)
        with reads.counting():
            await r.editor.prompt("change it")
        assert (r.project / NAME).read_text() == "one\nzwei\nthree\n"
        assert 0 < reads.counted_last <= 4
        assert asked(r.editor) - before == from_editor
