"""The pictures of the documentation show the program as it is now."""

import re

from tests.pictures import CHAT, MADE_OF, PAGE, chat_picture, made_of

MOST_BYTES, MOST_PICTURE = 40_000, 250_000


async def test_the_picture_of_the_chat_is_what_the_chat_shows_now(tmp_path):
    kept = CHAT.read_text(encoding="utf-8")
    assert await chat_picture(tmp_path) == kept, "run `make pictures`"
    assert len(kept.encode()) < MOST_BYTES and "Run\u00a0this?" in kept
    assert re.findall('https?://[^"]*', kept) == ["http://www.w3.org/2000/svg"], "it asks another server"


def test_the_picture_of_the_page_was_made_of_what_the_page_is_now():
    assert MADE_OF.read_text(encoding="utf-8").strip() == made_of(), "run `make pictures`"
    picture = PAGE.read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < MOST_PICTURE
    assert [int.from_bytes(picture[at : at + 4], "big") for at in (16, 20)] == [780, 1688]
