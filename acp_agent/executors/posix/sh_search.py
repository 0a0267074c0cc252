"""Finds files and lines on a host without Python, with its own `find` and `grep -E` (GNU's or busybox's).

Globs and hidden paths are decided here; the pattern is grep's to read. `Found.note` says what differs: `.gitignore` is
not applied, and what `grep -E` may read otherwise (`dialect`). A file with a NUL is binary (so UTF-16 is, too), and one
with a line feed in its path is found, but its lines are not searched. Results are looked at again as all are
(`search._confirmed`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from acp_agent.executors import search
from acp_agent.executors.base import FindQuery, Found, GrepQuery, Match
from acp_agent.executors.encodings import OR_SINGLE_BYTE
from acp_agent.executors.searching.listed_names import matcher
from acp_agent.executors.searching.search_worker import MAX_LINE_CHARS, by_glob, by_name, cut
from acp_agent.executors.tree_walk import Hides

NEEDS = r"""
export LC_ALL=C
needs() { for n; do command -v "$n" >/dev/null || { echo "there is no $n on this host" >&2; exit 1; }; done; }
"""


def _closed(form: str) -> str:
    """For `find`: prints in that form what may not be read."""
    test = '[ -r "$f" ] && { [ ! -d "$f" ] || [ -x "$f" ]; }'
    return f"""-exec sh -c 'for f; do {test} || printf "{form}" "$f"; done' sh {{}} +"""


NAMED_CLOSED, LINE_CLOSED = _closed(r"u%s\0"), _closed(r"!%s\n")
FIND = rf"""{NEEDS}
needs find printf
exec 2>/dev/null
cd "$1" || exit 0
find . -name .git -prune -o -type d {NAMED_CLOSED} \
  ! -name . -exec printf 'd%s\0' {{}} + -o -type f -exec printf 'f%s\0' {{}} +
exit 0
"""
"""`$1`: the root. Prints `d`, `f` or `u` (it may not be read), the path, NUL."""
GREP = rf"""{NEEDS}
needs find grep env tr wc cut
NL='
'
t=$(echo | env LC_ALL=C.UTF-8 grep -E $3 -e "$2" 2>&1)
[ $? -lt 2 ] || {{ printf '%s\n' "this host's grep -E cannot read the pattern: ${{t##*"$NL"}}" >&2; exit 1; }}
exec 2>/dev/null
d=$1 n= most={sys.maxsize}
if [ -d "$1" ]; then cd "$1" || exit 0; d=. n=$4 most={search.MAX_FILE_BYTES}; fi
find -H "$d" -name .git -prune -o -type d ! -path "*$NL*" {LINE_CLOSED} \
  -o -type f ! -path "*$NL*" ${{n:+-name "$n"}} -size +"$most"c \
  -exec printf '>%s\n' {{}} \; -o -type f ! -path "*$NL*" ${{n:+-name "$n"}} \
  {LINE_CLOSED} -exec env LC_ALL=C.UTF-8 grep -laE $3 -e "$2" {{}} + |
while IFS= read -r f; do
  case $f in ">"*) printf '\0\0%s\n' "${{f#>}}"; continue ;; "!"*) printf '\0\0\0%s\n' "${{f#!}}"; continue ;; esac
  [ "$(tr -cd '\0' <"$f" | wc -c)" -eq 0 ] || continue
  printf '\0%s\n' "$f"
  env LC_ALL=C.UTF-8 grep -naE $3 -e "$2" <"$f" | cut -b 1-{8 * MAX_LINE_CHARS}
done
exit 0
"""
"""`$1`: the root, `$2`: the pattern, `$3`: `-i` or nothing, `$4`: the names of the files. Prints for each file NUL, its
path and a line feed, then `number:text`, a line each; for a file that is too large the same behind two NUL, for what
may not be read behind three. (Busybox has no `-Z` and `-I`, and no `-exec +` in brackets; a pattern is read in UTF-8,
names are bytes.)"""

NO_RULES = "Searched with this host's `{}`: .gitignore is not applied."
OTHERWISE = (
    " It may read {} otherwise than Python or not at all: it knows `[0-9]`, `[[:space:]]` and `[[:alnum:]_]`, and no "
    "look-around or lazy counts."
)
UNLIKE = re.compile(
    r"""(?s)
      (?P<escape>\\.)
    | (?P<set>\[\^?\]?(?:\[:\w+:\]|[^\]])*\]?)
    | (?P<group>\(\?)
    | (?P<count>[*+?}][?+])
    | (?P<feed>\n)
    | (?P<end>\$)
    """,
    re.VERBOSE,
)


def dialect(pattern: str) -> str:
    """Which parts of the pattern `grep -E` reads otherwise than Python; empty if there are none."""
    found = dict.fromkeys(filter(None, map(_unlike, UNLIKE.finditer(pattern))))
    return ", ".join(found)


def _unlike(part: re.Match[str]) -> str:
    text = part[0]
    match part.lastgroup:
        case "escape":
            return f"`{text}`" if text[1].isalnum() else ""
        case "set":
            return r"`\` in `[]`" if "\\" in text else ""
        case "feed":
            return "a line feed"
        case "end":
            return "`$` before CR LF"
    return f"`{text}`"


async def find(query: FindQuery, hides: Hides | None, host: search.Host) -> Found:
    """As `search.find`."""
    wanted = matcher(by_name, query.pattern)
    folders_only = query.pattern.endswith("/")

    def parse(field: bytes) -> Match | search.LeftOut | None:
        kind, name = field[:1], os.fsdecode(field[3:])
        if kind == b"u":
            return search.LeftOut(query.root / name)
        if not name or (kind == b"f" and folders_only) or not wanted(name):
            return None
        return Match(query.root / name, None, "dir" if kind == b"d" else "file")

    argv = ["sh", "-c", FIND, "sh", str(query.root)]
    run = await search._run(argv, parse, hides, query, host, end=b"\0")
    return _noted(await search._judged(run, host), NO_RULES.format("find"))


async def grep(query: GrepQuery, hides: Hides | None, host: search.Host) -> Found:
    """As `search.grep`, with a pattern of `grep -E`."""
    name = query.glob if query.glob and search.NAME_GLOB.fullmatch(query.glob) else ""
    wanted = matcher(by_glob, query.glob) if query.glob and not name else None
    fold = "" if query.case_sensitive else "-i"
    argv = ["sh", "-c", GREP, "sh", str(query.root), query.pattern, fold, name]
    run = await search._run(argv, _Lines(query.root, wanted), hides, query, host)
    otherwise = dialect(query.pattern)
    note = NO_RULES.format("grep -E") + (OTHERWISE.format(otherwise) if otherwise else "")
    return _noted(await search._judged(run, host), note)


def _noted(found: Found, note: str) -> Found:
    """In the order of paths: the host's is any."""
    matches = sorted(found.matches, key=lambda match: (match.path, match.line or 0))
    return msgspec.structs.replace(found, matches=tuple(matches), note=note)


class _Lines:
    """What `GREP` prints, line by line."""

    def __init__(self, root: Path, wanted: Callable[[str], bool] | None) -> None:
        self._root, self._wanted = root, wanted
        self._path: Path | None = None

    def __call__(self, line: bytes) -> Match | search.LeftOut | None:
        if line.startswith(b"\0"):
            path = self._root / os.fsdecode(name := line.lstrip(b"\0"))
            if len(line) - len(name) == 3:
                return search.LeftOut(path)
            below = self._wanted is None or path == self._root or self._wanted(str(path.relative_to(self._root)))
            self._path = path if below and not line.startswith(b"\0\0") else None
            return search.LeftOut(path, large=True) if below and self._path is None else None
        number, colon, text = line.partition(b":")
        if self._path is None or not colon or not number.isdigit():
            return None
        return Match(self._path, int(number), cut(text.decode("utf-8", OR_SINGLE_BYTE).removesuffix("\r")))
