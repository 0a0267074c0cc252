"""The picture of the chat in docs/pictures, from the real program in a terminal: `make pictures`.

A separate program, since it uses the kit of the tests: `python -m scripts.pictures` in the root of the repository.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from tests.pictures import CHAT, ROOT, chat_picture


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pictures-") as home:
        text = anyio.run(chat_picture, Path(home))
    CHAT.parent.mkdir(exist_ok=True)
    CHAT.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{CHAT.relative_to(ROOT)}: {len(text)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
