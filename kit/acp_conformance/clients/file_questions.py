"""What becomes of `fs/read_text_file` and `fs/write_text_file`: CFS."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from acp_conformance.clients.client_trial import ClientTrial, on_disk, question
from acp_conformance.trial import NOT_FOUND, NotHere, Wrong

READS, WRITES = "fs.readTextFile", "fs.writeTextFile"
READ, WRITE = "fs/read_text_file", "fs/write_text_file"
TEXT = "one\ntwo\n\tthree ü € 𝄞\nfour\n"


async def _reads(trial: ClientTrial, path: Path, **part: Any) -> str:
    return str((await trial.told(READ, "content", str, path=str(path), **part))["content"])


@question("CFS-1", READS)
async def a_file_is_read(trial: ClientTrial) -> None:
    file = trial.folder / "read.txt"
    for text in (TEXT, "", "no line feed"):
        file.write_text(text, encoding="utf-8")
        content = await _reads(trial, file)
        trial.expect(content == text, f"a file with {text!r} was read as {content!r}")
        file = file.with_name(f"_{file.name}")  # A client may keep what it has read.


@question("CFS-2", READS)
async def some_lines_are_read(trial: ClientTrial) -> None:
    file = trial.folder / "lines.txt"
    file.write_text(TEXT, encoding="utf-8")
    for part, wanted in (
        ({"line": 3}, "\tthree ü € 𝄞\nfour"),
        ({"limit": 2}, "one\ntwo"),
        ({"line": 2, "limit": 1}, "two"),
        ({"line": 4, "limit": 100}, "four"),
    ):
        content = await _reads(trial, file, **part)
        trial.expect(content.removesuffix("\n") == wanted, f"{part} of {TEXT!r} was {content!r}, not {wanted!r}")


@question("CFS-3", READS)
async def a_missing_file_is_an_error(trial: ClientTrial) -> None:
    await trial.denied(READ, path=str(trial.folder / "missing.txt"), why="of a missing file")


@question("CFS-4", READS)
async def a_missing_file_is_not_found(trial: ClientTrial) -> None:
    try:
        error = await trial.denied(READ, path=str(trial.folder / "missing.txt"))
    except Wrong as wrong:
        raise NotHere("it is no error") from wrong
    trial.expect(error.code == NOT_FOUND, f"a missing file is the error {error.code} ({error.message})")


async def _writes(trial: ClientTrial, path: Path, text: str) -> str:
    """What is there afterwards: on disk, or else as the client reads it."""
    await trial.call(WRITE, path=str(path), content=text)
    found = on_disk(path)
    if found != text and trial.has("fs", "readTextFile"):
        with suppress(Wrong):
            return await _reads(trial, path)
    return found


@question("CFS-5", WRITES)
async def a_file_is_created(trial: ClientTrial) -> None:
    found = await _writes(trial, trial.folder / "new.txt", "new\n")
    trial.expect(found == "new\n", f"'new\\n' was written, and {found!r} is there")


@question("CFS-6", WRITES)
async def a_file_is_replaced(trial: ClientTrial) -> None:
    file = trial.folder / "old.txt"
    file.write_text("a longer text\nthan before\n", encoding="utf-8")
    found = await _writes(trial, file, "short\n")
    trial.expect(found == "short\n", f"'short\\n' was written over it, and {found!r} is there")


@question("CFS-7", WRITES)
async def what_is_written_is_on_disk_unchanged(trial: ClientTrial) -> None:
    for number, text in enumerate((TEXT, "dos\r\nlines\r\n", "no line feed", "a \u2028 b \ufeff\n")):
        file = trial.folder / f"exact-{number}.txt"
        await trial.call(WRITE, path=str(file), content=text)
        trial.expect(on_disk(file) == text, f"{text!r} was written, and {on_disk(file)!r} is on disk")


@question("CFS-8", WRITES)
async def parent_folders_are_created(trial: ClientTrial) -> None:
    found = await _writes(trial, trial.folder / "a" / "b" / "c.txt", "deep\n")
    trial.expect(found == "deep\n", f"'deep\\n' was written below a missing folder, and {found!r} is there")


@question("CFS-10", READS)
async def line_ends_are_read(trial: ClientTrial) -> None:
    file = trial.folder / "dos.txt"
    file.write_bytes(b"dos\r\nlines\r\n")
    content = await _reads(trial, file)
    trial.expect(content == "dos\r\nlines\r\n", f"'dos\\r\\nlines\\r\\n' was read as {content!r}")


@question("CFS-9")
async def other_folders_are_refused(trial: ClientTrial) -> None:
    if not (trial.has("fs", "readTextFile") or trial.has("fs", "writeTextFile")):
        raise NotHere("neither reading nor writing is offered")
    with tempfile.NamedTemporaryFile(prefix="acp-kit-outside-", suffix=".txt") as there:
        file = there.name
        if _inside(file, trial.cwd):
            raise NotHere("temporary files are in the session's folder")
        if trial.has("fs", "readTextFile"):
            await trial.denied(READ, path=file, why="outside of the session's folder")
        if trial.has("fs", "writeTextFile"):
            await trial.denied(WRITE, path=file, content="kit\n", why="outside of the session's folder")


def _inside(file: str, folder: Path) -> bool:
    return Path(file).resolve().is_relative_to(folder.resolve())
