"""What a turn has done by the program's own observation: what the model and the user are told of it whatever the model
says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.lazy import load, pattern
from acp_agent.safety.access import ExecuteAccess, NoAccess, PathAccess
from acp_agent.tools.kit.other_forms import ENDS

if TYPE_CHECKING:
    from acp_agent.llm.base import ToolDefinition, ToolUse
    from acp_agent.loop.calls.call import Call
    from acp_agent.safety.lines.examined import Examined, Part
    from acp_agent.undo.base import Change
    from acp_agent.undo.contents import Contents
    from acp_agent.undo.file_changes import FileChange

EXAMINE = "acp_agent.safety.lines.examine:examine"
FILE_CHANGE = "acp_agent.undo.file_changes:file_change"
SHOWN_CALL = "acp_agent.llm.lacks.written_calls:shown_call"
LATER = "acp_agent.undo.folder_looks:LATER"

MOST_NAMED = 5
"""Changed files that a command's result names."""
MOST_TOLD = 200
"""Changed files that the client is told of."""
MOST_COUNTED = 3
"""Of these, with lines added and removed."""
MOST_BYTES = 200_000
"""Of a file whose lines are counted."""
MOST_ASKED = 500
"""Characters of the prompt that are repeated to the model: what stands last is what a small one heeds."""
MOST_SHOWN = 3
"""Calls that words only show, and that are made, in a turn."""
MOST_SAID = 200
"""Characters of an error that are repeated."""
SHOWN_FOLDERS = frozenset((".github", ".agents", ".vscode"))
"""Hidden folders that are no cache."""
NO_FAULT = frozenset(("policy_blocked", "confirmation_required", "cancelled"))
"""Categories of failures that are somebody's decision."""

ALTERS = frozenset("tee rm rmdir mv cp ln mkdir patch truncate dd rename".split())
ALTERS_GIT = frozenset("apply mv rm restore checkout stash".split())
ALTERS_BY = {
    **dict.fromkeys(("sed", "perl", "ruby"), pattern(r"-[npErlswz0-9]*i|--in-place")),
    "find": pattern("-delete$"),
}
"""Programs that are there to change files, and those that are with such an argument."""
PLAIN = ALTERS | {"cat", "echo", "printf", "find"}
"""Programs that change nothing but files which their arguments name."""
DONE = (
    "added|changed|updated|created|renamed|replaced|fixed|removed|deleted|moved|written|edited|modified|implemented"
    "|inserted|appended|corrected|set|refactored"
)
CLAIMS = pattern(
    rf"\bI(?:'ve| have|’ve)?(?: now| also| just| successfully)* (?:{DONE}|wrote)\b(?! (?:nothing|no)\b)"
    rf"|\b(?:has|have|was|were|(?:is|are) now)(?: now| also| all)*(?: been)?(?: successfully)? (?:{DONE})\b"
    rf"|^\W*(?!set\b)(?:{DONE}|wrote)(?: successfully)? (?:the|an?|all|both|it|its|this|these|your|\d+)\b",
    re.IGNORECASE,
)
"""Words that say that something was changed."""
NO_CLAIM = pattern(
    r"\b(?:no|not|nothing|none|never|neither|if|once|when|after|before|until|unless|which|that|who|should)\b|n't\b",
    re.IGNORECASE,
)
"""Words after which, in a sentence, they do not."""
INVENTED = pattern(r"\bI(?:'ve| have|’ve)?(?: now| just)? (?:called|ran|run|executed|searched)\b", re.IGNORECASE)
"""Words that say that a tool was called."""
FINISHED = pattern(r"^\W*(?:all )?(?:done|finished|successfully)\b", re.IGNORECASE)
"""Words that say so of the whole."""
ADVISES = pattern(
    r"^ {0,3}```|\byou (?:(?:will|would) )?(?:can|could|should|must|may|need to|have to) "
    r"|\bfollowing (?:command|code)\b",
    re.IGNORECASE | re.MULTILINE,
)
"""Words by which the user is to do what was asked for."""
ANNOUNCES = pattern(
    r"\W*(?:(?:now|next|then|first|ok(?:ay)?|so|and|to \w[^,]{,80},)\W+)*"
    r"(?:I(?:[’']ll| will| am going to|[’']m going to)|let me|let[’']s)\b(?! (?:not|never|know|wait|be|stop|leave)\b)",
    re.IGNORECASE,
)
"""A sentence that says what comes next."""
LATER_ON = pattern(
    r"\b(?:once|when|after|until|unless|if (?:you|needed|necessary|so|that|it|there|the user))\b|\?\W*$", re.IGNORECASE
)
"""Words with which it may be the last one."""
WANTS = pattern(
    r"\b(?:add|change|set|update|create|rename|replace|fix|remove|delete|move|write|edit|modify|implement|insert|append"
    r"|correct|refactor|convert|make"
    r"|put|sort|copy|give|call|split|merge|swap|extract|should|must|needs?|go (?:on|ahead)"
    r"|continue|proceed|do (?:it|so|that)|yes|try again)\b",
    re.IGNORECASE,
)
"""A prompt that wants a change."""
FILE_WORD = pattern(r"\w[./]\w|`|\b(?:files?|folders?|functions?|lines?|class(?:es)?|tests?)\b", re.IGNORECASE)
"""What a prompt that wants files changed speaks of,"""
WORDS_TOO = pattern(
    r"\b(?:tell|show|say|summar\w+|reports?|print|explain|describe|overview|answer|add up|count|how|what|which|why)\b",
    re.IGNORECASE,
)
"""and what it wants besides, or in its place."""
ASKS = pattern(
    r"\?\s*$|^\W*(?:(?:please|now|ok(?:ay)?|and|so|then|thanks?|thank you|hi|hello)\b\W*)*(?:what|why|how|where"
    r"|when|who|which|is|are|does|did|can|could|explain|describe|show|tell|summari[sz]e|review|list|find|check)\b"
    r"|(?:\bnot|n't|\bnever|\bwithout)(?: to)? (?:chang|edit|modify|touch)"
    r"|^\W*(?:please )?(?:write|draft|compose|make)(?: \w+){0,4} (?:haiku|poem|joke|story|message|summary|e?mail|letter"
    r"|text|sentence|explanation|description|answer|regex|query|list)\b(?!.*(?:\bfile\b|\w[./]\w))",
    re.IGNORECASE,
)
"""A prompt that is answered with words."""

FIRST_SENTENCE = pattern(r"[.:]?(?:\s*\n|(?<=[.:])\s|$)")
"""Where the first sentence of an error ends: what comes after it is for the model."""
NOTHING_CHANGED = "No file has been changed in this turn"
GO_ON = "[{}. Go on, or tell the user what is not done. {}]"
CALL_NOW = "[{}. Answer with a tool call, or tell the user what is not done. {}]"
NOT_DONE_YET = "[Answer with a tool call, or tell the user what you did and found. {}]"
ASKED = "The user asked: {}"


class TurnFacts:
    """Of one turn."""

    def __init__(self) -> None:
        self.changed: dict[Path, str] = {}
        """Files: `created`, `changed` or `deleted`."""
        self.failed = ""
        """The last call that was to change something, if it failed: its title, and why."""
        self.advice = ""
        """What is to be sent instead of it, if that is known."""
        self.failures = 0
        self.unknown = False
        """Whether something may have been done that nobody looks at: in other folders, by a server, in a sub-agent."""
        self.blind = False
        """Whether that may have been in the session's folders."""
        self.checked = False
        """Whether the model was told what it has not done."""
        self._shown_left = 0
        """Calls that are made though its words only show them: it was told to make one."""
        self.idle_words = False
        """Whether the last words were only of what comes next or what the user could do: the model need not read them
        again, and a small one would say them again."""
        self._wanted = False
        """Whether the prompt wants a change."""

    def made(self, changes: Sequence[Change]) -> None:
        """By the turn's calls."""
        for change in changes:
            if (kind := change.how) is None:
                continue
            if self.changed.get(change.path) == "created":
                if kind == "deleted":
                    del self.changed[change.path]
                continue
            self.changed[change.path] = kind

    def ended(self, call: Call, *, seen: bool, below: bool) -> None:
        """`seen`: whether what our own tools change is known. `below`: by a sub-agent."""
        outcome, ready = call.outcome, call.ready
        category = outcome.error.category if outcome.error is not None else outcome.category
        failed = outcome.failed or outcome.error is not None
        means = not below and meant_to_change(call)
        if category in NO_FAULT or outcome.cancelled:
            self.failed = "" if means else self.failed
            self.unknown = self.unknown or means  # Somebody wanted it undone.
            return
        accesses = call.facts.accesses if call.facts is not None else ()
        commands = any(isinstance(each, ExecuteAccess) for each in accesses)
        done = ready is not None and not ready.entry.reads_only and (commands or not failed)
        unseen = done and not _all_seen(call) and any(not isinstance(each, PathAccess | NoAccess) for each in accesses)
        self.unknown = self.unknown or unseen
        self.blind = self.blind or (unseen and not (outcome.looked.done and outcome.looked.whole))
        if done and not seen:
            for each in accesses:
                if isinstance(each, PathAccess) and each.mode != "read":
                    self.changed.setdefault(each.path, "changed")
        if below:
            return
        self.failures += failed
        if means:
            title = ready.description.title if ready is not None else call.use.name
            error = (
                f": {FIRST_SENTENCE.split(str(outcome.error), 1)[0][:MOST_SAID]}" if outcome.error is not None else ""
            )
            self.failed = f"{title}{error}" if failed and not outcome.looked.changes else ""
            self.advice = outcome.error.suggestion or "" if outcome.error is not None else ""
        elif not failed and (unseen or outcome.looked.changes):
            self.failed = ""  # It may have been done so.

    def unfinished(self, prompt: str, said: str, *, small: bool = False, first: bool = False) -> str:
        """What the model is told once at the end of a turn; empty if its words may be true. `small`: whether its
        context is, and so mostly the model: it ends without a change or a question, and tells of calls that it did not
        make. `first`: whether the conversation has no call."""
        asked = ASKS.search(prompt.strip()) is not None
        self._wanted = WANTS.search(prompt) is not None and not asked
        idle = self._wanted and not self.changed and not (self.blind if small else self.unknown)
        announced = _announces(said)
        short = small and len(said) <= MOST_ASKED
        self.idle_words = announced or (idle and (short or ADVISES.search(said) is not None))
        ends = short and "?" not in said and FILE_WORD.search(prompt) is not None and WORDS_TOO.search(prompt) is None
        claims = idle and (announced or ADVISES.search(said) is not None or _claims(said) or ends)
        invented = small and first and INVENTED.search(said) is not None
        if self.checked or not (self.failed or claims or ((asked or self._wanted) and announced) or invented):
            return ""
        self.checked, self._shown_left = True, MOST_SHOWN
        again = ASKED.format(prompt.strip()[:MOST_ASKED])
        if invented:
            self.idle_words = True
            return CALL_NOW.format("No tool has been called in this turn", again)
        if not (self.failed or idle):
            return NOT_DONE_YET.format(again)
        words = f"{self.words}. {self.advice}".removesuffix(".") if self.failed and self.advice else self.words
        return (CALL_NOW if self.idle_words else GO_ON).format(words, again)

    def shown(self, said: str, tools: Sequence[ToolDefinition]) -> ToolUse | None:
        """The call to make of those that the words only show."""
        found: ToolUse | None = load(SHOWN_CALL)(said, tools) if self._shown_left else None
        self._shown_left -= found is not None
        return found

    @property
    def words(self) -> str:
        """What was not done, for the model and the user."""
        failed = f"the last change failed: {self.failed}" if self.failed else ""
        if self.changed or self.unknown:
            return failed[:1].upper() + failed[1:]
        return "; ".join(filter(None, (NOTHING_CHANGED, failed)))

    def contradicts(self) -> str:
        """What the user is told at the end of a turn in which the model was told so and did no better."""
        told = self.checked and (self.failed or self._wanted)
        return f"{self.words}." if told and self.words else ""

    def as_json(self) -> dict[str, Any]:
        """For `_meta`."""
        files = [{"path": str(path), "change": kind} for path, kind in islice(self.changed.items(), MOST_TOLD)]
        more = len(self.changed) - len(files)
        facts = {"files": files, "moreFiles": more} if more else {"files": files} if files else {}
        return {**facts, **({"failedCalls": self.failures} if self.failures else {})}


def _claims(said: str) -> bool:
    sentences = re.split(r"(?<=[.!?:])\s|\n", said)
    found = ((CLAIMS.search(each), each) for each in sentences)
    return FINISHED.search(said) is not None or any(
        claim is not None and NO_CLAIM.search(each[: claim.start()]) is None for claim, each in found
    )


def _announces(said: str) -> bool:
    """Whether the last words are of what comes next, though nothing does."""
    sentences = re.split(r"(?<=[.!?:])\s|\n", said.strip())
    return ANNOUNCES.match(sentences[-1]) is not None and LATER_ON.search(sentences[-1]) is None


def meant_to_change(call: Call) -> bool:
    """Whether the call was there to change files."""
    if call.ready is None:
        named = call.use.name
        return named not in ENDS and not re.search("read|list|find|search|grep|view|get|fetch|open", named)
    if call.ready.entry.kind in ("edit", "delete", "move"):
        return True
    parts = [part for line in _examined(call) for part in line.parts]
    return any(map(_alters, parts)) and all(part.program == "git" or _plain(part) for part in parts)


def _examined(call: Call) -> list[Examined]:
    """The call's command lines."""
    looked, ready = call.outcome.looked, call.ready
    if looked.lines is None and call.facts is not None and ready is not None:
        commands = [each for each in call.facts.accesses if isinstance(each, ExecuteAccess)]
        looked.lines = [load(EXAMINE)(each.command, ready.shell.roots, each.cwd) for each in commands]
    return looked.lines or []


def _alters(part: Part) -> bool:
    """Whether a command is there to change files."""
    program, arguments = part.program or "", part.rough[1:]
    if any(each.writes and not str(each.target).startswith("/dev/") for each in part.redirects):
        return True
    if program == "git":
        return not ALTERS_GIT.isdisjoint(arguments[:1])
    return program in ALTERS or (program in ALTERS_BY and any(map(ALTERS_BY[program].match, arguments)))


def _plain(part: Part) -> bool:
    """Whether a command changes no more than the files that its arguments name."""
    plain = part.neutral or part.looks or part.program in PLAIN
    return plain or (part.program in ALTERS_BY and _alters(part))


def _all_seen(call: Call) -> bool:
    """Whether a command that the call ran only looks, or has ended and all that it could write was looked at."""
    ran, lines, looked = call.outcome.ran, _examined(call), call.outcome.looked
    parts = [part for line in lines for part in line.parts]
    if parts and all(part.looks for part in parts):
        return True
    if ran is None or ran.exit_code is None or call.goes_on is not None or call.facts is None or call.facts.leaves:
        return False
    known = all(line.understood for line in lines) and all(part.contained and _plain(part) for part in parts)
    return known and looked.done is True and looked.whole


def change_note(call: Call, contents: Contents) -> str:
    """What a command changed, for the model: `[changed: config.json +1 -1]`. Empty where there is nothing to say."""
    looked = call.outcome.looked
    if not _examined(call) or call.goes_on is not None or call.ready is None or not (looked.done and looked.alone):
        return ""
    changes = {change.path: change for change in looked.changes}
    display = call.ready.shell.roots.display
    told = [each for _, each in sorted(changes.items()) if each.how is not None and not _is_cache(display(each.path))]
    if not told:
        return "[no file changed]" if not changes and meant_to_change(call) and _all_seen(call) else ""
    words = dict[str, list[str]]()
    for number, change in enumerate(told[:MOST_NAMED]):
        kind = change.how
        counted = _counted(change, contents) if number < MOST_COUNTED and kind == "changed" else ""
        words.setdefault(str(kind), []).append(display(change.path) + counted)
    more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    said = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in words.items())
    return f"[{said}{more}]"


def _counted(change: Change, contents: Contents) -> str:
    if change.after is not None and change.before.content and change.before.content == change.after.content:
        return " (mode)"
    if change.after is None or max(change.before.size, change.after.size) > MOST_BYTES:
        return ""
    found: FileChange | None = load(FILE_CHANGE)(change.path, change.before, change.after, contents)
    return f" +{found.added} -{found.removed}" if found is not None and found.shown else ""


def _is_cache(shown: str) -> bool:
    later: frozenset[str] = load(LATER)
    return any(part in later or (part[:1] == "." and part not in SHOWN_FOLDERS) for part in Path(shown).parts[:-1])
