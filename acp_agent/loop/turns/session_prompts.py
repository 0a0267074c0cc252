"""From a prompt to what the model reads."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from acp_agent.llm.base import Message, TextPart, UserMessage
from acp_agent.loop.beside.published_diagnostics import diagnostics_block, mentions_diagnostics
from acp_agent.loop.calls.runner import Calls
from acp_agent.loop.choices import nearest
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.memory.session_goals import PROMPT, goal_words, mentions
from acp_agent.loop.model.ready_model import SessionModels
from acp_agent.loop.prompts.command_names import sets_goal, split_command
from acp_agent.loop.prompts.menu import Menu
from acp_agent.loop.prompts.prompt_text import parts_of, plain_text, title_of, with_command_text
from acp_agent.loop.prompts.written_commands import WrittenCommand
from acp_agent.loop.session_state import SessionState
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.loop.turns.command_prompts import Asked, asked, text_of
from acp_agent.loop.turns.links import with_linked_pages
from acp_agent.lsp.base import Report
from acp_agent.schema.acp import ContentBlock, EmbeddedResource, ResourceLink, TextContent

COMMAND = re.compile(r"[A-Za-z][\w:.-]*")
"""What is meant as a command, and no path."""
NAMED = re.compile(r"(?<![\w`@./-])@([A-Za-z0-9][\w:-]*)")


class Prompts:
    """Of one session."""

    def __init__(
        self, session: SessionState, models: SessionModels, memory: Memory, toolbox: Toolbox, calls: Calls, menu: Menu
    ) -> None:
        self._session = session
        self._models = models
        self._memory = memory
        self._toolbox = toolbox
        self._calls = calls
        self._begun = False
        self.asked = Asked()
        """What the last prompt asks for besides its text."""
        self.menu = menu

    def title(self, blocks: Sequence[ContentBlock]) -> str:
        """A title for a session that begins with this prompt."""
        return title_of(blocks)

    def user_message(self, blocks: Sequence[ContentBlock]) -> Message:
        """The prompt for the chosen model. Raises InvalidParams for blocks it does not accept."""
        config = self._session.config
        provider = self._models.settings(config, self._session.choices.model.partition("/")[0])
        parts = parts_of(
            self._placed(blocks),
            images=provider.images,
            audio=provider.audio,
            max_resource_bytes=config.settings.limits.max_prompt_bytes,
        )
        return UserMessage(parts)

    def _placed(self, blocks: Sequence[ContentBlock]) -> Sequence[ContentBlock]:
        """With the paths that files have where the session is."""
        if self._session.roots.disk.here:
            return blocks
        placed = self._session.roots.placed
        return [
            replace(block, uri=placed(block.uri))
            if isinstance(block, ResourceLink)
            else replace(block, resource=replace(block.resource, uri=placed(block.resource.uri)))
            if isinstance(block, EmbeddedResource)
            else block
            for block in blocks
        ]

    def notes(self) -> Sequence[Message]:
        """Returns events since the last turn that the model must know before the prompt."""
        told = [UserMessage((TextPart(text),)) for text in self._memory.taken_notes()]
        notes: list[Message] = [*told, *self._calls.shell.runs.notes()]
        goal = self._memory.goals.active
        if goal is not None and not any(mentions(message, goal.text) for message in self._memory.messages()):
            text = f"[The goal of this session, which the user has set]\n{goal_words(goal)}"
            notes.append(UserMessage((TextPart(text),)))
        return notes

    async def expand(self, blocks: Sequence[ContentBlock]) -> Sequence[ContentBlock] | str:
        """Returns the prompt as the model gets it: a skill or MCP prompt instead of its command, web pages after their
        links, the resources that it names, diagnostics if it mentions them. A string tells the user why there is
        nothing to ask."""
        self.asked = Asked()
        context, refused = await self._hooked(blocks)
        if refused:
            return refused
        expanded = await self._expand(self._placed(blocks))
        if isinstance(expanded, str):
            return expanded
        context += self._named_agents(plain_text(blocks))
        limit = self._session.config.settings.limits.max_link_chars
        context += await self._toolbox.servers.resources(plain_text(blocks), limit)
        expanded = [*expanded, *(TextContent(text=text) for text in context)]
        if not mentions_diagnostics(blocks):
            return expanded
        lsp = self._session.config.settings.lsp
        return [
            *expanded,
            await diagnostics_block(
                client=self._session.client,
                cache=self._session.published.known,
                roots=self._session.roots,
                files=lsp.max_diagnostic_files,
                per_file=lsp.max_diagnostics_per_file,
                own=self._own_diagnostics if self._calls.shell.project.languages.missing() is None else None,
            ),
        ]

    async def _hooked(self, blocks: Sequence[ContentBlock]) -> tuple[list[str], str]:
        """As `Hooks.submitted`, after what hooks add to the beginning of a session."""
        hooks = self._calls.shell.hooks
        if (deciding := hooks.deciding) is None or self._session.choices.bound_to is not None:
            return [], ""
        first, self._begun = not self._begun, True
        source = deciding.starts or ("" if not first else "startup" if self._session.turns <= 1 else "resume")
        begun = await hooks.started(source) if source else []
        context, refused = await hooks.submitted(plain_text(blocks))
        return [*begun, *context], refused

    async def _own_diagnostics(self) -> Report:
        seen = self._memory.ledger.seen_below(self._session.roots.real[0])
        return await self._calls.shell.project.languages.of_project(
            seen, self._calls.shell.files, self._calls.config.files
        )

    async def _expand(self, blocks: Sequence[ContentBlock]) -> Sequence[ContentBlock] | str:
        name, rest = split_command(blocks)
        if sets_goal(name, rest):
            return with_command_text(blocks, PROMPT.format(goal=await self._begin_goal(rest)))
        if name and (command := self._memory.library.command(name)) is not None:
            return await self._written(command, rest, blocks)
        if name and (text := self._memory.skills.use_next(name, rest)) is not None:
            return with_command_text(blocks, text)
        if name and ":" in name:
            servers = self._toolbox.servers
            await servers.ready()
            if (prompt := servers.find_prompt(name)) is not None:
                text, usable = await servers.text_of(prompt, rest)
                return with_command_text(blocks, text) if usable else text
        if name and self._session.choices.bound_to is None and (words := self._unknown(name)):
            return words
        return await with_linked_pages(
            blocks,
            web=self._calls.web,
            roots=self._session.roots,
            reports=self._calls.reports,
            entry=self._toolbox.offer.find("fetch"),
            max_chars=self._session.config.settings.limits.max_link_chars,
        )

    def _unknown(self, name: str) -> str:
        """What to say of a command that does not exist; empty for what may be a path, which is for the model."""
        if COMMAND.fullmatch(name) is None or self._session.roots.disk.kind(Path("/", name)) is not None:
            return ""
        known = [command.name for command in self.menu.update().available_commands]
        near = nearest(name, known, 1, cutoff=0.6)
        meant = f" Did you mean `/{near[0]}`?" if near else ""
        return f"There is no command `/{name}`.{meant} `/help` lists them. The model was not asked."

    async def _written(
        self, command: WrittenCommand, rest: str, blocks: Sequence[ContentBlock]
    ) -> Sequence[ContentBlock]:
        """The prompt that a written command stands for."""
        calls, memory = self._calls, self._memory
        text = await text_of(command, rest, calls)
        self.asked, trouble = asked(command, text, self._session, memory.library)
        for words in trouble:
            self._session.outbox.tell(words)
        return with_command_text(blocks, text)

    def _named_agents(self, text: str) -> list[str]:
        """What the model is told of the sub-agents that a prompt names as `@name`."""
        known = self._memory.library.agents()
        return [
            f"[The user wants the sub-agent `{name}` to do this: call `delegate` with `agent`: {json.dumps(name)}.]"
            for name in dict.fromkeys(NAMED.findall(text))
            if name in known
        ]

    async def _begin_goal(self, text: str) -> str:
        goals, outbox = self._memory.goals, self._session.outbox
        if (earlier := goals.current) is not None:
            outbox.tell(f"The previous goal was given up: {earlier.text}")
        return (await goals.begin(outbox.clean(text))).text
