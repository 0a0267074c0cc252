"""The pictures in docs/pictures, of the real program in a terminal and of its page in Chromium: `make pictures`.

A separate program, since it uses the kit of the tests: `python -m scripts.pictures` in the root of the repository.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from tests.page_picture import page_picture
from tests.pictures import CHAT, MADE_OF, PAGE, ROOT, chat_picture, made_of


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pictures-") as home:
        text = anyio.run(chat_picture, Path(home, "chat"))
        picture = anyio.run(page_picture, Path(home, "page"))
    CHAT.parent.mkdir(exist_ok=True)
    CHAT.write_text(text, encoding="utf-8")
    PAGE.write_bytes(picture)
    MADE_OF.write_text(f"{made_of()}\n", encoding="utf-8")
    for file in (CHAT, PAGE):
        sys.stdout.write(f"{file.relative_to(ROOT)}: {file.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
