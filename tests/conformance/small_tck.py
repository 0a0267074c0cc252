"""In the place of acp-tck, for tests: takes its options and writes its report, of an exchange with the agent; not for
use."""

import argparse
import json
import os
import subprocess
import sys

parser = argparse.ArgumentParser()
for option in ("--report-json", "--agent-cwd", "--cancel-prompt", "--timeout"):
    parser.add_argument(option, required=True)
parser.add_argument("command", nargs=argparse.REMAINDER)
options = parser.parse_args()
agent = subprocess.Popen(
    options.command[1:], cwd=options.agent_cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)


def asks(method, **params):
    """The result, and the updates before it."""
    line = json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
    agent.stdin.write(line + "\n")
    agent.stdin.flush()
    updates = []
    while (message := json.loads(agent.stdout.readline())).get("id") != method:
        updates.append(message)
        if "chunk" in json.dumps(message) and options.cancel_prompt in line:
            agent.stdin.write(
                json.dumps({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": params["sessionId"]}})
                + "\n"
            )
            agent.stdin.flush()
    return message["result"], json.dumps(updates)


def row(id_, tier, status, message=""):
    test = {"nodeid": id_, "status": status, "message": message, "duration_s": 0.1, "properties": {}}
    return {"id": id_, "tier": tier, "text": f"The text of {id_}.", "status": status, "tests": [test], "citation": ""}


welcome, _ = asks("initialize", protocolVersion=1, clientCapabilities={})
session, _ = asks("session/new", cwd=options.agent_cwd, mcpServers=[])
id_ = session["sessionId"]
turn, said = asks("session/prompt", sessionId=id_, prompt=[{"type": "text", "text": "hello"}])
cancelled, _ = asks("session/prompt", sessionId=id_, prompt=[{"type": "text", "text": options.cancel_prompt}])
agent.communicate(timeout=30)
works = (
    turn["stopReason"] == "end_turn"
    and "Hello." in said
    and os.environ["HOME"].startswith(os.path.dirname(os.getcwd()))
)
rows = [
    row("ACP-CANCEL-001", "MANDATORY", "PASS" if cancelled["stopReason"] == "cancelled" else "FAIL"),
    row("ACP-INIT-002", "MANDATORY", "PASS" if welcome["protocolVersion"] == 1 else "FAIL"),
    row("ACP-LOAD-002", "CAPABILITY", "FAIL", "an update came\nlate"),
    row("ACP-PROMPT-001", "MANDATORY", "PASS" if works else "FAIL", f"{turn} {said}"),
    row("ACP-SESSION-001", "MANDATORY", os.environ.get("TCK", "PASS"), "so it says"),
    row("ACP-STDERR-001", "INFORMATIONAL", "PASS"),
]
if os.environ.get("TCK") == "silent":
    sys.exit("nothing to report")
with open(options.report_json, "w") as file:
    json.dump({"tck_version": "0.1.0", "requirements": rows, "verdict": {"conformant": False}}, file)
