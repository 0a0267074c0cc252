"""The encoding of a file's bytes: found out when it is read, kept when it is written.

A byte order mark says it; else it is UTF-8, if the bytes are; else UTF-16, if every other byte is zero; else the file
is binary, if it has control characters; else windows-1252, or latin-1 where that has no character. Pure.
"""

from __future__ import annotations

import codecs

from msgspec import Struct

from acp_agent.lazy import pattern


class Encoding(Struct, frozen=True):
    name: str
    """As people call it."""
    codec: str
    mark: bytes = b""
    """The byte order mark at the beginning."""


class Decoded(Struct, frozen=True):
    text: str
    """Without the byte order mark."""
    encoding: Encoding


BYTE_ORDER = "\ufeff"
UTF8 = Encoding("UTF-8", "utf-8")
MARKED = (
    Encoding("UTF-8 with a byte order mark", "utf-8", codecs.BOM_UTF8),
    Encoding("UTF-32 LE", "utf-32-le", codecs.BOM_UTF32_LE),
    Encoding("UTF-32 BE", "utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("UTF-16 LE", "utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("UTF-16 BE", "utf-16-be", codecs.BOM_UTF16_BE),
)
"""Tried in this order: the mark of UTF-16 LE begins that of UTF-32 LE."""
UNMARKED = (Encoding("UTF-16 LE", "utf-16-le"), Encoding("UTF-16 BE", "utf-16-be"))
SINGLE_BYTES = (Encoding("windows-1252", "cp1252"), Encoding("latin-1", "latin-1"))

SNIFFED = 8192
"""Bytes at the beginning that decide whether a file is binary."""
CONTROLS = pattern(r"[\0-\x06\x0e-\x19\x1c-\x1f]")
MOSTLY = 0.4
RARELY = 0.02
"""Shares of zeros among the bytes at odd and at even places, in UTF-16 without a mark."""

KINDS = (
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program or library"),
    (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program or library"),
    (b"\0asm", "a WebAssembly module"),
    (b"PK\x03\x04", "a ZIP archive, or a document in one"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"\xfd7zXZ\0", "xz-compressed"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a WebP image, or a WAV or AVI file"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"wOF", "a WOFF font"),
)
"""First bytes -> what the file is."""


def decoded(data: bytes) -> Decoded:
    """Raises UnicodeDecodeError for a binary file; its `reason` is what the file is, if that is known."""
    for marked in MARKED:
        if data.startswith(marked.mark):
            return _strictly(data[len(marked.mark) :], marked) or _binary(data)
    found = _strictly(data, UTF8)
    head = data[:SNIFFED]
    if found is not None and 0 not in head:
        return found
    for unmarked in UNMARKED:
        if _looks_like(head, unmarked) and (wide := _strictly(data, unmarked)) is not None:
            return _binary(data) if CONTROLS.search(wide.text[:SNIFFED]) is not None else wide
    if CONTROLS.search(head.decode("latin-1")) is not None:
        return _binary(data)
    windows, latin = SINGLE_BYTES
    return _strictly(data, windows) or Decoded(data.decode(latin.codec), latin)


def encoded(text: str, encoding: Encoding) -> tuple[bytes, Encoding]:
    """In UTF-8 where `encoding` lacks a character of the text. Never fails."""
    try:
        bare = text if encoding == UTF8 else text.removeprefix(BYTE_ORDER)
        return encoding.mark + bare.encode(encoding.codec), encoding
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace"), UTF8


def lossy(shown: str, data: bytes, right: str | None) -> bool:
    """Whether `shown` is what a client shows that takes `data`, which means `right`, for UTF-8 or latin-1."""
    shown = line_feeds(shown)
    if right is not None and shown == line_feeds(right):
        return False
    readings = (data.decode("utf-8", "ignore"), data.decode("utf-8", "replace"), data.decode("latin-1"))
    return shown in map(line_feeds, readings)


def line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _strictly(data: bytes, encoding: Encoding) -> Decoded | None:
    try:
        return Decoded(data.decode(encoding.codec), encoding)
    except UnicodeDecodeError:
        return None


def _looks_like(head: bytes, wide: Encoding) -> bool:
    high, low = (head[1::2], head[::2]) if wide.codec == "utf-16-le" else (head[::2], head[1::2])
    return high.count(0) > MOSTLY * len(high) > 0 and low.count(0) <= RARELY * len(low)


def _binary(data: bytes) -> Decoded:
    kind = next((kind for mark, kind in KINDS if data.startswith(mark)), "")
    raise UnicodeDecodeError("text", data[:1], 0, 1, kind)


def _as_single_byte(error: UnicodeError) -> tuple[str, int]:
    """For lines of a file whose other lines are not known: what is no UTF-8 is windows-1252."""
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return (_strictly(wrong, SINGLE_BYTES[0]) or Decoded(wrong.decode("latin-1"), UTF8)).text, error.end


UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
OR_SINGLE_BYTE = "utf-8-or-single-byte"
"""Error handler for `decode("utf-8", ...)`."""
codecs.register_error(OR_SINGLE_BYTE, _as_single_byte)


def decoded_part(data: bytes, *, begun: bool, goes_on: bool) -> tuple[str, int]:
    """A part of a long file, and where in the data it ends: without the halves of characters at its ends, if something
    was before it, or comes after it."""
    begin = 0
    while begun and begin < min(3, len(data)) and 0x80 <= data[begin] < 0xC0:
        begin += 1
    lead = next((at for at in (1, 2, 3) if data[-at:][:1] >= b"\xc0"), 0) if goes_on else 0
    if lead and lead < 2 + (data[-lead] >= 0xE0) + (data[-lead] >= 0xF0):
        data = data[:-lead]
    return data[begin:].decode("utf-8", OR_SINGLE_BYTE), len(data)
