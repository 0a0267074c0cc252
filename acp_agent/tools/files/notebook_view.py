"""A notebook as the model reads it: cells with numbered lines, and short outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acp_agent.errors import ToolError
from acp_agent.output.profile import result_chars
from acp_agent.output.sanitize import sanitize_output
from acp_agent.tools.files.notebook import SUFFIX, Cell, Notebook, joined, parse, text_of, why_not
from acp_agent.tools.kit.text import around_change, keep_credentials, numbered
from acp_agent.tools.kit.tool_context import ToolContext, ToolResult

OUTPUT_CHARS = 2000
"""Characters of one output; the middle of a longer one is left out."""
LONGEST_WORD = 64
"""Characters of a name; that of an id in nbformat."""
LOOKED_AT = 50_000
"""Characters looked at, at each end of an output: its control characters come off before it is cut."""
MOST_OUTPUTS = 10
"""Outputs shown of one cell: the first ones."""

ROOM_FOR_FOOTER = 400
"""Characters of the first line and the last ones."""


def shown_notebook(
    notebook: Notebook, shown: str, ctx: ToolContext, *, offset: int | None, limit: int | None, remark: str
) -> ToolResult:
    """`limit` cells from `offset` (from 1), as many as there is room for."""
    count, first = len(notebook.cells), offset or 1
    how = ""
    if ctx.offer.bring("edit_notebook"):
        how = "; `edit_notebook` replaces, inserts and deletes cells, `edit` changes text in their sources"
    lines = [f"[a notebook with {count} cell{'s' if count != 1 else ''}{_language(notebook)}{how}]"]
    if first > max(count, 1):
        raise ToolError(f"{shown} has {count} cells; cell {first} does not exist.")
    room = max(result_chars(ctx.config) - ROOM_FOR_FOOTER - len(remark), 1)
    last = first - 1
    for number in range(first, min(count, first - 1 + (limit or count)) + 1):
        text = _shown_cell(notebook.cells[number - 1], number, room if number == first else None, ctx)
        room -= max(len(text), len(ctx.redactor.redact(text))) + 1  # The marks of credentials may be longer.
        if room < 0 and number > first:
            break
        lines.append(text)
        last = number
    if last < count:
        lines.append(f"[cells {first} to {last} of {count}; give offset {last + 1} for more]")
    if remark:
        lines.append(f"[{remark}]")
    return ToolResult("\n".join(lines))


def around_edit(path: Path, old: str, new: str, context: int) -> str:
    """As `around_change`; of a notebook the lines of every cell whose source has changed."""
    if why_not(path, old) or why_not(path, new) or path.suffix.lower() != SUFFIX:
        return around_change(old, new, context)
    before, after = parse(old), parse(new)
    if len(before.cells) != len(after.cells):
        return ""
    shown: list[str] = []
    for number, (was, cell) in enumerate(zip(before.cells, after.cells, strict=True), 1):
        if was.source != cell.source:
            shown += [_heading(cell, number), around_change(was.source, cell.source, context)]
            if was.get("outputs") and not cell.get("outputs"):
                shown.append("[its outputs were cleared]")
    return "\n".join(shown)


def keep_cell_credentials(ctx: ToolContext, shown: str, notebook: Notebook, new: str) -> None:
    """As `keep_credentials`: some are found in a source, but not where it is a JSON string."""
    for seen in (notebook.text, joined(notebook.sources)):
        keep_credentials(ctx, shown, seen, new)


def _language(notebook: Notebook) -> str:
    metadata = notebook.members.get("metadata")
    found = metadata.value if metadata is not None and isinstance(metadata.value, dict) else {}
    names = [
        part.get(key)
        for part, key in ((found.get("kernelspec"), "display_name"), (found.get("language_info"), "name"))
        if isinstance(part, dict)
    ]
    name = next((name for name in names if isinstance(name, str) and name), "")
    return f", {_word(name)}" if name else ""


def _heading(cell: Cell, number: int) -> str:
    known = f", id {_word(cell.id)}" if cell.id is not None else ""
    count = cell.get("execution_count")
    ran = f", execution count {count}" if cell.type == "code" and isinstance(count, int) else ""
    return f"[cell {number}{known}, {cell.type}{ran}]"


def _shown_cell(cell: Cell, number: int, room: int | None, ctx: ToolContext) -> str:
    """`room`: the most characters; outputs, then lines are left out."""
    source, longest = cell.source, ctx.config.files.max_line_chars
    lines = source.removesuffix("\n").split("\n") if source else []
    shown = [numbered(at, line, longest) for at, line in enumerate(lines, 1)]
    if room is not None and sum(map(len, shown)) + len(shown) > room:
        while len(shown) > 1 and sum(map(len, shown)) + len(shown) > room:
            del shown[max(1, len(shown) * 9 // 10) :]
        shown.append(f"[{len(lines) - len(shown)} more lines of this cell left out; see them with `bash`]")
        return "\n".join([_heading(cell, number), *shown])
    outputs = _outputs(cell) if cell.type == "code" else []
    if room is not None and sum(map(len, shown)) + sum(map(len, outputs)) + len(shown) + len(outputs) > room:
        outputs = [f"[{len(outputs)} lines of outputs left out]"]
    return "\n".join([_heading(cell, number), *shown, *outputs])


def _outputs(cell: Cell) -> list[str]:
    found = cell.get("outputs")
    outputs = [output for output in found if isinstance(output, dict)] if isinstance(found, list) else []
    lines = [line for output in outputs[:MOST_OUTPUTS] for line in _output(output)]
    if (more := len(outputs) - MOST_OUTPUTS) > 0:
        lines.append(f"[{more} more outputs]")
    return lines


def _output(output: Mapping[str, Any]) -> Sequence[str]:
    match output.get("output_type"):
        case "stream":
            return [f"[output {_word(output.get('name', 'stdout'))}]", _short(text_of(output.get("text", "")))]
        case "error":
            words = f"{output.get('ename', 'error')}: {output.get('evalue', '')}"
            return ["[output error]", _short(words)]
        case "execute_result" | "display_data":
            data = output.get("data")
            return _of_types(data) if isinstance(data, dict) else []
    return []


def _of_types(data: Mapping[str, Any]) -> list[str]:
    """Plain text, and what images there are; other forms are named only if there is neither."""
    lines: list[str] = []
    if (plain := data.get("text/plain")) is not None:
        lines += ["[output]", _short(text_of(plain))]
    for mime, value in data.items():
        if mime.startswith("image/"):
            text = text_of(value)
            packed = "".join(text.split())
            size = len(packed) * 3 // 4 - packed[-2:].count("=") if "xml" not in mime else len(text.encode())
            lines.append(f"[output {_word(mime)}, {size} bytes]")
    return lines or [f"[output {_word(mime)}, left out]" for mime in data]


def _word(text: object) -> str:
    """As it may stand in a line in brackets."""
    return " ".join(sanitize_output(str(text)[:LONGEST_WORD]).replace("[", "(").replace("]", ")").split())


def _short(text: str) -> str:
    """Without what acts on a terminal."""
    unread = max(len(text) - 2 * LOOKED_AT, 0)
    if unread:
        text = text[:LOOKED_AT] + text[-LOOKED_AT:]
    text = sanitize_output(text).strip("\n")
    if (more := unread + len(text) - OUTPUT_CHARS) > 0:
        half = OUTPUT_CHARS // 2
        text = f"{text[:half]}\n[... {more} characters left out ...]\n{text[-half:]}"
    return text
