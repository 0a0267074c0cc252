"""The text of patches: what is read, where it fits, what it leaves alone."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.files.patch_text import FilePatch, Hunk, parse_patch, patched


def patch(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch"


def of(text: str, body: str) -> str:
    """`text` after a patch with these lines."""
    (file,) = parse_patch(patch(f"*** Update File: f\n{body}"))
    return patched(text, file.hunks)


def test_all_that_a_patch_can_hold_is_read():
    text = patch(
        "*** Update File: a b.py\n@@ class A\n@@ def f():\n one\n-two\n+zwei\n\n@@\n-x\n*** End of File\n"
        "*** Update File: old.py\n*** Move to: new/place.py\n"
        "*** Add File: c.txt\n+first\n+\n+last\n"
        "*** Delete File: d.txt"
    )
    lines = ((" ", "one"), ("-", "two"), ("+", "zwei"), (" ", ""))
    assert parse_patch(f"apply_patch <<'EOF'\r\n{text}\nEOF".replace("\n", "\r\n")) == (
        FilePatch("update", "a b.py", (Hunk(lines, ("class A", "def f():")), Hunk((("-", "x"),), (), True))),
        FilePatch("update", "old.py", (), "new/place.py"), FilePatch("add", "c.txt", content="first\n\nlast\n"),
        FilePatch("delete", "d.txt"),
    )  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [
    ("", "no line `*** Begin Patch`"), ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", "no line `*** Begin Patch`"),
    ("*** Begin Patch\n*** Update File: f\n-a\n+b", "may be cut off"), (patch(""), "changes no file"),
    (patch("hello"), "line 2 of the patch, `hello`, names no file"), (patch("*** Update File: "), "names no file"),
    (patch("*** Update File: f"), "no changed lines follow"),
    (patch("*** Update File: f\nhello"), "`hello`, begins with neither"),
    (patch("*** Update File: f\n@@ def f"), "no lines after `@@ def f`"),
    (patch("*** Add File: f\nhello"), "begins with `+`; `hello` does not"),
    (patch("*** Delete File: f\n-a"), "no lines may follow"),
])  # fmt: skip
def test_what_is_no_patch_is_told_in_words(text, words):
    with pytest.raises(ValueError, match=r".") as error:
        parse_patch(text)
    assert words in str(error.value)


TEXT = "def a():\n    x = 1\n    return x\n\ndef b():\n    x = 1\n    return x\n"


def test_parts_are_put_where_they_fit():
    assert of("a\nb\nc\n", " a\n-b\n+B\n c") == "a\nB\nc\n"
    assert of(TEXT, "@@ def b():\n-    x = 1\n+    x = 2") == "    x = 2".join(TEXT.rsplit("    x = 1", 1))
    assert of(TEXT, "@@ def b():\n+    # new") == TEXT.replace("def b():\n", "def b():\n    # new\n")
    assert of("a\nb\n", "+c") == "a\nb\nc\n", "lines alone come at the end"
    assert of("a\nb", "+c") == "a\nb\nc", "a file without a last line end keeps that"
    assert of("", "+c") == "c\n" and of("x\ny\nx\n", "-x\n+z\n*** End of File") == "x\ny\nz\n"
    assert of("a\nb\n", "-a\n-b") == ""


def test_what_models_get_wrong_is_forgiven_and_lines_that_stay_are_kept_as_they_are():
    assert of("a  \n\tb\n", " a\n-b\n+B") == "a  \nB\n", "white space"
    assert of("say “hi” – now\nb\n", ' say "hi" - now\n-b\n+c') == "say “hi” – now\nc\n", "quotes and dashes"
    assert of("a\r\nb\r\n", " a\n-b\n+c") == "a\r\nc\r\n", "line ends"
    assert of("a\r\nb", " b\n+c") == "a\r\nb\r\nc", "line ends, none at the end"
    assert of("a\r\nb", "-b") == "a"


@pytest.mark.parametrize(("text", "body", "words"), [
    ("a\nb\na\n", "-a\n+c", "fits in 2 places (lines 1, 3)"), ("a\nb\n", "-z\n+c", "nor is `z`"),
    ("a\nb\nc\n", "-a\n-c\n+z", "The first of them is line 1, but those after it differ"),
    ("a\n", "@@ def f\n-a\n+b", "no line after line 0 is `def f`"),
    ("a\n", " a\n b\n c\n-d", "more old lines than the file"),
    ("a\nb\nc\n", "-c\n+d\n@@\n-a\n+e", "Part 2 of 2 does not fit"),
])  # fmt: skip
def test_what_does_not_fit_is_told_and_never_guessed(text, body, words):
    with pytest.raises(ValueError, match=r".") as error:
        of(text, body)
    assert words in str(error.value)


LINES = st.lists(st.sampled_from(["a", "b", "  c", "d()", "", "é", "x = 1"]), max_size=12)


@given(LINES, LINES)
def test_a_patch_of_a_whole_file_makes_the_new_text(old, new):
    """With every line of the file in it, there is one place only."""
    marks = {"equal": " ", "delete": "-", "insert": "+"}
    lines: list[tuple[str, str]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "replace":
            lines += [("-", line) for line in old[a:b]] + [("+", line) for line in new[c:d]]
        else:
            lines += [(marks[kind], line) for line in (new[c:d] if kind == "insert" else old[a:b])]
    before, after = "".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new)
    if lines:
        assert patched(before, [Hunk(tuple(lines))]) == after


@given(st.text(alphabet="ab \n\r-+@*", max_size=60), st.text(alphabet="ab \n-+@*", max_size=60))
def test_no_text_breaks_it_and_no_line_that_is_not_named_is_lost(text, body):
    try:
        (file, *_) = parse_patch(patch(f"*** Update File: f\n{body}"))
        after = patched(text, file.hunks)
    except ValueError:
        return
    gone = sum(mark == "-" for hunk in file.hunks for mark, _ in hunk.lines)
    came = sum(mark == "+" for hunk in file.hunks for mark, _ in hunk.lines)
    ends = text.endswith("\n") or not text
    before = text.count("\n") + (not ends)
    assert after.count("\n") + (not ends) in (before - gone + came, not ends)
