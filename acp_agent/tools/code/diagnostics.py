"""`diagnostics`: run the project's checkers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
from msgspec import Struct
from msgspec.structs import asdict, replace
from pydantic import Field, PrivateAttr

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.executors.base import Command, ExitStatus
from acp_agent.lsp.uris import path_of
from acp_agent.safety.access import Access, ExecuteAccess, PathAccess
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.code.diagnostics_checkers import Check, Kind, choose, looked_for
from acp_agent.tools.code.diagnostics_parsers import Diagnostic, Severity, plain
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.failures import not_there
from acp_agent.tools.kit.positions import columns, documents_of
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

OUTPUT_LIMIT = 33_554_432
"""Bytes of a report, which cannot be parsed if truncated."""

LAST_LINES = 10
MOST_LOCATIONS = 10

NOT_FOUND = 127
"""The shell's exit code for a missing program."""

NAMES = {"error": "error", "warning": "warning", "info": "note"}
ORDER = {"error": 0, "warning": 1, "info": 2}
QUIET = {"NO_COLOR": "1", "FORCE_COLOR": "0", "CARGO_TERM_COLOR": "never"}


class DiagnosticsParams(Params):
    source: Literal["checkers", "lsp"] = Field(
        default="checkers", description="`checkers`: run the project's programs; `lsp`: ask the language servers."
    )
    kind: Kind = Field(default="auto", description="The checker; `auto` uses those the project is configured for.")
    path: str | None = Field(default=None, description="Only this file or folder; default: the working directory.")
    max_diagnostics: int | None = Field(default=None, ge=1, description="Maximum number; default 50.")
    _declared: tuple[Check, ...] | None = PrivateAttr(default=None)
    """The checks declared by `access`: these are shown to the user, and nothing else is run, even if files change
    later."""


class _Report(Struct):
    """The combined results of all checks."""

    found: list[Diagnostic] = []
    warnings: list[str] = []
    finished: list[str] = []
    """The checkers whose report is complete."""
    failed: bool = False
    """Whether a checker crashed or was stopped."""


class Diagnostics(Tool[DiagnosticsParams]):
    name = "diagnostics"
    verbatim = True
    kind = "read"
    idempotent = True

    def describe(self, params: DiagnosticsParams, roots: Roots) -> Description:
        if params.source == "lsp":
            where = () if params.path is None else (Location(roots.named(params.path)),)
            return Description(
                f"Diagnostics from the language servers{f' for {params.path}' if params.path else ''}", where
            )
        try:
            path = None if params.path is None else roots.resolve(params.path)
            lines = [check.line for check in choose(params.kind, path, roots)]
        except (ToolError, OSError, ValueError):
            lines = []
        where = () if params.path is None else (Location(roots.named(params.path)),)
        return Description("; ".join(lines) or f"Diagnostics ({params.kind})", where)

    def access(self, params: DiagnosticsParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        """Every command line that may run, and the folders read, so that a remembered result is tied to them."""
        accesses: list[Access] = []
        if params.source == "lsp":
            return [PathAccess("read", roots.cwd if params.path is None else roots.resolve(params.path))]
        params._declared = tuple(_checks(params, roots))
        for check in params._declared:
            accesses += [ExecuteAccess(line, check.cwd) for line in check.lines]
            accesses.append(PathAccess("read", check.cwd))
        return accesses

    async def preview(self, params: DiagnosticsParams, ctx: ToolContext) -> Preview:
        if params.source == "lsp":
            if params.kind != "auto":
                raise ToolError(
                    "`kind` names a checker, so it cannot be given with the source `lsp`.", "invalid_parameters"
                )
            return Preview()
        checks = tuple(_checks(params, ctx.roots)) if params._declared is None else params._declared
        lines = "\n".join(check.line for check in checks)
        return Preview((Content(content=TextContent(text=f"```\n{lines}\n```")),), checks)

    async def run(self, params: DiagnosticsParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        report = _Report()
        most = ctx.config.diagnostics.max_diagnostics
        if params.source == "lsp":
            await _ask_servers(params.path, ctx, report)
            return _result(report, min(params.max_diagnostics or most, most), ctx.roots)
        only = None if params.path is None else ctx.roots.resolve(params.path)
        checks: tuple[Check, ...] = preview.state
        asked = {(line, check.cwd) for check in checks for line in check.lines}
        now = {(line, check.cwd) for check in _checks(params, ctx.roots) for line in check.lines}
        if not now <= asked:
            raise ToolError(
                "Nothing was run: the project changed in the meantime; call it again. Now it would run "
                + ", ".join(f"`{line}`" for line, _ in sorted(now - asked))
                + ", which has not been allowed."
            )
        for check in checks:
            await _run(check, only, ctx, report)
        return _result(report, min(params.max_diagnostics or most, most), ctx.roots)


def _checks(params: DiagnosticsParams, roots: Roots) -> list[Check]:
    path = None if params.path is None else roots.resolve(params.path)
    if path is not None and not path.exists():
        raise not_there(params.path)
    checks = choose(params.kind, path, roots)
    if not checks:
        raise ToolError(
            f"No configured checker was found here; looked for {looked_for()}.",
            suggestion="Give `kind`, or run the project's own check with `bash`.",
        )
    return checks


async def _run(check: Check, only: Path | None, ctx: ToolContext, report: _Report) -> None:
    name = check.checker.name
    code, text, cut = await _output(check.line, check, ctx)
    older = check.checker.older
    if code == 2 and older is not None and check.older_line is not None:
        refused = any(older[1] in line and "unrecognized" in line for line in text.splitlines())
        if refused:
            code, text, cut = await _output(check.older_line, check, ctx)
    if code == NOT_FOUND or any(words in text for words in check.checker.absent):
        report.warnings.append(f"{name} was not run: `{check.line.split(' --')[0]}` is not installed.")
        return
    if code is None:
        report.failed = True
        report.warnings.append(f"{name} did not finish, so the following is incomplete.{_last(text)}")
    parsed = check.checker.parse(text)
    placed = [replace(item, file=_placed(item.file, check.cwd, ctx.roots), source=name) for item in parsed or ()]
    if code is not None:
        if _understood(check, code, parsed):
            report.finished.append(name)
        else:
            report.failed = True
            report.warnings.append(f"{name} failed (exit code {code}), so its results are incomplete.{_last(text)}")
    if cut:
        report.failed = True
        report.warnings.append(f"{name} printed more than {OUTPUT_LIMIT} bytes; some of it is missing.")
    report.found += [
        item
        for item in placed
        if (only is None or _below(item.file, only, ctx.roots)) and not _hidden(item.file, ctx.roots)
    ]


def _understood(check: Check, code: int, parsed: Sequence[Diagnostic] | None) -> bool:
    """Whether there is a report and it explains the exit code."""
    if parsed is None or code == 0:
        return parsed is not None
    return any(item.severity == "error" for item in parsed) or (check.checker.lints and code == 1 and bool(parsed))


async def _output(line: str, check: Check, ctx: ToolContext) -> tuple[int | None, str, bool]:
    """The exit code (`None`: it was killed, by us or another), its output, and whether some of that is missing."""
    command = Command(
        line, check.cwd, env=QUIET, output_limit=OUTPUT_LIMIT, state_file=ctx.shell.state, keeps_state=False
    )
    process = await ctx.call.start(command)
    status = ExitStatus()
    with anyio.move_on_after(ctx.config.diagnostics.timeout) as scope:
        status = await process.wait()
    if scope.cancelled_caught:
        await process.kill()
        status = ExitStatus()
    return status.exit_code, plain(ctx.redactor.redact(f"{process.stdout}\n{process.stderr}")), process.truncated


def _last(text: str) -> str:
    """The end of the output, without a report's long lines."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(('{"', "[{"))]
    return " Its last lines:\n" + "\n".join(line[:300] for line in lines[-LAST_LINES:]) if lines else ""


def _placed(file: str, cwd: Path, roots: Roots) -> str:
    """The file relative to the working directory. A program may name it relative to a folder above the one it ran in
    (cargo: that of the workspace)."""
    if not file:
        return ""
    base = next((base for base in (cwd, *cwd.parents) if roots.contains(base) and (base / file).exists()), cwd)
    return roots.display(Path(os.path.normpath(base / file)))


def _hidden(file: str, roots: Roots) -> bool:
    """Whether it concerns a file that must not be read: checkers quote lines."""
    if not file or not roots.rules.hides_any:
        return False
    try:
        return roots.rules.hides(real_path(roots.cwd / file))
    except (OSError, RuntimeError, ValueError):
        return True


def _below(file: str, only: Path, roots: Roots) -> bool:
    path = roots.cwd / file
    return not file or path == only or only in path.parents


SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning"}


async def _ask_servers(shown: str | None, ctx: ToolContext, report: _Report) -> None:
    """Asks the language servers about a file, the files of a folder, or those the model has seen."""
    documents, left_out = await documents_of(shown, ctx)
    if not documents:
        raise ToolError(
            f"No file in {shown or 'the working directory'} is in a language with an installed server.",
            "invalid_parameters",
        )
    found = await ctx.languages.diagnostics(documents)
    texts = {document.path: document.text.split("\n") for document in documents}
    for file in found.items:
        if (path := path_of(file.uri)) is None or _hidden(name := ctx.roots.display(path), ctx.roots):
            continue
        lines = texts.get(path, [])
        for item in file.diagnostics:
            start = item.range.start
            column = columns(lines[start.line], start) if start.line < len(lines) else start.character + 1
            severity = SEVERITIES.get(item.severity, "info")
            code = "" if item.code is None else str(item.code)
            report.found.append(Diagnostic(severity, item.message, name, start.line + 1, column, code, item.source))
    report.finished += found.sources
    report.warnings += found.trouble
    if left_out:
        report.warnings.append(f"{left_out} more files were not checked; give a narrower `path`.")
    report.failed = not found.sources and bool(found.trouble)


# --- messages -------------------------------------------------------------------------------------------------


def _result(report: _Report, most: int, roots: Roots) -> ToolResult:
    ordered = sorted(
        dict.fromkeys(report.found), key=lambda item: (ORDER[item.severity], item.file, item.line or 0, item.col or 0)
    )
    shown, left_out = ordered[:most], max(0, len(ordered) - most)
    lines = [_summary(ordered, report)] if ordered or report.finished else []
    lines += [_line(item) for item in shown]
    if left_out:
        lines.append(f"[{left_out} more are not shown]")
    lines += report.warnings
    places = dict.fromkeys(Location(roots.cwd / item.file, item.line) for item in shown if item.file)
    raw: dict[str, Any] = {
        "diagnostics": [asdict(item) for item in shown],
        "warnings": report.warnings,
        "truncated": left_out,
    }
    return ToolResult(
        "\n".join(lines),
        raw_output=raw,
        locations=tuple(places)[:MOST_LOCATIONS] or None,
        failed=report.failed,
        keep=not report.warnings,
    )


def _summary(found: Sequence[Diagnostic], report: _Report) -> str:
    by = ", ".join(report.finished or dict.fromkeys(item.source for item in found))
    if not found:
        return f"No problems found by {by}."
    counts = Counter[str](item.severity for item in found)
    words = [f"{counts[key]} {name}{'s' if counts[key] > 1 else ''}" for key, name in NAMES.items() if counts[key]]
    return f"{', '.join(words)} ({by}):"


def _line(item: Diagnostic) -> str:
    place = ":".join(str(part) for part in (item.file, item.line, item.col) if part)
    code = f"[{item.code}]" if item.code else ""
    head = " ".join(part for part in (place, f"{item.severity}{code}") if part)
    return f"{head}: " + item.message.replace("\n", "\n    ")
