"""A handwritten language server with the faults named by its arguments. Standard library only.

It publishes an error for each line with `ERROR` in it (the message is what follows), and a warning for `WARNING`. What
it was sent is appended to the file that the variable `HEARD` names, a JSON object a line.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

FAULTS = set(sys.argv[1:])
PULLS = "pull" in FAULTS

texts: dict[str, str] = {}
lock = threading.Lock()
published: dict[str, Any] = {}
busy = [2]


def send(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    with lock:
        sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sys.stdout.buffer.flush()


def told(method: str, params: Any) -> None:
    send({"method": method, "params": params})


def read() -> dict[str, Any]:
    length = 0
    while line := sys.stdin.buffer.readline():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        elif line == b"\r\n":
            message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
            if place := os.environ.get("HEARD"):
                with open(place, "a", encoding="utf-8") as file:
                    file.write(json.dumps(message) + "\n")
            return message
    if "stubborn" in FAULTS:
        time.sleep(1000)
    sys.exit(0)


def found(text: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n")):
        for severity, word in ((1, "ERROR"), (2, "WARNING")):
            if word in line:
                start = line.index(word)
                place = {"start": {"line": number, "character": start}, "end": {"line": number, "character": len(line)}}
                message = line[start + len(word) :].strip()
                items.append({"range": place, "severity": severity, "source": "raw", "message": message})
    if "strange" in FAULTS:
        items += [{"message": "no range"}, None, {**place_of(0), "message": 7}]  # type: ignore[list-item]
        items.append({**place_of(0), "message": "odd", "severity": 77, "code": {"value": 3}, "tags": "?"})
    return items


def place_of(line: int) -> dict[str, Any]:
    return {"range": {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 1}}}


def publish(uri: str, version: int) -> None:
    if PULLS or "dumb" in FAULTS:
        return
    told_version = {} if "versionless" in FAULTS else {"version": version}
    if "stale" in FAULTS:
        time.sleep(0.05)
        told("textDocument/publishDiagnostics", {"uri": uri, "version": version - 1, "diagnostics": []})
    items = found(texts[uri])
    if ("unmoved" in FAULTS and published.get(uri) == items) or (
        "mute" in FAULTS and not (items or published.get(uri))
    ):
        return
    published[uri] = items
    if "parts" in FAULTS:
        told("textDocument/publishDiagnostics", {"uri": uri, "diagnostics": items[:1]})
        time.sleep(0.05)
    told("textDocument/publishDiagnostics", {"uri": uri, **told_version, "diagnostics": items})
    if "beyond" in FAULTS:
        for other, text in texts.items():
            broken = [{**place_of(0), "message": f"broken by {len(texts)}", "severity": 1}]
            if other != uri and "uses" in text:
                told("textDocument/publishDiagnostics", {"uri": other, "diagnostics": broken})


def capabilities() -> dict[str, Any]:
    given: dict[str, Any] = {"textDocumentSync": 1, "hoverProvider": True, "definitionProvider": True}
    given["renameProvider"] = {"prepareProvider": True} if "prepares" in FAULTS else True
    if PULLS:
        given["diagnosticProvider"] = {"interFileDependencies": False, "workspaceDiagnostics": False}
    if "commands" in FAULTS:
        given["executeCommandProvider"] = {"commands": ["typescript.tsserverRequest"]}
    if "utf8" in FAULTS:
        given["positionEncoding"] = "utf-8"
    return given


def rename(uri: str, new: str) -> Any:
    edit = {**place_of(0), "newText": new}
    if new == "move":
        return {"documentChanges": [{"kind": "rename", "oldUri": uri, "newUri": uri + "x"}]}
    if new == "nothing":
        return None
    if new == "broken":
        return {"changes": {uri: [{"newText": new}]}}
    if new == "hidden":
        return {"changes": {uri: [edit], uri.rsplit("/", 1)[0] + "/secret.raw": [edit]}}
    return {"documentChanges": [{"textDocument": {"uri": uri, "version": None}, "edits": [edit]}]}


def answer(message: dict[str, Any]) -> None:
    method, params, id_ = message["method"], message.get("params", {}), message["id"]
    result: Any = None
    if method == "initialize":
        if "refuses" in FAULTS:
            send({"id": id_, "error": {"code": -32603, "message": "there is no\nproject"}})
            return
        result = {"capabilities": capabilities()}
    elif method == "textDocument/diagnostic":
        if "busy" in FAULTS and busy[0]:
            busy[0] -= 1
            send({"id": id_, "error": {"code": -32802, "message": "busy", "data": {"retriggerRequest": True}}})
            return
        result = {"kind": "full", "items": found(texts[params["textDocument"]["uri"]])}
    elif method == "textDocument/hover":
        if "crash-on-hover" in FAULTS:
            os._exit(9)
        if "late" in FAULTS:
            held.append(id_)
            return
        result = {"contents": [{"language": "raw", "value": "word"}, "A word."]}
    elif method == "textDocument/definition":
        uri = params["textDocument"]["uri"]
        hidden = uri.rsplit("/", 1)[0] + "/secret.raw"
        result = [
            {"targetUri": each, "targetRange": place_of(1)["range"], "targetSelectionRange": place_of(1)["range"]}
            for each in (uri, hidden, uri)
        ]
    elif method == "textDocument/prepareRename":
        result = None if "nothing-there" in FAULTS else place_of(0)["range"]
    elif method == "textDocument/rename":
        result = rename(params["textDocument"]["uri"], params["newName"])
    elif method == "workspace/executeCommand" and "refusing" not in FAULTS:
        result = by_command(*params["arguments"])
    elif method == "shutdown" and "stubborn" in FAULTS:
        return
    elif method != "shutdown":
        send({"id": id_, "error": {"code": -32601, "message": f"no {method}"}})
        return
    send({"id": id_, "result": result})


def by_command(request: str, what: dict[str, str]) -> dict[str, Any]:
    """As TypeScript's server tells it: lines and characters from 1."""
    body = []
    for item in found(texts[what["file"]]) if request == "semanticDiagnosticsSync" else []:
        ends = {key: {"line": at["line"] + 1, "offset": at["character"] + 1} for key, at in item["range"].items()}
        category = "error" if item["severity"] == 1 else "warning"
        body.append({**ends, "text": item["message"], "code": 1, "category": category})
    return {"body": body}


held: list[Any] = []
"""Ids of requests that are answered when they are cancelled."""


def note(message: dict[str, Any]) -> None:
    method, params = message["method"], message.get("params", {})
    if method == "initialized":
        if "deaf" in FAULTS:
            time.sleep(1000)
        begin()
    elif method == "$/cancelRequest" and params["id"] in held:
        send({"id": params["id"], "result": {"contents": "too late"}})
    elif method == "textDocument/didOpen":
        document = params["textDocument"]
        took(document["uri"], document["version"], document["text"])
    elif method == "textDocument/didChange":
        took(params["textDocument"]["uri"], params["textDocument"]["version"], params["contentChanges"][-1]["text"])
    elif method == "textDocument/didClose":
        texts.pop(params["textDocument"]["uri"], None)
    elif method == "exit" and "stubborn" not in FAULTS:
        sys.exit(0)


def took(uri: str, version: int, text: str) -> None:
    texts[uri] = text
    if "CRASH" in text:
        sys.stderr.write("fatal: this text is too much\n")
        sys.stderr.flush()
        os._exit(3)
    if "ONCE" in text and (place := os.environ.get("ONCE")) and not os.path.exists(place):
        open(place, "w").close()
        os._exit(4)
    publish(uri, version)


def begin() -> None:
    if "flood" in FAULTS:
        while True:
            told("window/logMessage", {"type": 3, "message": "again"})
    if "strange" in FAULTS:
        send({"id": 1, "method": "workspace/unheardOf", "params": {}})
        send({"id": "acp-coder-2", "method": "workspace/configuration", "params": {"items": [{"section": "raw.deep"}]}})
        send({"id": 3, "method": "workspace/applyEdit", "params": {"edit": {}}})
        send({"id": 4, "method": "workspace/configuration", "params": "?"})
        send({"id": {"odd": 1}, "method": "window/workDoneProgress/create", "params": None})
        for method in ("exit", "shutdown", "initialize", "$/progress", "unheard/of"):
            told(method, {"id": "acp-coder-1"})
        told("$/cancelRequest", {"id": "acp-coder-3"})
        told("textDocument/publishDiagnostics", {"uri": 3})
        told("textDocument/publishDiagnostics", None)
        send({"id": "nobody", "result": 1})
        send({})
        body = b"[1, 2"
        sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)


def main() -> None:
    if "dies" in FAULTS:
        sys.stderr.write("\x1b[31mno licence\x1b[0m found\n")
        sys.exit(7)
    if "garbage" in FAULTS:
        sys.stdout.write("x" * 100_000)
        sys.stdout.flush()
        time.sleep(1000)
    if "huge" in FAULTS:
        sys.stdout.write("Content-Length: 100000000000\r\n\r\n{")
        sys.stdout.flush()
        time.sleep(1000)
    if "chatty" in FAULTS:
        sys.stdout.write("Welcome to the server!\nListening.\r\n\r\n")
        sys.stdout.flush()
    if "stubborn" in FAULTS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        with open(os.environ["CHILD"], "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {child.pid}")
    while True:
        message = read()
        if "silent" in FAULTS:
            continue
        if "method" not in message:
            continue
        if "hangs" in FAULTS and message["method"] not in ("initialize", "initialized"):
            continue
        if "id" in message:
            answer(message)
        else:
            note(message)


main()
