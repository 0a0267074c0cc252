"""The checks, by area. Importing a module registers its checks (`trial.CHECKS`)."""

from acp_agent.conformance.checks import calls, client_side, framing, life, options, sessions, starting, turns

AREAS = {
    "framing": framing,
    "starting": starting,
    "sessions": sessions,
    "turns": turns,
    "calls": calls,
    "client": client_side,
    "options": options,
    "life": life,
}
"""By name, as `--only` takes them."""
