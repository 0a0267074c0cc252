"""The choices of a session: mode, model, thought level, place."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.config.model import Settings, as_choice
from acp_agent.errors import InvalidParams
from acp_agent.lazy import load
from acp_agent.loop.modes import MODES, Mode, known_mode, narrower
from acp_agent.loop.options import (
    AUTO_MODEL,
    SPEEDS,
    THOUGHT_LEVELS,
    config_options,
    fast_factor,
    mode_state,
    places_of,
    shown_model,
)
from acp_agent.loop.outbox import Outbox
from acp_agent.schema.acp import ConfigOptionUpdate, CurrentModeUpdate, SessionConfigOption, SessionModeState
from acp_agent.store.base import SessionRecord
from acp_agent.store.session_store import SessionStore

LONGEST_NAME = 200
"""Characters of a name that it is compared by."""


def nearest(name: str, names: Sequence[str], most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Those that may have been meant. `cutoff`: how alike they have to be, from 0 to 1."""
    return list[str](load("difflib:get_close_matches")(name[:LONGEST_NAME], names, n=most, cutoff=cutoff))


class Choices:
    """`models`: the `provider/model`s known so far."""

    def __init__(
        self, record: SessionRecord, outbox: Outbox, store: SessionStore, models: Sequence[str], settings: Settings
    ) -> None:
        self.settings = settings
        self._id = record.id
        self._outbox = outbox
        self._store = store
        self.models = list(models)
        self.listed = {name.partition("/")[0] for name in self.models[1:] if not name.endswith(f"/{AUTO_MODEL}")}
        """The providers whose models are known: by the configuration, or since the server has said which it has."""
        self.fast = False
        """Whether faster answers are asked for, where they are offered. Not stored: they cost more."""
        self.mode_id = known_mode(record.mode)
        self.model = as_choice(record.model)
        self.thought_level = record.thought_level or "default"
        self.bound_to: Mode | None = None
        """The widest mode of a running turn that no user asked for."""

    @property
    def places(self) -> list[str]:
        """As in `config_options`."""
        return places_of(self.settings)

    def mode(self) -> Mode:
        """The effective mode: the session's, or a narrower one that the turn is bound to."""
        mode = MODES[self.mode_id]
        return mode if self.bound_to is None else narrower(mode, self.bound_to)

    def mode_state(self) -> SessionModeState:
        return mode_state(self.mode_id)

    def options(self) -> list[SessionConfigOption]:
        return config_options(
            self.settings, mode=self.mode_id, model=self.model, models=self.models, thought_level=self.thought_level,
            places=self.places, fast=self.fast, booleans=self._outbox.client.takes_booleans,
        )  # fmt: skip

    def shown(self, model: str = "") -> str:
        """A model as a user names it; that of the session."""
        return shown_model(model or self.model, [*self.models, self.model])

    def show(self) -> None:
        """Sends the client the complete list after a change it did not request."""
        self._outbox.emit(ConfigOptionUpdate(config_options=self.options()), keep=False)

    async def set_mode(self, mode: str, *, tell: bool = True) -> None:
        """Switches the mode, also while a turn runs. `tell`: the client did not request it with `session/set_mode`.
        Raises InvalidParams for an unknown one."""
        if mode not in MODES:
            raise InvalidParams(f"Invalid params: unknown mode {mode!r}; the modes are {', '.join(MODES)}")
        changed = mode != self.mode_id
        self.mode_id = mode
        if changed:
            await self._store.do(self._store.change, self._id, mode=mode)
        if tell and changed:
            self._outbox.emit(CurrentModeUpdate(current_mode_id=mode), keep=False)

    async def set_option(self, option: str, value: object, *, tell: bool = True) -> None:
        """Raises InvalidParams for an unknown option, value or type. The caller shows the list again. `tell`: as in
        `set_mode`."""
        if option == "speed" and fast_factor(self.settings, self.model):
            self.fast = self._speed(value)
        elif not isinstance(value, str):
            raise InvalidParams(f"Invalid params: $.value: the option {option!r} takes a string")
        elif option == "mode":
            await self.set_mode(value, tell=tell)
        elif option == "model":
            await self._set_model(self.named(value))
        elif option == "thought_level":
            if value not in THOUGHT_LEVELS:
                raise InvalidParams(
                    f"Invalid params: unknown thought level {value!r}; they are {', '.join(THOUGHT_LEVELS)}"
                )
            self.thought_level = value
            await self._store.do(self._store.change, self._id, thought_level=value)
        else:
            raise InvalidParams(f"Invalid params: unknown option {option!r}")

    def _speed(self, value: object) -> bool:
        booleans = self._outbox.client.takes_booleans
        if isinstance(value, bool) if booleans else value in SPEEDS:
            return value is True or value == "fast"
        takes = "true or false" if booleans else " or ".join(SPEEDS)
        raise InvalidParams(f"Invalid params: $.value: the option 'speed' takes {takes}")

    def meant(self, model: str) -> str | None:
        """The choice that a user means by `provider/model`, `provider:model` or a model that only one provider has. Any
        model may be named of a provider whose list is not known yet."""
        choice, known = as_choice(model), (*self.models, self.model)
        provider, separator, _ = choice.partition("/")
        if choice in known:
            return choice
        having = {name for name in known if name.partition("/")[2] == model}
        if (own := f"{self.model.partition('/')[0]}/{model}") in having:
            return own
        if len(having) == 1:
            return having.pop()
        return choice if not having and separator and f"{provider}/{AUTO_MODEL}" in known else None

    def named(self, model: str) -> str:
        """The same for a model that the user has just named: of the provider in use, if its list is not known.
        Raises InvalidParams, with the nearest names."""
        if (meant := self.meant(model)) is not None:
            return meant
        choice, own = as_choice(model), self.model.partition("/")[0]
        providers = {name.partition("/")[0] for name in self.models} | {own}
        provider = choice.partition("/")[0] if "/" in choice else own
        choice, provider = (choice, provider) if provider in providers else (f"{own}/{model}", own)
        if provider not in self.listed and not any(name.partition("/")[2] == model for name in self.models):
            return choice
        names = [name for name in self.models if not name.endswith(f"/{AUTO_MODEL}")]
        if sum(name.partition("/")[2] == model for name in names) > 1:
            raise InvalidParams(f"Several providers have the model {model!r}: name one, as in {provider}/{model}")
        near = nearest(choice, names) or names[:3]
        raise InvalidParams(f"There is no model {model!r}; the nearest: {', '.join(map(self.shown, near))}")

    async def _set_model(self, model: str) -> None:
        self.model = model
        await self._store.do(self._store.change, self._id, model=model)

    def found(self, models: Sequence[str]) -> None:
        """Adds the models that a server lists, and tells the client if any are new."""
        self.listed |= {model.partition("/")[0] for model in models}
        if any(model not in self.models for model in models):
            self.models = list(dict.fromkeys([*self.models, *models]))
            self.show()

    async def use_real_name(self, name: str) -> None:
        """Replaces the chosen `provider/auto` with the model it stands for."""
        self.models = list(dict.fromkeys(name if known == self.model else known for known in self.models))
        await self._set_model(name)
        self.show()
