"""`ScriptedProvider`: recorded answers instead of a model, for demonstrations and tests without a network.

The script is a JSON file: a list of answers, each an object with any of `text` (a string, or a list of deltas),
`thought` (likewise), `tool_calls` (`[{"name", "arguments"}]`, arguments as an object or as JSON text), `usage`
(`UsageReport`'s fields) and `finish` (a `FinishReason`). The number of assistant messages in the history selects the
answer, so the provider holds no state and a loaded session continues where it stopped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ConfigError
from acp_agent.limits.decoding import read_json
from acp_agent.llm import base as llm


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str | tuple[str, ...] = ()
    thought: str | tuple[str, ...] = ()
    tool_calls: tuple[_Call, ...] = ()
    usage: llm.UsageReport | None = None
    finish: llm.FinishReason | None = None


class ScriptedProvider:
    """Answers from `options.script`. Raises `ConfigError` if the file cannot be read."""

    def __init__(self, options: ProviderOptions) -> None:
        self.name = options.name
        self._models = options.models or ("scripted",)
        try:
            self._answers = read_json(Path(options.script).read_bytes(), type=tuple[_Answer, ...])
        except OSError as error:
            raise ConfigError(
                f"{options.name}: the script {options.script!r} cannot be read: {error.strerror}"
            ) from error
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{options.name}: the script {options.script!r} is not a list of answers: {error}"
            ) from error

    async def stream(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        number = sum(isinstance(message, llm.AssistantMessage) for message in messages)
        if number >= len(self._answers):
            yield llm.TextDelta(f"The script is used up: it has {len(self._answers)} answers.")
            yield llm.Finished("stop")
            return
        answer = self._answers[number]
        for thought in _deltas(answer.thought):
            yield llm.ThoughtDelta(thought)
        for text in _deltas(answer.text):
            yield llm.TextDelta(text)
        for index, call in enumerate(answer.tool_calls):
            arguments = call.arguments
            if not isinstance(arguments, str):
                arguments = msgspec.json.encode(arguments).decode()
            yield llm.ToolUse(f"call_{number}_{index}", call.name, arguments)
        if answer.usage is not None:
            yield answer.usage
        yield llm.Finished(answer.finish or ("tool_calls" if answer.tool_calls else "stop"))

    async def models(self) -> list[llm.ModelInfo]:
        return [llm.ModelInfo(name) for name in self._models]

    async def aclose(self) -> None:
        pass


def _deltas(text: str | tuple[str, ...]) -> tuple[str, ...]:
    deltas = (text,) if isinstance(text, str) else text
    return tuple(delta for delta in deltas if delta)
