"""What each client can really do: what it claims, corrected by known quirks, corrected by the user.

One table lists the quirks of clients that were tested (docs/editors/README.md); any other client is taken at its word.
Quirks that any client may have are not listed: what a client does not confirm is verified for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from acp_agent.config.language_settings import ClientProfileConfig
from acp_agent.schema.acp import ClientCapabilities, Implementation

UNNAMED = "unnamed"
"""The row, and the configuration key, of a client that sends no `clientInfo`."""


def config_name(name: str) -> str:
    """A client's name in the configuration: `CodeCompanion.nvim` is `codecompanion-nvim` there."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")


class Quirks(Struct, frozen=True):
    """`None`: as the client claims, or as for all clients."""

    reads_files: bool | None = None
    writes_files: bool | None = None
    terminals: bool | None = None
    terminal_output: bool | None = None
    forms: bool | None = None
    plans: bool | None = None
    why: str = ""


PROFILES: dict[str, Quirks] = {
    "codecompanion.nvim": Quirks(plans=False, why="it does not draw plans"),
    UNNAMED: Quirks(writes_files=False, why="marimo has no name, and `fs/write_text_file` writes nothing"),
}
"""By the name in `clientInfo`, in lower case."""


OF_ITS_MACHINE = ("reads_files", "writes_files", "terminals")


def watches_turns(capabilities: ClientCapabilities) -> bool:
    """Whether its own messages come back to it, and it is told when a turn begins and ends: a client of v2."""
    return (capabilities.meta or {}).get("turns") is True


def takes_cursors(capabilities: ClientCapabilities) -> bool:
    """Whether it takes `cursor_update`, of ACP's draft."""
    return capabilities.session is not None and capabilities.session.cursors is not None


def takes_booleans(capabilities: ClientCapabilities) -> bool:
    """Whether an option may be one."""
    options = None if capabilities.session is None else capabilities.session.config_options
    return options is not None and options.boolean is not None


class RenderingPlan(Struct, frozen=True):
    """Features this client gets, and those it does without."""

    name: str
    reads_files: bool
    """Read files through the client, which may hold unsaved text."""
    writes_files: bool
    terminals: bool
    """Run commands in the client's terminals."""
    terminal_output: bool
    """The client draws the output of commands run here, from `_meta.terminal_output` (DF-1)."""
    forms: bool
    """Ask questions with forms (elicitation), else as permission requests or in text."""
    plans: bool
    """The client draws plans; else the steps go into the tool call that sets them."""
    plan_documents: bool
    """It draws plans as documents of their own (`plan_update`), the steps as one of them."""
    compaction: bool
    notices: bool
    far: bool = False
    """It runs on another machine: its language servers see other files."""
    corrected: tuple[str, ...] = ()
    """Differences from the client's claims, and why."""


def rendering_plan(
    capabilities: ClientCapabilities,
    info: Implementation | None = None,
    overrides: Mapping[str, ClientProfileConfig] | None = None,
    *,
    far: bool = False,
) -> RenderingPlan:
    """The plan for a client. `overrides`: the user's settings (`clients.NAME`), which take precedence. `far`: it runs
    on another machine."""
    name = info.name if info is not None and info.name else UNNAMED
    quirks = PROFILES.get(name.lower(), Quirks())
    if name == UNNAMED and capabilities.terminal:
        quirks = Quirks()  # The one client known to send no name offers none.
    own = (overrides or {}).get(config_name(name), ClientProfileConfig())
    meta, session, elicitation = capabilities.meta or {}, capabilities.session, capabilities.elicitation
    said = {
        "reads_files": capabilities.fs.read_text_file,
        "writes_files": capabilities.fs.write_text_file,
        "terminals": capabilities.terminal,
        "terminal_output": meta.get("terminal_output") is True,
        "forms": elicitation is not None and elicitation.form is not None,
        "plans": True,
    }
    plan, corrected = dict(said), []
    for key in said:
        for value, why in (
            (getattr(quirks, key), quirks.why),
            (getattr(own, key), f"`clients.{config_name(name)}.{key}`"),
        ):
            # Never ask a client for something it did not offer: it may never answer.
            if value is not None and value != plan[key] and (said[key] or not value or key == "terminal_output"):
                plan[key] = value
                corrected.append(f"{key.replace('_', ' ')}: {'yes' if value else 'no'} ({why})")
    for key in OF_ITS_MACHINE if far else ():
        if plan[key]:
            plan[key] = False
            corrected.append(f"{key.replace('_', ' ')}: no (it runs on another machine, `agent.far`)")
    return RenderingPlan(
        name=name,
        far=far,
        **plan,
        plan_documents=bool(plan["plans"]) and capabilities.plan is not None,
        compaction=session is not None and session.compaction is not None,
        notices=session is not None and session.notices is not None,
        corrected=tuple(corrected),
    )
