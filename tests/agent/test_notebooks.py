"""Jupyter notebooks in the whole agent: read as cells, edited by cell."""

import base64
import json
from typing import Any

import pytest

from acp_agent.schema.acp import Diff
from acp_agent.testing.fake_model import Call

from .kit import asks, bash, put, results, rig, rounds, went

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(92)).decode()

CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "id": "intro", "metadata": {"tags": ["x"]}, "source": ["# Title\n", "Words."]},
    {
        "cell_type": "code", "execution_count": 3, "id": "calc", "metadata": {},
        "outputs": [
            {"name": "stdout", "output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n", "10%\r100%\n"]},
            {
                "data": {"image/png": PNG + "\n", "text/html": ["<table>"], "text/plain": ["   a\n", "0  1"]},
                "execution_count": 3, "metadata": {}, "output_type": "execute_result",
            },
        ],
        "source": ["import pandas as pd\n", "total = 1.50\n", "total"],
    },
    {
        "cell_type": "code", "execution_count": 4, "id": "fails", "metadata": {},
        "outputs": [
            {
                "ename": "NameError", "evalue": "name '\x1b[1my\x1b[0m' is not defined", "output_type": "error",
                "traceback": ["\x1b[0;31mlong traceback"],
            },
            {"data": {"text/html": "<b>only</b>"}, "metadata": {}, "output_type": "display_data"},
        ],
        "source": "y\ntotal",
    },
    {"cell_type": "raw", "id": "plain", "metadata": {}, "source": []},
]  # fmt: skip
NOTEBOOK = {
    "cells": CELLS, "metadata": {"kernelspec": {"display_name": "Python 3", "name": "python3"}, "z": 1.50, "a": 1e5},
    "nbformat": 4, "nbformat_minor": 5,
}  # fmt: skip


def as_text(notebook: Any = NOTEBOOK) -> str:
    """As Jupyter writes it, with a number that Python would write otherwise."""
    return json.dumps(notebook, indent=1, ensure_ascii=False).replace('"z": 1.5,', '"z": 1.50,') + "\n"


def calls(*made: tuple[str, dict[str, Any]]) -> list[Any]:
    return [*(asks(Call(name, arguments)) for name, arguments in made), "done"]


READ = ("read", {"path": "n.ipynb"})


async def run(tmp_path: Any, *made: tuple[str, dict[str, Any]], text: str | None = None, **options: Any) -> list[str]:
    """What the model reads of each call; the notebook is `n.ipynb`."""
    async with rig(tmp_path, calls(*made), **{"mode": "auto", **options}) as r:
        with (r.project / "n.ipynb").open("w", newline="") as file:
            file.write(as_text() if text is None else text)
        await r.editor.prompt("go")
        return results(r)


def after(tmp_path: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "project" / "n.ipynb").read_text())
    return found


def sources(tmp_path: Any) -> list[str]:
    return ["".join(cell["source"]) for cell in after(tmp_path)["cells"]]


# --- reading -----------------------------------------------------------------------------------------------------


async def test_a_notebook_is_read_as_cells_with_short_outputs(tmp_path):
    (text,) = await run(tmp_path, READ)
    assert text == (
        "[a notebook with 4 cells, Python 3; `edit_notebook` replaces, inserts and deletes cells, `edit` changes text "
        "in their sources]\n"
        "[cell 1, id intro, markdown]\n"
        "     1\t# Title\n"
        "     2\tWords.\n"
        "[cell 2, id calc, code, execution count 3]\n"
        "     1\timport pandas as pd\n"
        "     2\ttotal = 1.50\n"
        "     3\ttotal\n"
        "[output stdout]\n"
        "red\n"
        "100%\n"
        "[output]\n"
        "   a\n"
        "0  1\n"
        "[output image/png, 100 bytes]\n"
        "[cell 3, id fails, code, execution count 4]\n"
        "     1\ty\n"
        "     2\ttotal\n"
        "[output error]\n"
        "NameError: name 'y' is not defined\n"
        "[output text/html, left out]\n"
        "[cell 4, id plain, raw]"
    )


async def test_odd_notebooks_are_read(tmp_path):
    """No name in a notebook makes a line, and nothing of the wrong type breaks anything."""
    odd = {
        **CELLS[1], "id": "x]\n[cell 9, id y, code]\x1b[0m" + "z" * 100, "execution_count": "3",
        "outputs": [
            1, {"output_type": "stream"}, {"output_type": "stream", "name": 5, "text": None}, {"output_type": "error"},
            {"output_type": "display_data", "data": []},
            {"output_type": "display_data", "data": {"image/svg+xml": ["<svg>", "é"], "text/plain": 1}},
            {"output_type": "pyout"},
        ],
    }  # fmt: skip
    metadata = {"kernelspec": [], "language_info": {"name": "ju\nlia"}}
    cells = [odd, {**CELLS[1], "outputs": None, "source": ""}]
    (text,) = await run(tmp_path, READ, text=as_text({**NOTEBOOK, "metadata": metadata, "cells": cells}))
    assert text.startswith("[a notebook with 2 cells, ju lia; ")
    assert "\n[cell 1, id x) (cell 9, id y, code)z" in text and "\n[cell 9" not in text
    assert "[output image/svg+xml, 7 bytes]" in text
    assert text.endswith("[cell 2, id calc, code, execution count 3]")


async def test_offset_and_limit_count_cells(tmp_path):
    async with rig(
        tmp_path,
        calls(("read", {"path": "n.ipynb", "offset": 2, "limit": 1}), ("read", {"path": "n.ipynb", "offset": 5})),
    ) as r:
        (r.project / "n.ipynb").write_text(as_text())
        await r.editor.prompt("go")
        one, none = results(r)
        assert "[cell 2" in one and "[cell 1," not in one and "[cell 3" not in one
        assert one.endswith("[cells 2 to 2 of 4; give offset 3 for more]")
        assert "n.ipynb has 4 cells; cell 5 does not exist" in none
        first, *_ = r.editor.tool_calls().values()
        assert first.title == "Read n.ipynb cells 2 to 2"


async def test_what_the_model_reads_is_bounded_and_says_how_to_go_on(tmp_path):
    big = {**CELLS[1], "outputs": [{"name": "stdout", "output_type": "stream", "text": "o" * 100_000}] * 25}
    long = {**CELLS[0], "source": "".join(f"line {number}\n" for number in range(20_000))}
    text = as_text({**NOTEBOOK, "cells": [CELLS[0], big, *[CELLS[2]] * 900]})
    (many,) = await run(tmp_path, READ, text=text)
    assert len(many) <= 50_000 and "give offset" in many.splitlines()[-1]
    assert "characters left out" in many and "[15 more outputs]" in many
    (tmp_path / "b").mkdir()
    lone, fitting = await run(
        tmp_path / "b", READ, ("read", {"path": "n.ipynb", "offset": 2}),
        text=as_text({**NOTEBOOK, "cells": [long, big]}), config="[tools]\nmax_output_chars = 8000\n",
    )  # fmt: skip
    assert "more lines of this cell left out" in lone and "[cells 1 to 1 of 2; give offset 2 for more]" in lone
    assert "lines of outputs left out]" in fitting and "import pandas" in fitting


@pytest.mark.parametrize("tool", ["edit", "edit_notebook", "write", "apply_patch"])
async def test_no_mark_is_written_over_a_credential_that_shows_only_in_the_source(tmp_path, tool):
    """In the file it is within a JSON string, as Google Colab escapes it."""
    source = 'password = "correct-horse-9"\nx = 1'
    text = as_text({**NOTEBOOK, "cells": [{**CELLS[0], "source": source}]}).replace("=", "\\u003d")
    marked = source.replace("correct-horse-9", "[redacted: password]").replace("x = 1", "x = 2")
    patch = f"*** Begin Patch\n*** Update File: n.ipynb\n-x = 1\n+{marked.splitlines()[0]}\n*** End Patch"
    arguments = {
        "edit": {"path": "n.ipynb", "old_string": "x = 1", "new_string": marked},
        "edit_notebook": {"path": "n.ipynb", "cell": 1, "new_source": marked},
        "write": {"path": "n.ipynb", "content": text.replace("correct-horse-9", "[redacted: password]")},
        "apply_patch": {"input": patch},
    }
    read, refused = await run(tmp_path, READ, (tool, arguments[tool]), text=text)
    assert "correct-horse-9" not in read and "[redacted: " in read
    assert "nothing was written" in refused
    assert (tmp_path / "project" / "n.ipynb").read_text() == text


async def test_credentials_in_sources_and_outputs_are_redacted_and_kept(tmp_path):
    cell = {**CELLS[1], "source": f"token = '{SECRET}'\nx = 1\n"}
    cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": f"{SECRET}\n"}]
    marked = ("edit", {"path": "n.ipynb", "old_string": "token = '[redacted: x]'", "new_string": "token = ''"})
    over = ("edit_notebook", {"path": "n.ipynb", "cell": 1, "new_source": "token = '[redacted: x]'\nx = 2\n"})
    beside = ("edit", {"path": "n.ipynb", "old_string": "x = 1", "new_string": "x = 2"})
    read, *refused, done = await run(tmp_path, READ, marked, over, beside, text=as_text({**NOTEBOOK, "cells": [cell]}))
    assert SECRET not in read and read.count("[redacted: ") == 2
    assert all("nothing was written" in text for text in refused), refused
    assert "was changed" in done
    assert sources(tmp_path) == [f"token = '{SECRET}'\nx = 2\n"]


@pytest.mark.parametrize(("text", "shown", "words"), [
    ('{"cells": [', '     1\t{"cells": [', "shown as plain text, since it is broken JSON"),
    ('{"a": 1}\n', '     1\t{"a": 1}', "shown as plain text, since it is JSON without `nbformat`"),
    ("", "n.ipynb is empty", "is empty"),
    ('{"nbformat": 3, "worksheets": []}', "n.ipynb is a notebook in nbformat 3", "jupyter nbconvert"),
])  # fmt: skip
async def test_what_is_no_notebook_is_plain_text_with_a_remark_and_an_old_one_refused(text, shown, words, tmp_path):
    (read,) = await run(tmp_path, READ, text=text)
    assert shown in read and words in read


# --- editing -----------------------------------------------------------------------------------------------------


async def test_edit_changes_text_in_a_cell_and_nothing_else_of_the_file(tmp_path):
    edit = ("edit", {"path": "n.ipynb", "old_string": "     2\ttotal = 1.50\n", "new_string": 'total = "2"\n'})
    async with went(tmp_path, calls(READ, edit), files={"n.ipynb": as_text()}) as r:
        path = r.project / "n.ipynb"
        old, new = as_text(), path.read_text()
        cell = {**CELLS[1], "execution_count": None, "outputs": []}
        cell["source"] = ["import pandas as pd\n", 'total = "2"\n', "total"]
        assert new == as_text({**NOTEBOOK, "cells": [CELLS[0], cell, *CELLS[2:]]})
        (asked,) = r.editor.permission_requests
        (diff,) = [content for content in asked.tool_call.content or () if isinstance(content, Diff)]
        assert (diff.path, diff.old_text, diff.new_text) == (str(path), old, new), "what is in the file, not the cells"
        assert results(r)[1] == (
            "n.ipynb was changed.\n"
            "[cell 2, id calc, code]\n"
            "     1\timport pandas as pd\n"
            '     2\ttotal = "2"\n'
            "     3\ttotal\n"
            "[its outputs were cleared]"
        )


async def test_edit_is_unique_over_all_cells_or_in_the_one_that_is_named(tmp_path):
    change = {"path": "n.ipynb", "old_string": "total", "new_string": "sum_"}
    many, wrong, absent, json_text, one, rest, over = await run(
        tmp_path, ("edit", change), ("edit", {**change, "cell": 9}), ("edit", {**change, "cell": "intro"}),
        ("edit", {**change, "old_string": '"nbformat": 4'}), ("edit", {**change, "cell": "fails"}),
        ("edit", {**change, "replace_all": True}),
        ("edit", {**change, "old_string": "sum_\n\ufdd0\ny", "new_string": "z"}),
    )  # fmt: skip
    assert "occurs 3 times in n.ipynb (lines 2, 3 of cell 2, line 2 of cell 3)" in many and "name its `cell`" in many
    assert "there is no cell '9': its cells have the numbers 1 to 4" in wrong
    assert "`old_string` is not in n.ipynb" in absent and "not in n.ipynb" in json_text
    assert "was changed" in one and "was changed" in rest
    assert "reaches over the end of a cell" in over
    assert sources(tmp_path) == ["# Title\nWords.", "import pandas as pd\nsum_ = 1.50\nsum_", "y\nsum_", ""]


async def test_several_edits_are_made_in_one_call_all_or_none(tmp_path):
    good = {"old_string": "# Title\n", "new_string": "# Name\n"}
    put(tmp_path / "project" / "other.txt", "a")
    bad, done, file = await run(
        tmp_path, ("edit", {"path": "n.ipynb", "edits": [good, {"old_string": "y\n  total", "new_string": "z"}]}),
        ("edit", {"path": "n.ipynb", "edits": [good, {"old_string": "y\n", "new_string": "y = 1\n"}]}),
        ("edit", {"path": "other.txt", "old_string": "a", "new_string": "b", "cell": 1}),
    )  # fmt: skip
    assert "Edit 2 of 2" in bad and "Its first line is at line 1 of cell 3" in bad
    assert "other.txt is no notebook, so it has no `cell`" in file
    assert "[cell 1, id intro" in done and "[cell 3, id fails" in done
    assert sources(tmp_path)[::2] == ["# Name\nWords.", "y = 1\ntotal"]


async def test_cells_are_replaced_inserted_and_deleted(tmp_path):
    path = {"path": "n.ipynb"}
    _, replaced, inserted, first, deleted, typed = await run(
        tmp_path, READ, ("edit_notebook", {**path, "cell": "calc", "new_source": "total = 2\n"}),
        ("edit_notebook", {**path, "cell": 2, "edit_mode": "insert", "cell_type": "code", "new_source": "total += 1"}),
        ("edit_notebook", {**path, "edit_mode": "insert", "cell_type": "markdown", "new_source": "Above"}),
        ("edit_notebook", {**path, "cell": "fails", "edit_mode": "delete"}),
        ("edit_notebook", {**path, "cell": "5", "cell_type": "code", "new_source": "1"}),
    )  # fmt: skip
    assert "[cell 2, id calc, code]\n     1\ttotal = 2\n[its outputs were cleared]" in replaced
    assert "The new cell is number 3, id " in inserted and ": 5 in all." in inserted
    assert "The new cell is number 1, id " in first
    assert "Cell 5 is gone; those after it have moved up by one, and there are 5 now." in deleted
    assert "was changed" in typed
    assert sources(tmp_path) == ["Above", "# Title\nWords.", "total = 2\n", "total += 1", "1"]
    above, intro, calc, more, plain = after(tmp_path)["cells"]
    assert intro == CELLS[0]
    assert len({cell["id"] for cell in after(tmp_path)["cells"]}) == 5 and len(above["id"]) == len(more["id"]) == 8
    assert (calc["execution_count"], calc["outputs"], calc["metadata"]) == (None, [], {})
    assert (plain["cell_type"], plain["execution_count"], plain["outputs"]) == ("code", None, [])


async def test_the_form_of_claude_codes_tool_is_understood(tmp_path):
    form = {
        "notebook_path": "n.ipynb", "cell_id": "calc", "new_source": "2", "cell_type": "code", "edit_mode": "replace",
    }  # fmt: skip
    _, done = await run(tmp_path, READ, ("NotebookEdit", form))
    assert "was changed" in done
    assert sources(tmp_path)[1] == "2"


async def test_calls_that_cannot_be_meant_are_refused_with_words(tmp_path):
    path = {"path": "n.ipynb"}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"cell": 1}, "give the `new_source`"), ({"new_source": "x"}, "give the `cell` to replace"),
        ({"edit_mode": "delete"}, "give the `cell` to delete"),
        ({"edit_mode": "insert", "new_source": "x"}, "give the `cell_type` of the new cell"),
        ({"cell": 7, "new_source": "x"}, "there is no cell '7': its cells have the numbers 1 to 4"),
        ({"cell": 1, "new_source": "# Title\nWords."}, "nothing to change"),
        ({"path": "f.txt", "cell": 1, "new_source": "x"}, "f.txt is not named `.ipynb`: it has no cells"),
        ({"path": "none.ipynb", "cell": 1, "new_source": "x"}, "none.ipynb does not exist"),
        ({"path": "broken.ipynb", "cell": 1, "new_source": "x"}, "broken.ipynb is broken JSON"),
        ({"path": "old.ipynb", "cell": 1, "new_source": "x"}, "old.ipynb is a notebook in nbformat 3"),
    ]  # fmt: skip
    made = calls(READ, *(("edit_notebook", {**path, **arguments}) for arguments, _ in rows))
    files = {"n.ipynb": as_text(), "broken.ipynb": "{", "old.ipynb": '{"nbformat": 3}', "f.txt": "x"}
    async with went(tmp_path, made, config="[agent]\nmax_tool_iterations = 40\n", files=files) as r:
        for text, (arguments, words) in zip(results(r)[1:], rows, strict=True):
            assert words in text, (arguments, text)
        assert r.editor.permission_requests == [], "what cannot work is not asked about"
        assert (r.project / "n.ipynb").read_text() == as_text()


async def test_a_cell_is_not_changed_by_number_before_the_notebook_was_read(tmp_path):
    (text,) = await run(tmp_path, ("edit_notebook", {"path": "n.ipynb", "cell": 1, "edit_mode": "delete"}))
    assert "You have not read n.ipynb" in text
    assert len(sources(tmp_path)) == 4


@pytest.mark.parametrize("change", [
    ("edit", {"path": "n.ipynb", "old_string": "Words.", "new_string": "Text."}),
    ("edit_notebook", {"path": "n.ipynb", "cell": "intro", "new_source": "# Title\nText."}),
], ids=["edit", "edit_notebook"])  # fmt: skip
async def test_a_notebook_that_changed_since_it_was_read_is_not_changed(tmp_path, change):
    read, change = Call(*READ), Call(*change)
    script = rounds(read, bash("sed -i 's/Title/Other/' n.ipynb"), change, read, change)
    async with went(tmp_path, script, mode="auto", files={"n.ipynb": as_text()}) as r:
        *_, refused, _, done = results(r)
        assert "n.ipynb has changed since it was read" in refused
        assert "was changed." in done
        assert "Text." in sources(tmp_path)[0]


async def test_unsaved_changes_of_the_editor_are_read_and_kept(tmp_path):
    path = tmp_path / "project" / "n.ipynb"
    unsaved = as_text().replace("# Title", "# Unsaved")
    edit = ("edit_notebook", {"path": "n.ipynb", "cell": "calc", "new_source": "2"})
    files = {"n.ipynb": as_text()}
    async with went(tmp_path, calls(READ, edit), mode="auto", buffers={path: unsaved}, files=files) as r:
        read, done = results(r)
        assert "# Unsaved" in read and "was changed" in done
        assert sources(tmp_path)[:2] == ["# Unsaved\nWords.", "2"]


@pytest.mark.parametrize(
    "text", [as_text().replace("\n", "\r\n"), json.dumps(NOTEBOOK), json.dumps(NOTEBOOK, indent=2), as_text()[:-1]]
)
async def test_the_style_of_the_file_is_kept(text, tmp_path):
    edit = ("edit", {"path": "n.ipynb", "old_string": "Words.", "new_string": "Text."})
    (done,) = await run(tmp_path, edit, text=text)
    assert "was changed" in done
    assert (tmp_path / "project" / "n.ipynb").read_bytes() == text.replace("Words.", "Text.").encode()


async def test_a_patch_fits_the_lines_that_were_read(tmp_path):
    patch = "*** Begin Patch\n*** Update File: n.ipynb\n import pandas as pd\n-total = 1.50\n+total = 2\n*** End Patch"
    lost = "*** Begin Patch\n*** Update File: n.ipynb\n+total = 2\n*** End Patch"
    done, refused = await run(
        tmp_path, ("apply_patch", {"input": patch}), ("apply_patch", {"input": lost}), environ={"OPENAI_MODEL": "gpt-5"}
    )
    assert "[cell 2, id calc, code]" in done
    assert "Nothing was written" in refused
    assert sources(tmp_path)[1] == "import pandas as pd\ntotal = 2\ntotal"
    assert after(tmp_path)["cells"][1]["outputs"] == []


async def test_writing_what_is_no_notebook_is_done_and_said(tmp_path):
    bare = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code", "source": "1"}] * 9}
    bad, lacking, good, plain = await run(
        tmp_path, ("write", {"path": "a.ipynb", "content": "# not JSON"}),
        ("write", {"path": "bare.ipynb", "content": json.dumps(bare)}),
        ("write", {"path": "b.ipynb", "content": as_text()}), ("write", {"path": "c.json", "content": "{"}),
    )  # fmt: skip
    assert "a.ipynb was created. But Jupyter cannot open it as a notebook: it is broken JSON" in bad
    assert "not valid: cell 1 has no `metadata`, `outputs`, `execution_count`, `id`; cell 2 has no" in lacking
    assert "and 4 more such faults." in lacking
    assert good.strip() == "b.ipynb was created." and plain.strip() == "c.json was created."
    assert (tmp_path / "project" / "a.ipynb").read_text() == "# not JSON"


# --- the tool ----------------------------------------------------------------------------------------------------


async def test_the_tool_is_sent_once_a_notebook_was_read(tmp_path):
    script = calls(("read", {"path": "f.txt"}), READ, READ)
    async with went(tmp_path, script, files={"f.txt": "x\n", "n.ipynb": as_text()}) as r:
        assert ["edit_notebook" in r.tool_names(number) for number in (1, 2, 3, 4)] == [False, False, True, True]
        names = [tool["function"]["name"] for tool in r.request(4)["tools"]]
        assert names[-1] == "edit_notebook" and names.count("edit_notebook") == 1, "last: the prompt cache is kept"


async def test_a_mode_that_changes_nothing_has_no_tool_for_it(tmp_path):
    (text,) = await run(tmp_path, READ, mode="ask")
    assert text.startswith("[a notebook with 4 cells, Python 3]\n")
