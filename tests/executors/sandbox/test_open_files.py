"""What is passed to bubblewrap has numbers that nothing else is put on, however many files are open."""

import os
from contextlib import ExitStack
from pathlib import Path

from acp_agent.executors.sandbox.base import DOOR_NUMBERS, Confined


def test_files_are_never_passed_by_the_numbers_of_the_doors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    confined = Confined(("true",), tmp_path, {}, dict.fromkeys(range(6, 10), tmp_path / "file"))
    with ExitStack() as stack:
        for _ in range(100):
            opened = confined.open_files()
            assert not {*opened.values()} & {*DOOR_NUMBERS}
            assert len({*opened.values()}) == len(opened)
            for number in opened.values():
                assert os.pread(number, 1, 0) == b"x"
                os.close(number)
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
