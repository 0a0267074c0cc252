"""A small agent on stdio for the tests of `spawn_agent`; its one argument says how it behaves."""

import json
import os
import sys
import time


def main(behaviour: str) -> None:
    if behaviour == "dies":
        sys.stderr.write("no key: set one\n")
        sys.exit(3)
    if behaviour == "chatty":
        sys.stderr.write("x" * 1_000_000 + "the end")
        sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = {"protocolVersion": 1, "_meta": {"cwd": os.getcwd(), "name": os.environ.get("NAME", "")}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()
        if behaviour == "answers and dies":
            os._exit(0)
        if behaviour == "prints":
            sys.stdout.write("Welcome!\n")
            sys.stdout.flush()
    if behaviour == "stays":
        sys.stderr.write("staying\n")
        sys.stderr.flush()
        time.sleep(1000)


main(sys.argv[1])
