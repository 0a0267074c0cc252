"""A whole turn, from the command to the transcript, with the real agent behind the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.lsp.kit import CAPTURED, lsp


@pytest.mark.parametrize("name", CAPTURED)
async def test_a_prompt_edits_the_open_document_after_the_person_has_agreed(tmp_path: Path, name: str):
    project = tmp_path / "project"
    project.mkdir()
    file = project / "greet.py"
    file.write_text("def greet():\n    return 'hello'\n")
    change = {"path": str(file), "old_string": "'hello'", "new_string": "'good day'"}
    script = [
        Answer(tool_calls=(Call("read", {"path": str(file)}),)),
        Answer(tool_calls=(Call("edit", change),)),
        Answer(text="Done as asked."),
    ]
    async with lsp(tmp_path, script, name=name, process=True) as (editor, _):
        buffer = editor.open(file)
        assert await editor.execute("acpCoder.prompt", "Greet more politely") is None
        question = await editor.question()
        assert "greet.py" in question.message
        assert "+    return 'good day'" in question.message
        question.answer(next(action for action in question.actions if action.startswith("Allow")))
        await editor.until(lambda: "good day" in buffer.text)
        await editor.turns_over()
        assert "Done as asked." in editor.transcript()
        assert buffer.text == "def greet():\n    return 'good day'\n"
        assert file.read_text() == "def greet():\n    return 'hello'\n"
