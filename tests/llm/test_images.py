"""Images that no model could take are words in the conversation."""

import base64
import struct
import zlib

import pytest

from acp_agent.llm.base import ImagePart, TextPart
from acp_agent.llm.images import LARGEST, usable


def png(width: int = 1, height: int = 1) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * (width + 1) * min(height, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def jpeg(width: int = 3, height: int = 2) -> bytes:
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8\xff\xe0\0\4ab\xff" + frame + b"\xff\xda\0\2pixels\xff\xd9"


GIF = b"GIF89a\2\0\1\0\x80\0\0" + b"\0" * 6 + b",\0\0\0\0\2\0\1\0\0\2\2D\1\0;"
WEBP = b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8L" + struct.pack("<I", 10) + b"\x2f\1\0\0\0" + b"\0" * 5


def part(data: bytes, mime: str = "image/png") -> ImagePart:
    return ImagePart(mime, base64.b64encode(data).decode())


@pytest.mark.parametrize(("data", "mime"), [
    (png(), "image/png"), (jpeg(), "image/jpeg"), (jpeg() + b"more of the camera", "image/jpeg"), (GIF, "image/gif"),
    (GIF + b"\0\0", "image/gif"), (WEBP, "image/webp"), (png(8000, 1), "image/png"),
])  # fmt: skip
def test_whole_ones_go_with_the_type_that_they_have(data: bytes, mime: str) -> None:
    for said in (mime, "image/png", "image/x-odd"):
        assert usable(part(data, said)) == part(data, mime)
    assert usable(TextPart("x")) == TextPart("x")


@pytest.mark.parametrize(("data", "words"), [
    (png()[:-5], "cut off"), (png()[:40], "broken or cut off"), (png()[:20] + b"\xee" + png()[21:], "broken"),
    (b"", "models take"),
    (b"\x89PNG\r\n\x1a\n" + b"0" * 20, "broken"), (jpeg()[:-3], "cut off"), (jpeg()[:4] + b"\xff\xd9", "broken"),
    (GIF[:-1], "cut off"), (WEBP[:-3], "cut off"), (b"<svg xmlns='x'/>", "models take PNG, JPEG, GIF and WebP"),
    (b"II*\0\1\0", "models take"), (b"BM" + b"\0" * 60, "models take"), (png(8001, 1), "8001 by 1 pixels"),
    (png(0, 4), "empty"), (b"\x89PNG\r\n\x1a\n" + png()[8:33] + png()[-12:], "no pixels"),
])  # fmt: skip
def test_others_are_words_that_say_why(data: bytes, words: str) -> None:
    found = usable(part(data))
    assert isinstance(found, TextPart) and found.text.startswith("[an image was left out: ") and words in found.text


def test_a_large_one_and_one_that_is_no_base64_are_words() -> None:
    assert "KiB; at most 3840 can be sent" in str(usable(ImagePart("image/png", "A" * (LARGEST + 1))))
    assert "broken" in str(usable(ImagePart("image/png", "A")))


@pytest.mark.parametrize("whole", [png(), jpeg(), GIF, WEBP])
def test_no_part_of_one_breaks_the_look(whole: bytes) -> None:
    for end in range(len(whole)):
        usable(part(whole[:end]))
        usable(part(whole[:end] + b"\xff" + whole[end + 1 :]))
