"""`api = "replay"`: the answers of a recording (`options.script`) instead of a model. Opens no connection.

A request that was not recorded fails with a `ProviderError` of kind `recording`, which is final.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio

from acp_agent.config.model import ProviderOptions
from acp_agent.llm import base as llm
from acp_agent.llm.recordings.cleaning import Cleaner
from acp_agent.llm.recordings.playback import playback_of

CUT_SECONDS = 10.0
"""How long an answer that nobody waited for to the end is kept open, where whoever stopped it is played, too."""


class ReplayProvider:
    """Raises `ConfigError` if the file cannot be read."""

    def __init__(self, options: ProviderOptions) -> None:
        self.name = options.name
        self._playback = playback_of(Path(options.script).expanduser().absolute())
        calls = self._playback.recording.calls
        own = [call.form["model"] for call in calls if call.provider == self.name]
        self._models = options.models or tuple(dict.fromkeys(own or (call.form["model"] for call in calls)))

    @property
    def cleaner(self) -> Cleaner:
        return self._playback.cleaner

    async def stream(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        playback = self._playback
        call = playback.take(messages, tools, settings)
        before = 0.0
        for at, event in call.events:
            if playback.timed:
                await anyio.sleep(at - before)
                before = at
            yield playback.event(event)
        if call.error is not None:
            raise call.error
        if call.cut:
            if playback.recording.wire:
                await anyio.sleep(CUT_SECONDS)
            yield llm.Finished("stop")

    async def models(self) -> list[llm.ModelInfo]:
        known = {info.id: info for info in self._playback.recording.models.get(self.name, ())}
        return [known.get(name) or llm.ModelInfo(name) for name in self._models]

    async def aclose(self) -> None:
        pass
