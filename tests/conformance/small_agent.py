"""A small ACP agent that keeps every requirement that the kit checks, for tests of the kit; not for use.

`FAULT=ID` gives it the one fault that the check of that id must find. It has a tool for commands, one for reading, one
for writing, and keeps its sessions in JSON files of its home.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path

FAULT = os.environ.get("FAULT", "")
STATE = Path(os.environ["HOME"]) / "small-agent"
MODES = ["code", "ask"]
COMMANDS = [{"name": "help", "description": "Say what there is"}]
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"},
]  # fmt: skip
PROBLEM, UNKNOWN, BAD, INVALID, NOT_FOUND = -32603, -32601, -32600, -32602, -32002


def fault(id_):
    return id_ == FAULT


def text(words):
    return [{"type": "content", "content": {"type": "text", "text": words}}]


class Failed(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Session:
    def __init__(self, id_, cwd, mode="code", log=None, updated=None):
        self.id, self.cwd, self.mode, self.log = id_, cwd, mode, log or []
        self.updated = updated or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.thinking = "low"
        self.turn = None
        self.queue = asyncio.Lock()
        self.closed = False
        self.said = self.deaf = self.asking = self.asked_to_stop = False
        self.cancelled = False
        self.early_cancel = False
        self.loaded = len(self.log)
        self.told = ""
        self.plan, self.proposal = [], ""

    def save(self):
        STATE.mkdir(exist_ok=True)
        about = {"cwd": self.cwd, "mode": self.mode, "log": self.log, "updated": self.updated}
        about |= {"plan": self.plan, "proposal": self.proposal}
        (STATE / f"{self.id}.json").write_text(json.dumps(about))


class Small:
    def __init__(self):
        self.sessions, self.pending, self.number, self.client = {}, {}, 0, {}
        self.calls, self.begun = 0, False
        self.lists = 0
        self.children, self.tasks, self.allowed = set(), {}, set()
        self.options_of_all = None
        self.after = []

    # --- the wire ---------------------------------------------------------------------------------------------

    def send(self, message):
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=True).encode() + b"\n")
        sys.stdout.buffer.flush()

    def update(self, session, sort, /, **update):
        self.send({"method": "session/update", "params": {"sessionId": session.id, "update": {
            "sessionUpdate": sort, **update,
        }}})  # fmt: skip

    async def ask(self, method, params):
        self.number += 1
        future = self.pending[self.number] = asyncio.get_running_loop().create_future()
        self.send({"id": self.number, "method": method, "params": params})
        return await future

    async def run(self):
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        if not fault("END-3"):
            loop.add_signal_handler(signal.SIGTERM, lambda: (self.stop(), os._exit(0)))
        else:
            loop.add_signal_handler(signal.SIGTERM, lambda: None)
        if fault("TR-1"):
            sys.stdout.write("Welcome to the small agent!\n")
            sys.stdout.flush()
        while line := await reader.readline():
            if fault("TR-4") and len(line) > 64 * 1024:
                continue
            self.take(line)
        self.stop()
        os._exit(3 if fault("END-1") else 0)

    def stop(self):
        for child in () if fault("END-2") else self.children:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def take(self, line):
        if not line.strip():
            if fault("TR-8"):
                self.fail(None, -32700, "empty")
            return
        try:
            message = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            if fault("TR-5") and len(line) > 1000:
                os._exit(1)
            if not fault("RPC-2"):
                self.fail(None, -32700, "no JSON")
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            if fault("RPC-10") and isinstance(message, list):
                os._exit(1)
            if not fault("RPC-3"):
                self.fail(
                    message.get("id")
                    if isinstance(message, dict) and isinstance(message.get("id"), (str, int))
                    else None, BAD, "no request",
                )  # fmt: skip
            return
        method, id_ = message.get("method"), message.get("id")
        if "method" not in message and ("result" in message or "error" in message):
            future = self.pending.pop(id_, None)
            if future is not None and not future.done():
                future.set_result(message)
            elif fault("RPC-8") and future is None:
                self.fail(id_, BAD, "nobody asked")
            return
        if not isinstance(method, str):
            if not fault("RPC-3"):
                self.fail(id_, BAD, "no method")
            return
        params = message.get("params", {})
        if "id" not in message:
            self.told(method, params)
            return
        task = asyncio.ensure_future(self.answer(id_, method, params))
        self.tasks[id_] = task
        task.add_done_callback(lambda _: self.tasks.pop(id_, None))

    def fail(self, id_, code, message):
        self.send({"id": id_, "error": {"code": code, "message": message}})

    async def answer(self, id_, method, params):
        shown = str(id_) if fault("RPC-6") and id_ == -7 else id_
        then = None
        while fault("RPC-14") and method == "session/new" and any(each.turn for each in self.sessions.values()):
            await asyncio.sleep(0.05)
        try:
            serve = getattr(self, "do_" + method.replace("/", "_").replace("$", "_"), None)
            if serve is None or method.startswith("_"):
                if fault("EXT-3") and method.startswith("_"):
                    self.send({"id": shown, "result": {}})
                    return
                if fault("RPC-4") and not method.startswith("_"):
                    self.send({"id": shown, "result": {}})
                    return
                raise Failed(UNKNOWN, f"unknown method {method}")
            if not isinstance(params, dict):
                raise Failed(PROBLEM if fault("RPC-5") else INVALID, "params")
            result = await serve(params)
            if isinstance(result, tuple):
                result, then = result
            self.send({"id": shown, "result": result})
            if fault("PR-1") and method == "session/prompt":
                self.send({"id": shown, "result": result})
        except Failed as error:
            self.fail(shown, error.code, str(error))
        except asyncio.CancelledError:
            self.fail(shown, -32800, "cancelled")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            self.fail(shown, PROBLEM if fault("RPC-5") else INVALID, repr(error))
        if then:
            then()

    def told(self, method, params):
        if (fault("RPC-7") and method == "_kit/x") or (fault("EXT-4") and method.startswith("_kit.example")):
            self.fail(None, UNKNOWN, "unknown notification") if fault("RPC-7") else os._exit(1)
        if method == "session/cancel":
            id_ = params.get("sessionId") if isinstance(params, dict) else None
            session = self.sessions.get(id_) if isinstance(id_, str) else None
            if session is None:
                if fault("CAN-8"):
                    self.fail(None, INVALID, "no such session")
                return
            self.cancel(session)
        elif method == "$/cancel_request" and fault("CAN-10"):
            os._exit(1)

    def cancel(self, session):
        if fault("PERM-7") and session.deaf:
            return
        for each in self.sessions.values() if fault("CAN-6") else (session,):
            if each.turn is not None:
                each.cancelled, each.asked_to_stop = True, each.asking
                each.turn.cancel()
            elif fault("CAN-7"):
                each.early_cancel = True

    # --- requests ---------------------------------------------------------------------------------------------

    async def do_initialize(self, params):
        version = params.get("protocolVersion")
        if type(version) is not int and not fault("INIT-4"):
            raise Failed(INVALID, "protocolVersion")
        if fault("INIT-3") and version != 1:
            raise Failed(INVALID, "version")
        if fault("INIT-11"):
            self.sessions.clear()
            if self.client:
                os._exit(1)
        if fault("INIT-7") and "wings" in (params.get("clientCapabilities") or {}):
            raise Failed(INVALID, "wings")
        if fault("INIT-8") and "clientCapabilities" not in params:
            raise Failed(INVALID, "clientCapabilities")
        if fault("EXT-1") and "_meta" in params:
            raise Failed(INVALID, "_meta")
        self.client, self.begun = params.get("clientCapabilities") or {}, True
        wants_terminal = ((self.client.get("auth") or {}).get("terminal")) or fault("AUTH-3")
        methods = [{"id": "key", "name": "Key"}]
        if wants_terminal:
            methods.append({"id": "login", "name": "Log in", "type": "terminal", "args": ["login"]})
        if fault("AUTH-1"):
            methods.append({"id": "key", "name": "Key"})
        capabilities = {
            "loadSession": True, "promptCapabilities": {"image": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}, "systemPrompt": {}},
        }  # fmt: skip
        if fault("no capabilities"):
            return {"protocolVersion": 1}
        answered = {
            "protocolVersion": 2 if fault("INIT-2") and version == 1 else 1,
            "agentCapabilities": [] if fault("INIT-1") else capabilities, "authMethods": methods,
        }  # fmt: skip
        if not fault("INIT-6"):
            answered["agentInfo"] = {"name": "small", "version": "1"}
        return answered

    async def do_authenticate(self, params):
        if params["methodId"] != "key" and not fault("AUTH-5"):
            raise Failed(INVALID, "no such method")
        return {}

    async def do_logout(self, params):
        if fault("AUTH-7"):
            return {}
        raise Failed(UNKNOWN, "logout is not offered")

    def folder(self, params, id_="NEW-3"):
        cwd, servers = params["cwd"], params["mcpServers"]
        if not isinstance(cwd, str) or not isinstance(servers, list):
            raise Failed(PROBLEM if fault("RPC-5") else INVALID, "params")
        if not os.path.isabs(cwd) and not fault(id_):
            raise Failed(INVALID, "cwd is not absolute")
        if fault("NEW-7") and servers:
            raise Failed(INVALID, "no servers")
        told = params.get("systemPrompt") or {"mode": "append", "content": []}
        if told.get("mode") != "append" and not fault("SYS-8"):
            if fault("SYS-11"):
                Session(str(uuid.uuid4()), cwd).save()
            raise Failed(INVALID, "this mode is not known")
        if any(block["type"] != "text" for block in told["content"]) and not fault("SYS-9"):
            raise Failed(INVALID, "only text")
        return cwd

    async def do_session_new(self, params):
        if fault("wants a login"):
            raise Failed(-32000, "log in first")
        if fault("INIT-10") and not self.begun:
            await asyncio.sleep(600)
        id_ = f"session-{len(self.sessions)}" if fault("NEW-2") else str(uuid.uuid4())
        if fault("EXT-1") and "_meta" in params:
            raise Failed(INVALID, "_meta")
        session = Session("" if fault("NEW-1") and params["cwd"].endswith("/first") else id_, self.folder(params))
        self.sessions[session.id] = session
        session.told = "\n\n".join(each["text"] for each in (params.get("systemPrompt") or {"content": []})["content"])
        if fault("NEW-10"):
            self.commands(session)
        return self.about(session), lambda: self.commands(session)

    def commands(self, session):
        name = "/help" if fault("CMD-2") else "help"
        self.update(session, "available_commands_update", availableCommands=[{**COMMANDS[0], "name": name}])

    def modes(self, session):
        available = [{"id": mode, "name": mode.title()} for mode in MODES]
        if fault("MODE-1"):
            available.append(available[0])
        return {"currentModeId": session.mode, "availableModes": available}

    def options(self, session):
        values = [{"value": value, "name": value} for value in ("low", "high")]
        current = (self.options_of_all or "low") if fault("CFG-8") else session.thinking
        option = {"id": "thinking", "name": "Thinking", "type": "select", "currentValue": current, "options": values}
        if fault("CFG-1") and current == "low":
            option["currentValue"] = "kit-none"
        options = [option]
        if fault("CFG-5"):
            options.append({"id": "loud", "name": "Loud", "type": "boolean", "currentValue": True})
        return options

    def about(self, session):
        return {"sessionId": session.id, "modes": self.modes(session), "configOptions": self.options(session)}

    def stored(self, id_, wrong):
        if not isinstance(id_, str) or not (STATE / f"{Path(id_).name or '-'}.json").exists() or "/" in id_:
            if fault(wrong):
                return Session(str(id_) or "x", "/")
            raise Failed(NOT_FOUND, "no such session")
        about = json.loads((STATE / f"{id_}.json").read_text())
        session = Session(id_, about["cwd"], about["mode"], about["log"], about["updated"])
        session.plan, session.proposal = about["plan"], about["proposal"]
        return session

    async def opened(self, params, wrong):
        cwd = self.folder(params, "LOAD-8")
        session = self.sessions.get(params["sessionId"]) or self.stored(params["sessionId"], wrong)
        session.cwd, session.closed = cwd, False
        self.sessions[session.id] = session
        return session

    async def do_session_load(self, params):
        session = await self.opened(params, "LOAD-7")
        if fault("LOAD-1") and "and the plum?" in str(session.log):
            raise Failed(UNKNOWN, "load")
        said = [entry for entry in session.log if entry["role"] in ("user", "assistant") and entry.get("content")]
        if fault("LOAD-2"):
            said.reverse()

        def replay(entries):
            for entry in entries:
                kind = "user_message_chunk" if entry["role"] == "user" else "agent_message_chunk"
                self.update(session, kind, content={"type": "text", "text": entry["content"]})

        if fault("TC-3 behind a load"):
            self.update(session, "tool_call", toolCallId="call-1", title="shell", status="completed")
        if fault("LOAD-5"):
            session.log = []
        late = said[-1:] if fault("LOAD-3") else []
        replay(said[: len(said) - len(late)])
        if session.plan and not fault("PLAN-10"):
            self.plan(session, "plan-2" if fault("PLAN-13") else "plan")
        if session.proposal and not fault("PLAN-5"):
            self.propose(session)

        def then():
            asyncio.get_running_loop().call_later(0.2, replay, late)

        return {"modes": self.modes(session), "configOptions": self.options(session)}, then

    async def do_session_resume(self, params):
        session = await self.opened(params, "RES-3")
        if fault("RES-1"):
            for entry in session.log:
                if entry["role"] == "assistant" and entry.get("content"):
                    self.update(session, "agent_message_chunk", content={"type": "text", "text": entry["content"]})
        if fault("RES-2"):
            session.log = []
        return {"modes": self.modes(session), "configOptions": self.options(session)}

    async def do_session_list(self, params):
        if params.get("cursor") and not fault("LIST-6"):
            raise Failed(INVALID, "cursor")
        if fault("LIST-1") and not params and not STATE.exists():
            raise Failed(PROBLEM, "no sessions")
        found = []
        self.lists += 1
        if STATE.exists() and not (fault("listed late") and self.lists == 1):
            for file in sorted(STATE.glob("*.json")):
                about = json.loads(file.read_text())
                if params.get("cwd") not in (None, about["cwd"]) and not fault("LIST-3"):
                    continue
                if fault("LIST-7") and file.stem not in self.sessions:
                    continue
                at = "yesterday" if fault("LIST-2") else about["updated"]
                found.append({"sessionId": file.stem, "cwd": about["cwd"], "updatedAt": at})
        if fault("CLOSE-4"):
            found = [each for each in found if not getattr(self.sessions.get(each["sessionId"]), "closed", False)]
        if not found and params.get("cwd") and fault("LIST-4"):
            raise Failed(NOT_FOUND, "no sessions")
        return {"sessions": found}

    async def do_session_close(self, params):
        session = self.session(params)
        if not fault("CLOSE-1"):
            self.cancel(session)
            await asyncio.sleep(0)
        session.closed = not fault("CLOSE-2")
        if fault("CLOSE-1") and session.turn is not None:
            session.turn.cancel()
        return {}

    async def do_session_delete(self, params):
        if fault("DEL-1") and getattr(self.sessions.get(params["sessionId"]), "log", None) == []:
            raise Failed(PROBLEM, "cannot delete")
        known = (STATE / f"{params['sessionId']}.json").exists()
        if fault("DEL-3") and not known and params["sessionId"] not in self.sessions:
            raise Failed(NOT_FOUND, "no such session")
        if not fault("DEL-2"):
            (STATE / f"{params['sessionId']}.json").unlink(missing_ok=True)
        self.sessions.pop(params["sessionId"], None)
        return {}

    def session(self, params):
        id_ = params["sessionId"]
        if not isinstance(id_, str):
            raise Failed(PROBLEM if fault("RPC-5") else INVALID, "sessionId")
        session = self.sessions.get(id_)
        if session is None or session.closed:
            raise Failed(NOT_FOUND, "no such session")
        return session

    async def do_session_set_mode(self, params):
        session = self.session(params)
        if fault("MODE-2") and session.turn is None:
            raise Failed(PROBLEM, "modes cannot be set")
        if fault("MODE-4") and session.turn is not None:
            raise Failed(INVALID, "a turn runs")
        if params["modeId"] not in MODES and not fault("MODE-3"):
            raise Failed(INVALID, "no such mode")
        session.mode = params["modeId"]
        return {}

    async def do_session_set_config_option(self, params):
        session = self.session(params)
        if (params["configId"] != "thinking" or params["value"] not in ("low", "high")) and not fault("CFG-4"):
            raise Failed(INVALID, "no such option or value")
        if not fault("CFG-2"):
            session.thinking = self.options_of_all = params["value"]
        return {"configOptions": self.options(session)}

    # --- turns ------------------------------------------------------------------------------------------------

    async def do_session_prompt(self, params):
        if fault("PR-2") and isinstance(params["sessionId"], str) and params["sessionId"] not in self.sessions:
            return {"stopReason": "end_turn"}
        session = self.session(params)
        blocks = params["prompt"]
        if not isinstance(blocks, list):
            raise Failed(INVALID, "prompt")
        if fault("PR-11") and not "".join(block.get("text", "") for block in blocks):
            await asyncio.sleep(600)
        if fault("PR-12") and session.turn is not None:
            await asyncio.sleep(600)
        if fault("gives way"):
            self.cancel(session)
        if fault("PR-5") and any(block["type"] == "audio" for block in blocks):
            session.closed = True
            raise Failed(INVALID, "no audio")
        lock = self.only if fault("PR-13") else session.queue
        async with lock:
            session.turn = asyncio.current_task()
            session.cancelled = session.early_cancel
            session.said = session.asked_to_stop = False
            session.early_cancel = False
            try:
                if session.cancelled:
                    raise asyncio.CancelledError
                reason = await self.turn(session, blocks)
            except asyncio.CancelledError:
                if not session.cancelled:
                    raise
                if (fault("CAN-1") and session.said) or fault("gives way"):
                    raise Failed(PROBLEM, "aborted") from None
                reason = "end_turn" if fault("CAN-4") and session.asked_to_stop else "cancelled"
            finally:
                session.turn = None
                session.save()
        if fault("PR-6") and reason == "end_turn":
            asyncio.get_running_loop().call_soon(
                lambda: self.update(session, "agent_message_chunk", content={"type": "text", "text": "late"})
            )
        return {"stopReason": reason}

    only = asyncio.Lock()

    def words(self, block):
        if block["type"] == "text":
            return block["text"]
        if block["type"] == "resource_link":
            return "" if fault("PR-3") else block["uri"]
        if block["type"] == "resource":
            return "" if fault("PR-4") else str(block["resource"].get("text", ""))
        return "[image]" if block["type"] == "image" else ""

    async def turn(self, session, blocks):
        text = " ".join(map(self.words, blocks))
        if fault("TR-6"):
            text = text.replace("\u2028", " ")
        text = text.encode("utf-8", "replace").decode()
        if fault("TR-7") and "half" in text:
            os._exit(1)
        if fault("UPD-4"):
            self.update(session, "user_message_chunk", content={"type": "text", "text": text})
        if text.startswith("/") and not text.startswith("/help") and fault("CMD-4"):
            raise Failed(INVALID, "no such command")
        if fault("UPD-1"):
            self.update(session, "kit_mood", mood="good")
        log, begun = session.log, len(session.log)
        others = [each for other in self.sessions.values() if other is not session for each in other.log]
        log.append({"role": "user", "content": text})
        for _ in range(10):
            sent = others + log if fault("NEW-9") else log
            sent = log[: session.loaded] + log[begun:] if fault("PR-9") else sent
            said, calls, why = await self.model(session, sent)
            log.append({"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})})
            if fault("asks again and again") and why in ("length", "content_filter"):
                await self.model(session, log)
                await asyncio.sleep(3600)
            if why == "length":
                return "end_turn" if fault("STOP-2") else "max_tokens"
            if why == "content_filter":
                return "end_turn" if fault("STOP-4") else "refusal"
            if not calls:
                if fault("PR-8") and said == "Hello.":
                    with suppress(Failed):
                        await self.model(session, list(log))
                return "max_tokens" if fault("STOP-1") and said == "The end." else "end_turn"
            for call in calls:
                log.append({"role": "tool", "tool_call_id": call["id"], "content": "The call was cancelled."})
                log[-1]["content"] = await self.call(session, call)
        return "max_turn_requests"

    async def model(self, session, log):
        """Streams an answer; returns its text, calls and finish reason."""
        loop = asyncio.get_running_loop()
        events = asyncio.Queue()
        tools = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
            for name in ("shell", "read", "write")
        ]
        first = [{"role": "system", "content": session.told}] if session.told and not fault("SYS-1") else []
        body = json.dumps({"model": "m", "stream": True, "messages": [*first, *log], "tools": tools}).encode()
        request = urllib.request.Request(
            os.environ["BASE_URL"] + "/chat/completions", body, {"Content-Type": "application/json"}
        )

        def fetch():
            try:
                with urllib.request.urlopen(request, timeout=600) as answer:
                    for line in answer:
                        loop.call_soon_threadsafe(events.put_nowait, line)
                loop.call_soon_threadsafe(events.put_nowait, None)
            except OSError as error:
                loop.call_soon_threadsafe(events.put_nowait, error)

        import threading

        threading.Thread(target=fetch, daemon=True).start()
        said, calls, why, held = "", {}, None, []
        while True:
            line = await events.get()
            if isinstance(line, OSError):
                if fault("PR-10 in silence"):
                    break
                log.pop() if not fault("PR-10") else setattr(session, "closed", True)
                raise Failed(PROBLEM, f"the model failed: {line}")
            if line is None:
                break
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            for choice in json.loads(line[6:]).get("choices", []):
                delta = choice["delta"]
                why = choice.get("finish_reason") or why
                if thought := delta.get("reasoning_content"):
                    kind = "agent_message_chunk" if fault("UPD-3") else "agent_thought_chunk"
                    self.update(session, kind, content={"type": "text", "text": thought})
                if text := delta.get("content"):
                    said += text
                    session.said = True
                    shown = text.replace("\u2028", " ") if fault("TR-6") else text
                    if fault("PR-7") and (held or text == "first "):
                        held.append(shown)
                    elif fault("UPD-2"):
                        self.update(session, "agent_message_chunk", content={"type": "text", "text": said})
                    else:
                        self.update(session, "agent_message_chunk", content={"type": "text", "text": shown})
                for call in delta.get("tool_calls") or []:
                    mine = calls.setdefault(
                        call.get("index", 0), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                    )
                    mine["id"] = call.get("id") or mine["id"]
                    mine["function"]["name"] += call["function"].get("name") or ""
                    mine["function"]["arguments"] += call["function"].get("arguments") or ""
        for text in held:
            self.update(session, "agent_message_chunk", content={"type": "text", "text": text})
        return said, list(calls.values()), why

    # --- tools ------------------------------------------------------------------------------------------------

    async def call(self, session, call):
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
        self.calls += 1
        id_ = (
            call["id"] if fault("TC-3") else f"call-{self.calls}" if fault("TC-3 behind a load") else str(uuid.uuid4())
        )
        kind = {"shell": "execute", "read": "read", "write": "edit"}.get(name, "other")
        shown = {
            "toolCallId": id_, "title": "" if fault("TC-1") else f"{name} {arguments}"[:80],
            "kind": "magic" if fault("TC-2") else kind,
        }  # fmt: skip
        if name in ("read", "write") and not fault("TC-8"):
            shown["locations"] = [{"path": arguments["path"]}]
        self.update(session, "tool_call", **shown, status="pending")
        ended = "failed"
        try:
            ended, content, told = await self.does(session, id_, name, arguments)
        except asyncio.CancelledError:
            late = 0.1 if fault("CAN-5") else 0
            ends = partial(self.update, session, "tool_call_update", toolCallId=id_, status="failed")
            asyncio.get_running_loop().call_later(late, ends) if late else ends()
            self.finish()
            raise
        finally:
            if fault("TERM-5"):
                self.finish()
        if name not in ("shell", "read", "write") and fault("TC-5"):
            ended = "completed"
        if fault("TC-4") and name == "shell":
            self.update(session, "tool_call_update", toolCallId=id_, status="pending")
        self.update(session, "tool_call_update", toolCallId=id_, status=ended, content=content)
        self.finish()
        if fault("status told again"):
            self.update(session, "tool_call_update", toolCallId=id_, status=ended)
        return told

    def finish(self):
        """What comes behind the last update of a call."""
        for each in self.after:
            each()
        self.after.clear()

    async def does(self, session, id_, name, arguments):
        if name == "shell":
            if not await self.may(session, id_, arguments):
                return "failed", text("Rejected."), "The user rejected it."
            if not fault("PERM-4"):
                self.update(session, "tool_call_update", toolCallId=id_, status="in_progress")
            return await self.shell(session, id_, arguments["command"])
        if name == "read":
            path = arguments["path"]
            if ((self.client.get("fs") or {}).get("readTextFile") and not fault("FS-2")) or fault("FS-1"):
                answer = await self.ask("fs/read_text_file", {"sessionId": session.id, "path": path})
                if "error" in answer:
                    return "failed", text("?"), answer["error"]["message"]
                words = answer["result"]["content"]
            else:
                words = Path(path).read_text()
            return "completed", text(words), words
        if name == "write":
            path, new = arguments["path"], arguments["text"]
            old = Path(path).read_text() if Path(path).exists() else None
            if (self.client.get("fs") or {}).get("writeTextFile") and not fault("FS-3"):
                answer = await self.ask("fs/write_text_file", {"sessionId": session.id, "path": path, "content": new})
                if "error" in answer and not fault("FS-4"):
                    return "failed", text("?"), answer["error"]["message"]
            else:
                Path(path).write_text(new)
            diff = {"type": "diff", "path": path, "newText": new, **({"oldText": old} if old is not None else {})}
            return "completed", text("written") if fault("TC-6") else [diff], "written"
        if name == "plan":
            added = session.plan if fault("PLAN-4") and arguments["steps"] else []
            session.plan = [*added, *arguments["steps"]]
            self.plan(session)
            return "completed", text("Shown."), "shown"
        if name == "propose":
            session.proposal = arguments["text"]
            self.propose(session)
            shown = "Proposed." if fault("PLAN-12") else session.proposal
            return "completed", text(shown), "approved"
        return "failed", text("no such tool"), "There is no such tool."

    def plan(self, session, id_="plan"):
        entries = [{"content": words, "priority": "medium", "status": status} for words, status in session.plan]
        if (self.client.get("plan") is None) != fault("PLAN-1"):
            if not fault("PLAN-2") and (entries or not fault("PLAN-11")):
                self.update(session, "plan", entries=entries)
            return
        if not entries:
            self.update(session, "plan_removed", planId="another" if fault("PLAN-8") else id_)
            return
        if fault("PLAN-3"):
            entries = [each for each in entries if each["status"] != "completed"]
        if fault("PLAN-9"):
            self.update(session, "plan", entries=entries)
        plan = {"type": "items", "planId": id_, "entries": entries}
        if fault("PLAN-7"):
            plan = {"type": "file", "planId": id_, "uri": "file:///plan.md"}
        self.update(session, "plan_update", plan=plan)

    def propose(self, session):
        if self.client.get("plan") is not None:
            plan = {"type": "markdown", "planId": "proposal", "content": session.proposal}
            self.update(session, "plan_update", plan=plan)

    async def may(self, session, id_, arguments):
        options = [*OPTIONS, OPTIONS[0]] if fault("PERM-2") else OPTIONS
        call = {"toolCallId": id_, "title": arguments["command"]}
        if fault("PERM-3"):
            call = {"toolCallId": str(uuid.uuid4())}
        if fault("PERM-4"):
            self.update(session, "tool_call_update", toolCallId=id_, status="in_progress")
        session.asking, session.deaf = True, "kit-marker" in arguments["command"]
        try:
            answer = await self.ask(
                "session/request_permission", {"sessionId": session.id, "toolCall": call, "options": options}
            )
        finally:
            session.asking = False
        outcome = (answer.get("result") or {}).get("outcome") if isinstance(answer.get("result"), dict) else None
        if isinstance(outcome, dict) and outcome.get("outcome") == "cancelled":
            if fault("PERM-7"):
                return False
            session.cancelled = True
            raise asyncio.CancelledError
        if fault("PERM-8") and "error" in answer:
            return True
        if fault("waits for another answer") and "error" in answer:
            await asyncio.sleep(600)
        if fault("RPC-9") and "kit: out of order" in str(answer):
            os._exit(1)
        if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
            return False
        if fault("PERM-5") and "kit-marker" in arguments["command"]:
            return False
        return outcome.get("optionId") == "yes" or (fault("PERM-6") and outcome.get("optionId") == "no")

    async def shell(self, session, id_, command):
        cwd = os.getcwd() if fault("NEW-5") else session.cwd
        itself = fault("CAN-3") and "sleep" in command  # A terminal has to be released, which ends its command.
        if self.client.get("terminal") and not itself:
            return await self.terminal(session, id_, command, cwd)
        if fault("TERM-1"):
            await self.ask("terminal/create", {"sessionId": session.id, "command": command, "cwd": cwd})
        if fault("INIT-9") and not (self.client.get("fs") or {}).get("readTextFile"):
            return "completed", text(""), ""
        shared = fault("TC-12") and "read" in command
        child = subprocess.Popen(
            ["bash", "-c", command], cwd=cwd, stdin=None if shared else subprocess.DEVNULL,
            stdout=None if shared else subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.children.add(child)
        try:
            output = (await asyncio.to_thread(child.communicate))[0] or b""
        except asyncio.CancelledError:
            if not fault("CAN-3"):
                os.killpg(child.pid, signal.SIGKILL)
            raise
        self.children.discard(child)
        words = f"{output.decode(errors='replace')}[exit code {child.returncode}]"
        return "completed", text(words), words

    async def release_late(self, making, session):
        made = await making
        if "result" in made:
            await self.release({"sessionId": session.id, "terminalId": made["result"]["terminalId"]}, kill=True)

    async def release(self, where, kill=False):
        if kill:
            await self.ask("terminal/kill", where)
        times = 2 if fault("TERM-5") else 1
        await asyncio.gather(*(self.ask("terminal/release", where) for _ in range(times)))

    async def terminal(self, session, id_, command, cwd):
        params = {"sessionId": session.id, "command": "bash", "args": ["-c", command], "cwd": cwd, "env": []}
        if fault("TERM-2") and "where" in command:
            params["cwd"] = "."
        making = asyncio.ensure_future(self.ask("terminal/create", params))
        try:
            made = await asyncio.shield(making)
        except asyncio.CancelledError:  # It may be there already.
            self.after.append(lambda: asyncio.ensure_future(self.release_late(making, session)))
            raise
        if "error" in made:
            if fault("TERM-9"):
                raise Failed(PROBLEM, "no terminal")
            return "failed", text("no terminal"), made["error"]["message"]
        where = {"sessionId": session.id, "terminalId": made["result"]["terminalId"]}
        shown = [{"type": "terminal", "terminalId": where["terminalId"]}]
        if not fault("TERM-4"):
            self.update(session, "tool_call_update", toolCallId=id_, content=shown)
        try:
            ended = await self.ask("terminal/wait_for_exit", where)
            output = await self.ask("terminal/output", where)
        except asyncio.CancelledError:
            self.after.append(lambda: asyncio.ensure_future(self.release(where, kill=True)))
            raise
        self.after.append(lambda: asyncio.ensure_future(self.release(where)))
        words = f"{output['result']['output']}[exit code {ended['result'].get('exitCode')}]"
        if fault("TERM-3") and "exit" in command:
            words = "done"
        return "completed", text(words) if fault("TERM-4") else shown, words


if __name__ == "__main__":
    asyncio.run(Small().run())
