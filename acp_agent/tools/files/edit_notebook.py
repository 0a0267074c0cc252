"""`edit_notebook`: replace, insert or delete a cell of a Jupyter notebook."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from acp_agent.errors import ToolError
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.files import notebook as books
from acp_agent.tools.files.edit import Planned, apply, read_for_edit
from acp_agent.tools.files.notebook_view import keep_cell_credentials
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.text import changed_places, diff_of, need_expressible
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult


class EditNotebookParams(Params):
    path: str = Field(description="The notebook, absolute or relative to the working directory.")
    cell: int | str = Field(
        default="", description="Id or number (from 1) of the cell; with `insert` of the cell before the new one."
    )
    new_source: str = Field(default="", description="The whole new source of the cell.")
    cell_type: Literal["", "code", "markdown", "raw"] = Field(
        default="", description="Needed for `insert`; otherwise the type stays as it is."
    )
    edit_mode: Literal["replace", "insert", "delete"] = Field(default="replace", description="What to do.")

    @model_validator(mode="after")
    def _complete(self) -> EditNotebookParams:
        if self.edit_mode != "insert" and self.cell == "":
            raise ValueError(f"give the `cell` to {self.edit_mode}: its id or number")
        if self.edit_mode != "delete" and "new_source" not in self.model_fields_set:
            raise ValueError("give the `new_source`")
        if self.edit_mode == "insert" and not self.cell_type:
            raise ValueError("give the `cell_type` of the new cell")
        return self


class EditNotebook(PathTool[EditNotebookParams]):
    name = "edit_notebook"
    aliases = ("notebook_edit",)
    kind = "edit"
    touches = "write"

    def describe(self, params: EditNotebookParams, roots: Roots) -> Description:
        cell = str(params.cell)[:40]
        match params.edit_mode:
            case "insert":
                words = f"Insert a cell into {params.path}"
            case "delete":
                words = f"Delete cell {cell} of {params.path}"
            case "replace":
                words = f"Edit cell {cell} of {params.path}"
        return Description(words, (Location(roots.named(params.path)),))

    async def preview(self, params: EditNotebookParams, ctx: ToolContext) -> Preview:
        path = ctx.roots.resolve(params.path)
        version = await read_for_edit(ctx, path, params.path)
        old = version.text
        book = books.notebook_at(path, old, params.path)
        if book is None:
            why = books.why_not(path, old) or "is not named `.ipynb`"
            raise ToolError(
                f"{params.path} {why}: it has no cells to edit.",
                suggestion=f"Use `edit` or `write`. An empty notebook is {books.EMPTY}",
            )
        if ctx.memory.ledger.last_seen(path) is None:
            raise ToolError(
                f"You have not read {params.path}, so you do not know its cells.", suggestion="Read it first."
            )
        new = _changed(params, book)
        if new == old:
            raise ToolError("The cell already has this source and type; there is nothing to change.")
        need_expressible(version, params.path, new)
        keep_cell_credentials(ctx, params.path, book, new)
        # The diff is of the file, not of the cells: clients compare `oldText` and `newText` with what is at `path`.
        return Preview(
            (diff_of(path, old, new),), Planned(path, version, new), locations=changed_places(path, old, new)
        )

    async def run(self, params: EditNotebookParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        planned: Planned = preview.state
        lines = ctx.config.files.edit_context
        return await apply(planned, params.path, ctx, preview, context=lines, note=_done(params, planned))


def _index(params: EditNotebookParams, book: books.Notebook) -> int:
    """Of the cell that is named; -1 for a new one at the beginning."""
    if params.edit_mode == "insert" and str(params.cell).strip() in ("", "0"):
        return -1
    try:
        return books.find_cell(book, params.cell)
    except ValueError as error:
        raise ToolError(f"In {params.path} {error}.", "invalid_parameters") from error


def _changed(params: EditNotebookParams, book: books.Notebook) -> str:
    index = _index(params, book)
    match params.edit_mode:
        case "insert":
            return books.with_new_cell(book, index + 1, params.new_source, params.cell_type)
        case "delete":
            return books.without_cell(book, index)
    return books.with_cell(book, index, params.new_source, params.cell_type or book.cells[index].type)


def _done(params: EditNotebookParams, planned: Planned) -> str:
    """What has become of the numbers of cells."""
    index, after = _index(params, books.parse(planned.old or "")), books.parse(planned.new)
    count = len(after.cells)
    match params.edit_mode:
        case "delete":
            return f"Cell {index + 1} is gone; those after it have moved up by one, and there are {count} now."
        case "insert":
            known = f", id {new.id}" if (new := after.cells[index + 1]).id else ""
            return f"The new cell is number {index + 2}{known}; those after it have moved down by one: {count} in all."
    return ""
