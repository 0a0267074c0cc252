"""Filter rules: the contents of a `filters.toml`, and how a user's file extends the built-in one.

An invalid rule is skipped with a warning that names it; the others load.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from acp_agent.limits.decoding import read_toml
from acp_agent.output.strategies import AnyStrategy, GitDiff, Strategy, checked_pattern

MAX_FILE_BYTES = 1024 * 1024
MAX_COMMAND_CHARS = 10_000
BUILT_IN = Path(__file__).with_name("filters.toml")


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects commands by one of the three, compared with the result of `safety.last_command`."""

    exact: str | None = None
    prefix: str | None = None
    """Whole words: `git diff` is not a prefix of `git difftool`."""
    regex: str | None = None
    """Searched anywhere unless it begins with `^`."""

    def check(self) -> None:
        """Raises ValueError with a sentence."""
        given = [value for value in (self.exact, self.prefix, self.regex) if value is not None]
        if len(given) != 1 or not given[0].strip():
            raise ValueError("`match` needs exactly one of `exact`, `prefix` and `regex`, and it must not be empty")
        if self.regex is not None:
            checked_pattern(self.regex)

    def __call__(self, command: str) -> bool:
        if self.regex is not None:
            return checked_pattern(self.regex).search(command[:MAX_COMMAND_CHARS]) is not None
        if self.prefix is not None:
            prefix = " ".join(self.prefix.split())
            return command == prefix or command.startswith(prefix + " ")
        return command == " ".join((self.exact or "").split())


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule as written in a file. What a user omits is taken from the built-in rule of that name."""

    name: Annotated[str, Meta(min_length=1)]
    enabled: bool = True
    match: Match | None = None
    strategy: AnyStrategy | None = None
    strategies: Annotated[tuple[AnyStrategy, ...], Meta(min_length=1)] | None = None


class Rule(Struct, frozen=True):
    name: str
    match: Match
    strategies: tuple[Strategy, ...]
    """Applied in order, each to the result of the previous one."""
    enabled: bool = True

    def matches(self, command: str) -> bool:
        return self.match(command)


def load_rules(
    user_text: str | None, *, source: str, disabled: Sequence[str] = (), max_diff_lines: int = 500
) -> tuple[list[Rule], list[str]]:
    """Built-in rules and a user's, and the errors in the user's file: a rule with the same name replaces the built-in
    one, new ones are appended. `disabled` names rules to leave out."""
    warnings: list[str] = []
    rules = _read(BUILT_IN.read_text(encoding="utf-8"), "the built-in rules", {}, warnings)
    built_in = {
        name: replace(rule, strategies=tuple(_configured(strategy, max_diff_lines) for strategy in rule.strategies))
        for name, rule in rules.items()
    }
    loaded = built_in | _read(user_text, source, built_in, warnings) if user_text is not None else built_in
    warnings += [f"There is no filter rule `{name}` to disable." for name in disabled if name not in loaded]
    return [rule for rule in loaded.values() if rule.enabled and rule.name not in disabled], warnings


def read_user_filters(path: Path) -> tuple[str | None, list[str]]:
    """Returns the text of a user's file, or None and the reason. Never blocks: reads only a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError) as error:
        return None, [_unused(path, f"cannot be read: {getattr(error, 'strerror', None) or error}")]
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None, [_unused(path, "is not a regular file")]
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return None, [_unused(path, f"cannot be read: {error.strerror}")]
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        return None, [_unused(path, "is larger than 1 MiB")]
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        return None, [_unused(path, f"is not UTF-8 at byte {error.start}")]


def _unused(path: Path, why: str) -> str:
    return f"The filter rules of {path} are not used: the file {why}. The built-in rules apply."


def _configured(strategy: Strategy, max_diff_lines: int) -> Strategy:
    if isinstance(strategy, GitDiff) and strategy.max_diff_lines is None:
        return GitDiff(max_diff_lines)
    return strategy


def _read(text: str, source: str, built_in: Mapping[str, Rule], warnings: list[str]) -> dict[str, Rule]:
    """Rules by name, in the order of the file. A later rule replaces an earlier one of the same name."""
    try:
        content = read_toml(text)
    except ValueError as error:
        warnings.append(
            f"The filter rules of {source} are not used: not valid TOML ({error}). The built-in rules apply."
        )
        return {}
    warnings += [f"{source}: unknown key `{key}`; write rules as [[rules]]." for key in content if key != "rules"]
    written = content.get("rules", [])
    if not isinstance(written, list):
        warnings.append(f"{source}: write each rule as its own [[rules]].")
        return {}
    rules: dict[str, Rule] = {}
    for number, item in enumerate(written, 1):
        try:
            rule = _rule(item, built_in)
        except (msgspec.ValidationError, ValueError) as error:
            warnings.append(f"{source}: the rule {_called(item, number)} is left out: {_words(error)}.")
            continue
        if rule.name in rules:
            warnings.append(f"{source}: there are two rules `{rule.name}`; the later one applies.")
        rules[rule.name] = rule
    return rules


def _rule(item: object, built_in: Mapping[str, Rule]) -> Rule:
    """Raises ValueError and ValidationError."""
    written = msgspec.convert(item, _Written)
    base = built_in.get(written.name)
    if written.strategy is not None and written.strategies is not None:
        raise ValueError("it has both `strategy` and `strategies`")
    match = written.match or (base.match if base else None)
    strategies: tuple[Strategy, ...] = base.strategies if base else ()
    if written.strategy is not None:
        strategies = (written.strategy,)
    elif written.strategies is not None:
        strategies = written.strategies
    if match is None or not strategies:
        raise ValueError(f"it has no `{'match' if match is None else 'strategy'}`")
    match.check()
    for strategy in strategies:
        strategy.check()
    return Rule(written.name, match, strategies, written.enabled)


def _called(item: Any, number: int) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    return f"`{name}`" if isinstance(name, str) and name else f"number {number}"


STRATEGY_TYPES = tuple(str(kind.__struct_config__.tag) for kind in get_args(AnyStrategy))


def _words(error: Exception) -> str:
    """Rewrites the path in the decoder's message in terms of the rule: `$.strategy.head` is `strategy.head`."""
    words = str(error).replace("`$.", "`").replace(" - at `$`", "").rstrip(".")
    if "Invalid value" in words and "strateg" in words:
        words += f"; the strategies are {', '.join(STRATEGY_TYPES)}"
    return words
