"""A session's choices (mode, model, thought level) as ACP shows them: `modes` and config options, always in step."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.loop.modes import MODES, ModeId
from acp_agent.schema.acp import (
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

AUTO_MODEL = "auto"
"""Stands for the first model of the server's list, until that is known."""

THOUGHT_LEVELS: dict[str, str] = {
    "default": "Default",
    "off": "Off",
    "low": "Low",
    "medium": "Medium",
    "high": "High",
}


def mode_state(mode: ModeId) -> SessionModeState:
    return SessionModeState(
        current_mode_id=mode,
        available_modes=[SessionMode(id=m.id, name=m.name, description=m.description) for m in MODES.values()],
    )


def config_options(*, mode: ModeId, model: str, models: Sequence[str], thought_level: str) -> list[SessionConfigOption]:
    """The complete list. `model` and `models` are `provider/model`; one that is not among them is added."""
    known = list(dict.fromkeys([*models, model]))
    several = len({name.partition("/")[0] for name in known}) > 1
    return [
        SessionConfigSelect(
            id="mode",
            name="Mode",
            category="mode",
            current_value=mode,
            options=[
                SessionConfigSelectOption(value=m.id, name=m.name, description=m.description) for m in MODES.values()
            ],
        ),
        SessionConfigSelect(
            id="model",
            name="Model",
            category="model",
            current_value=model,
            options=[SessionConfigSelectOption(value=name, name=_model_name(name, several)) for name in known],
        ),
        SessionConfigSelect(
            id="thought_level",
            name="Thinking",
            description="How much the model reasons before it answers",
            category="thought_level",
            current_value=thought_level,
            options=[SessionConfigSelectOption(value=value, name=name) for value, name in THOUGHT_LEVELS.items()],
        ),
    ]


def _model_name(value: str, several: bool) -> str:
    provider, _, model = value.partition("/")
    if model == AUTO_MODEL:
        model = "The server's first model"
    return f"{model} ({provider})" if several else model
