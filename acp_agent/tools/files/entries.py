"""Shared by the tools that delete, move and copy whole entries: which entry a path names, what a call touches, what is
refused.

A path names the entry itself: a link is deleted, moved or copied as a link, whatever its target.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.executors.base import FileStat, Tally
from acp_agent.safety.access import Access, Deny, PathAccess
from acp_agent.safety.deciding.decide import judge_access
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.trees import Judged, Mode, TooMany, special_in
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.failures import not_there
from acp_agent.tools.kit.other_forms import renamed
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

if TYPE_CHECKING:
    from acp_agent.disk import Disk


class TransferParams(Params):
    source: str = Field(description="The file or folder, absolute or relative to the working directory.")
    destination: str = Field(description="The full new path, not the folder to put it in; missing folders are created.")
    overwrite: bool = Field(
        default=False, description="Replace what exists: a file with a file, or a whole folder with a folder."
    )


def not_a_root(roots: Roots, text: str) -> Path:
    """The entry. Raises ToolError for a session folder and anything above it."""
    path = roots.entry(text)
    if roots.holds_root(path):
        raise ToolError(
            f"{text} is a session folder or contains one, so it is not deleted, moved or replaced.",
            "policy_blocked",
            suggestion="Name the files and folders in it that you mean.",
        )
    return path


def delete_access(path: Path, roots: Roots, config: ToolsConfig) -> list[Access]:
    """What is deleted there, with everything special that is in it or that it stands for."""
    return [PathAccess("delete", path), *_special(path, [("delete", path)], roots, config)]


def transfer_access(
    source: Path, destination: Path, overwrite: bool, moves: bool, roots: Roots, config: ToolsConfig
) -> list[Access]:
    """What is read or deleted at the source, written at `destination`, and deleted there, with everything special in
    each."""
    leaves: Mode = "delete" if moves else "read"
    accesses: list[Access] = [PathAccess(leaves, source), PathAccess("write", destination)]
    accesses += _special(source, [(leaves, source), ("write", destination)], roots, config)
    if overwrite and _is_folder(destination, roots.disk):
        accesses += delete_access(destination, roots, config)
    return accesses


def _special(path: Path, places: list[tuple[Mode, Path]], roots: Roots, config: ToolsConfig) -> list[PathAccess]:
    most = config.files.max_tree_entries
    try:
        return special_in(path, places, roots.rules, most)
    except TooMany:
        raise ToolError(
            f"{roots.display(path)} contains more than {most} entries, too many to handle at once. "
            "Take its folders one by one, or use `bash`."
        ) from None


def _is_folder(path: Path, disk: Disk) -> bool:
    return disk.kind(path) == "dir" and not disk.is_link(path)


def need_allowed(accesses: Iterable[Access], ctx: ToolContext) -> None:
    """Raises ToolError if one of them is denied whatever the user says: hidden files, and the agent's own."""
    for access in accesses:
        if isinstance(access, PathAccess) and ctx.roots.rules.hides(access.path):
            verdict = judge_access(access, ctx.roots, ctx.call.mode, True)
            raise ToolError(
                f"{verdict.reason} So the call was not run." if isinstance(verdict, Deny) else str(access.path),
                "policy_blocked",
                suggestion="Name what you need piece by piece, without these files.",
            )


async def need_entry(ctx: ToolContext, path: Path, shown: str) -> FileStat:
    found = await ctx.files.stat(path)
    if found is None:
        raise not_there(shown)
    return found


async def need_saved(ctx: ToolContext, path: Path, found: FileStat) -> None:
    """Raises ToolError if the editor has unsaved text of the file (or of one the model has seen below the folder): it
    would be lost, or saved to a path that no longer exists."""
    if found.kind == "dir":
        for known in ctx.memory.ledger.seen_below(path):
            inner = await ctx.files.stat(known)
            if inner is not None and inner.kind == "file":
                await need_saved(ctx, known, inner)
        return
    limit = ctx.config.files.max_read_bytes
    if found.kind != "file" or found.size > limit:
        return
    try:
        shown = (await ctx.files.read(path)).text
        saved = (await ctx.files.read_bytes(path, limit)).decode("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return
    if _plain(shown) != _plain(saved):
        raise ToolError(
            f"{ctx.roots.display(path)} has unsaved changes in the editor. Ask the user to save it first; "
            "nothing was done."
        )


def _plain(text: str) -> str:
    """Removes what editors leave out of the text they return: byte order marks and the kind of line ends."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


# --- move and copy --------------------------------------------------------------------------------------------


class Transfer(Tool[TransferParams]):
    """Base of `copy_path` and `move_path`."""

    verb: ClassVar[str]
    """First word of the title."""
    done: ClassVar[str]
    """Verb in the sentence that reports the result."""

    def from_other_form(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return renamed(arguments)

    def describe(self, params: TransferParams, roots: Roots) -> Description:
        places = (Location(roots.named(params.source)), Location(roots.named(params.destination)))
        return Description(f"{self.verb} {params.source} to {params.destination}", places)

    def paths(self, params: TransferParams, roots: Roots) -> tuple[Path, Path]:
        """Source and destination. Raises ToolError if one must not be used or replaced."""
        source = not_a_root(roots, params.source) if self.kind == "move" else roots.entry(params.source)
        return source, not_a_root(roots, params.destination)

    def access(self, params: TransferParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        source, destination = self.paths(params, roots)
        return transfer_access(source, destination, params.overwrite, self.kind == "move", roots, config)

    async def preview(self, params: TransferParams, ctx: ToolContext) -> Preview:
        source, destination = self.paths(params, ctx.roots)
        await check_transfer(params, source, destination, ctx)
        accesses = self.access(params, ctx.roots, ctx.shell.cwd(), ctx.config)
        need_allowed(accesses, ctx)
        state = source, destination, Judged(accesses, ctx.roots.rules)
        return Preview(state=state, accesses=tuple(accesses))

    async def run(self, params: TransferParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        source, destination, judged = preview.state
        await check_transfer(params, source, destination, ctx)
        moves, most = self.kind == "move", ctx.config.files.max_tree_entries
        transfer = ctx.files.move if moves else ctx.files.copy
        try:
            tally = await transfer(source, destination, overwrite=params.overwrite, max_entries=most, judged=judged)
        finally:
            # What the model has seen of files that are replaced, or gone.
            for path in (source, destination) if moves else (destination,):
                ctx.memory.ledger.forget_below(path)
        return told(f"{params.source} was {self.done} to {params.destination}", tally)


async def check_transfer(params: TransferParams, source: Path, destination: Path, ctx: ToolContext) -> None:
    """Raises ToolError for what cannot be done, before the user is asked."""
    found = await need_entry(ctx, source, params.source)
    if source == destination:
        raise ToolError("`source` and `destination` are the same path.", "invalid_parameters")
    if source in destination.parents:
        raise ToolError(f"{params.destination} is inside {params.source}.", "invalid_parameters")
    if destination in source.parents:
        raise ToolError(f"{params.destination} contains {params.source}, so it cannot be replaced with it.")
    await need_saved(ctx, source, found)
    taken = await ctx.files.stat(destination)
    if taken is None or await _other_spelling(source, destination, ctx):
        return
    if taken.kind == "dir" and found.kind != "dir":
        inside = f"{params.destination.rstrip('/')}/{source.name}"
        raise ToolError(
            f"{params.destination} is a folder, which is not replaced with a file.",
            suggestion=f"Give the full new path: {inside}",
        )
    if taken.kind != "dir" and found.kind == "dir":
        raise ToolError(f"{params.destination} is a file, which is not replaced with a folder.")
    if not params.overwrite:
        raise ToolError(
            f"{params.destination} already exists.", suggestion="Give another path, or set `overwrite` to replace it."
        )
    await need_saved(ctx, destination, taken)


async def _other_spelling(source: Path, destination: Path, ctx: ToolContext) -> bool:
    """Whether the destination is the source itself, on a case-insensitive disk."""
    if source.parent != destination.parent or source.name.casefold() != destination.name.casefold():
        return False
    return destination.name not in [name for name, _ in (await ctx.files.list(source.parent)).entries]


def told(words: str, tally: Tally) -> ToolResult:
    raw = {"files": tally.files, "folders": tally.folders, "links": tally.links, "bytes": tally.bytes}
    return ToolResult(f"{words} ({tally}).", raw_output=raw)
