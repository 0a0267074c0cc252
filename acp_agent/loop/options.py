"""A session's choices (mode, model, thought level) as ACP shows them: `modes` and config options, always in step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from acp_agent.config.place_settings import LOCAL
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.llm.choose import choose_api
from acp_agent.loop.modes import MODES, ModeId
from acp_agent.schema.acp import (
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

if TYPE_CHECKING:
    from acp_agent.config.model import Settings

AUTO_MODEL = "auto"
"""Stands for the first model of the server's list, until that is known."""

THOUGHT_LEVELS: dict[str, str] = {"default": "Default", "off": "Off", "low": "Low", "medium": "Medium", "high": "High"}


SPEEDS = {"standard": "Standard", "fast": "Fast"}


def fast_factor(settings: Settings, model: str) -> float:
    """What a faster answer of `provider/model` costs, as a multiple; 0: there is none, or its price is not known."""
    found = settings.provider(model.partition("/")[0])
    if not settings.protocol.unstable or found is None:
        return 0.0
    priced = settings.price(model)
    may = WIRE_APIS[found.api or choose_api(found.base_url)].fast
    return (priced.fast or 0.0) if may and priced is not None else 0.0


def _speed(fast: float, chosen: bool, booleans: bool) -> SessionConfigOption:
    about: dict[str, Any] = {
        "id": "speed",
        "name": "Fast answers" if booleans else "Speed",
        "description": f"Fast answers cost {fast:g} times the price",
        "category": "speed",
    }
    if booleans:
        return SessionConfigBoolean(**about, current_value=chosen)
    values = [SessionConfigSelectOption(value=value, name=name) for value, name in SPEEDS.items()]
    return SessionConfigSelect(**about, current_value="fast" if chosen else "standard", options=values)


def mode_state(mode: ModeId) -> SessionModeState:
    return SessionModeState(
        current_mode_id=mode,
        available_modes=[SessionMode(id=m.id, name=m.name, description=m.description) for m in MODES.values()],
    )


def config_options(
    settings: Settings, *, mode: ModeId, model: str, models: Sequence[str], thought_level: str, places: Sequence[str],
    fast: bool = False, booleans: bool = False,
) -> list[SessionConfigOption]:  # fmt: skip
    """The complete list. `model` and `models` are `provider/model`; one that is not among them is added. `places`: the
    current one first; a single one is no choice. `fast`: whether faster answers are chosen. `booleans`: the client
    takes options that are."""
    server = default_server(settings)
    known = list(dict.fromkeys([*models, model]))
    several = len({name.partition("/")[0] for name in known}) > 1
    options: list[SessionConfigOption] = [
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
            options=[SessionConfigSelectOption(value=name, name=_model_name(name, several, server)) for name in known],
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
    if factor := fast_factor(settings, model):
        options.append(_speed(factor, fast, booleans))
    if len(places) > 1:
        named = [SessionConfigSelectOption(value=name, name=_place_name(name)) for name in sorted(places)]
        words = "Where commands run"
        options.append(
            SessionConfigSelect(id="place", name="Place", description=words, current_value=places[0], options=named)
        )
    return options


def places_of(settings: Settings) -> list[str]:
    """The places that a session may choose, the one of `settings` first."""
    others = (LOCAL, *settings.places) if settings.agent.elsewhere else ()
    return list(dict.fromkeys([settings.agent.place, *others]))


def _place_name(value: str) -> str:
    return "This machine" if value == LOCAL else value


def default_server(settings: Settings) -> str:
    """What a user calls the provider `default`: where its server is."""
    found = settings.provider("default")
    host = "" if found is None else found.base_url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return "OpenAI" if host in ("", "api.openai.com") else host


def shown_model(model: str, models: Iterable[str]) -> str:
    """A model as a user names it: `default/` is said only where there are other providers."""
    alone = all(name.startswith("default/") for name in models)
    return model.removeprefix("default/") if alone else model


def _model_name(value: str, several: bool, server: str) -> str:
    provider, _, model = value.partition("/")
    provider = server if provider == "default" and server else provider
    if model == AUTO_MODEL:
        model = "The server's first model"
    return f"{model} ({provider})" if several else model
