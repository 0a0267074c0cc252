"""What the official kit starts as the client of a scenario: hands it to the test, by the port in `SCENARIO_PORT`, and
waits. Its last argument is the address of the scenario's server."""

import json
import os
import socket
import sys

with socket.create_connection(("127.0.0.1", int(os.environ["SCENARIO_PORT"]))) as test:
    about = {
        "url": sys.argv[-1], "name": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }  # fmt: skip
    test.sendall(json.dumps(about).encode() + b"\n")
    said = test.makefile().read()
sys.stdout.write(said)
