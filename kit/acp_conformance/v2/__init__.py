"""The checks of v2, by area. Importing a module registers its checks (`trial.CHECKS`)."""

from acp_conformance.v2 import (
    v2_calls,
    v2_options,
    v2_preview,
    v2_prompts,
    v2_questions,
    v2_sessions,
    v2_shown,
    v2_starting,
    v2_stops,
)

AREAS_V2 = {
    "starting": v2_starting,
    "sessions": v2_sessions,
    "turns": v2_prompts,
    "calls": v2_calls,
    "questions": v2_questions,
    "options": v2_options,
    "shown": v2_shown,
    "life": v2_stops,
    "preview": v2_preview,
}
"""By name, as `--only` takes them."""
