"""What was learned about sequences of calls in a project: listed and forgotten, in sessions and by `acp-coder`."""

from __future__ import annotations

from acp_agent.safety.deciding.trajectory import spelled, why_learned
from acp_agent.store.experience import TrajectoryStore


def learned_words(store: TrajectoryStore, project: str, rest: str) -> str:
    """What `/policy learned` answers to `rest`: empty, or `forget` with a number or `all`. Raises StoreError."""
    known = store.learned(project)
    word, _, which = rest.strip().partition(" ")
    which = which.strip().lstrip("#")
    if word == "forget" and which == "all":
        return f"Forgotten: {store.forget(project)}."
    if word == "forget" and which.isdecimal() and 1 <= int(which) <= len(known):
        store.drop(project, known[int(which) - 1].steps)
        return f"Forgotten: {spelled(known[int(which) - 1])}"
    if word:
        return "`learned` lists what was learned, `learned forget NUMBER` and `learned forget all` forget it."
    if not known:
        return f"Nothing was learned in {project}."
    lines = [f"- #{number} {why_learned(item)}: {spelled(item)}" for number, item in enumerate(known, 1)]
    return f"Learned in {project}:\n" + "\n".join(lines)
