"""Git's index as git itself writes it, in each of its versions."""

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.undo.git_blobs import tracked
from acp_agent.undo.git_index import HEADER, MOST_TAKEN, Entry, changed_files, entries
from tests.files import puts
from tests.repositories import git


def repository(folder: Path, names: list[str]) -> Path:
    puts(folder, {name: name for name in names})
    git(folder, "init", "-q")
    git(folder, "add", "--all")
    return folder


def seen(folder: Path) -> tuple[list[Entry], object]:
    data = (folder / ".git" / "index").read_bytes()
    os.utime(folder / ".git" / "index", (4e9, 4e9))  # Younger than all files.
    found = tracked(str(folder), folder / ".git")
    return list(entries(data)), {below: found.blobs(f"{folder}/{os.fsdecode(below)}") for below in found.places}


@settings(max_examples=10)
@given(names=st.lists(st.from_regex(r"\A([ab]{1,3}/){0,3}[cdé]{1,9}\Z"), min_size=1, max_size=30, unique=True))
def test_an_index_of_version_4_says_what_one_of_version_2_says(tmp_path_factory: pytest.TempPathFactory, names):
    folder = repository(tmp_path_factory.mktemp("git") / "it", names)
    git(folder, "update-index", "--index-version=2")
    before = seen(folder)
    assert len(before[0]) == len(names)
    git(folder, "update-index", "--index-version=4")
    git(folder, "update-index", "--assume-unchanged", names[0])
    git(folder, "update-index", "--no-assume-unchanged", names[0])
    assert (folder / ".git" / "index").read_bytes()[4:8] == b"\0\0\0\4" and seen(folder) == before
    (folder / names[-1]).write_text("changed")
    assert changed_files(folder / ".git", folder) == 1


def test_extended_flags_and_other_extensions_are_read_and_what_stands_elsewhere_is_not(tmp_path: Path) -> None:
    folder = repository(tmp_path / "it", ["aa/one", "aa/two", "bb"])
    git(folder, "commit", "-qm", "all")
    git(folder, "config", "feature.manyFiles", "true")  # Version 4, without a checksum.
    git(folder, "update-index", "--skip-worktree", "aa/one")
    (folder / "aa" / "one").unlink()
    assert changed_files(folder / ".git", folder) == 0, "what git does not look at is no change"
    (folder / "bb").unlink()
    assert changed_files(folder / ".git", folder) == 1
    git(folder, "update-index", "--split-index")
    assert changed_files(folder / ".git", folder) is None and not tracked(str(folder), folder / ".git").places


def test_a_damaged_index_is_no_index(tmp_path: Path) -> None:
    folder = repository(tmp_path / "it", ["aa/one", "aa/two", "bb"])
    git(folder, "update-index", "--index-version=4")
    index = folder / ".git" / "index"
    data = index.read_bytes()[:-20]
    for at in range(len(data)):
        for changed in (data[:at] + bytes((data[at] ^ 0x80,)) + data[at + 1 :], data[:at]):
            index.write_bytes(changed + bytes(20))
            assert changed_files(folder / ".git", folder) in (None, 0, 1, 2, 3)
            assert tracked(str(folder), folder / ".git").places.keys() <= {b"", b"aa", b"\xe1a", b"a\xe1"}


def test_names_that_share_a_very_long_beginning_do_not_fill_the_memory() -> None:
    """Four hundred in a megabyte, which would be 400."""
    entry = bytes(60) + b"\x0f\xff"
    long = b"a" * 1_000_000
    data = HEADER.pack(b"DIRC", 4, 400) + entry + b"\0" + long + b"\0" + (entry + b"\0b\0") * 399 + bytes(20)
    tracemalloc.start()
    with pytest.raises(ValueError, match="too long"):
        list(entries(data))
    assert tracemalloc.get_traced_memory()[1] < 3 * MOST_TAKEN
    tracemalloc.stop()
