"""What a turn has done by the program's own observation: what the model and the user are told of it whatever the model
says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.lazy import load
from acp_agent.safety.access import ExecuteAccess, PathAccess

if TYPE_CHECKING:
    from acp_agent.loop.calls.call import Call
    from acp_agent.undo.base import Change
    from acp_agent.undo.contents import Contents
    from acp_agent.undo.file_changes import FileChange

FILE_CHANGE = "acp_agent.undo.file_changes:file_change"
LATER = "acp_agent.undo.folder_looks:LATER"

MOST_NAMED = 5
"""Changed files that a command's result names."""
MOST_COUNTED = 3
"""Of these, with lines added and removed."""
MOST_BYTES = 200_000
"""Of a file whose lines are counted."""
MOST_SAID = 200
"""Characters of an error that are repeated."""
SHOWN_FOLDERS = frozenset((".github", ".agents", ".vscode"))
"""Hidden folders that are no cache."""
NO_FAULT = frozenset(("policy_blocked", "confirmation_required", "cancelled"))
"""Categories of failures that are somebody's decision."""

ALTERS = re.compile(
    r"\b(?:sed|perl|ruby)\b[^|;&]*\s-\w*i|\b(?:tee|rm|rmdir|mv|cp|ln|mkdir|touch|patch|truncate|install|dd|rename)\b"
    r"|\bgit\s+(?:apply|mv|rm|restore|checkout|stash)\b|\s-delete\b|(?<![-=<>&])>{1,2}(?![&>=])\s*(?!/dev/)\S"
)
"""A command line that is there to change files."""
DONE = (
    "added|changed|updated|created|renamed|replaced|fixed|removed|deleted|moved|written|edited|modified|implemented"
    "|inserted|appended|corrected|set|refactored"
)
CLAIMS = re.compile(
    rf"\bI(?:'ve| have|’ve)?(?: now| also| just| successfully)* (?:{DONE}|wrote)\b"
    rf"|\b(?:has|have|was|were|(?:is|are) now)(?: now| also| all)*(?: been)?(?: successfully)? (?:{DONE})\b",
    re.IGNORECASE,
)
"""Words that say that something was changed."""
FINISHED = re.compile(r"^\W*(?:all )?(?:done|finished|successfully)\b", re.IGNORECASE)
"""Words that say so after a prompt that wanted a change."""
WANTS = re.compile(
    r"\b(?:add|change|set|update|create|rename|replace|fix|remove|delete|move|write|edit|modify|implement|insert|append"
    r"|correct|refactor|convert)\b",
    re.IGNORECASE,
)
ASKS = re.compile(
    r"\?\s*$|^\W*(?:what|why|how|where|when|who|which|is|are|does|do|did|can|could|explain|describe|show|tell|summari[sz]e"
    r"|review|list|find|check)\b",
    re.IGNORECASE,
)
"""A prompt that is answered with words."""

NOTHING_CHANGED = "No file has been changed in this turn"
GO_ON = "[{}. Go on, or tell the user what is not done.]"


class TurnFacts:
    """Of one turn. Nothing is known of what ran where nobody looks (`unknown`)."""

    def __init__(self) -> None:
        self.changed: dict[Path, str] = {}
        """Files: `created`, `changed` or `deleted`."""
        self.failed = ""
        """The last call that was to change something, if it failed: its title, and why."""
        self.failures = 0
        self.unknown = False
        self.checked = False
        """Whether the model was told what it has not done."""

    def made(self, changes: Sequence[Change]) -> None:
        """By the turn's calls."""
        for change in changes:
            if (kind := _kind(change)) is None:
                continue
            if self.changed.get(change.path) == "created":
                if kind == "deleted":
                    del self.changed[change.path]
                continue
            self.changed[change.path] = kind

    def ended(self, call: Call, *, seen: bool) -> None:
        """`seen`: whether what our own tools change is known."""
        seen = seen if call.outcome.looked.done is None else call.outcome.looked.done
        outcome, ready = call.outcome, call.ready
        category = outcome.error.category if outcome.error is not None else outcome.category
        failed = outcome.failed or outcome.error is not None
        if category in NO_FAULT or outcome.cancelled:
            return
        self.failures += failed
        accesses = call.facts.accesses if call.facts is not None else ()
        if not failed and not seen and ready is not None and not ready.entry.reads_only:
            self.unknown = self.unknown or any(not isinstance(each, PathAccess) for each in accesses)
            for each in accesses:
                if isinstance(each, PathAccess) and each.mode != "read":
                    self.changed.setdefault(each.path, "changed")
        if meant_to_change(call):
            title = ready.description.title if ready is not None else call.name
            error = f": {str(outcome.error).splitlines()[0][:MOST_SAID]}" if outcome.error is not None else ""
            self.failed = f"{title}{error}" if failed else ""

    def unfinished(self, prompt: str, said: str) -> str:
        """What the model is told once at the end of a turn; empty if its words may be true."""
        if self.checked or self.unknown:
            return ""
        claims = not self.changed and not ASKS.search(prompt.strip()) and _claims(said, wanted=WANTS.search(prompt))
        if not self.failed and not claims:
            return ""
        self.checked = True
        return GO_ON.format(self.words)

    @property
    def words(self) -> str:
        """What was not done, for the model and the user."""
        failed = f"the last change failed: {self.failed}" if self.failed else ""
        if self.changed:
            return failed[:1].upper() + failed[1:]
        return "; ".join(filter(None, (NOTHING_CHANGED, failed)))

    def contradicts(self, said: str) -> str:
        """What the user is told at the end of a turn in which the model was told so and did no better."""
        return f"{self.words}." if self.checked and (self.failed or not self.changed) and not self.unknown else ""

    def as_json(self) -> dict[str, Any]:
        """For `_meta`."""
        files = [{"path": str(path), "change": kind} for path, kind in self.changed.items()]
        return {**({"files": files} if files else {}), **({"failedCalls": self.failures} if self.failures else {})}


def _claims(said: str, *, wanted: object) -> bool:
    return bool(CLAIMS.search(said) or (wanted and FINISHED.search(said)))


def _kind(change: Change) -> str | None:
    before, after = change.before.kind, change.after.kind if change.after is not None else "file"
    if {before, after} <= {"none", "dir"}:
        return None
    return "created" if before in ("none", "dir") else "deleted" if after in ("none", "dir") else "changed"


def meant_to_change(call: Call) -> bool:
    """Whether the call was there to change files."""
    if call.ready is None:
        return not re.search("read|list|find|search|grep|view|get|fetch|open", call.name)
    if call.ready.entry.kind in ("edit", "delete", "move"):
        return True
    accesses = call.facts.accesses if call.facts is not None else ()
    return any(isinstance(each, ExecuteAccess) and ALTERS.search(each.command) is not None for each in accesses)


def change_note(call: Call, contents: Contents) -> str:
    """What a command changed, for the model: `[changed: config.json +1 -1]`. Empty where there is nothing to say."""
    facts = call.facts
    commands = [each for each in facts.accesses if isinstance(each, ExecuteAccess)] if facts is not None else []
    if not commands or call.goes_on is not None or call.ready is None:
        return ""
    changes = {change.path: change for change in call.outcome.looked.changes}
    display = call.ready.calls.session.roots.display
    told = [
        each for _, each in sorted(changes.items()) if _kind(each) is not None and not _is_cache(display(each.path))
    ]
    if not told:
        return "[no file changed]" if not changes and meant_to_change(call) else ""
    words = dict[str, list[str]]()
    for number, change in enumerate(told[:MOST_NAMED]):
        kind = _kind(change)
        counted = _counted(change, contents) if number < MOST_COUNTED and kind == "changed" else ""
        words.setdefault(str(kind), []).append(display(change.path) + counted)
    more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    said = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in words.items())
    return f"[{said}{more}]"


def _counted(change: Change, contents: Contents) -> str:
    if change.after is None or max(change.before.size, change.after.size) > MOST_BYTES:
        return ""
    found: FileChange | None = load(FILE_CHANGE)(change.path, change.before, change.after, contents)
    return f" +{found.added} -{found.removed}" if found is not None and found.shown else ""


def _is_cache(shown: str) -> bool:
    later: frozenset[str] = load(LATER)
    return any(part in later or (part[:1] == "." and part not in SHOWN_FOLDERS) for part in Path(shown).parts[:-1])
