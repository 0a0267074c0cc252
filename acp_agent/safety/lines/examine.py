"""Splits a command line into its simple commands, including nested ones (`sudo`, `xargs`, `bash -c`, `$(…)`, functions,
loops), with everything needed to decide about each.

Two questions, two standards. A deny rule is tested on every candidate, and the walk collects candidates from everything
it finds, even lines that no parser understands. An allow rule counts only if everything is understood: kinds of syntax
listed here, words on which two parsers agree, paths inside the session's folders. A line runs without asking only if
every command in it is read-only (`looks`); anything that is not plain makes the exact line ask.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from acp_agent.safety.access import KEEPS, READ_VERB, Allow, Ask
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.dangerous import dangers_of, is_safe_assignment
from acp_agent.safety.lines.examined import NAMED, Examined, Part, decided
from acp_agent.safety.lines.git_folder import repository_around
from acp_agent.safety.lines.line import (
    ASSIGNMENT,
    BACKGROUND,
    EXPANSIONS,
    MAX_CHARS,
    Line,
    Redirect,
    Simple,
    bare_of,
    read,
)
from acp_agent.safety.lines.looks import Judged, check_redirect, judge_node, judge_words
from acp_agent.safety.lines.plainer import TAKES_FOLDERS, plainer
from acp_agent.safety.lines.quoting import braced, rough_commands, unquoted, without_quoted_text
from acp_agent.safety.lines.reach import (
    CHANGES,
    EXPANDS,
    NOT_UNDERSTOOD,
    OUTSIDE,
    Reach,
    key_files,
    lands,
    paths_inside,
    protected_names,
)
from acp_agent.safety.lines.risk import INTERPRETERS, Risk, combined, risk_of, risk_of_text, risk_of_writing
from acp_agent.safety.lines.standing import Folded, Places, both
from acp_agent.safety.lines.wrappers import SHELLS, Inner, base, inner_commands, is_shell_from_input, is_wrapper

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_NODES = 60
MAX_DEPTH = 40
"""Limit for what may run without a question."""
MAX_LINES = 6
"""Nesting depth of lines within lines."""
MAX_PARTS = 1_000
MAX_BRACED, MAX_WORDS = 50, 500
IFS = re.compile(r"\$\{?IFS\}?")
NESTED = 12
SEPARATORS = frozenset("; \n ( ) { }".split(" "))
MOVES = frozenset(("cd", "pushd", "popd", ".", "source", "eval"))
SIMPLE = frozenset(("command", "test_command", "declaration_command", "unset_command"))
RESERVED = frozenset(
    "if then else elif fi for while until do done case esac in function select time coproc { } ! [[ ]]".split()
)
KNOWN = frozenset(
    "word number string raw_string ansi_c_string concatenation command_name string_content variable_name "
    "unary_expression binary_expression negation_expression test_operator file_descriptor = == != ; ( ) { } | |& ! "
    '[ ] [[ ]] " < > >> &> &>> >& <& >| \n'.split(" ")
)
"""Nodes of which only the contents need to be examined."""
NETWORK = ("/dev/tcp/", "/dev/udp/")
"""bash connects to these."""
SENDING = frozenset(
    "dig drill kdig delv host nslookup getent resolvectl whois ping ping6 fping arping traceroute tracepath mtr curl "
    "wget nc ncat telnet ftp sftp http https".split()
)
"""Programs whose arguments reach other hosts, if only as a name to look up."""
NAMES_ONLY = frozenset(
    "ls test [ [[ stat echo printf mkdir touch chmod basename dirname realpath readlink which".split()
)
"""Programs that do not open what they are given the name of."""
PASSES_NAMES = re.compile(r"\b(?:xargs|parallel)\b")
"""Programs that open what others print the name of."""
EXACT = "bash = "
"""Begins the scope of a line that is remembered as written."""
NOWHERE = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
NET = frozenset("curl wget fetch aria2c nc ncat netcat lynx http https base64 xxd openssl ssh gunzip zcat".split())
FETCHES = re.compile(r"\b(?:curl|wget|fetch|nc|ncat|base64|xxd)\b")


def examine(command: str, roots: Roots, cwd: Path) -> Examined:
    """Never fails: a line that cannot be split is marked as not understood."""
    examined = _examine(command, roots, cwd)
    if not isinstance(examined.verdict, Ask):
        return examined
    if (without := without_quoted_text(command)) is not None:
        plain = _examine(without, roots, cwd)
        if isinstance(plain.verdict, Allow):
            return replace(plain, command=command, candidates=examined.candidates)
    if not examined.verdict.by_person and examined.verdict.scopes[0].startswith(EXACT):
        made = plainer(command)
        return examined if made is None else _by_plainer(examined, _examine(made[0], roots, cwd), made[1])
    return examined


def _by_plainer(examined: Examined, plain: Examined, passed: str) -> Examined:
    """The line with the verdict on a plainer one, if an answer covers each command of that by its program. Rules of the
    configuration see it as it is written."""
    verdict = plain.verdict
    scopes = verdict.scopes if isinstance(verdict, Ask) else ()
    if not plain.understood or any(scope.startswith(EXACT) for scope in scopes) or getattr(verdict, "by_person", False):
        return examined
    if passed and passed not in TAKES_FOLDERS:
        verdict = _covering((*scopes, f"bash xargs {passed}"), verdict.rule)
    candidates = tuple(dict.fromkeys((*examined.candidates, *plain.candidates)))
    return replace(examined, verdict=verdict, risk=plain.risk, candidates=candidates)


def _covering(scopes: Sequence[str], rule: str) -> Ask:
    names = [f"`{scope.removeprefix('bash ')}`" for scope in scopes]
    return Ask(CHANGES, tuple(scopes), f"{' and '.join(names)} commands in this project", rule=rule)


def _examine(command: str, roots: Roots, cwd: Path) -> Examined:
    found = _Found(roots)
    found.line(command, frozenset((cwd,)), None, 0)
    if found.trouble or PASSES_NAMES.search(command):  # `x=.env; cat "$x"`
        found.keys |= key_files(["-c", command], roots, (cwd,), literal=False)
    verdict = found.verdict(command, cwd)
    rules = "; ".join(
        dict.fromkeys(part.rule for part in found.parts if part.looks == isinstance(verdict, Allow) and part.rule)
    )
    verdict = replace(verdict, rule=rules or NOT_UNDERSTOOD)
    if found.around and isinstance(verdict, Ask):
        nested = f"`git init` makes a repository within that of {found.around}, which then loses these files"
        asks = found.exactly(f"{verdict.reason}; {nested}", command, cwd)
        verdict = replace(asks, by_person=True, rule=f"git init; {verdict.rule}")
    verdict = _with_keys(verdict, found.keys)
    risks = [*(part.risk for part in found.parts if not part.neutral), *found.risks]
    if found.trouble or not found.parts:
        risks.append(Risk("medium", True, reasons=(found.trouble or NOT_UNDERSTOOD,)))
    if isinstance(verdict, Allow):
        risks = [Risk("low", False, reasons=("it only looks",))]
    if (seen := risk_of_text(command)) is not None:
        risks.append(seen)
    trouble = found.trouble or ("" if found.parts else NOT_UNDERSTOOD)
    return Examined(
        command, not trouble, trouble, tuple(found.parts), tuple(found.candidates), verdict, combined(risks), cwd
    )


def _with_keys(verdict: Allow | Ask, keys: Mapping[Path, str]) -> Allow | Ask:
    """Asks in every mode about a line that names key files; an answer covers these, in this line."""
    if not keys:
        return verdict
    names = ", ".join(f"`{path.name}`" for path in keys)
    reason = f"it names {names}, which {KEEPS}"
    ask = verdict if isinstance(verdict, Ask) else Ask("", (), "", changes=False)
    rules = (ask.rule, *(f"key file: {name}" for name in dict.fromkeys(keys.values())))
    return replace(
        ask,
        reason=f"{ask.reason}; {reason}" if ask.reason else reason,
        scopes=(*ask.scopes, *(f"{READ_VERB} = {path}" for path in keys)),
        scope_words=" and ".join(filter(None, (ask.scope_words, *(f"reads of {path}" for path in keys)))),
        by_person=True,
        rule="; ".join(filter(None, rules)),
    )


def judge(command: str, roots: Roots, cwd: Path) -> Allow | Ask:
    """Whether `command` may run in `cwd` without asking. Never fails: a line that is not understood asks."""
    return examine(command, roots, cwd).verdict


class _Found:
    """The findings of the walk, over all nested lines."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.parts: list[Part] = []
        self.candidates: dict[str, None] = {}
        self.risks: list[Risk] = []
        self.trouble = ""
        self.asks = ""
        """The first reason why the line must be asked about exactly as written."""
        self.keys: dict[Path, str] = {}
        """The key files that are named."""
        self.around = ""
        """The top of a repository in which another one is made."""
        self.scopes: dict[str, None] = {}
        """Scopes of an "always" answer otherwise; empty if the line is read-only."""

    def verdict(self, command: str, cwd: Path) -> Allow | Ask:
        if self.asks:
            return self.exactly(self.asks, command, cwd)
        if not self.scopes:
            return Allow()
        return _covering(tuple(self.scopes), "")

    def exactly(self, reason: str, command: str, cwd: Path) -> Ask:
        """The same line has another meaning in another folder, so an answer is bound to the folder as well."""
        where = "" if cwd == self.roots.cwd else f"[in {cwd}] "
        return Ask(reason, (f"{EXACT}{where}{command}",), "this exact command in this project")

    def troubled(self, reason: str) -> None:
        self.trouble = self.trouble or reason

    def line(self, text: str, folders: Folded, inside: int | None, depth: int) -> None:
        self.candidate(text)
        line = read(text)
        if line.trouble:
            self.troubled(line.trouble)
            self.asks = self.asks or line.trouble
        if depth > MAX_LINES or len(text) > MAX_CHARS or len(self.parts) > MAX_PARTS:
            self.troubled(NOT_UNDERSTOOD)
            self.rough(text)
            return
        if "IFS" in text:  # `rm${IFS}x`: bash splits there
            self.rough(IFS.sub(" ", text))
        if "{" in text and "," in text:
            self.rough(" ".join(item for word in text.split(" ")[:MAX_WORDS] for item in braced(word)))
        if line.gap:
            self.troubled(line.gap)
        if line.root.has_error:
            self.rough(text)
        walk = _Walk(line, self, inside, depth)
        if depth == 0:
            here = all(map(Reach(self.roots).is_inside, folders or ()))
            walk.ask(NOT_UNDERSTOOD if line.root.has_error else line.gap if here else OUTSIDE)
        walk.walk(line.root, folders, (), 0)

    def rough(self, text: str) -> None:
        for words in rough_commands(text):
            self.spellings(words, 0)
            for number, word in enumerate(words[:NESTED], 1):
                if re.fullmatch(r"-\w*c", word):  # The quotes around the shell's command line are gone.
                    self.spellings(words[number:], 0)

    def candidate(self, text: str) -> None:
        joined = text.replace("\\\n", "")
        for spelling in (text, joined, re.sub(r"[ \t\n]+", " ", joined).strip()):
            if spelling.strip():
                self.candidates[spelling] = None

    def spellings(self, words: Sequence[str], depth: int) -> list[str]:
        """Every way a rule might spell a command: with and without variables, the program's folder, wrappers."""
        found: dict[str, None] = {}
        at = next((number for number, word in enumerate(words) if word not in RESERVED), 0)
        words, at = words[at:], 0
        while at < len(words) and ASSIGNMENT.fullmatch(words[at]):
            at += 1
        for start in {0, at}:
            if rest := words[start:]:
                found[" ".join(rest)] = None
        bare = list(words[at:])
        if bare:
            if any("{" in word and "," in word for word in bare[:MAX_BRACED]):
                expanded = [text for word in bare for text in braced(word)]
                if expanded != bare and depth < MAX_LINES:
                    self.spellings(expanded, depth + 1)
            if (name := base(bare[0])) and name != bare[0]:
                found[" ".join([name, *bare[1:]])] = None
            if depth < MAX_LINES:
                for inner in inner_commands(bare):
                    if inner.line is not None:
                        self.candidate(inner.line)
                        for command in rough_commands(inner.line) if len(inner.line) <= MAX_CHARS else []:
                            self.spellings(command, depth + 1)
                    elif inner.words:
                        self.spellings(inner.words, depth + 1)
        self.candidates.update(found)
        return list(found)


class _Walk:
    """One walk over the tree of one line."""

    def __init__(self, line: Line, found: _Found, inside: int | None, depth: int) -> None:
        self._line = line
        self._text = line.text_of
        self._found = found
        self._inside = inside
        self._depth = depth
        self._behind: dict[int, list[Node]] = {}
        """Of simple commands, by node: their words that the grammar puts into a redirection."""
        self._within = depth
        """Not 0 within a part of a command whose words are judged as a whole."""

    def ask(self, reason: str) -> None:
        """Marks the whole line to be asked about as written; the first reason counts."""
        if not self._within:
            self._found.asks = self._found.asks or reason

    def _look_into(self, node: Node, folders: Folded, depth: int) -> None:
        """Looks for commands within a word or a redirection."""
        self._within += 1
        self.walk(node, folders, (), depth)
        self._within -= 1

    def walk(self, node: Node, folders: Folded, redirects: tuple[Redirect, ...], depth: int) -> Places:
        if depth > MAX_NODES or len(self._found.parts) > MAX_PARTS:
            self._found.troubled(NOT_UNDERSTOOD)
            self._found.rough(self._text(node))
            self.ask(NOT_UNDERSTOOD)
            return Places(None, None)
        if depth > MAX_DEPTH:
            self.ask(NOT_UNDERSTOOD)
        depth += 1
        stay = Places(folders, folders)
        match node.type:
            case kind if kind in SIMPLE:
                return self._part(node, folders, redirects, depth)
            case "program" | "compound_statement" | "subshell":
                after = stay
                if node.type != "program" and not any(child.is_named for child in node.children):
                    self.ask(NOT_UNDERSTOOD)
                for child in node.children:
                    if not child.is_named and child.type not in SEPARATORS:
                        self.ask(NOT_UNDERSTOOD)
                    after = self.walk(child, after.either, redirects, depth)
                return stay if node.type == "subshell" else after
            case "list":
                return self._list(node, folders, redirects, depth)
            case "pipeline":
                return self._pipeline(node, folders, redirects, depth)
            case "negated_command":
                if node.child_count != 2:
                    self.ask(NOT_UNDERSTOOD)
                for child in node.children:
                    stay = self.walk(child, folders, redirects, depth)
                return Places(stay.failure, stay.success)
            case "redirected_statement":
                return self._redirected(node, folders, redirects, depth)
            case "comment":
                return stay
            case "&":
                self._found.troubled(BACKGROUND)
                return stay
            case kind:
                if node.is_named:
                    self.ask(EXPANDS if kind in EXPANSIONS or kind == "variable_assignment" else NOT_UNDERSTOOD)
                if kind.endswith("_statement") or kind in ("function_definition", "ERROR"):
                    self._found.troubled(NOT_UNDERSTOOD)
                elif kind in ("variable_assignment", "variable_assignments"):
                    self._found.troubled(EXPANDS)
                    self._found.candidate(self._text(node))
                elif kind.endswith(("_substitution", "expansion")):
                    self._found.troubled(EXPANDS)
                elif kind not in KNOWN:
                    self._found.troubled(NOT_UNDERSTOOD)
                after = stay
                for child in node.children:
                    after = self.walk(child, after.either, redirects, depth)
                return after

    def _list(self, node: Node, folders: Folded, redirects: tuple[Redirect, ...], depth: int) -> Places:
        children = [child for child in node.children if child.type != "comment"]
        if len(children) != 3 or children[1].type not in ("&&", "||", ";"):
            self._found.troubled(NOT_UNDERSTOOD)
            for child in children:
                self.walk(child, folders, redirects, depth)
                self.ask(NOT_UNDERSTOOD)
            return Places(None, None)
        first = self.walk(children[0], folders, redirects, depth)
        match children[1].type:
            case "&&":
                second = self.walk(children[2], first.success, redirects, depth)
                return Places(second.success, both(first.failure, second.failure))
            case "||":
                second = self.walk(children[2], first.failure, redirects, depth)
                return Places(both(first.success, second.success), second.failure)
            case _:
                return self.walk(children[2], first.either, redirects, depth)

    def _pipeline(self, node: Node, folders: Folded, redirects: tuple[Redirect, ...], depth: int) -> Places:
        first = len(self._found.parts)
        stages: list[list[Part]] = []
        for child in node.children:
            if child.is_named and child.type != "comment":
                start = len(self._found.parts)
                self.walk(child, folders, redirects, depth)
                stages.append(self._found.parts[start:])
            elif child.type not in ("|", "|&"):
                self.ask(NOT_UNDERSTOOD)
        self._fed(stages, first)
        return Places(folders, folders)

    def _fed(self, stages: list[list[Part]], first: int) -> None:
        """A shell at the end of a pipe runs its input, which is examined, too, if it is literal."""
        for before, stage in pairwise(stages):
            for part in stage:
                name = base(part.rough[0]) if part.rough else ""
                if name not in INTERPRETERS:
                    continue
                fetched = any(base(other.rough[0]) in NET for other in self._found.parts[first:] if other.rough)
                from_input = is_shell_from_input(part.rough) or len(part.rough) == 1 or part.rough[1:] == ("-",)
                if from_input and (name in SHELLS or fetched):
                    why = "it runs code from the network" if fetched else "it runs another program's output"
                    self._found.risks.append(Risk("high", True, reasons=(why,)))
                if name in SHELLS and from_input:
                    for other in before:
                        if other.rough and base(other.rough[0]) in ("echo", "printf"):
                            self._nested(" ".join(other.rough[1:]), None, None)
                            self._found.troubled(EXPANDS)

    def _nested(self, text: str, folders: Folded, inside: int | None) -> None:
        self._found.line(text, folders, inside, self._depth + 1)

    # --- redirections ---------------------------------------------------------------------------------------------

    def _redirected(self, node: Node, folders: Folded, redirects: tuple[Redirect, ...], depth: int) -> Places:
        bodies = [child for child in node.children if not child.type.endswith("_redirect")]
        given = [child for child in node.children if child.type.endswith("_redirect")]
        mine = [self._line.redirect(child) for child in given]
        for redirect, child in zip(mine, given, strict=True):
            self._note(redirect, child)
        for child in node.children[1:]:
            self.ask(check_redirect(self._line, child, self._found.roots, folders or frozenset()))
        if given and node.children[0] == given[0]:
            self.ask(NOT_UNDERSTOOD)
        after = Places(folders, folders)
        start = len(self._found.parts)
        # `git 2>log push`: the grammar treats the words after the target as more targets.
        if words := [word for child in given if child.type == "file_redirect" for word in _targets(child)[1:]]:
            last = _last(node)
            if last.type not in SIMPLE:
                self._found.troubled(NOT_UNDERSTOOD)
            self._behind.setdefault(last.id, []).extend(words)
        for body in bodies:
            after = self.walk(body, folders, (*redirects, *mine), depth)
        self._found.candidate(self._text(node))
        shell = any(is_shell_from_input(part.rough) for part in self._found.parts[start:])
        for child in given:
            self._inside_redirect(child, folders, depth, shell)
        return after

    def _inside_redirect(self, node: Node, folders: Folded, depth: int, shell: bool) -> None:
        if node.type == "heredoc_redirect":
            self._found.troubled(EXPANDS)
        start = len(self._found.parts)
        for child in node.children:
            if shell and child.type == "heredoc_body":
                self._nested(self._text(child), folders, None)
            elif shell and node.type == "herestring_redirect":
                self._nested(unquoted(self._text(child)).text, folders, None)
            self._look_into(child, folders, depth)
        # `cat <<EOF | sh`: the grammar puts what follows the pipe into the redirection.
        if not shell and any(is_shell_from_input(part.rough) for part in self._found.parts[start:]):
            for child in node.children:
                if child.type == "heredoc_body":
                    self._nested(self._text(child), folders, None)

    def _note(self, redirect: Redirect, node: Node) -> None:
        if not redirect.understood:
            self._found.troubled(NOT_UNDERSTOOD)
            self._found.rough(self._text(node))

    # --- one simple command -----------------------------------------------------------------------------------------

    def _part(self, node: Node, folders: Folded, redirects: tuple[Redirect, ...], depth: int) -> Places:
        behind = self._behind.pop(node.id, [])
        simple = self._line.simple(node, behind)
        words, program = simple.words, simple.program
        literal = simple.literal and program is not None and program not in RESERVED and "=" not in program
        for child in node.children:
            if child.type.endswith("_redirect"):
                self._note(self._line.redirect(child), child)
        plain: tuple[str, ...] | None = None
        judged: Judged | None = None
        if folders is not None and not behind:
            judged, plain = judge_node(self._line, node, self._found.roots, folders)
            if judged.after is None:
                self.ask(judged.reason)
            elif not self._within:
                self._found.scopes.update(dict.fromkeys(judged.scopes))
        index = self._add(
            replace(simple, literal=literal, redirects=(*redirects, *simple.redirects)),
            folders,
            self._inside,
            judged=judged,
            plain=plain,
        )
        for child in node.children:
            if child.type.endswith("_redirect"):
                self._inside_redirect(child, folders, depth, is_shell_from_input(words))
            elif child.type == "variable_assignment":
                for within in child.children:
                    self._look_into(within, folders, depth)
            else:
                self._look_into(child, folders, depth)
        self._inner(index, words, literal, folders, 0)
        if judged is not None and judged.after is not None:
            return judged.after
        moves = (
            program is None
            or bool(behind)
            or base(program) in MOVES
            or any(base(word) in MOVES for word in words[:MAX_LINES])
        )
        return Places(None, None) if moves else Places(folders, folders)

    def _add(
        self,
        simple: Simple,
        folders: Folded,
        inside: int | None,
        *,
        judged: Judged | None = None,
        plain: tuple[str, ...] | None = None,
        inner: Inner | None = None,
    ) -> int:
        roots, found, redirects = self._found.roots, self._found, simple.redirects
        words = simple.words if simple.literal and simple.words else None
        places = tuple(folders or ())
        closed = inner is None or not inner.open
        names = tuple(dict.fromkeys(name for name, _ in simple.assigned))
        assigned = [name if value is None else f"{name}={value}" for name, value in simple.assigned]
        unsafe = [f"{name}=" for name in names if not is_safe_assignment(name)]
        judged_looks = judged is not None and judged.looks
        reason = CHANGES if inner is not None else OUTSIDE if judged is None else judged.reason
        by_words = None
        if words and folders:
            by_words = judged if plain == words else judge_words(words, roots, folders)
        looks = judged_looks or (by_words is not None and by_words.looks and not unsafe and closed)
        writes = [redirect for redirect in redirects if redirect.writes and redirect.target not in NOWHERE]
        inners = inner_commands(words) if words else []
        dangers = [*unsafe, *dangers_of(words or ())]
        if words and not looks:
            # Files that other programs trust must be named by the rule that allows changing them.
            dangers += [f"{NAMED}{name}" for name in protected_names(words[1:], roots, places)]
        if looks and writes:
            dangers.append(">")  # Its output is all it produces.
        landing = all(_lands(item, roots, places) for item in redirects)
        if writes or not landing:  # Also what it reads from: another folder, the network.
            looks = False
        if words is None and not judged_looks:
            found.troubled(EXPANDS)
        if simple.words and base(simple.words[0]) == "git" and not found.around:
            found.around = repository_around(simple.words, places or (roots.cwd,), roots.rules.home, roots.disk)
        keys = self._keys_of(simple, places)
        if keys:
            looks = False
            dangers += [f"{NAMED}{path.name}" for path in keys]
        if words and any(not one.sure for one in inners):
            dangers.append("")
        neutral = bool(inners) and not unsafe and all(one.neutral for one in inners)
        if neutral and words and base(words[0]) == "env":
            given = [word.partition("=")[0] for word in words[1 : len(words) - len(inners[0].words)] if "=" in word]
            neutral = all(map(is_safe_assignment, given))
            dangers.extend(f"{name}=" for name in given if not is_safe_assignment(name))
        contained = words is not None and bool(folders) and landing
        contained = contained and (looks or neutral or paths_inside((words or ())[1:], roots, folders or frozenset()))
        scopes = by_words.scopes if by_words is not None and by_words.after is not None and closed else None
        shown = list(_shown(words, assigned, redirects)) if words and closed else []
        spellings = [simple.text, *found.spellings([*assigned, *simple.words], 0), *shown[:-1]]
        found.candidate(simple.text)
        found.candidates.update(dict.fromkeys(shown[:-1]))
        risks = [risk_of(simple.words, roots, places, looks=looks or neutral)]
        risks += [risk_of_writing(item.target, roots, places, item.shown) for item in writes]
        risks += _disguises(simple, unsafe)
        rule, why = decided(words, looks, neutral, [item for item in dangers if item], writes, scopes, reason)
        found.parts.append(
            Part(
                simple, inside, places, looks, neutral, contained, why, rule, combined(risks),
                tuple(dict.fromkeys(dangers)), tuple(shown), tuple(dict.fromkeys(spellings)),
            )
        )  # fmt: skip
        return len(found.parts) - 1

    def _keys_of(self, simple: Simple, places: tuple[Path, ...]) -> dict[Path, str]:
        words = [item.target or item.shown for item in simple.redirects]
        if not simple.words or base(simple.words[0]) not in NAMES_ONLY:
            words += simple.words
        keys = key_files(words, self._found.roots, places, literal=simple.literal)
        self._found.keys |= keys
        return keys

    def _inner(self, index: int, words: Sequence[str], literal: bool, folders: Folded, depth: int) -> None:
        """Examines the commands within the words of a part."""
        if depth > MAX_LINES or len(self._found.parts) > MAX_PARTS:
            self._found.troubled(NOT_UNDERSTOOD)
            return
        around = self._found.parts[index]
        name = base(words[0]) if words else ""
        if name == "env" and any(word.startswith(("-C", "--chdir")) for word in words):
            folders = None
        for inner in inner_commands(words):
            if not inner.sure:
                self._found.spellings(inner.words, 0)
                continue
            if inner.line is not None:
                where = folders if name in SHELLS or name == "eval" else None
                self._nested(inner.line, where, index)
                continue
            name_of = inner.words[0] if literal else None
            simple = Simple(" ".join(inner.words), inner.words, (), literal, name_of, (), around.redirects)
            here = self._add(simple, folders, index, inner=inner)
            self._inner(here, inner.words, literal, folders, depth + 1)
        if is_wrapper(name) and not literal:
            self._found.troubled(EXPANDS)


def _shown(words: Sequence[str], assigned: Sequence[str], redirects: Sequence[Redirect]) -> Iterator[str]:
    """A literal command as allow patterns may spell it, the plainest last."""
    spelled = shlex.join(words)
    before = list(map(_assignment, assigned))
    behind = [f"{item.operator} {shlex.quote(item.target or '')}" for item in redirects if item.writes]
    yield " ".join([*before, spelled, *behind])
    if before and behind:
        yield " ".join([*before, spelled])
        yield " ".join([spelled, *behind])
    yield spelled


def _disguises(simple: Simple, unsafe: Sequence[str]) -> Iterator[Risk]:
    """The risk of a command in disguise."""
    if simple.words and base(simple.words[0]) in INTERPRETERS and FETCHES.search(simple.text) and not simple.literal:
        yield Risk("high", True, reasons=("it runs code from the network",))
    asks = simple.words and base(simple.words[0]) in SENDING and not simple.literal
    if asks and re.search(r"\$\(|`", bare_of(simple.text)):
        yield Risk("high", True, reasons=("it sends the output of a command to the network",))
    if any(name == "PATH=" or name.startswith(("LD_", "DYLD_", "BASH_ENV")) for name in unsafe):
        yield Risk("high", True, reasons=("it changes which programs run",))


def _last(node: Node) -> Node:
    """Of what a redirection stands behind, the command that it belongs to."""
    while node.type in ("redirected_statement", "list", "pipeline", "negated_command"):
        named = [
            child for child in node.children if child.is_named and not child.type.endswith(("_redirect", "comment"))
        ]
        if not named:
            return node
        node = named[-1]
    return node


def _targets(redirect: Node) -> list[Node]:
    return [child for child in redirect.children if child.is_named and child.type != "file_descriptor"]


def _lands(redirect: Redirect, roots: Roots, places: tuple[Path, ...]) -> bool:
    """Whether a redirection stays within the folders, away from protected and hidden files."""
    if redirect.target is None or redirect.target.startswith(NETWORK):
        return False
    harmless = redirect.target in NOWHERE or (redirect.operator in (">&", "<&") and not redirect.writes)
    return harmless or lands(redirect.target, roots, places, writes=redirect.writes)


def _assignment(text: str) -> str:
    name, _, value = text.partition("=")
    return f"{name}={shlex.quote(value) if value else ''}"
