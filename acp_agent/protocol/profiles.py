"""The real capabilities of each client: its own, corrected by what is known of it, corrected by the user.

One table knows the quirks of clients that were tried (docs/editors/README.md); whoever is not in it is taken at their
word. Quirks that any client may have are no rows here: what a client does not confirm is verified for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from acp_agent.config.language_settings import ClientProfileConfig
from acp_agent.schema.acp import ClientCapabilities, Implementation

UNNAMED = "unnamed"
"""The row, and the key of the configuration, for a client that gives no `clientInfo`."""


def config_name(name: str) -> str:
    """The name of a client in the configuration: `CodeCompanion.nvim` is `codecompanion-nvim` there."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")


class Quirks(NamedTuple):
    """`None`: as the client says, or as all do."""

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


class RenderingPlan(NamedTuple):
    """The features that this client gets, and those it does without."""

    name: str
    reads_files: bool
    """Files are read through the client: it may hold unsaved text."""
    writes_files: bool
    terminals: bool
    """Commands run in the client's terminals."""
    terminal_output: bool
    """Output of commands run here is drawn by the client from `_meta.terminal_output` (DF-1)."""
    forms: bool
    """Questions are forms (elicitation); else they are permission requests or words."""
    plans: bool
    """The client draws plans; else the steps are in the tool call that sets them."""
    compaction: bool
    notices: bool
    corrected: tuple[str, ...] = ()
    """Differences from what the client said, and why."""


def rendering_plan(
    capabilities: ClientCapabilities,
    info: Implementation | None = None,
    overrides: Mapping[str, ClientProfileConfig] | None = None,
) -> RenderingPlan:
    """The plan for a client. `overrides`: the user's (`clients.NAME`), which count most."""
    name = info.name if info is not None and info.name else UNNAMED
    quirks = PROFILES.get(name.lower(), Quirks())
    if name == UNNAMED and capabilities.terminal:
        quirks = Quirks()  # The one that is known offers none.
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
            # Nothing is asked of a client that it did not offer: it may never answer.
            if value is not None and value != plan[key] and (said[key] or not value or key == "terminal_output"):
                plan[key] = value
                corrected.append(f"{key.replace('_', ' ')}: {'yes' if value else 'no'} ({why})")
    return RenderingPlan(
        name=name,
        **plan,
        compaction=session is not None and session.compaction is not None,
        notices=session is not None and session.notices is not None,
        corrected=tuple(corrected),
    )
