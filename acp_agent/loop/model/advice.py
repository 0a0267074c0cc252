"""What a user does next about an error of a model's server: by the kind of the error, and by where they are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from acp_agent.errors import ProviderError

Front = Literal["once", "chat", "editor"]
FRONTS: dict[str, Front] = {"acp-coder-prompt": "once", "acp-coder-chat": "chat"}
"""Our own clients in a terminal, by the name in `clientInfo`; all others are editors and pages."""

OTHER_MODEL: dict[Front, str] = {
    "once": "choose another model with `--model` (`acp-coder models` lists them)",
    "chat": "pick another model with `/model`",
    "editor": "choose another model (`/model` lists them)",
}
NEW_SESSION: dict[Front, str] = {
    "once": "Begin a new session (without `--continue` and `--session`)",
    "chat": "Begin a new session with `/new`",
    "editor": "Begin a new session",
}


def advised(
    error: ProviderError, client: str, *, provider: str = "default", key_origin: str = "", near: Sequence[str] = ()
) -> str:
    """The error with one advice. `client`: its name; `key_origin`: where the refused key is from, in words; `near`:
    models that may have been meant."""
    front = FRONTS.get(client, "editor")
    if not error.fact:
        return str(error)
    match error.kind:
        case "auth":
            return f"{error.fact} {_about_key(front, provider, key_origin)}"
        case "not_found" if error.about_model:
            meant = f"Was {' or '.join(f'`{name}`' for name in near)} meant? " if near else ""
            how = OTHER_MODEL[front]
            return f"{error.fact} {meant}{how[:1].upper()}{how[1:]}."
        case "quota":
            return f"{error.fact} Add credit or raise the limit at the provider, or {OTHER_MODEL[front]}."
        case "context_too_long":
            reads_more = OTHER_MODEL[front].replace("another model", "one that reads more")
            return f"{error.fact} {NEW_SESSION[front]}, or {reads_more}."
    return str(error)


def _about_key(front: Front, provider: str, origin: str) -> str:
    """The key that is used is to be changed where it is from: another one that is stored would not be used."""
    if origin.startswith("environment"):
        return f"The key is that of the {origin}: change it there, and start the agent again."
    if origin == "configuration":
        return f"The key is `providers.{provider}.api_key` of your configuration: change it there."
    named = "" if provider == "default" else f" {provider}"
    stores = f"`acp-coder login{named}` stores another key"
    return f"{stores}." if front != "editor" else f"In a terminal, {stores}; then send the prompt again."
