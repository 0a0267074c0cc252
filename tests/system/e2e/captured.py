"""The clients whose `initialize` was recorded (tests/captured), each with its observed behaviour."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp_agent.schema.acp import CreateElicitationRequest, CreateElicitationResponse, InitializeRequest
from acp_agent.schema.decode import decode_params
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import FakeModel, Script
from tests.e2e.kit import spawned
from tests.forked import forked_command

__all__ = ["CLIENTS", "Client", "Talk", "client_named", "recorded", "talking"]

CAPTURED = Path(__file__).parents[2] / "captured"


@dataclass(frozen=True)
class Client:
    """A recorded client. Its habits are switches of `FakeEditor`."""

    habits: Mapping[str, Any] = field(default_factory=dict)
    reads_only_the_project: bool = False
    mentions: Callable[[Path], str] = Path.as_uri
    """The address of a file that is mentioned in a prompt."""


SHELL = {"wait_never_answers_after_kill": True, "crlf_output": True}

CLIENTS: dict[str, Client] = {
    "acp-acpx": Client(reads_only_the_project=True),
    "acp-codecompanion": Client({"missing_file_reads_empty": True, "unknown_never_answer": True}),
    "acp-marimo": Client(
        {"write_does_nothing": True, "ignores_line_and_limit": True, "missing_file_is_internal_error": True},
        mentions=str,
    ),
    "acp-toad": Client(
        {"missing_file_reads_empty": True, "write_needs_parent": True, "write_answers_null": True}
        | {"nothing_is_killed": True, "reads_lossy": True, **SHELL}
    ),
    "acp-vscode-acp-coder": Client(),
    "acp-vscode-acp-client": Client({"missing_file_is_internal_error": True, "join_for_shell": True, **SHELL}),
}
"""By the beginning of the file's name, which may go on with a version."""


def recorded() -> Sequence[Path]:
    return sorted(CAPTURED.glob("acp-*.json"))


def client_named(name: str) -> Client:
    """Of the names that fit, the longest counts. Raises KeyError for a client that has no row."""
    fitting = [known for known in CLIENTS if name == known or name.startswith(f"{known}-")]
    if not fitting:
        raise KeyError(f"{name}.json was recorded; its habits belong into CLIENTS")
    return CLIENTS[max(fitting, key=len)]


async def red(request: CreateElicitationRequest) -> CreateElicitationResponse:
    """As a person who takes that answer in every form."""
    return CreateElicitationResponse(action="accept", content={"answer": "red"})


async def no_problems(method: str, params: dict[str, Any]) -> Any:
    """Language servers that know of nothing."""
    return {"items": []} if method == "_lsp/diagnostics" else []


@dataclass
class Talk:
    """A client in a session with the agent, which is a process."""

    client: Client
    said: InitializeRequest
    """What it said of itself."""
    editor: FakeEditor
    model: FakeModel
    project: Path

    @property
    def name(self) -> str:
        return self.said.client_info.name if self.said.client_info is not None else "unnamed"

    def results(self, number: int) -> list[str]:
        """What the tools had said by the n-th call of the model, counted from 1."""
        messages = self.model.requests[number - 1].body["messages"]
        return [message["content"] for message in messages if message["role"] == "tool"]

    def asked(self, method: str) -> list[dict[str, Any]]:
        """The params of the agent's requests with this method."""
        return [line["params"] for line in self.editor.lines("from_agent", method)]


@asynccontextmanager
async def talking(file: Path, tmp_path: Path, script: Script = (), **more: Any) -> AsyncIterator[Talk]:
    """The agent as a child process of the client that said what stands in `file`, with a session in a project."""
    params = json.loads(file.read_text(encoding="utf-8"))
    said = decode_params("initialize", params, "agent")
    client = client_named(file.stem)
    project = tmp_path / "project"
    habits = dict(client.habits)
    if client.reads_only_the_project:
        habits["reads_below"] = project
    capabilities = said.client_capabilities
    if capabilities.elicitation is not None:
        habits["elicitation"] = red
    if (capabilities.meta or {}).get("lsp"):
        habits["language_servers"] = no_problems
    here = {"command": forked_command(), "start": params, "capabilities": capabilities, "info": said.client_info}
    async with spawned(tmp_path, script, **here, **habits, **more) as (editor, model):
        yield Talk(client, said, editor, model, project)
