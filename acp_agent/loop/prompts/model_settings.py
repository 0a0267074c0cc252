"""The settings of a request: system prompt and choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_agent.llm.base import ModelSettings, ThoughtLevel
from acp_agent.loop.prompts.prompt_text import system_prompt

if TYPE_CHECKING:
    from acp_agent.loop.memory.memory import Memory
    from acp_agent.loop.model.ready_model import ReadyModel
    from acp_agent.loop.session import Session

THOUGHT_LEVELS: dict[str, ThoughtLevel] = {"off": "off", "low": "low", "medium": "medium", "high": "high"}


def model_settings(session: Session, memory: Memory, model: ReadyModel) -> ModelSettings:
    """The system prompt and the choices of the session, for `model`."""
    agent = session.config.settings.agent
    system = system_prompt(
        session.roots,
        session.choices.mode(),
        f"{agent.instructions}\n{memory.instructions.text}".strip(),
        memory.skills.described(),
        memory.instructions.facts,
        memory.instructions.mark,
        agent.max_tool_iterations,
    )
    return ModelSettings(
        model=model.id,
        system=session.outbox.clean(system),
        thought_level=THOUGHT_LEVELS.get(session.choices.thought_level),
        max_output_tokens=agent.max_output_tokens or None,
        cache_key=session.cache_key,
    )
