"""What the chat does itself: its own slash commands, and `/help` in groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acp_agent.fronts.terminal.screens import BOLD, CYAN, DIM, CommandRow, TerminalStyle, wrapped

NAME_WIDTH = 13
OWN = (
    CommandRow("resume", "Pick a session of this folder and continue it"),
    CommandRow("new", "Begin a new session"),
    CommandRow("model", "Pick a model, or name one"),
    CommandRow("help", "What can be typed and pressed here"),
    CommandRow("exit", "Leave"),
)
GROUPS = {
    "Conversation": "resume new rename clear compact context cost plan fork exit",
    "Changes": "diff checkpoints undo redo worktree",
    "Tasks": "init review commit",
    "Model and mode": "model mode",
    "What is allowed": "trust permissions policy approve reject unblock hooks",
    "Tools and places": "tools mcp plugins agents place",
    "About": "help status doctor",
}
KEYS = (
    ("Enter", "send; while it works: joins the running turn"),
    ("Tab", "while it works: send after this turn; else complete"),
    ("Esc", "stop, and get the words back"),
    ("Ctrl-C", "stop; twice leaves"),
    ("Shift-Tab", "the next mode"),
    ("Ctrl-O", "open what was folded"),
    ("Ctrl-J", "a new line (also \\ and Enter, Alt-Enter)"),
    ("Ctrl-G", "write in $EDITOR"),
    ("@name", "a file"),
    ("!command", "run it yourself; the next prompt tells the model. !! does not"),
)


def merged(commands: Iterable[CommandRow]) -> list[CommandRow]:
    """Those of the agent, and ours in their place."""
    own = {row.name for row in OWN}
    return [*OWN, *(row for row in commands if row.name not in own)]


def help_text(commands: Sequence[CommandRow], style: TerminalStyle, width: int) -> str:
    rows, left = {row.name: row for row in merged(commands)}, set()
    lines = [style.paint(BOLD, "Keys")]
    lines += [_line(key, words, style, width) for key, words in KEYS]
    for title, names in GROUPS.items():
        found = [rows[name] for name in names.split() if name in rows]
        left |= {row.name for row in found}
        lines += ["", style.paint(BOLD, title)] if found else []
        lines += [_line(f"/{row.name}", row.description, style, width) for row in found]
    if others := [row for name, row in rows.items() if name not in left]:
        lines += ["", style.paint(BOLD, "Yours"), *(_line(f"/{o.name}", o.description, style, width) for o in others)]
    return "\n".join(lines)


def _line(name: str, words: str, style: TerminalStyle, width: int) -> str:
    first, *more = wrapped(words, width - NAME_WIDTH - 4).split("\n")
    lines = [f"  {style.paint(CYAN, f'{name:<{NAME_WIDTH}}')} {style.paint(DIM, first)}"]
    return "\n".join(lines + [" " * (NAME_WIDTH + 3) + style.paint(DIM, each) for each in more])
