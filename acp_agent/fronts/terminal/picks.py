"""The agent's questions as picks: permissions and forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp_agent.fronts.headless import QUESTIONS
from acp_agent.fronts.terminal.call_lines import diff_lines, heading
from acp_agent.fronts.terminal.screens import CYAN, DIM, Pick, Picked, PickRow, TerminalStyle, wrapped
from acp_agent.fronts.view import command_of
from acp_agent.legible import legible
from acp_agent.protocol.client import QUESTION
from acp_agent.schema import acp

INSTEAD = "instead"
"""The row that rejects and takes the reason."""
KEYS = {"allow_once": "y", "allow_always": "a", "reject_once": "n"}
ORDER = ("allow_once", "allow_always", "reject_once", "reject_always")
OTHER = "other"
NO_ANSWER = acp.CreateElicitationResponse(action="decline")


def question_lines(request: acp.RequestPermissionRequest, style: TerminalStyle, width: int) -> list[str]:
    """What is asked about, whole, and why."""
    call = request.tool_call
    title = legible(call.title) if isinstance(call.title, str) else "A tool"
    command = legible(command_of(call.raw_input)).strip("\n")
    content = list(call.content) if isinstance(call.content, list) else []
    diffs = [item for item in content if isinstance(item, acp.Diff)]
    lines: list[str] = []
    if command:
        lines += [style.paint(CYAN, f"  {'$ ' if not number else '  '}{line}")
                  for number, line in enumerate(command.split("\n"))]  # fmt: skip
    for diff in diffs:
        lines += [f"  {heading(diff, style)}", *(f"  {line}" for line in diff_lines(diff, style))]
    if not lines:
        lines = [f"  {line}" for line in title.split("\n")]
    said = "\n".join([title, command])
    for item in content:
        if isinstance(item, acp.Content) and isinstance(item.content, acp.TextContent):
            text = legible(item.content.text).strip("`\n")
            if text.strip() and text.strip() not in said:
                shown = wrapped("\n".join(f"  {line}" for line in text.split("\n") if line.strip()), width)
                lines += [style.paint(DIM, line) for line in shown.split("\n")]
    return lines


def permission_pick(request: acp.RequestPermissionRequest) -> Pick:
    call = request.tool_call
    asks_model = (call.meta or {}).get(QUESTION) is True
    rows, used = [], set()
    ordered = request.options if asks_model else sorted(request.options, key=lambda each: ORDER.index(each.kind))
    for option in ordered:
        key = "" if asks_model or option.kind in used else KEYS.get(option.kind, "")
        used.add(option.kind)
        lasts = not asks_model and option.kind.endswith("_always")
        rows.append(PickRow(option.option_id, legible(option.name), key, lasts=lasts))
    start = 0
    if not asks_model:
        start = next((at for at, option in enumerate(ordered) if option.kind.startswith("reject")), 0)
        if any(option.option_id == "reject_once" for option in ordered):
            at = next(at for at, option in enumerate(ordered) if option.option_id == "reject_once")
            rows.insert(at + 1, PickRow(INSTEAD, "No, and say what to do instead", "i", words=True))
    kind = call.kind if isinstance(call.kind, str) else ""
    title = legible(str(call.title)) if asks_model else QUESTIONS.get(kind, "Allow this?")
    return Pick(title, rows, start, words="What should be done instead?")


def permission_outcome(picked: Picked) -> acp.RequestPermissionOutcome:
    if not picked.ids:
        return acp.CancelledPermissionOutcome()
    if picked.ids[0] == INSTEAD:
        return acp.SelectedPermissionOutcome(option_id="reject_once", meta={"reason": picked.words})
    return acp.SelectedPermissionOutcome(option_id=picked.ids[0])


# --- forms -------------------------------------------------------------------------------------------------------


def form_picks(form: acp.ElicitationFormMode) -> list[tuple[str, Pick]]:
    """A pick for each field; what may be added to choices in words is a row of theirs."""
    fields = dict(form.requested_schema.properties)
    other = isinstance(fields.get(OTHER), acp.StringPropertySchema) and len(fields) > 1
    picks = []
    for name, schema in fields.items():
        if other and name == OTHER:
            continue
        choices, several = _choices(schema)
        title = "Your answer:" if len(fields) - other == 1 else getattr(schema, "title", None) or name
        rows = [PickRow(value, legible(label)) for value, label in choices]
        if rows and other:
            rows.append(PickRow(OTHER, "Something else, in your own words", words=True))
        picks.append((name, Pick(title, rows, several=several, words=title if not rows else "In your own words")))
    return picks


def form_value(schema: Any, picked: Picked) -> acp.ElicitationContentValue | None:
    """The value of a field, as its schema wants it; None without one."""
    ids = [each for each in picked.ids if each != OTHER]
    match schema:
        case acp.MultiSelectPropertySchema():
            return ids or None
        case acp.BooleanPropertySchema():
            return ids[0] == "yes" if ids else None
        case acp.IntegerPropertySchema() | acp.NumberPropertySchema():
            try:
                return int(picked.words) if isinstance(schema, acp.IntegerPropertySchema) else float(picked.words)
            except ValueError:
                return None
    if ids and ids[0]:
        return ids[0]
    return picked.words if not _choices(schema)[0] and picked.words else None


def _choices(schema: Any) -> tuple[Sequence[tuple[str, str]], bool]:
    """Value and label of each, and whether several may be chosen."""
    match schema:
        case acp.StringPropertySchema(enum=list() as words):
            return [(word, word) for word in words], False
        case acp.StringPropertySchema(one_of=list() as options):
            return [(option.const, option.title) for option in options], False
        case acp.BooleanPropertySchema():
            return [("yes", "Yes"), ("no", "No")], False
        case acp.MultiSelectPropertySchema(items=acp.StringMultiSelectItems(enum=words)):
            return [(word, word) for word in words], True
        case acp.MultiSelectPropertySchema(items=acp.TitledMultiSelectItems(any_of=options)):
            return [(each.const, each.title) for each in options if isinstance(each, acp.EnumOption)], True
    return [], False
