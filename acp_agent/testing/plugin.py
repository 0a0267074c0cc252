"""A pytest plugin: a failing test's report shows what went over the wire.

In the top `conftest.py`: `pytest_plugins = ["acp_agent.testing.plugin"]`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from acp_agent.testing.fake_editor import FakeEditor, live_editors

SHOWN_LINES = 400
SHOWN_CHARS = 2000


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    live_editors.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for number, editor in enumerate(tuple(live_editors), 1):
            report.sections.append((f"wire of editor {number}", wire(editor)))
    return report


def wire(editor: FakeEditor) -> str:
    """Returns the editor's transcript as text (its end, if it is long), with what was wrong and the agent's stderr."""
    lines = [str(line) for line in editor.transcript[-SHOWN_LINES:]]
    shown = [line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}… ({len(line)} characters)" for line in lines]
    if len(editor.transcript) > SHOWN_LINES:
        shown.insert(0, f"… {len(editor.transcript) - SHOWN_LINES} lines before")
    if editor.violations:
        shown += ["wrong on the wire:", *editor.violations]
    if editor.process is not None and editor.process.stderr:
        shown += ["stderr of the agent:", editor.process.stderr]
    return "\n".join(shown).encode("utf-8", "backslashreplace").decode("utf-8")
