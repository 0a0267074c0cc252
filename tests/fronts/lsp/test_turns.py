"""A whole turn, from the command to the transcript, with the real agent behind the server."""

import json
import sys
from pathlib import Path

from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.lsp.kit import lsp


async def test_a_prompt_edits_the_open_document_after_the_person_has_agreed(tmp_path: Path, name: str):
    (project := tmp_path / "project").mkdir()
    (file := project / "greet.py").write_text("def greet():\n    return 'hello'\n")
    change = {"path": str(file), "old_string": "'hello'", "new_string": "'good day'"}
    script = [
        Answer(tool_calls=(Call("read", {"path": str(file)}),)), Answer(tool_calls=(Call("edit", change),)),
        Answer(text="Done as asked."),
    ]  # fmt: skip
    async with lsp(tmp_path, script, name=name, process=True) as (editor, _):
        buffer = editor.open(file)
        assert await editor.execute("acpCoder.prompt", "Greet more politely") is None
        question = await editor.question()
        assert "greet.py" in question.message and "+    return 'good day'" in question.message
        question.answer(next(action for action in question.actions if action.startswith("Allow")))
        await editor.until(lambda: "good day" in buffer.text)
        await editor.turns_over()
        assert "Done as asked." in editor.transcript()
        assert buffer.text == "def greet():\n    return 'good day'\n"
        assert file.read_text() == "def greet():\n    return 'hello'\n"


async def test_another_agent_gets_the_files_that_clients_owe_it_and_no_others(tmp_path: Path):
    """By the kit's questions to clients."""
    findings = tmp_path / "findings"
    asked = [f"CFS-{number}" for number in range(1, 11)]
    only = [word for id_ in asked for word in ("--only", id_)]
    command = [sys.executable, "-m", "acp_agent", "conformance", "agent", *only, str(findings)]
    async with lsp(tmp_path, command=command) as (editor, _):
        await editor.execute("acpCoder.prompt", "go")
        await editor.turns_over()
    told = [json.loads(line).get("result") for line in findings.read_bytes().splitlines()]
    outcomes = {each["requirement"]["id"]: (each["outcome"], each["why"]) for each in told if each}
    assert outcomes == dict.fromkeys(asked, ("passed", ""))
