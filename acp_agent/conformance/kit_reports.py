"""What a run found, as text, JSON, JUnit or HTML."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape, quoteattr

import msgspec

from acp_agent.conformance.kit_run import Result

MARKS = {"passed": "ok", "failed": "FAILED", "not here": "-"}


def line(result: Result) -> str:
    """One line for a person."""
    row = result.requirement
    level = row.level.upper() + ("*" if row.implied else "")
    why = f"\n        {result.why}" if result.why and result.outcome == "failed" else ""
    aside = f"  ({result.why})" if result.why and result.outcome != "failed" else ""
    return f"{MARKS[result.outcome]:7} {row.id:8} {level:8} {row.sentence[:90]}{aside}{why}"


def summary(results: Sequence[Result]) -> str:
    counts = Counter(each.outcome for each in results)
    failed = Counter(each.requirement.level for each in results if each.outcome == "failed")
    levels = (
        f" ({', '.join(f'{number} {level.upper()}' for level, number in sorted(failed.items()))})" if failed else ""
    )
    return f"{counts['passed']} passed, {counts['failed']} failed{levels}, {counts['not here']} not here"


def as_json(command: str, version: str, results: Sequence[Result]) -> str:
    about = {
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
    return msgspec.json.format(msgspec.json.encode(about)).decode() + "\n"


def as_junit(command: str, version: str, results: Sequence[Result]) -> str:
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
        area = each.requirement.id.partition("-")[0]
        cases.append(f'<testcase classname="acp.{area}" name={name} time="{each.seconds:.3f}">{inner}</testcase>')
    head = f'tests="{len(results)}" failures="{counts["failed"]}" skipped="{counts["not here"]}"'
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


def as_html(command: str, version: str, results: Sequence[Result]) -> str:
    rows = []
    for each in results:
        row = each.requirement
        level = row.level.upper() + ("*" if row.implied else "")
        wire = ""
        if each.lines:
            wire = f"<details><summary>The wire</summary><pre>{html.escape(chr(10).join(each.lines))}</pre></details>"
        why = f"<p>{html.escape(each.why)}</p>" if each.why else ""
        cells = (MARKS[each.outcome], row.id, level, f"{html.escape(row.sentence)}{why}{wire}")
        inner = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr class="{each.outcome.split()[-1]}">{inner}</tr>')
    title = html.escape(f"ACP conformance of {command} {version}".strip())
    head = "<tr><th></th><th>Id</th><th>Level</th><th>Requirement</th></tr>"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"<h1>{title}</h1><p>{summary(results)}</p><table>{head}{''.join(rows)}</table></html>\n"
    )


Report = Callable[[str, str, Sequence[Result]], str]
"""Of a command, its version and the results."""
REPORTS: dict[str, Report] = {
    "json": as_json,
    "junit": as_junit,
    "html": as_html,
}
