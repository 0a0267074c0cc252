"""A client that does what Harbor's ACP runner (0.25.0) does, with the SDK that it uses: one prompt, all allowed.

`python -m tests.system.evals.harbor_steps LAUNCHER INSTRUCTION OUT` in the folder of the task; the summary goes to OUT
as JSON. The folder and the environment are the agent's, too.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import acp
from acp import schema


class Runner:
    def __init__(self) -> None:
        self.usage: dict[str, Any] | None = None
        self.said = ""
        self.asked = 0
        self.commands: list[list[str]] = []
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.output: dict[str, bytes] = {}
        self.readers: dict[str, asyncio.Task[None]] = {}

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
        self.asked += 1
        allowed = next(option for option in options if option.kind in ("allow_once", "allow_always"))
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=allowed.option_id)
        )

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if isinstance(update, schema.UsageUpdate):
            self.usage = update.model_dump(mode="json", by_alias=True, exclude_none=True)
        if isinstance(update, schema.AgentMessageChunk):
            self.said += update.content.text

    async def read_text_file(
        self, path: str, session_id: str, limit: int | None = None, line: int | None = None, **_: Any
    ) -> Any:
        lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
        start = (line or 1) - 1
        return schema.ReadTextFileResponse(content="".join(lines[start : None if limit is None else start + limit]))

    async def write_text_file(self, content: str, path: str, session_id: str, **_: Any) -> Any:
        Path(path).write_text(content, encoding="utf-8")
        return schema.WriteTextFileResponse()

    async def create_terminal(
        self, command: str, session_id: str, args: Any = None, cwd: str | None = None, env: Any = None, **_: Any
    ) -> Any:
        self.commands.append([command, *(args or [])])
        process = await asyncio.create_subprocess_exec(
            *self.commands[-1], cwd=cwd,
            env={**os.environ, **{variable.name: variable.value for variable in env or []}},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self.processes[name := f"term_{len(self.commands)}"] = process
        self.output[name] = b""
        self.readers[name] = asyncio.create_task(self._read(name, process))
        return schema.CreateTerminalResponse(terminal_id=name)

    async def _read(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(4096):
            self.output[name] += chunk

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        code = self.processes[terminal_id].returncode
        return schema.TerminalOutputResponse(
            output=self.output[terminal_id].decode(errors="replace"), truncated=False,
            exit_status=None if code is None else schema.TerminalExitStatus(exit_code=code),
        )  # fmt: skip

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        code = await self.processes[terminal_id].wait()
        await self.readers[terminal_id]
        return schema.WaitForTerminalExitResponse(exit_code=code)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        if self.processes[terminal_id].returncode is None:
            self.processes[terminal_id].kill()
        return schema.KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        return schema.ReleaseTerminalResponse()


def candidates(wanted: str, option: Any) -> list[str]:
    """The values of the option that Harbor tries for a model, in its order."""
    offered = [value.value for value in option.options]
    found: list[str] = []
    for variant in dict.fromkeys([wanted, wanted.partition("/")[2] or wanted]):
        found += [variant] if variant in offered else []
        alike = [value for value in offered if value.split("/", 1)[-1] == variant.split("/", 1)[-1]]
        found += alike if len(alike) == 1 else []
    return list(dict.fromkeys(found))


async def trial(launcher: str, instruction: str, model: str) -> dict[str, Any]:
    """The steps of one trial; `model` may be empty."""
    runner, workspace = Runner(), str(Path.cwd())
    async with acp.spawn_agent_process(
        cast(acp.Client, runner), launcher, env=dict(os.environ), cwd=workspace, transport_kwargs={"stderr": None}
    ) as (agent, _):
        files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        opened = await agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(
                auth=schema.AuthCapabilities(terminal=False), fs=files, terminal=True
            ),
        )
        for method in opened.auth_methods or []:
            needed = [variable.name for variable in getattr(method, "vars", None) or [] if not variable.optional]
            if isinstance(method, schema.EnvVarAuthMethod) and all(map(os.environ.get, needed)):
                await agent.authenticate(method_id=method.id)
                break
        session = await agent.new_session(
            cwd=workspace, mcp_servers=json.loads(os.environ.get("HARBOR_ACP_MCP_SERVERS_JSON", "[]"))
        )
        chosen = ""
        if model:
            assert not getattr(session, "models", None), "the older way would go first"
            option = next(option for option in session.config_options or [] if option.category == "model")
            for value in candidates(model, option):
                await agent.set_config_option(session_id=session.session_id, config_id=option.id, value=value)
                chosen = value
                break
        answer = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block(instruction)])
    return {
        "chosen": chosen, "answer": answer.model_dump(mode="json", by_alias=True, exclude_none=True),
        "usage_update": runner.usage, "said": runner.said, "asked": runner.asked, "commands": runner.commands,
    }  # fmt: skip


if __name__ == "__main__":
    launcher, instruction, out = sys.argv[1:]
    summary = asyncio.run(trial(launcher, instruction, os.environ.get("HARBOR_ACP_REQUESTED_MODEL", "")))
    Path(out).write_text(json.dumps(summary), encoding="utf-8")
