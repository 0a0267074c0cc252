"""A process that writes entries one by one and reports each; it is killed at some moment.

`python writer.py DATABASE SESSION`
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from acp_agent.store.base import LogEntry, SessionRecord
from acp_agent.store.stores import sqlite_store


def main() -> None:
    store = sqlite_store(Path(sys.argv[1]))
    session = sys.argv[2]
    if store.get(session) is None:
        store.create(SessionRecord(session, "/x"))
    for number in count(len(store.entries(session))):
        store.append(session, [LogEntry("update", b"%d" % number)])
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main()
