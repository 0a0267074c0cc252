"""An MCP server on stdio in plain Python, for what a good one never does.

Its first argument says how it behaves, or is the list of tools that it offers.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
NOTES = sys.argv[2] if len(sys.argv) > 2 else ""
"""A file that it writes what happens to it in, a line each."""

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
EMPTY = {"type": "object", "properties": {}}
HALF = r'{"content": [{"type": "text", "text": "a\ud800b \ud83d\ude00 \\ud800"}]}'
ODD = {
    "half": '{"jsonrpc": "2.0", "id": %s, "result": ' + HALF + "}",
    "wrong": '{"jsonrpc": "2.0", "id": %s, "result": "ready"}', "bare": '{"id": %s}',
}  # fmt: skip
"""Answers to `odd`, which is not listed."""
tools = [
    "echo", "mixed", "fails", "error", "huge", "slow", "grow", "die", "env", "flood", "roots", "structured", "ask",
    "url",
]  # fmt: skip
asked: dict[object, object] = {}
opened: list[object] = []
works: dict[str, object] = {}
"""In the mode `tasks`: `states` are what the task answers, one after the other, the last one from then on."""
NOW = "2026-11-29T12:00:00Z"
lock = threading.Lock()


def note(text: str) -> None:
    if NOTES:
        with open(NOTES, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def say(stream: TextIO, words: str) -> None:
    stream.write(words + "\n")
    stream.flush()


def send(message: dict[str, object]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(words: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": words}]}


def call(number: object, name: str, arguments: dict[str, object]) -> None:
    match name:
        case "echo":
            send({"id": number, "result": text(str(arguments.get("says") or json.dumps(arguments)))})
        case "mixed":
            content: list[dict[str, object]] = [
                {"type": "text", "text": "\x1b[31mred\x1b[0m"}, {"type": "image", "data": PNG, "mimeType": "image/png"},
                {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": PNG, "mimeType": "x/y"}},
                {"type": "resource_link", "uri": "file:///b.txt", "name": "b"},
            ]  # fmt: skip
            send({"id": number, "result": {"content": content}})
        case "fails":
            send({"id": number, "result": {**text(str(arguments.get("says", "it did not work"))), "isError": True}})
        case "error":
            send({"id": number, "error": {"code": arguments["code"], "message": "as you wished"}})
        case "huge":
            send({"id": number, "result": text("x" * int(str(arguments["size"])))})
        case "structured":
            found: dict[str, object] = {"answer": 42}
            if "size" in arguments:
                found["much"] = "x" * int(str(arguments["size"]))
            send({"id": number, "result": {"content": [], "structuredContent": found}})
        case "returns":
            send({"id": number, "result": arguments["result"]})
        case "odd":
            say(sys.stdout, ODD[str(arguments["how"])] % json.dumps(number))
        case "slow":
            note(f"started {number}")
        case "grow":
            tools.append("grown")
            send({"method": "notifications/tools/list_changed"})
            send({"id": number, "result": text("more")})
        case "die":
            say(sys.stderr, "the last words")
            os._exit(3)
        case "env":
            send({"id": number, "result": text(json.dumps([dict(os.environ), os.getcwd()]))})
        case "flood":
            sys.stdout.write("x" * (4 * 1024 * 1024))
            sys.stdout.flush()
        case "roots" | "ask":
            method = "roots/list" if name == "roots" else "sampling/createMessage"
            params = {} if name == "roots" else {"messages": [], "maxTokens": 1}
            asked[f"ask-{number}"] = number
            send({"id": f"ask-{number}", "method": method, "params": params})
        case "url" if arguments["url"] in opened:
            send({"id": number, "result": text("done at the URL")})
        case "url":
            wanted = {"mode": "url", "elicitationId": "7", "url": arguments["url"], "message": "Pay here"}
            data = {"elicitations": [wanted] if arguments["url"] else "none"}
            send({"id": number, "error": {"code": -32042, "message": "pay first", "data": data}})
            if arguments.get("told"):
                opened.append(arguments["url"])
                send({"method": "notifications/elicitation/complete", "params": {"elicitationId": "7"}})
        case _:
            send({"id": number, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})


def answer(message: dict[str, object]) -> None:
    number, params = message.get("id"), message.get("params") or {}
    assert isinstance(params, dict)
    match message.get("method"):
        case "initialize":
            if MODE in ("modern", "tasks", "ttl") or MODE.startswith("{"):
                error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "x"}}
                send({"id": number, "error": error})
                return
            if MODE == "strange":
                send({"id": number, "result": {"protocolVersion": 7}})
                return
            offered = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
            version = "1999-01-01" if MODE == "old" else params["protocolVersion"]
            info = {"name": "raw", "version": "1"}
            send({"id": number, "result": {"protocolVersion": version, "capabilities": offered, "serverInfo": info}})
        case "server/discover":
            offered = {"tools": {}}
            send({"id": number, "result": {
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": offered, "ttlMs": 0,
                "cacheScope": "private",
            }})  # fmt: skip
        case "tools/list":
            start = int(str(params.get("cursor", "0")))
            page = [{"name": tool, "description": f"Does {tool}.", "inputSchema": EMPTY} for tool in tools]
            more = {"nextCursor": str(start + 5)} if start + 5 < len(page) or MODE == "endless" else {}
            if MODE.startswith("["):
                send({"id": number, "result": {"tools": json.loads(MODE)}})
                return
            if MODE.startswith("{"):
                send({"id": number, "result": {"resultType": "complete", "tools": page[:1], **json.loads(MODE)}})
                return
            note("listed")
            if MODE == "ttl" and NOTES and Path(NOTES).read_text().endswith("fail\nlisted\n"):
                send({"id": number, "error": {"code": -32603, "message": "not now"}})
                return
            extra = (
                {"resultType": "complete", "ttlMs": int(MODE == "ttl"), "cacheScope": "private"}
                if MODE in ("modern", "tasks", "ttl")
                else {}
            )
            send({"id": number, "result": {"tools": page[start : start + 5], **more, **extra}})
        case "prompts/list":
            if MODE == "promptless":
                send({"id": number, "error": {"code": -32603, "message": "no prompts today"}})
                return
            argument = {"name": "topic", "description": "What about", "required": True}
            prompt = {"name": "explain", "description": "Explains.", "arguments": [argument]}
            send({"id": number, "result": {"prompts": [prompt]}})
        case "prompts/get":
            words = f"Explain {params['arguments']['topic']}"
            message = {"role": "user", "content": {"type": "text", "text": words}}
            send({"id": number, "result": {"messages": [message]}})
        case "resources/read":
            words = "[instructions 0123456789ab: for everything]"
            send({"id": number, "result": {"contents": [{"uri": params["uri"], "text": words}]}})
        case "tools/call" if MODE == "tasks":
            note(json.dumps(params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})))
            task = {"taskId": "t1", "status": "working", "ttlMs": None, "pollIntervalMs": 1}
            works.update(params["arguments"])
            send({"id": number, "result": {"resultType": "task", "createdAt": NOW, "lastUpdatedAt": NOW, **task}})
        case "tasks/get":
            note(f"asked for {params['taskId']}")
            states = works.get("states") or [{"status": "working"}]
            assert isinstance(states, list)
            state = states.pop(0) if len(states) > 1 else states[0]
            send({"id": number, "result": {"resultType": "complete", "taskId": "t1", "pollIntervalMs": 1, **state}})
        case "tasks/update" | "tasks/cancel":
            note(f"{message['method']} {params['taskId']} {json.dumps(params.get('inputResponses'))}")
            send({"id": number, "result": {"resultType": "complete"}})
        case "tools/call":
            call(number, params["name"], params.get("arguments") or {})
        case "notifications/cancelled":
            note(f"cancelled {params['requestId']}")
        case None if number in asked:
            send({"id": asked.pop(number), "result": text(json.dumps(message.get("result") or message.get("error")))})


def main() -> None:
    note(f"pid {os.getpid()}")
    match MODE:
        case "dies":
            say(sys.stderr, "a library is missing")
            say(sys.stderr, "cannot start")
            sys.exit(3)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "silent":
            say(sys.stderr, "still thinking")
            time.sleep(600)
        case "junk":
            say(sys.stdout, "Welcome to the server!")
            say(sys.stdout, '{"jsonrpc": "2.0", "broken')
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
            ignore += "; print(1, flush=True); time.sleep(600)"
            child = subprocess.Popen([sys.executable, "-S", "-c", ignore], stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.read(1)
            note(f"pid {child.pid}")
    for line in sys.stdin:
        answer(json.loads(line))
    if MODE == "stubborn":
        time.sleep(600)


main()
