"""Parameters of the tools for sessions and panes of tmux.

They need no permission: what is run in a pane is judged when it is.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from acp_agent.tools.kit.base import Params


class TmuxParams(Params):
    risk: Literal["low", "medium", "high"] = Field(description="How much harm it can do.")
    mutation: bool = Field(description="Whether it changes anything.")
    privesc: bool = Field(description="Whether it uses privileges beyond the user's own (sudo).")
    why: str = Field(description="Its purpose, in one short sentence.", min_length=1)


class SessionParams(TmuxParams):
    session: str = Field(description="Its name: letters, digits, `-` and `_`.", min_length=1)


class PaneParams(TmuxParams):
    pane: str = Field(description="Its name: letters, digits, `-` and `_`.", min_length=1)
    session: str | None = Field(default=None, description="In this session. Default: the shared one.")


def is_there(new: bool) -> str:
    return "was made" if new else "is there already"
