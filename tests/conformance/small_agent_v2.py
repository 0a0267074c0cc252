"""The small agent in v2 of ACP: it keeps every requirement of v2 that the kit checks, but for the fault `FAULT=ID`."""

import asyncio
import base64
import difflib
import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

import small_agent  # type: ignore[import-not-found]
from small_agent import BAD, INVALID, NOT_FOUND, OPTIONS, PROBLEM, STATE, UNKNOWN, Failed, Session, Small

FAULT = small_agent.FAULT
small_agent.FAULT = {
    "V2-PR-7": "PR-3", "V2-ST-3": "STOP-2", "V2-CMD-1": "CMD-2", "V2-LIFE-1": "END-1", "V2-LIFE-2": "END-2",
}.get(FAULT, FAULT)  # fmt: skip
METHODS = {
    "initialize": "", "auth/login": "", "auth/logout": "V2-AUTH-2", "session/new": "", "session/resume": "",
    "session/list": "V2-INIT-9", "session/close": "", "session/delete": "", "session/prompt": "",
    "session/set_config_option": "",
}  # fmt: skip
"""With the fault that takes each away."""
GONE = {"session/load": "V2-SESS-4", "session/set_mode": "V2-CFG-4", "terminal/create": "V2-TERM-8",
        "tool_call/cancel": "V2-CAN-7"}  # fmt: skip
"""With the fault that answers each."""
UNSUPPORTED, CANCELLED = -32022, -32800
BLOCKS = ("text", "resource_link", "resource", "image", "audio")


def fault(id_):
    return bool(id_) and id_ == FAULT


def new_id():
    return str(uuid.uuid4())


class SessionV2(Session):  # type: ignore[misc]
    def __init__(self, *args):
        super().__init__(*args)
        self.spoken = []
        """[who, id, text]"""
        self.message = new_id()
        self.waiting = set()
        self.keys, self.held = {}, {}
        self.loud = False
        self.hidden = False
        self.silent = False

    def save(self):
        super().save()
        file = STATE / f"{self.id}.json"
        file.write_text(
            json.dumps(
                {**json.loads(file.read_text()), "said": self.spoken, "keys": {} if fault("V2-IDEM-5") else self.keys}
            )
        )


class SmallV2(Small):  # type: ignore[misc]
    agreed = False

    # --- the wire ---------------------------------------------------------------------------------------------

    def take(self, line):
        if fault("V2-RPC-1") and line.startswith(b"["):
            for each in json.loads(line):
                super().take(json.dumps(each).encode())
        else:
            super().take(line)

    def send(self, message):
        if fault("V2-RPC-2") and message.get("id") == -7:
            message["id"] = 7
        super().send(message)

    async def answer(self, id_, method, params):
        if isinstance(params, dict):
            self.named = {**getattr(self, "named", {}), id_: params}
        if method not in METHODS or fault(METHODS[method]):
            if method in GONE and fault(GONE[method]):
                self.send({"id": id_, "result": {}})
            else:
                self.fail(id_, UNKNOWN, f"unknown method {method}")
            return
        await super().answer(id_, method, params)

    def fail(self, id_, code, message):
        params = getattr(self, "named", {}).get(id_, {})
        error = {"code": code, "message": message}
        if code == NOT_FOUND and not fault("V2-SESS-18"):
            error["data"] = {"sessionId": params.get("sessionId")}
        if code == UNSUPPORTED:
            error["data"] = {"requested": params["protocolVersion"], "supported": [2]}
        if code == CANCELLED and FAULT in ("V2-SESS-16", "V2-ERR-1"):
            error["code"] = PROBLEM
        self.send({"id": id_, "error": error})

    def told(self, method, params):
        if method == "$/cancel_request":
            task = self.tasks.get(params["requestId"])
            if task is not None:
                task.cancel()
            elif fault("V2-CAN-8"):
                for each in self.sessions.values():
                    self.cancel(each)
        else:
            super().told(method, params)

    def cancel(self, session):
        for each in self.sessions.values() if fault("V2-LIFE-3") else (session,):
            for waiting in () if fault("V2-CAN-1") else list(each.waiting):
                waiting.cancel()
            if each.turn is not None:
                each.turn.cancel()

    def update(self, session, sort, /, **update):
        if session.hidden:
            return
        if sort in ("agent_message_chunk", "agent_thought_chunk") and not fault("V2-MSG-1"):
            update.setdefault("messageId", "one" if fault("V2-MSG-3") else session.message)
        if sort == "agent_message_chunk":
            if session.spoken[-1][:2] != ["agent", session.message]:
                session.spoken.append(["agent", session.message, ""])
            session.spoken[-1][2] += update["content"]["text"]
        super().update(session, sort, **update)

    def state(self, session, state, fault_id="", **more):
        if not fault(fault_id) and not session.silent:
            if not (fault("V2-ST-9") and state == "running"):
                more["background"] = []
            self.update(session, "state_update", state=state, **more)

    # --- requests ---------------------------------------------------------------------------------------------

    async def do_initialize(self, params):
        asked, info = params["protocolVersion"], params.get("info")
        named = isinstance(info, dict) and "name" in info
        if (asked == 2 and not named and not fault("V2-INIT-6")) or (asked > 2 and not named and fault("V2-INIT-5")):
            raise Failed(INVALID, "info")
        if self.agreed and (asked < 2 or fault("V2-INIT-7")):
            raise Failed(BAD, "it is agreed upon")
        if asked < 2 and not fault("V2-INIT-3"):
            raise Failed(UNSUPPORTED, "version")
        self.agreed = True
        offered = params.get("capabilities")
        self.shows = isinstance(offered, dict) and "subagents" in offered
        auth = (offered.get("auth") or {}) if isinstance(offered, dict) else {}
        methods = [{"type": "agent", "methodId": "key", "name": "Key"}]
        if fault("V2-AUTH-1"):
            methods[0]["id"] = methods[0].pop("methodId")
        if "terminal" in auth:
            env = [{"name": "A", "value": "1"}] * (2 if fault("V2-AUTH-5") else 1)
            methods.append({"type": "terminal", "methodId": "login", "name": "Log in", "args": ["login"], "env": env})
        image = True if fault("V2-INIT-8") else {}
        session = {"prompt": {"image": image, "embeddedContext": {}}, "mcp": {"stdio": {}, "http": {}}, "delete": {}}
        session["systemPrompt"] = {}
        return {
            "protocolVersion": 1 if fault("V2-INIT-2") and asked == 99 else 2,
            "capabilities": {"session": session, **({"loadSession": {}} if fault("V2-INIT-10") else {})},
            **({"agentInfo": {}} if fault("V2-INIT-12") else {}),
            "authMethods": methods, **({} if fault("V2-INIT-4") else {"info": {"name": "small", "version": "2"}}),
        }  # fmt: skip

    async def do_auth_login(self, params):
        if params["methodId"] != "key" and not fault("V2-AUTH-3"):
            raise Failed(INVALID, "no such method")
        return {}

    async def do_auth_logout(self, params):
        return {}

    def folder(self, params, id_=""):
        servers = params["mcpServers"] if fault("V2-SESS-1") else params.get("mcpServers") or []
        for each in servers:
            if each.get("type") not in ("stdio", "http") and not fault("V2-MCP-1"):
                raise Failed(INVALID, "no such type")
        return params["cwd"]

    async def do_session_new(self, params):
        session = SessionV2(new_id(), self.folder(params))
        told = self.told_in(params, session)
        session.told = "" if fault("V2-SYS-1") else "".join(each["text"] for each in told["content"])
        self.sessions[session.id] = session
        modes = {"modes": {}} if fault("V2-SESS-2") else {}
        return {"sessionId": session.id, **self.about(session), **modes}, lambda: self.commands(session)

    def told_in(self, params, session):
        told = params.get("systemPrompt") or {"mode": "append", "content": []}
        if told.get("mode") != "append" and not fault("V2-SYS-2"):
            if fault("V2-SYS-4"):
                self.commands(session)
            raise Failed(INVALID, "no such mode")
        others = [each for each in told["content"] if each["type"] != "text"]
        if others and not fault("V2-SYS-3"):
            raise Failed(INVALID, "no such block")
        return {"content": [each for each in told["content"] if each["type"] == "text"]}

    def about(self, session):
        return {"configOptions": self.options(session)}

    def commands(self, session):
        name = "/help" if fault("V2-CMD-1") else "help"
        about = {"type": "command", "name": name, "description": "Say what there is"}
        self.update(session, "available_commands_update", availableCommands=[about])

    def options(self, session):
        low, high = ({"value": value, "name": value} for value in ("low", "high"))
        groups = [{"groupId": "a", "name": "A", "options": [low]}, {"groupId": "b", "name": "B", "options": [high]}]
        now = "kit-none" if fault("V2-CFG-1") else session.thinking
        thinking = {"configId": "thinking", "name": "Thinking", "type": "select", "currentValue": now}
        loud = {"configId": "loud", "name": "Loud", "type": "boolean", "currentValue": session.loud}
        return [{**thinking, "options": groups}, loud]

    async def do_session_set_config_option(self, params):
        session, id_, type_, value = self.session(params), params["configId"], params.get("type"), params["value"]
        if id_ == "loud" and type_ == "boolean" and isinstance(value, bool):
            session.loud = session.loud if fault("V2-CFG-3") else value
        elif id_ == "thinking" and (type_ == "id" or fault("V2-CFG-2")) and value in ("low", "high"):
            session.thinking = value
        else:
            raise Failed(INVALID, "no such option, type or value")
        return self.about(session)

    def stored(self, id_, wrong):
        file = STATE / f"{Path(str(id_)).name or '-'}.json"
        if not file.exists():
            raise Failed(NOT_FOUND, "no such session")
        about = json.loads(file.read_text())
        session = SessionV2(id_, about["cwd"], about["mode"], about["log"], about["updated"])
        session.spoken, session.keys = about["said"], about["keys"]
        return session

    async def do_session_resume(self, params):
        replay = params.get("replayFrom")
        if replay is not None and (not isinstance(replay, dict) or replay.get("type") != "start"):
            if not fault("V2-SESS-7"):
                raise Failed(INVALID, "no such cursor")
            replay = None
        self.told_in(params, SessionV2(params["sessionId"], params["cwd"]))
        session = await self.opened(params, "")
        said = [*session.spoken] if replay or fault("V2-SESS-5") else []
        for who, id_, text in reversed(said) if fault("V2-SESS-6") else said:
            shown = new_id() if fault("V2-SESS-9") else id_
            super().update(session, f"{who}_message", messageId=shown, content=[{"type": "text", "text": text}])
        for _ in range(2 if fault("V2-REP-1") else 1):
            if replay:
                super().update(session, "replay_complete")
        self.state(session, "idle" if session.turn is None else "running", "V2-SESS-8")
        return {**self.about(session), **({"modes": {}} if fault("V2-SESS-12") else {})}

    async def do_session_list(self, params):
        found = []
        for file in sorted(STATE.glob("*.json")):
            about, cwd = json.loads(file.read_text()), params.get("cwd")
            inside = cwd is not None and about["cwd"].startswith(cwd) and fault("V2-SESS-13")
            if cwd in (None, about["cwd"]) or inside:
                found.append({"sessionId": file.stem, "cwd": about["cwd"], "updatedAt": about["updated"]})
        return {"sessions": found}

    async def do_session_close(self, params):
        session = self.sessions.get(params["sessionId"])
        if session is None or session.closed:
            if fault("V2-SESS-17"):
                raise Failed(NOT_FOUND, "no such session")
            return {}
        session.silent = fault("V2-SESS-15")
        self.cancel(session)
        if session.turn is not None:
            await asyncio.wait([session.turn])
        session.closed = True
        words = {"type": "text", "text": "late"}
        return {}, lambda: fault("V2-SESS-14") and self.update(session, "agent_message_chunk", content=words)

    async def do_session_delete(self, params):
        return {} if fault("V2-SESS-19") else await super().do_session_delete(params)

    # --- work -------------------------------------------------------------------------------------------------

    def echo(self, session, id_, text):
        shown = new_id() if fault("V2-PR-3") else id_
        session.spoken.append(["user", id_, text])
        if not (fault("V2-PR-8") and text.startswith("/")):
            self.update(session, "user_message_chunk", messageId=shown, content={"type": "text", "text": text})

    async def do_session_prompt(self, params):
        session, blocks = self.session(params), params["prompt"]
        key = params.get("idempotencyKey")
        if key is not None and fault("V2-IDEM-1"):
            raise Failed(INVALID, "no keys")
        if key is not None and fault("V2-IDEM-6"):
            session.keys.setdefault(key, ["none", blocks])
        if not isinstance(blocks, list) or any(block.get("type") not in BLOCKS for block in blocks):
            if fault("V2-PR-4"):
                self.echo(session, new_id(), "?")
            raise Failed(INVALID, "prompt")
        if fault("V2-ENUM-3"):
            blocks = [{"text": "", **block} for block in blocks]
        if (fault("V2-PR-6") and not blocks) or (fault("V2-PR-5") and session.turn is not None):
            await asyncio.sleep(600)
        text = " ".join(map(self.words, blocks))
        task = asyncio.current_task()
        if key in session.keys and not fault("V2-IDEM-2"):
            if session.keys[key][1] != blocks and not fault("V2-IDEM-4"):
                raise Failed(INVALID, "another prompt")
            return {"messageId": session.keys[key][0]}
        if key in session.held and not fault("V2-IDEM-3"):
            await asyncio.wait([session.held[key]])
            if key not in session.keys:
                raise Failed(CANCELLED, "cancelled")
            return {"messageId": session.keys[key][0]}
        session.waiting.add(task)
        if key is not None:
            session.held[key] = task
        try:
            await session.queue.acquire()
        finally:
            session.waiting.discard(task)
            session.held.pop(key, None)
        id_ = "one" if fault("V2-PR-2") else new_id()
        if key is not None:
            session.keys[key] = [id_, blocks]
        self.echo(session, id_, text)
        session.message = new_id()
        if fault("V2-PR-1"):
            session.turn = asyncio.ensure_future(self.work(session, blocks))
            await session.turn
            return {"messageId": id_}

        def begin():
            session.turn = asyncio.ensure_future(self.work(session, blocks))

        return {"messageId": id_}, begin

    async def work(self, session, blocks):
        self.state(session, "running", "V2-ST-1")
        at = "yesterday" if fault("V2-INFO-1") else "2026-01-01T00:00:00Z"
        self.update(session, "session_info_update", title="A session", updatedAt=at)
        if fault("V2-ENUM-1"):
            self.update(session, "kit_mood", mood="good")
        more = {}
        try:
            reason = await self.turn(session, blocks)
        except asyncio.CancelledError:
            reason = "error" if fault("V2-CAN-4") else "cancelled"
        except Failed as error:
            reason = "cancelled" if fault("V2-ST-4") else "error"
            more = {"error": {"code": error.code, "message": str(error)}}
        session.turn = None
        session.save()
        self.update(session, "usage_update", used=-1 if fault("V2-USE-1") else 10, size=100)
        self.state(session, "idle", stopReason=reason, **more)
        session.queue.release()
        if fault("V2-ST-2") or (fault("V2-CAN-2") and reason == "cancelled"):
            self.update(session, "agent_message_chunk", content={"type": "text", "text": "late"})

    # --- tools ------------------------------------------------------------------------------------------------

    async def call(self, session, call):
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
        id_ = new_id()
        kind = {"shell": "execute", "read": "read", "write": "edit"}.get(name, "other")
        first = {"title": f"{name} {arguments}"[:80], "name": name, "kind": kind, "status": "pending"}
        if fault("V2-TC-2"):
            del first["title"]
        if name in ("read", "write"):
            first["locations"] = [{"path": arguments["path"], "line": 0 if fault("V2-TC-7") else 1}]
        self.update(session, "tool_call" if fault("V2-TC-1") else "tool_call_update", toolCallId=id_, **first)
        try:
            status, content, told = await self.does(session, id_, name, arguments)
        except asyncio.CancelledError:
            ended = "failed" if fault("V2-CAN-5") else "cancelled"
            self.update(session, "tool_call_update", toolCallId=id_, status=ended)
            raise
        more = {} if content is None else {"content": content}
        self.update(session, "tool_call_update", toolCallId=id_, status=status, **more)
        if fault("V2-TC-4") and status == "completed":
            self.update(session, "tool_call_update", toolCallId=id_, status="in_progress")
        return told

    async def does(self, session, id_, name, arguments):
        def text(words):
            kind = "magic" if fault("V2-TC-6") else "content"
            return [{"type": kind, "content": {"type": "text", "text": words}}]

        if name == "shell":
            if not await self.may(session, id_, arguments):
                return "failed", text("Rejected."), "The user rejected it."
            self.update(session, "tool_call_update", toolCallId=id_, status="in_progress")
            return await self.shell(session, id_, arguments["command"])
        if name == "read":
            if fault("V2-INIT-11"):
                await self.ask("fs/read_text_file", {"sessionId": session.id, "path": arguments["path"]})
            words = Path(arguments["path"]).read_text()
            return "completed", text(words), words
        if name == "write":
            path, new = Path(arguments["path"]), arguments["text"]
            old = path.read_text() if path.exists() else None
            path.write_text(new)
            return "completed", [self.diff(str(path), old, new)], "written"
        if name == "plan":
            self.plan(session, arguments["steps"])
            return "completed", text("Shown."), "shown"
        if name == "delegate":
            words = await self.delegate(session, arguments["text"])
            return "completed", text(words), words
        if name == "question":
            words = await self.form(session, id_, arguments["text"])
            return "completed", text(words), words
        return "failed", text("no such tool"), "There is no such tool."

    def diff(self, path, old, new):
        operation = "add" if old is None and not fault("V2-DIFF-2") else "modify"
        if fault("V2-DIFF-5") and not new:
            operation = "delete"
        a, b = ("a", "b") if fault("V2-DIFF-4") else ("", "")
        lines = [f"diff --git {a}{path} {b}{path}\n", *(["new file mode 100644\n"] if old is None else [])]
        for each in list(difflib.unified_diff((old or "").splitlines(True), new.splitlines(True), n=3))[2:]:
            lines.append(each if each.endswith("\n") else f"{each}\n\\ No newline at end of file\n")
        head = ["--- /dev/null\n" if old is None else f"--- {a}{path}\t\n", f"+++ {b}{path}\t\n"]
        place = 2 if old is None else 1
        lines[place:place] = head
        patch = {} if fault("V2-DIFF-3") else {"patch": {"format": "git_patch", "text": "".join(lines)}}
        gone = {"newText": new} if fault("V2-DIFF-1") else {}
        return {"type": "diff", "changes": [{"operation": operation, "path": path}], **patch, **gone}

    async def may(self, session, id_, arguments):
        subject = {
            "type": "command", "command": arguments["command"], "cwd": "." if fault("V2-PERM-3") else session.cwd,
            "toolCallId": new_id() if fault("V2-PERM-2") else id_,
        }  # fmt: skip
        asked = {"sessionId": session.id, "title": "Run it?", "subject": subject, "options": OPTIONS}
        if fault("V2-PERM-1"):
            del asked["title"]
        self.state(session, "requires_action", "V2-PERM-6")
        try:
            answer = await self.ask("session/request_permission", asked)
        except asyncio.CancelledError:
            if not fault("V2-CAN-3"):
                self.send({"method": "$/cancel_request", "params": {"requestId": self.number}})
            raise
        self.state(session, "running", "V2-ST-5")
        outcome = (answer.get("result") or {}).get("outcome") or {}
        yes = outcome.get("outcome") == "selected" and outcome.get("optionId") == "yes"
        return yes or fault("V2-PERM-5")

    def plan(self, session, steps):
        entries = [{"content": words, "priority": "medium", "status": status} for words, status in steps]
        if fault("V2-PLAN-1"):
            entries = [each for each in entries if each["status"] != "completed"]
        if fault("V2-PLAN-2"):
            entries[1]["status"] = "later"
        self.update(session, "plan_update", plan={"type": "items", "planId": "steps", "entries": entries})

    async def delegate(self, session, task):
        child = SessionV2(new_id(), session.cwd)
        child.spoken.append(["user", new_id(), task])
        child.hidden = not self.shows and not fault("V2-SUB-3")
        about = {"sessionId": child.id, "title": "kit"}
        if self.shows and not fault("V2-SUB-1"):
            self.update(session, "subagent_update", **about, state={"state": "running"})
        words, _, _ = await self.model(session if fault("V2-SUB-2") else child, [{"role": "user", "content": task}])
        if fault("V2-SUB-1"):
            self.update(session, "subagent_update", **about, state={"state": "idle"})
        self.state(child, "running" if fault("V2-SUB-4") else "idle")
        return words

    async def form(self, session, id_, text):
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
        asked = {"sessionId": session.id, "toolCallId": id_, "mode": "form", "message": text, "requestedSchema": schema}
        self.state(session, "requires_action", "V2-ELIC-2")
        try:
            answer = (await self.ask("elicitation/create", asked)).get("result") or {}
        except asyncio.CancelledError:
            self.send({"method": "$/cancel_request", "params": {"requestId": self.number}})
            raise
        self.state(session, "running")
        given = answer.get("action") == "accept" or fault("V2-ELIC-1")
        return answer["content"]["answer"] if given else "There was no answer."

    async def shell(self, session, id_, command):
        terminal = "one" if fault("V2-TERM-7") else new_id()
        about = {"terminalId": terminal, "command": command, "cwd": session.cwd}
        if not fault("V2-TERM-2"):
            self.update(session, "terminal_update", **about)
        if not fault("V2-TERM-1"):
            shown = [{"type": "terminal", "terminalId": terminal}]
            self.update(session, "tool_call_update", toolCallId=id_, content=shown)
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        argv = ["bash", "-c", command]
        child = subprocess.Popen(argv, cwd=session.cwd, stdin=null, stdout=pipe, start_new_session=True)
        self.children.add(child)
        output = b""
        try:
            while data := await asyncio.to_thread(os.read, child.stdout.fileno(), 4096):
                output += data
                sent = data.replace(b"\x1b", b"") if fault("V2-TERM-4") else data
                text = base64.b64encode(sent).decode()
                for part in (text[:3], text[3:]) if fault("V2-TERM-3") else (text,):
                    self.update(session, "terminal_output_chunk", terminalId=terminal, data=part)
            status = await asyncio.to_thread(child.wait)
        except asyncio.CancelledError:
            os.killpg(child.pid, signal.SIGKILL)
            raise
        self.children.discard(child)
        if fault("V2-TERM-2"):
            self.update(session, "terminal_update", **about)
        if not fault("V2-TERM-5"):
            self.update(session, "terminal_update", terminalId=terminal, exitStatus={"exitCode": status})
        return "completed", None, f"{output.decode(errors='replace')}[exit code {status}]"


if __name__ == "__main__":
    asyncio.run(SmallV2().run())
