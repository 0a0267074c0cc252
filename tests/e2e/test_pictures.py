"""The pictures of the documentation show the program as it is now."""

import re

from tests.pictures import CHAT, chat_picture

MOST_BYTES = 40_000


async def test_the_picture_of_the_chat_is_what_the_chat_shows_now(tmp_path):
    kept = CHAT.read_text(encoding="utf-8")
    assert await chat_picture(tmp_path) == kept, "run `make pictures`"
    assert len(kept.encode()) < MOST_BYTES and "Run\u00a0this?" in kept
    assert re.findall('https?://[^"]*', kept) == ["http://www.w3.org/2000/svg"], "it asks another server"
