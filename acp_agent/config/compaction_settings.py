"""How a conversation is made to fit into its context. Part of `Settings` (see `model`)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from acp_agent.config.language_settings import key


class CompactionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[
        bool,
        key(
            "Compact the conversation when the context reaches `agent.context_budget`; `false`: the turn stops there.",
            project=True,
        ),
    ] = True
    target: Annotated[float, key("Fraction of the context used afterwards.", gt=0, le=0.9, project=True)] = 0.5
    keep_results: Annotated[
        int, key("Number of newest tool results that are not shortened as long as others can be.", ge=0, project=True)
    ] = 4
    result_chars: Annotated[int, key("Characters kept of a shortened tool result.", ge=50, project=True)] = 400
