"""The goal of a session: what `/plan` sets, its task graph, and when it ends.

The store holds both; the model keeps the graph up to date with the tool `plan`, the user sees it as ACP's plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acp_agent.llm.base import Message, TextPart, UserMessage
from acp_agent.loop.memory.replay import proposal_stands
from acp_agent.loop.outbox import Outbox
from acp_agent.protocol.client import PROPOSAL
from acp_agent.schema.acp import Plan, PlanEntry, PlanMarkdown, PlanRemoved, PlanUpdate
from acp_agent.store.base import Goal, GoalTask, LogEntry
from acp_agent.store.goal_store import GoalStore

PROMPT = """My goal: {goal}

First look at the project as far as you need it for a plan. Then write the plan with the tool `plan`: each step with
an `id`, and `depends_on` if a step needs another one first. Work through it in an order that the dependencies allow,
and call `plan` again whenever the status of a step changes; mark a step completed only when it is. When all steps are
completed, the goal is reached: say what was done and what is left."""

MARKS = {"completed": "x", "in_progress": "~", "pending": " "}


class Goals:
    """Of one session. All raise StoreError."""

    def __init__(self, outbox: Outbox, store: GoalStore) -> None:
        self._session_id = outbox.session_id
        self._store = store
        self._outbox = outbox
        self.drawn = outbox.client.plan.plans
        """Whether the client draws plans by itself."""
        self.current: Goal | None = None
        """Active or paused; as it was read."""
        self._proposed = False
        """Whether a plan is shown that the user reviews, or has approved and whose steps are not known yet."""

    async def read(self) -> None:
        self.current = await self._store.do(self._store.current, self._session_id)

    @property
    def active(self) -> Goal | None:
        goal = self.current
        return goal if goal is not None and goal.status == "active" else None

    async def begin(self, text: str) -> Goal:
        """Sets a new goal; the previous one is abandoned."""
        self.current = await self._store.do(self._store.begin, self._session_id, text)
        return self.current

    async def pause(self, paused: bool) -> None:
        if (goal := self.current) is not None:
            await self._store.do(self._store.set_status, goal.id, "paused" if paused else "active")
            await self.read()

    async def end(self, *, reached: bool) -> Goal | None:
        """Returns the goal that ended."""
        goal = self.current
        if goal is not None:
            await self._store.do(self._store.set_status, goal.id, "completed" if reached else "abandoned")
            self.current = None
        return goal

    async def set_plan(self, tasks: Sequence[GoalTask]) -> str:
        """Shows the plan and stores it as the graph of the active goal. Returns what to tell the model about the
        goal."""
        self.show(tasks)
        goal = self.active
        if goal is None:
            return ""
        await self._store.do(self._store.set_tasks, goal.id, tasks)
        await self.read()
        if tasks and all(task.status == "completed" for task in tasks):
            await self.end(reached=True)
            return "The goal is reached."
        ready = [task.id for task in ready_tasks(tasks)]
        return f"Ready to start: {', '.join(ready)}." if ready else ""

    async def command(self, word: str) -> str:
        """`/plan WORD`: pauses, resumes or ends the goal (empty: nothing); returns the text for the user."""
        if (goal := self.current) is None:
            return "There is no goal. `/plan GOAL` sets one."
        if word in ("done", "clear"):
            await self.end(reached=word == "done")
            return f"The goal is {'reached' if word == 'done' else 'given up'}: {goal.text}"
        if word:
            await self.pause(word == "pause")
        goal = self.current or goal
        self.show(goal.tasks)
        return goal_words(goal)

    def restore(self, entries: Iterable[LogEntry]) -> None:
        """The log of the session, which is opened again."""
        self._proposed = proposal_stands(entries)

    def propose(self, plan: str) -> None:
        """Shows a plan for review as a document, where the client takes these."""
        self._proposed = True
        self._outbox.emit(PlanUpdate(plan=PlanMarkdown(plan_id=PROPOSAL, content=plan)))

    def withdraw(self) -> None:
        """The plan for review is refused, or its steps are shown from now on."""
        if self._proposed:
            self._proposed = False
            self._outbox.emit(PlanRemoved(plan_id=PROPOSAL))

    def show(self, tasks: Sequence[GoalTask]) -> None:
        self.withdraw()
        entries = [PlanEntry(content=task.content, priority=task.priority, status=task.status) for task in tasks]
        self._outbox.emit(Plan(entries=entries))


def mentions(message: Message, goal: str) -> bool:
    """Whether the goal's text is in a user message."""
    if not isinstance(message, UserMessage):
        return False
    return any(isinstance(part, TextPart) and goal in part.text for part in message.content)


def ready_tasks(tasks: Sequence[GoalTask]) -> list[GoalTask]:
    """The tasks that wait for nothing."""
    done = {task.id for task in tasks if task.status == "completed"}
    return [task for task in tasks if task.status == "pending" and done.issuperset(task.depends_on)]


def goal_words(goal: Goal) -> str:
    """The goal and its graph, for a user."""
    lines = [f"Goal ({goal.status}): {goal.text}"]
    for task in goal.tasks:
        needs = f" (after {', '.join(task.depends_on)})" if task.depends_on else ""
        lines.append(f"- [{MARKS[task.status]}] {task.id}: {task.content}{needs}")
    if not goal.tasks:
        lines.append("It has no plan yet.")
    return "\n".join(lines)
