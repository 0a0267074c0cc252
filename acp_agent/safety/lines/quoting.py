"""Parses the quotes of one word as bash does, and roughly splits lines that no parser understands.

`unquoted` is an independent parser: a word of the parse tree is accepted only if both agree. `rough_commands` is only
for deny rules: it finds too much rather than too little.
"""

from __future__ import annotations

import re

from msgspec import Struct

EXPANSION = re.compile(r"\$[\w({\[*@#?$!-]")
META = frozenset(" \t\r\n;&|<>()`")
GLOB = frozenset("*?[")
SIMPLE_ESCAPES = {
    **{char: char for char in "\\'\"?"},
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
CODE = re.compile(r"(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|[uU](?P<unicode>[0-9A-Fa-f]{1,8})")
TOKENS = re.compile(
    r"""((?:\$'(?:[^'\\]|\\.)*'|[^\s<>;&|()'"\\`]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\])+)|([;&|()\n`]+)""", re.DOTALL
)
"""Words, with what is quoted in them, and what is between commands."""
SEPARATORS = re.compile(r"[;&|\n\r(){}`]")
BLANKS = re.compile(r"[\s<>$]+")
BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
QUOTES = str.maketrans("", "", "'\"\\")


READERS = "cat|wc|sort|uniq|head|tail|tr|nl|rev|base64|grep|cut|fold|fmt|column"
"""Programs for which standard input is text and nothing else."""
READER = rf"(?:{READERS})(?: +(?:-[A-Za-z0-9]+|[\w.:,+]+))* *"
QUOTED_TEXT = re.compile(
    rf"({READER})<<'(?P<end>\w+)'((?: *\| *{READER})*)\n(?:(?!(?P=end)\n)[^\n]*\n)*(?P=end)\n?", re.ASCII
)
"""A line of such programs that ends in a here-document in which bash expands nothing."""


class Unquoted(Struct, frozen=True):
    text: str
    """Without quotes; anything known only at run time is kept as written."""
    literal: bool
    """Whether the program gets exactly this."""
    glob: bool = False
    """Whether a wildcard is the only reason it is not literal."""


def unquoted(source: str) -> Unquoted:
    """Parses one word of a line. Total, in linear time."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._out: list[str] = []
        self._literal = _is_plain(source)
        self._glob = False
        self._brace = False
        self._bare: list[str] = []

    def read(self) -> Unquoted:
        at, source = 0, self._source
        while at < len(source):
            char = source[at]
            if char == "\\":
                at = self._escape(at)
            elif char == "'":
                at = self._single(at)
            elif char == '"':
                at = self._double(at + 1)
            elif source.startswith("$'", at):
                at = self._ansi(at + 2)
            elif source.startswith('$"', at):
                self._literal = False  # Subject to translation.
                at = self._double(at + 2)
            else:
                at = self._plain(at)
        text = "".join(self._out)
        bare = "".join(self._bare)
        if self._brace and ("," in text or ".." in text):
            self._literal = False
        if bare.startswith("~") or "=~" in bare or ":~" in bare:
            self._literal = False
        return Unquoted(text, self._literal and not self._glob, self._literal and self._glob)

    def _plain(self, at: int) -> int:
        char = self._source[at]
        self._bare.append(char)
        if char in META or (char == "$" and EXPANSION.match(self._source, at)):
            self._literal = False
        elif char in GLOB:
            self._glob = True
        elif char == "{":
            self._brace = True
        self._out.append(char)
        return at + 1

    def _escape(self, at: int) -> int:
        following = self._source[at + 1 : at + 2]
        if not following:
            self._literal = False
        elif following != "\n":
            self._out.append(following)
        return at + 2

    def _single(self, at: int) -> int:
        end = self._source.find("'", at + 1)
        if end < 0:
            self._literal = False
            end = len(self._source)
        self._out.append(self._source[at + 1 : end])
        return end + 1

    def _double(self, at: int) -> int:
        source = self._source
        while at < len(source):
            char = source[at]
            if char == '"':
                return at + 1
            if char == "\\" and source[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
                self._out.append(source[at + 1].strip("\n"))
                at += 2
                continue
            if char == "`" or (char == "$" and EXPANSION.match(source, at)):
                self._literal = False
            self._out.append(char)
            at += 1
        self._literal = False
        return at

    def _ansi(self, at: int) -> int:
        source = self._source
        while at < len(source):
            char = source[at]
            if char == "'":
                return at + 1
            if char != "\\":
                self._out.append(char)
                at += 1
                continue
            at = self._ansi_escape(at + 1)
        self._literal = False
        return at

    def _ansi_escape(self, at: int) -> int:
        following = self._source[at : at + 1]
        if following in SIMPLE_ESCAPES:
            self._out.append(SIMPLE_ESCAPES[following])
            return at + 1
        code = CODE.match(self._source, at)
        if code is None:
            self._literal = False
            self._out.append(f"\\{following}")
            return at + 1
        base = 8 if code["octal"] else 16
        number = int(code["octal"] or code["hex"] or code["unicode"][: 4 if code[0][0] == "u" else 8], base)
        end = code.end()
        if code["unicode"] and code[0][0] == "u":
            end = at + 1 + min(4, len(code["unicode"]))
        if 0 < number < 128:
            self._out.append(chr(number))
        else:
            self._literal = False
            self._out.append("?")
        return end


def _is_plain(source: str) -> bool:
    return not source.startswith(("#", "~")) and not any(
        "\ud800" <= char <= "\udfff" or char == "\0" for char in source
    )


def without_quoted_text(line: str) -> str | None:
    """The line with no input in place of a quoted here-document, if its programs only read that as text; else None."""
    found = QUOTED_TEXT.fullmatch(line)
    return None if found is None else f"{found[1]}</dev/null{found[3]}"


def braced(word: str, most: int = 64) -> list[str]:
    """The words bash expands a word's brace lists to (`{rm,-rf}` are two words): at most `most`."""
    pending, done = [word], list[str]()
    while pending:
        text = pending.pop(0)
        found = BRACES.search(text) if len(pending) + len(done) < most else None
        if found is None:
            done.append(text)
        else:
            pending[:0] = [text[: found.start()] + item + text[found.end() :] for item in found[1].split(",")]
    return done


def rough_commands(line: str) -> list[list[str]]:
    """The words of everything that might be a command, ignoring quotes, and heeding them. In linear time."""
    joined = line.replace("\\\n", "")
    forgotten = ([word for word in BLANKS.split(text) if word] for text in _segments(joined.translate(QUOTES)))
    read = ([unquoted(word).text for word in re.split(r"[\s<>]+", text) if word] for text in _segments(joined))
    heeded: list[list[str]] = [[]]
    for word, separator in TOKENS.findall(joined):
        if separator:
            heeded.append([])
        else:
            heeded[-1].append(unquoted(word).text)
    return [command for commands in (forgotten, read, heeded) for command in commands if command]


def _segments(text: str) -> list[str]:
    return list(dict.fromkeys(SEPARATORS.split(text)))
