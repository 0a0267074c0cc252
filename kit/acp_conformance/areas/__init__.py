"""The checks, by area. Importing a module registers its checks (`trial.CHECKS`)."""

from acp_conformance.areas import (
    call_checks,
    client_checks,
    framing_checks,
    life_checks,
    option_checks,
    plan_checks,
    session_checks,
    starting_checks,
    turn_checks,
)

AREAS = {
    "framing": framing_checks,
    "starting": starting_checks,
    "sessions": session_checks,
    "turns": turn_checks,
    "calls": call_checks,
    "client": client_checks,
    "options": option_checks,
    "plans": plan_checks,
    "life": life_checks,
}
"""By name, as `--only` takes them."""
