"""Text from a model, a file's name or a program as a user can trust to see it."""

from __future__ import annotations

import re
import unicodedata

from acp_agent.lazy import pattern

IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties of 16.0), as in a pattern: what is not to be seen."""
UNSEEN = pattern(f"[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{IGNORABLE}]")
"""What could move the cursor, hide text or reverse it."""
IGNORED = pattern(f"[{IGNORABLE}]")
ALIKE = str.maketrans("015авеѕсԁһіјкӏмнорԛгтухѵԝαβεικνορτυχɑɡı", "oisabescdhijkimhopqrtyxvwabeiknoptuxagi")
"""Letters that look like one of ASCII: of Cyrillic and Greek (UTS 39, confusables), and digits."""

MARKS = pattern(r"^[ ]{0,3}(`{3,})", re.MULTILINE)
BLOCK = pattern(r"(`{3,})\n(.*)\n\1", re.DOTALL)


def legible(text: str) -> str:
    """`text` with such characters shown as `\\x1b` or `\\u202e`; tabs and line ends stay."""
    return UNSEEN.sub(_number, text.replace("\r\n", "\n"))


def marks_around(text: str) -> str:
    """The marks of a code block that nothing in it can end."""
    return "`" * max([3, *(len(marks) + 1 for marks in MARKS.findall(text))])


def verbatim(text: str) -> str:
    """`text` as Markdown shows it as it stands: in a code block."""
    fence = marks_around(text)
    return f"{fence}\n{text.rstrip(chr(10))}\n{fence}" if text.strip() else text


def not_verbatim(text: str) -> str:
    """What `verbatim` made of it, as it was; else `text`."""
    found = BLOCK.fullmatch(text)
    return text if found is None else found[2]


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def look(name: str) -> str:
    """What a name looks like: equal for two that are easily taken for each other."""
    plain = unicodedata.normalize("NFKD", IGNORED.sub("", name)).casefold()
    return "".join(char for char in plain.translate(ALIKE) if not unicodedata.combining(char)).replace("l", "i")


NO_LIMIT = "no limit"


def size_words(number: int) -> str:
    """A number of bytes for a user: `200 MB`; of zero, which stands for it, `no limit`."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000**power:
            return f"{number / 1000**power:.3g} {unit}"
    return f"{number} bytes" if number else NO_LIMIT
