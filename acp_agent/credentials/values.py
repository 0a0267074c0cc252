"""Which value of an assignment is a credential rather than a placeholder, a reference in a program, or a word.

Decided by the value, never by its entropy. Source code that handles passwords stays as it is: names, calls, attributes,
types and words of forms ("password", "string", "required") are not credentials.
"""

from __future__ import annotations

from acp_agent.linear import at_first_use

SHORTEST = 6

PLACEHOLDERS = at_first_use(
    r"(?i)^(?:x{3,}.*|\*+.*|\.{2,}.*|-+|_+|<.*|.*>|\$.*|%.*|@.*@|#.*|&.*|!.*\s.*|\{.*|\[.*|\(.*|\^.*|\\.*|\|.*|=.*|:.*|\?.*|"
    r".*\$\{.*|.*\{[\w.:!\[\]()]*\}.*|.*%\(.*|.*%[sdr].*|.*\.\.\..*|.*\*\*\*.*|.*xxxx.*|.*\[redacted.*|"
    r"change.?(?:me|it|this).*|your.*|my[_\-].*|insert.*|replace.*|enter.*|example.*|.*example|sample.*|dummy.*|fake.*|todo.*|"
    r"placeholder.*|redacted.*|hidden.*|masked.*|[0-9]\*.*|"
    r"none|null|nil|true|false|undefined|(?:string|number|boolean|object|any)\??|required|optional|default)$"
)
"""Anything that takes the place of a credential and says so."""

DOTTED = at_first_use(r"^[A-Za-z_$][\w$]*\??(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+$")
IDENTIFIER = at_first_use(r"^[A-Za-z_$][\w$]*$")
WORDS = at_first_use(r"^(?:[A-Z]?[a-z]+|[A-Z]+)(?:[A-Z][a-z]+|[_\-./:+ ]+(?:[A-Z]?[a-z]+|[A-Z]+))*[_\-./:]*$")
SNAKE = at_first_use(r"^_?(?:[a-z]+|[A-Z]+)(?:_[a-z0-9]+|_[A-Z0-9]+)+$")
NAMED = at_first_use(r"(?i)pass|pwd|secret|token|key|cred")
PATH = at_first_use(r"^(?:~|\.{1,2})?/[\w.@+\-]*(?:/[\w.@+\-]*)*$|^[A-Za-z]:\\")
NUMBER = at_first_use(r"^[0-9.,_:+\-]+$|^0[xX][0-9a-fA-F]{1,8}[uUlL]*$")
VERSION = at_first_use(r"^v?[0-9]+(?:\.[0-9]+)+$")


def is_placeholder(value: str) -> bool:
    """Whether the value is only a placeholder for a credential (`<token>`, `${X}`, `changeme`, a mark)."""
    return PLACEHOLDERS.search(value) is not None


def is_path(value: str) -> bool:
    return PATH.search(value) is not None and (len(value) < 36 or value.count("/") > 3 or value[0] != "/")


def is_credential(value: str, *, quoted: bool, env: bool = False, password: bool = False, after: str = "") -> bool:
    """Whether a value assigned to the name of a credential is one.

    `quoted`: it was in quotes. `env`: from `NAME=value`, as in environment files. `password`: the name is that of a
    password, which may be digits only. `after`: the character that follows the value.
    """
    if len(value) < SHORTEST or is_placeholder(value) or "://" in value:
        return False
    if is_path(value) or VERSION.search(value):
        return False
    if NUMBER.search(value):
        return password and (quoted or env) and value.isdigit()
    if env:
        return not (DOTTED.search(value) or after in ("(", "[") or (value.isupper() and SNAKE.search(value)))
    digit = any(char.isdigit() for char in value)
    if quoted:
        if DOTTED.search(value) and not digit:
            return False
        return digit or not (WORDS.search(value) or SNAKE.search(value) or (value.isalpha() and value.islower()))
    if not digit or DOTTED.search(value):
        return False
    if IDENTIFIER.search(value):
        return not ((after and after in "),;.[(") or SNAKE.search(value) or NAMED.search(value))
    return after not in ("(", "[")
