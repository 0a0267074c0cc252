"""The agent's own commands by name; what they do is in `loop/commands.py`."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.loop.prompts.prompt_text import leading_text
from acp_agent.schema.acp import ContentBlock

BUILT_IN: dict[str, tuple[str, str]] = {
    "help": ("List the commands", ""),
    "model": ("List the models, or switch", "NAME"),
    "mode": ("List the modes, or switch", "ask|architect|code|auto"),
    "clear": ("Let the model forget the conversation", ""),
    "compact": ("Replace the conversation with a summary by the model", ""),
    "plan": ("Set a goal and work towards it; show, pause or end it", "GOAL|done|pause|resume|clear"),
    "context": ("Show how full the model's context is", ""),
    "cost": ("Show what the session and this day cost", ""),
    "tools": ("List the tools of the current mode", ""),
    "rename": ("Give the session another title", "TITLE"),
    "status": ("Show session, model, mode and what the editor offers", ""),
    "trust": ("Show the folder's own files, and trust them", "yes|no"),
    "permissions": ("List and revoke remembered permissions; rules to add", "revoke NUMBER"),
    "policy": ("Show the active rules, the verdict on a call, what was learned", "status|check TOOL JSON|learned"),
    "approve": ("Allow one call that a limit in `tools.scoped` stopped", "ID"),
    "reject": ("Mark a tool call as unacceptable, so that it is not repeated", "ID"),
    "unblock": ("List what the session has learned to block, and unblock it", "TOOL|learned|hour"),
    "checkpoints": ("List the prompts and what was changed for each", ""),
    "undo": ("Take back a prompt and all after it, or one call", "NUMBER|ID [files|conversation|both] [merge]"),
    "redo": ("Take back the last undo", ""),
    "diff": ("Show what the agent changed, since before a prompt", "NUMBER"),
    "fork": ("Make a new session with this conversation, or what is before a prompt", "NUMBER [worktree]"),
    "worktree": ("List the git worktrees that the agent made of this project; remove one", "remove NAME"),
    "place": ("Show where commands run and what confines them there, or go elsewhere", "NAME"),
    "hooks": ("List the hooks", ""),
    "plugins": ("List the plugins in use", ""),
    "mcp": (
        "Show the MCP servers, what they said and offer; restart one",
        "log|tools|resources|restart|login|enable|disable NAME",
    ),
    "agents": ("List the sub-agents with instructions of their own", ""),
    "doctor": ("Show how commands are confined and what is logged", ""),
}
"""Name -> description and hint."""

PLAN_WORDS = frozenset(("done", "pause", "resume", "clear"))
"""`/plan WORD` changes the goal that is there; anything else is a new goal."""


def split_command(blocks: Sequence[ContentBlock]) -> tuple[str, str]:
    """The name of the command a prompt calls, and what follows it; empty where it calls none."""
    text = leading_text(blocks)
    if not text.startswith("/"):
        return "", ""
    name, _, rest = text[1:].partition(" ")
    return name.split("\n", 1)[0].strip(), rest.strip()


def sets_goal(name: str, rest: str) -> bool:
    """Whether a command is `/plan GOAL`, which is a prompt."""
    return name == "plan" and bool(rest) and rest.lower() not in PLAN_WORDS
