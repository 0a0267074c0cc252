"""A process that writes entries one by one and reports each; it is killed at some moment.

`python -m tests.store.writer WHERE SCHEMA SESSION`
"""

import os
import sys
from itertools import count

from acp_agent.store.base import LogEntry, SessionRecord
from tests.store.conftest import open_at


def main() -> None:
    store = open_at((sys.argv[1], sys.argv[2]))
    session = sys.argv[3]
    if store.get(session) is None:
        store.create(SessionRecord(session, "/x"))
    for number in count(len(store.entries(session))):
        store.append(session, [LogEntry("update", b"%d" % number)])
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main()
