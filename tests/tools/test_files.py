"""read, edit, write: on real files."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from acp_agent.config.model import FilesConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors import search
from acp_agent.executors.base import Files, FileVersion, Found, GrepQuery, Match
from acp_agent.executors.forwarding_files import ForwardingFiles
from acp_agent.llm.base import ImagePart
from acp_agent.safety.access import PathAccess
from acp_agent.schema.acp import Diff
from acp_agent.tools.kit.text import changed_places
from acp_agent.tools.kit.tool_context import Location
from tests.executors.kit import local_files
from tests.tables import table
from tests.tools.kit import Bench, bench


class OpenBuffers(ForwardingFiles[Files]):
    """An editor with unsaved text, and one that formats on saving."""

    def __init__(self, buffers: dict[Path, str] | None = None, formatted: str | None = None) -> None:
        super().__init__(local_files())
        self.buffers = buffers or {}
        self.formatted = formatted

    async def read(self, path: Path) -> FileVersion:
        found = await super().read(path)
        return replace(found, text=self.buffers[path]) if path in self.buffers else found

    async def write(self, path: Path, text: str, *about: Any, **more: Any) -> FileVersion:
        self.buffers.pop(path, None)
        return await super().write(path, text if self.formatted is None else self.formatted, *about, **more)


# --- read --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "text"), [
    (b"one\n\n  three\n", "     1\tone\n     2\t\n     3\t  three"), (b"a\r\nb\r\n", "     1\ta\n     2\tb"),
    (b"a\nb", "     1\ta\n     2\tb"), (b"", "f is empty."),
], ids=["lines with their numbers", "line ends of Windows", "no last line end", "nothing"])  # fmt: skip
async def test_read_numbers_the_lines(on: Bench, data: bytes, text: str) -> None:
    (on.folder / "f").write_bytes(data)
    assert (await on.call("read", path="f")).text == text


async def test_read_gives_a_part_and_says_that_there_is_more(on: Bench) -> None:
    (on.folder / "f").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    result = await on.call("read", path="f", offset=4, limit=2)
    assert result.text == "     4\tline 4\n     5\tline 5\n[lines 4 to 5 of 10; give offset 6 for more]"
    assert (await on.call("read", path="f", offset=10)).text == "    10\tline 10"
    await on.fails("has 10 lines; line 11 does not exist", "read", path="f", offset=11)


async def test_files_are_bounded_by_the_configuration(tmp_path: Path) -> None:
    bounds = FilesConfig(read_lines=2, max_line_chars=80, max_read_bytes=1024, max_image_bytes=1024)
    async with bench(tmp_path, files=bounds) as on:
        (on.folder / "f").write_text("x" * 100 + "\ny\nz\n")
        assert (await on.call("read", path="f")).text == (
            f"     1\t{'x' * 80}[... 20 characters of this line omitted]\n     2\ty\n"
            "[lines 1 to 2 of 3; give offset 3 for more]"
        )
        (on.folder / "big").write_text("x" * 1025)
        (on.folder / "wide").write_bytes("x".encode("utf-16") * 1025)
        (on.folder / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 2000)
        for name, words in (("wide", "too large to be converted"), ("p.png", "2008 bytes")):
            await on.fails(words, "read", path=name)
        await on.fails("", "edit", path="big", old_string="x", new_string="y")


IMAGES = [
    (b"\x89PNG\r\n\x1a\nrest", "image/png"), (b"\xff\xd8\xff\xe0rest", "image/jpeg"), (b"GIF89arest", "image/gif"),
    (b"GIF87arest", "image/gif"), (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "mime"), IMAGES)
async def test_read_gives_images_by_what_they_hold(on: Bench, data: bytes, mime: str) -> None:
    (on.folder / "picture.dat").write_bytes(data)
    result = await on.call("read", path="picture.dat")
    assert result.parts == (ImagePart(mime, base64.b64encode(data).decode()),)
    assert mime in result.text
    assert result.content is not None


async def test_read_of_what_is_no_file_names_what_is_near_or_the_right_tool(on: Bench) -> None:
    (on.folder / "d").mkdir()
    await on.fails("list_directory", "read", path="d")
    for name in ("app.py", "App.tsx", "other.md", ".git"):
        (on.folder / name).touch()
    await on.fails(r"app\.js does not exist. There are similar names: App\.tsx, app\.py\.", "read", path="app.js")
    await on.fails("neither does its folder", "read", path="nowhere/app.js")
    await on.fails("neither does its folder", "read", path="app.py/x")


@pytest.mark.parametrize("name", ["read", "edit", "write"])
async def test_paths_outside_are_refused_before_anything_is_touched(on: Bench, name: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {"read": {}, "edit": {"old_string": "a", "new_string": "b"}, "write": {"content": "x"}}[name]
    for path in ("../x", "/etc/passwd", str(tmp_path / "x")):
        with pytest.raises(ToolError, match="outside"):
            on.access(name, path=path, **more)


async def test_the_access_is_the_resolved_path(on: Bench) -> None:
    assert on.access("read", path="./a/../f") == [PathAccess("read", on.folder / "f")]
    assert on.access("write", path="f", content="") == [PathAccess("write", on.folder / "f")]
    assert on.access("edit", path="f", old_string="a", new_string="b") == [PathAccess("write", on.folder / "f")]


# --- edit --------------------------------------------------------------------------------------------------------


async def test_edit_replaces_the_only_place(on: Bench) -> None:
    (path := on.folder / "f").write_text("a\nb\nc\n")
    preview = await on.preview("edit", path="f", old_string="b", new_string="B\nBB")
    assert preview.content == (Diff(path=str(path), old_text="a\nb\nc\n", new_text="a\nB\nBB\nc\n"),)
    assert path.read_text() == "a\nb\nc\n", "a look ahead changes nothing"
    result = await on.call("edit", path="f", old_string="b", new_string="B\nBB")
    assert path.read_text() == "a\nB\nBB\nc\n"
    assert result.text == "f was changed.\n     1\ta\n     2\tB\n     3\tBB\n     4\tc"
    assert result.content == preview.content and result.locations == (Location(path, 2),)


async def test_each_changed_place_is_a_location_where_it_is_and_then_where_it_has_come_to(on: Bench) -> None:
    (path := on.folder / "f").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    edits = [("line 3\n", "line 3\nnew\nnew\n"), ("line 9\n", ""), ("line 20\n", "last\n")]
    asked = {"path": "f", "edits": [{"old_string": old, "new_string": new} for old, new in edits]}
    preview = await on.preview("edit", **asked)
    assert [place.line for place in preview.locations] == [4, 9, 20]
    result = await on.call("edit", **asked)
    assert result.locations is not None
    assert [place.line for place in result.locations] == [4, 11, 21]
    lines = path.read_text().split("\n")
    assert [lines[(place.line or 0) - 1] for place in result.locations] == ["new", "line 10", "last"]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_every_line_that_differs_stands_at_or_below_a_location(before: list[str], after: list[str]) -> None:
    """Of both texts: what stands between two places is the same in both."""
    old, new = "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after)
    assume(old != new)
    was, became = changed_places(Path("/f"), old, new), changed_places(Path("/f"), old, new, done=True)
    assert len(was) == len(became)
    assert all(
        1 <= (place.line or 0) <= max(1, len(text))
        for places, text in ((was, before), (became, after))
        for place in places
    )
    common = min((was[0].line or 0), (became[0].line or 0)) - 1
    assert before[:common] == after[:common]


def test_of_a_very_large_change_and_of_very_many_the_first_are_told() -> None:
    old, path = "".join(f"{n}\n" for n in range(3_000)), Path("/f")
    assert [place.line for place in changed_places(path, old, old.replace("7", "x"))] == [8]
    few = "".join(f"{n}\n" for n in range(300))
    assert len(changed_places(path, few, few.replace("7", "x"))) == 30, "from 70 to 79 it is one"
    assert len(changed_places(path, few, "".join(f"{n}x\n" if n % 2 else f"{n}\n" for n in range(300)))) == 50
    assert [place.line for place in changed_places(path, None, "a\nb\n", done=True)] == [1]


async def test_edit_of_several_places_names_their_lines(on: Bench) -> None:
    (path := on.folder / "f").write_text("x = 1\ny\nx = 1\n")
    await on.fails(r"occurs 2 times in f \(lines 1, 3\)", "edit", path="f", old_string="x = 1", new_string="x = 2")
    await on.call("edit", path="f", old_string="x = 1", new_string="x = 2", replace_all=True)
    assert path.read_text() == "x = 2\ny\nx = 2\n"


async def test_edit_shows_the_lines_around_the_change(tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(1, 101))
    async with bench(tmp_path) as on:
        (on.folder / "f").write_text(text)
        result = await on.call("edit", path="f", old_string="\n50\n51\n", new_string="\nx\n")
        shown = [line.split("\t") for line in result.text.splitlines()[1:]]
        assert [text for _, text in shown] == ["47", "48", "49", "x", "52", "53", "54"]
        assert [int(number) for number, _ in shown] == [*range(47, 54)]
        result = await on.call("edit", path="f", old_string="100\n", new_string="y" * 300 + "\n" + "z\n" * 99)
        assert "[... 100 characters of this line omitted]" in result.text
        assert "[... 79 lines ...]" in result.text and len(result.text.splitlines()) == 26
    (tmp_path / "none").mkdir()
    async with bench(tmp_path / "none", files=FilesConfig(edit_context=0)) as on:
        (on.folder / "f").write_text(text)
        assert (await on.call("edit", path="f", old_string="50", new_string="x")).text == "f was changed."


async def test_edit_takes_text_with_the_line_numbers_of_read(on: Bench) -> None:
    (path := on.folder / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    read = (await on.call("read", path="f")).text.splitlines()
    await on.call("edit", path="f", old_string="\n".join(read[:2]), new_string="     1\tx\n     2\ty")
    assert path.read_bytes() == b"x\r\ny\r\nc\r\n"
    await on.call("edit", path="f", old_string=f"{read[2]}\n", new_string="z\n")
    assert path.read_bytes() == b"x\r\ny\r\nz\r\n"
    (on.folder / "table").write_text("1\tone\n2\ttwo\n")
    await on.call("edit", path="table", old_string="2\ttwo", new_string="3\tthree")
    assert (on.folder / "table").read_text() == "1\tone\n3\tthree\n"


async def test_several_edits_of_a_file_are_made_all_or_none(on: Bench) -> None:
    (path := on.folder / "f").write_text("a\nb\nc\n")
    two = [{"old_string": "a", "new_string": "b"}, {"old_string": "b", "new_string": "x", "replace_all": True}]
    with pytest.raises(ToolError, match=r"Edit 2 of 3: `old_string` occurs 2 times in f .*Nothing was written\."):
        await on.call("edit", path="f", edits=[two[0], {"old_string": "b", "new_string": "d"}, two[1]])
    assert path.read_text() == "a\nb\nc\n"
    await on.call("edit", path="f", edits=two)
    assert path.read_text() == "x\nx\nc\n"
    for wrong in ({"edits": two, "old_string": "a", "new_string": "b"}, {"old_string": "a"}, {}):
        await on.fails(r"`edits`", "edit", path="f", **wrong)


@pytest.mark.parametrize(("wanted", "words"), [
    ("def  run(self):", r"The most similar line is 2:\n    def run\(self\):"),
    ("def run(self):\n    other()", "Its first line is at line 2, but the following text or the white space differs"),
    ("nothing like this at all", "contains nothing similar"),
])  # fmt: skip
async def test_edit_of_what_is_not_there_shows_what_is_nearest(on: Bench, wanted: str, words: str) -> None:
    (on.folder / "f").write_text("class A:\n    def run(self):\n        pass\n")
    await on.fails(words, "edit", path="f", old_string=wanted, new_string="x")
    await on.fails(
        r"\nThe whole file:\n     1\tclass A:\n.*\n     3\t", "edit", path="f", old_string=wanted, new_string="x"
    )


@pytest.mark.parametrize(("old", "new", "then"), [
    ("a\n", "b", "a\nb\n"), ("a", "b\n", "a\nb\n"), ("a\r\n", "b\nc", "a\r\nb\r\nc\r\n"), ("", "b", "b\n"),
])  # fmt: skip
async def test_an_edit_without_an_old_text_adds_lines_at_the_end_and_says_so(on: Bench, old, new, then) -> None:
    (on.folder / "f").write_bytes(old.encode())
    assert "was added at the end" in (await on.call("edit", path="f", old_string="", new_string=new)).text
    assert (on.folder / "f").read_bytes().decode() == then


async def test_edit_of_nothing_and_to_the_same_is_refused(on: Bench) -> None:
    (on.folder / "f").write_text("a")
    for new in ("", "a", "# whole\na\n"):
        await on.fails("`old_string` is empty", "edit", path="f", old_string="", new_string=new)
    await on.fails("the same", "edit", path="f", old_string="a", new_string="a")
    await on.fails("does not exist", "edit", path="g", old_string="a", new_string="b")


async def test_edit_and_write_keep_the_line_ends_of_the_file(on: Bench) -> None:
    (path := on.folder / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    await on.call("edit", path="f", old_string="a\nb", new_string="x\ny\nz")
    assert path.read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"
    path.write_bytes(b"a\r\nb\r\n")
    await on.call("read", path="f")
    await on.call("write", path="f", content="x\ny\n")
    assert path.read_bytes() == b"x\r\ny\r\n"


MIXED = b"a\r\nb\nc\r\nd\n"


@table(("data", "old", "new", "wanted"), [
    (b"a\nb\nc\n", "a\r\nb", "x\r\ny\r\nz", b"x\ny\nz\nc\n"), (b"a\r\nb\r\n", "a\nb\n", "x\n", b"x\r\n"),
    (b"a\r\nb\r\n", "a\r\nb", "a\nB", b"a\r\nB\r\n"), (MIXED, "b\nc", "B\r\nC", b"a\r\nB\nC\r\nd\n"),
    (MIXED, "a\nb\nc", "a\nnew\nb\nc", b"a\r\nnew\r\nb\nc\r\nd\n"), (MIXED, "b\nc\n", "", b"a\r\nd\n"),
    (MIXED, "b", "b\nb2\nb3", b"a\r\nb\nb2\nb3\nc\r\nd\n"), (MIXED, "a", "0\na", b"0\r\na\r\nb\nc\r\nd\n"),
    (MIXED, "c\nd\n", "d\nc\n", b"a\r\nb\nd\nc\r\n"), (b"a\r\nb\nc", "c", "c\nd", b"a\r\nb\nc\nd"),
    (b"a\rb\nc\n", "b\nc", "B\nC", b"a\rB\nC\n"), (b"\r\n\na\n", "a", "b\nc", b"\r\n\nb\nc\n"),
])  # fmt: skip
@table("way", ["edit", "write", "apply_patch"])
async def test_each_line_keeps_its_own_end_and_a_new_one_has_that_of_its_neighbour(on, way, data, old, new, wanted):
    (on.folder / "f").write_bytes(data)
    await on.call("read", path="f")
    plain = [text.replace("\r\n", "\n") for text in (data.decode(), old, new)]
    if way == "edit":
        await on.call("edit", path="f", old_string=old, new_string=new)
    elif way == "write":
        await on.call("write", path="f", content=plain[0].replace(plain[1], plain[2]))
    else:
        before, after = plain[0], plain[0].replace(plain[1], plain[2])
        if not after.endswith("\n"):
            before, after = before + "\n", after + "\n"
        lines = [f"-{line}" for line in before.split("\n")[:-1]] + [f"+{line}" for line in after.split("\n")[:-1]]
        patch = "\n".join(["*** Begin Patch", "*** Update File: f", "@@", *lines, "*** End Patch"])
        await on.call("apply_patch", input=patch)
    assert (on.folder / "f").read_bytes() == wanted


async def test_line_ends_alone_are_no_change(on: Bench) -> None:
    (on.folder / "f").write_bytes(MIXED)
    await on.fails("line ends stay as they are", "edit", path="f", old_string="a\r\nb", new_string="a\nb")
    with pytest.raises(ToolError, match=r"occurs 2 times in f \(lines 1, 3\)"):
        (on.folder / "f").write_bytes(b"a\nb\na\r\nb\n")
        await on.call("edit", path="f", old_string="a\r\nb", new_string="x")


NO_ENDS = "one\u2028\u2029 \x0b two\x0c\x1c\x1d\x1e\x85 three\r four"


async def test_only_a_line_feed_ends_a_line(on: Bench) -> None:
    (on.folder / "f").write_text(f"{NO_ENDS}\nlast\nnearly this\n", newline="")
    read = (await on.call("read", path="f")).text
    assert [line.split("\t")[0].strip() for line in read.split("\n")] == ["1", "2", "3"]
    await on.fails("has 3 lines", "read", path="f", offset=4)
    assert (await on.call("grep", pattern="last", path="f")).text.startswith("f:2:")
    await on.fails("line is 3:", "edit", path="f", old_string="nearly that", new_string="x")
    result = await on.call("edit", path="f", old_string="last", new_string="LAST")
    assert result.locations == (Location(on.folder / "f", 2),)
    assert (on.folder / "f").read_bytes().decode().split("\n") == [NO_ENDS, "LAST", "nearly this", ""]


async def test_edit_of_a_file_that_changed_since_it_was_read_is_refused(on: Bench) -> None:
    (path := on.folder / "f").write_text("a\n")
    await on.call("read", path="f")
    path.write_text("a\nmore\n")
    await on.fails("has changed since it was read", "edit", path="f", old_string="a", new_string="b")
    await on.call("read", path="f")
    await on.call("edit", path="f", old_string="a", new_string="b")
    await on.call("edit", path="f", old_string="b", new_string="c")
    assert path.read_text() == "c\nmore\n"


async def test_what_the_editor_reformats_is_told_and_shown(tmp_path: Path) -> None:
    async with bench(tmp_path, through=OpenBuffers(formatted="x = 1\n")) as on:
        (path := on.folder / "f").write_text("x=0\n")
        result = await on.call("edit", path="f", old_string="0", new_string="1")
        assert "reformatted" in result.text
        assert result.content == (Diff(path=str(path), old_text="x=0\n", new_text="x = 1\n"),)


# --- encodings ---------------------------------------------------------------------------------------------------

ENCODINGS = [
    ("café\r\n“x”\r\n", "cp1252", "windows-1252"), ("café\x81\n", "latin-1", "latin-1"),
    ("café\r\nx\r\n", "utf-8-sig", "UTF-8 with a byte order mark"), ("café\r\nx\r\n", "utf-16", "UTF-16 LE"),
    ("plain café\n", "utf-16-be", "UTF-16 BE"), ("café\n", "utf-32", "UTF-32 LE"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "codec", "name"), ENCODINGS)
async def test_a_file_is_read_edited_and_written_in_its_encoding(on: Bench, text: str, codec: str, name: str) -> None:
    (path := on.folder / "f").write_bytes(text.encode(codec))
    read = (await on.call("read", path="f")).text
    assert read.startswith(f"     1\t{text.splitlines()[0]}\n")
    assert read.endswith(f"[It is in {name}, and changes are written so.]")
    await on.call("edit", path="f", old_string="café", new_string="thé\ncafé")
    text = text.replace("café", "thé\r\ncafé" if "\r" in text else "thé\ncafé")
    assert path.read_bytes() == text.encode(codec)
    assert (await on.call("write", path="f", content="né\n")).text == "f was changed."
    assert path.read_bytes() == ("né\r\n" if "\r" in text else "né\n").encode(codec)


async def test_what_the_encoding_of_a_file_lacks_is_refused_in_an_edit_and_makes_it_utf8_if_it_is_written(on) -> None:
    """The encoding may have been guessed wrong: what an edit leaves would be converted wrong as well."""
    (path := on.folder / "f").write_bytes("café\n".encode("cp1252"))
    await on.call("read", path="f")
    with pytest.raises(ToolError, match="f is in windows-1252, which has no '茶', so nothing was written"):
        await on.call("edit", path="f", old_string="caf", new_string="茶")
    assert path.read_bytes() == b"caf\xe9\n"
    result = await on.call("write", path="f", content="café → 茶\n")
    assert result.text == (
        "f was changed. It is in UTF-8 now: windows-1252, which it was in, lacks a character of the new text."
    )
    assert path.read_text("utf-8") == "café → 茶\n"


BINARIES = [
    (b"\x7fELF\2\1\1\0", "an ELF program or library"),
    (b"PK\x03\x04\x14\0\0\0\xff", "a ZIP archive, or a document in one"),
    (b"\x1f\x8b\x08\x02\xff\xe9", "gzip-compressed"), (b"%PDF-1.7\n%\xe2\xe3\n\x00", "a PDF document"),
    (b"SQLite format 3\0\x10", "an SQLite database"), (b"\1\0\2\0\3\0\4\0", ""), (b"\xff\xfe\x00", ""),
    (b"text\0text", ""),
]  # fmt: skip


@pytest.mark.parametrize(("data", "kind"), BINARIES)
async def test_a_binary_file_is_named_with_its_kind_and_size(on: Bench, data: bytes, kind: str) -> None:
    (on.folder / "f").write_bytes(data)
    for name, more in (("read", {}), ("edit", {"old_string": "a", "new_string": "b"}), ("write", {"content": "x"})):
        with pytest.raises(ToolError) as error:
            await on.call(name, path="f", **more)
        named = f"f is a binary file{f' ({kind})' if kind else ''}, {len(data)} bytes."
        assert str(error.value) == named and error.value.suggestion
    assert (on.folder / "f").read_bytes() == data


# --- write -------------------------------------------------------------------------------------------------------


async def test_write_makes_a_file_with_its_folders(on: Bench) -> None:
    path = on.folder / "a" / "b.txt"
    preview = await on.preview("write", path="a/b.txt", content="new\n")
    assert preview.content == (Diff(path=str(path), old_text=None, new_text="new\n"),)
    assert not path.parent.exists()
    result = await on.call("write", path="a/b.txt", content="new\n")
    assert path.read_text() == "new\n"
    assert result.text == "a/b.txt was created."


async def test_write_over_a_file_that_was_not_read_is_refused(on: Bench) -> None:
    (path := on.folder / "f").write_text("precious")
    await on.fails("has not been read", "write", path="f", content="x")
    await on.call("read", path="f")
    assert (await on.call("write", path="f", content="x")).text == "f was changed."
    assert path.read_text() == "x"
    await on.call("write", path="f", content="y")
    path.write_text("z")
    await on.fails("has changed since it was read", "write", path="f", content="x")


async def test_write_of_the_same_text_and_over_an_empty_file(on: Bench) -> None:
    (on.folder / "f").touch()
    await on.call("write", path="f", content="x")
    await on.fails("already contains exactly this text", "write", path="f", content="x")
    await on.call("write", path="f", content="")
    assert (on.folder / "f").read_bytes() == b""


async def test_write_onto_a_folder_or_through_a_file_is_refused(on: Bench) -> None:
    (on.folder / "d").mkdir()
    (on.folder / "f").write_text("x")
    await on.fails("is a folder", "write", path="d", content="x")
    with pytest.raises(ExecutorError, match="f"):
        await on.call("write", path="f/g", content="x")


async def test_edit_looks_for_similar_lines_only_as_far_as_that_is_quick(on: Bench) -> None:
    (on.folder / "long").write_text(("abc def " * 1250 + "\n") * 500 + "value = compute(1)\n")
    with pytest.raises(
        ToolError, match=r"The most similar line is 501:\nvalue = compute\(1\)\nThere:\n   499\t(?s:.*)omitted\]\n"
    ):
        await on.call("edit", path="long", old_string="value = computed(1)", new_string="x")
    lines = "".join(f"{'line ' * 20}{number}\n" for number in range(3000))
    (on.folder / "many").write_text(lines + "value = compute(1)\n")
    words = "Nothing similar is in the part that was compared"
    await on.fails(words, "edit", path="many", old_string="value = computed(1)", new_string="x")


async def test_what_grep_leaves_out_is_named(on: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found: tuple[Match, ...] = ()
    unread = 0

    async def grep(query: GrepQuery, hides: object, host: object) -> Found:
        left_out = tuple(on.folder / f"{n}.log" for n in range(6))
        return Found(found, False, False, "", left_out, left_out[:1], unread_count=unread)

    monkeypatch.setattr(search, "grep", grep)
    (on.folder / "f").write_text("one\n")
    words = (
        "Not searched, as they are large: 0.log, 1.log, 2.log, 3.log, 4.log and others. Give one of them as the `path`"
    )
    nothing = (await on.call("grep", pattern="one")).text
    assert nothing.startswith("No line below . matches `one`.") and words in nothing
    found = (Match(on.folder / "f", 1, "one"),)
    assert (await on.call("grep", pattern="one")).text == f"f:1:one\n[{words} to search it.]"
    unread = 3
    monkeypatch.setattr(search, "find", grep)
    for tool in ("grep", "find_path"):
        text = (await on.call(tool, pattern="one")).text
        assert text.endswith("\n[Not searched, as it may not be read: 0.log, 2 more.]"), text


async def test_any_part_of_a_file_of_any_size_is_read(tmp_path: Path) -> None:
    async with bench(tmp_path, files=FilesConfig(max_read_bytes=1024, read_lines=3)) as on:
        (on.folder / "log").write_text("".join(f"line {n}\n" for n in range(1, 201)))
        size = (on.folder / "log").stat().st_size

        async def read(**params: int) -> str:
            return (await on.call("read", path="log", **params)).text

        lines = "   100\tline 100\n   101\tline 101"
        goes_on = f"[lines 100 to 101; the file has {size} bytes; give offset 102 for more]"
        assert await read(offset=100, limit=2) == f"{lines}\n{goes_on}"
        assert (await read()).endswith(
            f"     3\tline 3\n[lines 1 to 3; the file has {size} bytes; give offset 4 for more]"
        )
        ends = f"[numbers below 0 count from the end; the file has {size} bytes; that is its end]"
        assert await read(offset=-2) == f"    -2\tline 199\n    -1\tline 200\n{ends}"
        assert (await read(offset=-9, limit=1)).endswith("give offset -8 for more]")
        assert (await read(offset=199)).endswith(
            f"\tline 200\n[lines 199 to 200; the file has {size} bytes; that is its end]"
        )
        with pytest.raises(ExecutorError, match="has 200 lines; line 201 does not exist"):
            await read(offset=201)
        small = (
            await on.call("write", path="small", content="one\ntwo\nthree\n"),
            await on.call("read", path="small", offset=-2),
        )
        assert small[1].text == "     2\ttwo\n     3\tthree"


async def test_a_line_of_any_length_is_read_by_its_columns(tmp_path: Path) -> None:
    async with bench(tmp_path, files=FilesConfig(max_read_bytes=1024)) as on:
        text = "".join(f"{n:x}é" for n in range(40_000))
        (on.folder / "one").write_text(text)
        read, more = "", {"offset": 1}
        while more:
            line, _, footer = (await on.call("read", path="one", **more)).text.rpartition("\n[")
            read += line.partition("\t")[2]
            found = re.search(r"offset (1) and column (\d+)", footer)
            more = {"offset": 1, "column": int(found[2])} if found else {}
        assert read == text
        (on.folder / "short").write_text("abcdef\nxyz\n")
        assert (await on.call("read", path="short", column=4)).text == "     1\tdef\n     2\txyz"
