"""The settings of a request: system prompt and choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_agent.llm.base import ModelSettings, ThoughtLevel
from acp_agent.loop.prompts.prompt_text import context_block, system_prompt

if TYPE_CHECKING:
    from acp_agent.loop.memory.memory import Memory
    from acp_agent.loop.model.ready_model import ReadyModel
    from acp_agent.loop.session_state import SessionState
    from acp_agent.store.base import ClientPrompt

THOUGHT_LEVELS: dict[str, ThoughtLevel] = {"off": "off", "low": "low", "medium": "medium", "high": "high"}


def model_settings(
    session: SessionState, memory: Memory, model: ReadyModel, told: ClientPrompt | None
) -> ModelSettings:
    """The system prompt, the head of the conversation and the choices of the session, for `model`. `told`: as in
    `system_prompt`."""
    agent, of_project = session.config.settings.agent, memory.instructions
    window = memory.room.known(model.name, model.known_window)
    brief = session.config.settings.tools.schema_filter.is_small(window)
    context = context_block(session.roots, of_project, memory.skills.described(), memory.library.agents())
    return ModelSettings(
        model=model.id,
        system=session.outbox.clean(
            system_prompt(session.choices.mode(), agent.instructions, agent.max_tool_iterations, told, brief=brief)
        ),
        context=session.outbox.clean(context),
        thought_level=THOUGHT_LEVELS.get(session.choices.thought_level),
        fast=session.choices.fast,
        max_output_tokens=agent.max_output_tokens or None,
        cache_key=session.cache_key,
    )
