"""What a run found, as text, JSON, JUnit or HTML."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from acp_conformance.kit_run import Result
from acp_conformance.tck import Tck, Theirs

MARKS = {"passed": "ok", "failed": "FAILED", "not here": "-"}


def line(result: Result) -> str:
    """One line for a person."""
    row = result.requirement
    level = row.level.upper() + ("*" if row.implied else "")
    why = f"\n        {result.why}" if result.why and result.outcome == "failed" else ""
    aside = f"  ({result.why})" if result.why and result.outcome != "failed" else ""
    same = f"  [{' '.join(result.tck)}]" if result.tck else ""
    return f"{MARKS[result.outcome]:7} {row.id:8} {level:8} {row.sentence[:90]}{same}{aside}{why}"


def their_line(row: Theirs, results: Sequence[Result]) -> str:
    """One line for a person: a requirement of acp-tck, and what ours says of it."""
    note = f"  ({row.note})" if row.note else ""
    why = f"\n        {row.why.partition(chr(10))[0][:300]}" if row.status == "FAIL" and row.why else ""
    return f"{row.status:10} {row.id:27} {beside(row, results):20}{note}{why}".rstrip()


def beside(row: Theirs, results: Sequence[Result]) -> str:
    """What ours says, and whether that differs."""
    mine = next((each for each in results if each.requirement.id == row.ours), None)
    if mine is None:
        return row.ours
    both = row.status in ("PASS", "FAIL") and mine.outcome != "not here"
    differs = both and (row.status == "FAIL") != (mine.outcome == "failed")
    return f"{row.ours} {MARKS[mine.outcome]}{' DIFFERS' if differs else ''}"


def summary(results: Sequence[Result]) -> str:
    counts = Counter(each.outcome for each in results)
    failed = Counter(each.requirement.level for each in results if each.outcome == "failed")
    levels = (
        f" ({', '.join(f'{number} {level.upper()}' for level, number in sorted(failed.items()))})" if failed else ""
    )
    return f"{counts['passed']} passed, {counts['failed']} failed{levels}, {counts['not here']} not here"


def as_json(command: str, version: str, results: Sequence[Result], theirs: Tck | None = None) -> str:
    about: dict[str, Any] = {
        "command": command,
        "version": version,
        "summary": dict(Counter(each.outcome for each in results)),
        "results": [
            {
                "id": each.requirement.id,
                "level": each.requirement.level,
                "implied": each.requirement.implied,
                "sentence": each.requirement.sentence,
                "page": each.requirement.page,
                "outcome": each.outcome,
                "why": each.why,
                "seconds": round(each.seconds, 3),
                "tck": list(each.tck),
                "wire": list(each.lines),
            }
            for each in results
        ],
    }
    if theirs is not None:
        rows = [{**msgspec.to_builtins(row), "beside": beside(row, results)} for row in theirs.rows]
        about["acp-tck"] = {"version": theirs.version, "failed": theirs.failed, "requirements": rows}
    return msgspec.json.format(msgspec.json.encode(about)).decode() + "\n"


def as_junit(command: str, version: str, results: Sequence[Result], theirs: Tck | None = None) -> str:
    """Of acp-tck's requirements those have failed that count."""
    counts = Counter(each.outcome for each in results)
    cases = []
    for each in results:
        name = quoteattr(f"{each.requirement.id} {each.requirement.sentence}")
        inner = ""
        if each.outcome == "failed":
            wire = escape("\n".join(each.lines))
            inner = f"<failure message={quoteattr(each.why)}>{wire}</failure>"
        elif each.outcome == "not here":
            inner = f"<skipped message={quoteattr(each.why)}/>"
        if each.tck:
            inner = f'<properties><property name="tck" value="{" ".join(each.tck)}"/></properties>{inner}'
        area = each.requirement.id.partition("-")[0]
        cases.append(f'<testcase classname="acp.{area}" name={name} time="{each.seconds:.3f}">{inner}</testcase>')
    for row in theirs.rows if theirs is not None else ():
        inner = "" if row.status == "PASS" else f"<skipped message={quoteattr(f'{row.status} {row.note} {row.why}')}/>"
        inner = f"<failure message={quoteattr(row.why)}/>" if row.counts else inner
        counts["failed"] += row.counts
        counts["not here"] += inner.startswith("<skipped")
        cases.append(f'<testcase classname="acp-tck" name={quoteattr(f"{row.id} {row.text}")}>{inner}</testcase>')
    head = f'tests="{len(cases)}" failures="{counts["failed"]}" skipped="{counts["not here"]}"'
    name = quoteattr(f"{command} {version}".strip())
    body = "\n".join(cases)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name={name} {head}>\n{body}\n</testsuite>\n'


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
:root { color-scheme: light dark }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .3rem .6rem; vertical-align: top }
tr { border-bottom: 1px solid #8884 } .failed td:first-child { color: #c00; font-weight: 600 } .here { opacity: .6 }
pre { overflow: auto; max-height: 30rem; background: #8881; padding: .6rem }
"""


def as_html(command: str, version: str, results: Sequence[Result], theirs: Tck | None = None) -> str:
    rows = []
    for each in results:
        row = each.requirement
        level = row.level.upper() + ("*" if row.implied else "")
        wire = ""
        if each.lines:
            wire = f"<details><summary>The wire</summary><pre>{html.escape(chr(10).join(each.lines))}</pre></details>"
        why = f"<p>{html.escape(each.why)}</p>" if each.why else ""
        ids = " ".join((f"<b>{row.id}</b>", *each.tck))
        cells = (MARKS[each.outcome], ids, level, f"{html.escape(row.sentence)}{why}{wire}")
        inner = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr class="{each.outcome.split()[-1]}">{inner}</tr>')
    title = html.escape(f"ACP conformance of {command} {version}".strip())
    head = "<tr><th></th><th>Id</th><th>Level</th><th>Requirement</th></tr>"
    beneath = ""
    if theirs is not None:
        inner = "".join(_their_row(row, beside(row, results)) for row in theirs.rows)
        beneath = f"<h2>acp-tck {html.escape(theirs.version)}</h2><table>{inner}</table>"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"<h1>{title}</h1><p>{summary(results)}</p><table>{head}{''.join(rows)}</table>{beneath}</html>\n"
    )


def _their_row(row: Theirs, ours: str) -> str:
    words = "".join(f"<p>{html.escape(text)}</p>" for text in (row.text, row.note, row.why) if text)
    inner = "".join(f"<td>{cell}</td>" for cell in (row.status, row.id, ours, words))
    return f'<tr class="{"failed" if row.counts else ""}">{inner}</tr>'


Report = Callable[[str, str, Sequence[Result], Tck | None], str]
"""Of a command, its version, the results, and those of acp-tck."""
REPORTS: dict[str, Report] = {
    "json": as_json,
    "junit": as_junit,
    "html": as_html,
}
