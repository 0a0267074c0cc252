"""Whether an image is one that models take. A broken one in the conversation would make every later request fail.

Headers and ends are looked at, not pixels: PNG (RFC 2083), JPEG (ITU T.81), GIF89a, WebP (RFC 9649).
"""

from __future__ import annotations

import binascii
import struct
import zlib
from base64 import b64decode
from collections.abc import Callable

from msgspec.structs import replace

from acp_agent.llm.base import ImagePart, Part, TextPart

LARGEST = 5 * 1024 * 1024
"""Characters of base64: the least that an API has as its limit (Messages)."""
LONGEST_SIDE = 8000
"""Pixels: the same."""
TYPES = "PNG, JPEG, GIF and WebP"
LEFT_OUT = "[an image was left out: {}]"

PNG = b"\x89PNG\r\n\x1a\n"
MARKS = {PNG: "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif"}
"""First bytes -> type. WebP has its signature further in."""
FRAMES = frozenset((*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)))
"""JPEG's markers before which a frame's size stands."""


class _Broken(Exception):
    pass


def type_of(head: bytes) -> str | None:
    """Of an image that begins so (16 bytes suffice), if models take it."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for mark, mime in MARKS.items() if head.startswith(mark)), None)


def usable(part: Part) -> Part:
    """The part; of an image with the type that it has; instead of one that no model could take a text that says why."""
    if not isinstance(part, ImagePart):
        return part
    why, mime = _look(part)
    if why:
        return TextPart(LEFT_OUT.format(why))
    return part if mime == part.mime_type else replace(part, mime_type=mime)


def _look(part: ImagePart) -> tuple[str, str]:
    """Why not, and the type."""
    if len(part.data) > LARGEST:
        return f"it has {len(part.data) * 3 // 4 // 1024} KiB; at most {LARGEST * 3 // 4 // 1024} can be sent", ""
    try:
        data = b64decode(part.data)
        mime, width, height = _size(data)
    except (binascii.Error, ValueError, struct.error, IndexError, _Broken) as error:
        words = str(error) if isinstance(error, _Broken) else "it is broken or cut off"
        return words, ""
    if max(width, height) > LONGEST_SIDE:
        return f"it is {width} by {height} pixels; at most {LONGEST_SIDE} each way can be sent", ""
    return ("it is empty", "") if not min(width, height) else ("", mime)


def _size(data: bytes) -> tuple[str, int, int]:
    mime = type_of(data)
    if mime is None:
        raise _Broken(f"models take {TYPES}")
    return mime, *SIZES[mime](data)


def _png(data: bytes) -> tuple[int, int]:
    at, size, filled = len(PNG), (0, 0), False
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 4 : at + 8 + length]
        if len(body) != 4 + length or zlib.crc32(body) != struct.unpack_from(">I", data, at + 8 + length)[0]:
            raise _Broken("it is broken or cut off")
        if kind == b"IHDR":
            size = struct.unpack_from(">II", body, 4)
        filled = filled or kind == b"IDAT"
        if kind == b"IEND":
            break
        at += 12 + length
    if not filled:
        raise _Broken("it has no pixels")
    return size


def _jpeg(data: bytes) -> tuple[int, int]:
    if b"\xff\xd9" not in data[-64 * 1024 :]:  # Cameras put more after it.
        raise _Broken("it is cut off")
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 1 if marker == 0xFF else 2 + struct.unpack_from(">H", data, at + 2)[0]
    raise _Broken("it is broken or cut off")


def _gif(data: bytes) -> tuple[int, int]:
    if not data.rstrip(b"\0").endswith(b";"):
        raise _Broken("it is cut off")
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> tuple[int, int]:
    if struct.unpack_from("<I", data, 4)[0] + 8 > len(data):
        raise _Broken("it is cut off")
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


SIZES: dict[str, Callable[[bytes], tuple[int, int]]] = {
    "image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp,
}  # fmt: skip
"""Type -> width and height of a whole image. They raise _Broken, struct.error, IndexError."""
