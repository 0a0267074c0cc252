"""What credentials look like: the formats of providers, the names of assignments, and which values count.

Tables and pure functions for `redactor.py`; nothing here looks at more than one line. Nothing is guessed from entropy:
a credential is recognized by its format, by the name it is assigned to, or because it is one of the agent's own.

Streaming needs every pattern to obey one rule: it crosses white space only where `HANGING` says that something is
still to come, and it begins to replace only at or after a point found by `EARLY` or `AFTER`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

from msgspec import json

from acp_agent.linear import at_first_use

B64URL = r"[A-Za-z0-9_\-]"


_FORMATS = json.decode(
    Path(__file__).with_name("formats.json").read_bytes(), type=tuple[tuple[tuple[str, ...], str, str], ...]
)
"""Prefix, what follows it (RE2), name. The first match wins, so longer prefixes come first. JSON, because it is read
before the first prompt and needs no extra parser."""
PROVIDERS = tuple((prefix, body, kind) for prefixes, body, kind in _FORMATS for prefix in prefixes)

BEFORE = r"(?:^|[^A-Za-z0-9]|\\[nrt]|%[0-9A-Fa-f]{2}|\[[0-9;]*m)"
"""Text allowed before a prefix. Escaped line ends and colours end in a letter that is not part of a word."""

PROVIDER_TOKEN = at_first_use(
    f"{BEFORE}(" + "|".join(f"{prefix.replace('.', chr(92) + '.')}{body}" for prefix, body, _ in PROVIDERS) + ")"
)
"""Group 1 is the token."""

KEYS = r"(?:api|access|account|secret|private|auth|signing|encryption|master|subscription)[_\-]?key"
NAMES = rf"(?:password|passwd|passwort|pwd|passphrase|secret|token|{KEYS}|credentials?|[_\-]pass|_auth)"
AFTER_NAME = r"(?:\\*[\"'`]\]?)?"
TYPE = r"(?:str|string|bytes|&str|SecretStr|Optional\[str\])"
SEPARATOR = rf"(?:[ \t]*:[ \t]*(?i:{TYPE})[ \t]*=|[ \t]*(?:=>|:=|=|:))"
SCHEMES = r"(?i:bearer|basic|token|apikey|api-key|bot|key|negotiate)"

HEAD = at_first_use(rf"((?i:[\w.\-]*{NAMES}))({AFTER_NAME}{SEPARATOR})([ \t]*)")
"""`password =`, `"apiKey": `, `TOKEN=`. Groups: the name, everything up to the separator, the white space after it."""
OPTION = at_first_use(rf"-((?i:{NAMES}))[ \t]+")
"""`--password ` with its value after a space."""
AUTHORIZATION = at_first_use(rf"(?i:authorization){AFTER_NAME}[ \t]*[:=][ \t]*(?:\\*[\"'`])?(?:({SCHEMES})[ \t]+)?")
BEARER = at_first_use(r"(?i:bearer)[ \t]+([A-Za-z0-9._~+/=\-]{16,})")
COOKIE = at_first_use(r"(?:[Cc]ookie|COOKIE)[\"']?[ \t]*:[ \t]*[\"']?")
COOKIE_PAIR = at_first_use(r"^;?[ \t]*([^\s;=\"',\\]+)=([^\s;\"',\\]*)")

USERINFO = r"[^\s/?#@\"'`<>\\,(){}|]"
CONTEXTS: tuple[tuple[str, str, str], ...] = (
    (rf"://{USERINFO}*?:", rf"(?:{USERINFO}|@)+?", "password"),
    (r"hooks\.slack\.com/(?:services|workflows)/", r"[A-Za-z0-9/_+\-]{20,}", "Slack webhook"),
    (r"(?:discord|discordapp)\.com/api/(?:v[0-9]+/)?webhooks/[0-9]+/", rf"{B64URL}{{40,}}", "Discord webhook"),
    (r"\b(?:bot)?[0-9]{8,10}:", rf"AA{B64URL}{{32,}}", "Telegram token"),
    (r"[?&;]sig=", r"[A-Za-z0-9%+/=]{40,}", "Azure signature"),
    (r"\b[A-Za-z0-9]{14}\.atlasv1\.", rf"{B64URL}{{50,}}", "Terraform token"),
    (r"\.webhook\.office\.com/webhookb2/", r"[A-Za-z0-9@/\-]{40,}", "Teams webhook"),
)
"""Groups: the text before (kept), the credential, its name."""

PEM = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|-----END [A-Z0-9 ]*PRIVATE KEY"

LONG_COUNT = re.compile(r"\{\d\d+(?:,\d*)?\}")

ANCHORS = LONG_COUNT.sub(
    "{8,}",
    "|".join(
        [
            *(
                f"{prefix.replace('.', chr(92) + '.')}{body.removesuffix(chr(92) + 'b')}"
                for prefix, body, _ in PROVIDERS
            ),
            rf"(?i:{NAMES}){AFTER_NAME}[ \t]*[:=]",
            rf"-(?i:{NAMES})[ \t]",
            r"(?i:authorization)[\\\"'`\]]*[ \t]*[:=]",
            r"(?i:bearer)[ \t]+[A-Za-z0-9._~+/=\-]{16}",
            r"(?:[Cc]ookie|COOKIE)[\"']?[ \t]*:",
            *(context + secret for context, secret, _ in CONTEXTS[1:]),
            rf"://{USERINFO}*:{USERINFO}+@",
            PEM,
        ]
    ),
)
"""Source of the first pass: a line that matches none of these is left alone. It has false positives: counts of at
most 8 make it compile in a third of the time, and that happens before the first answer."""

HANGING_SOURCE = "|".join(
    [
        rf"(?i:[\w.\-]*{NAMES}){AFTER_NAME}(?:[ \t]*:[ \t]*(?i:{TYPE})[ \t]*|{SEPARATOR}[ \t]*)\z",
        rf"-(?i:{NAMES})[ \t]+\z",
        rf"(?i:authorization){AFTER_NAME}[ \t]*(?:[:=][ \t]*)?(?:\\*[\"'`])?(?:{SCHEMES}[ \t]*)?\z",
        r"(?i:bearer)[ \t]+\z",
    ]
)
COOKIE_HANGING = at_first_use(r"(?:[Cc]ookie|COOKIE)[\"']?[ \t]*(?::[^\n]*)?\z")
HANGING_NAME = at_first_use(rf"(?i:[\w.\-]*{NAMES}){AFTER_NAME}[ \t]+\z|" + HANGING_SOURCE)
"""The same, where the text ends or a blank or separator follows: then a bare name waits, too."""
HANGING = at_first_use(HANGING_SOURCE)
"""The end of a text that waits for what comes after white space."""

AFTER = at_first_use(
    "|".join(
        [
            rf"(?i:{NAMES}){AFTER_NAME}[ \t]*[:=]",
            rf"-(?i:{NAMES})[ \t]",
            r"(?i:authorization)[\\\"'`\]]*[ \t]*[:=]",
            r"(?i:bearer)[ \t]",
            r"(?:[Cc]ookie|COOKIE)[\"']?[ \t]*:",
            rf"://{USERINFO}*:",
            *(context for context, _, _ in CONTEXTS[1:]),
        ]
    )
)
"""A credential may begin where the first of these matches ends, or later."""

QUICK_WORDS = (
    rf"(?i:{NAMES}|authorization|bearer|cookie)|://{USERINFO}*:|[0-9]{{8}}:|[?&;]sig=|\.atlasv1\.|webhook|hooks\.sl"
)
"""Source: a text without any of these (and without `early`) holds nothing back and connects to nothing."""


def growing(words: list[str]) -> str:
    """Source that matches any prefix of any of the words, longest first."""
    heads: dict[str, list[str]] = {}
    for word in words:
        if word:
            heads.setdefault(word[0], []).append(word[1:])
    parts = []
    for letter, rest in heads.items():
        quoted = letter if letter.isalnum() or ord(letter) > 127 else f"\\x{{{ord(letter):x}}}"
        deeper = growing(rest)
        parts.append(f"{quoted}(?:{deeper})?" if deeper else quoted)
    return "|".join(parts)


@cache
def early() -> str:
    """Source that matches the beginning of any format, whole or cut off by the end of the text; it is group 1 or 2."""
    words = [prefix for prefix, _, _ in PROVIDERS]
    whole = "|".join(word.replace(".", r"\.") for word in words)
    block = "-----BEGIN"
    return rf"{BEFORE}((?:{whole})|(?:{growing(words)})\z)|({block}|(?:{growing([block])})\z)"


def kind_of_token(token: str) -> str:
    """Name of the kind of token, by its provider."""
    for prefix, _, kind in PROVIDERS:
        if token.startswith(prefix):
            return kind
    return "token"


NAME = at_first_use(rf"(?i)^[\w.\- ]*{NAMES}$")


def names_secret(name: str) -> bool:
    """Whether the name of a field, an option or a variable ends in a word for a credential."""
    return len(name) <= 200 and NAME.search(name) is not None


def kind_of_name(name: str) -> str:
    """Name of the kind of value assigned to this name."""
    lower = name.lower()
    if lower.endswith(("password", "passwd", "passwort", "pwd", "passphrase", "pass")):
        return "password"
    for word in ("token", "secret", "key"):
        if lower.endswith(word):
            return "API key" if word == "key" else word
    return "credential"


@lru_cache(maxsize=64)
def value_pattern(stops: str, quote: str) -> re.Pattern[str]:
    """Uses `re`, because it can start in the middle of a text. Nothing follows, so it never goes back and is linear;
    characters that need no second look are one repetition, so that long values take no memory each."""
    others = rf"\s\u2e80-\U0010ffff{re.escape(stops)}"
    if not quote:
        return re.compile(f"[^{others}]*")
    plain = rf"[^{others}\\{re.escape(quote[0])}]*"
    return re.compile(rf"{plain}(?:(?!{re.escape(quote)})(?:\\[^{others}]|[^{others}]){plain})*")


def value_end(text: str, start: int, stops: str, quote: str) -> int:
    """End of the value that begins at `start`: before white space, `quote` or one of `stops`."""
    found = value_pattern(stops, quote).match(text, start)
    return found.end() if found is not None else start
