"""The steps of a call happen in the order of `CallPipeline.run`, as those see it who take part."""

import pytest

from acp_agent.client.permissions import allow_once, reject_once

from .kit import audit, bash, results, rig, rounds
from .test_hooks_that_decide import hook


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "rejected"])
async def test_hooks_the_question_the_command_and_its_report_come_in_order(tmp_path, allowed):
    steps = tmp_path / "project/steps"

    def says(word: str) -> str:
        return f"cat > /dev/null; echo {word} >> {steps}"

    async def answers(request):
        seen.append(("question", steps.read_text().split(), r.editor.tool_call().status))
        return await (allow_once if allowed else reject_once)(request)

    seen: list[tuple] = []
    config = hook("PreToolUse", says("hook-before")) + hook("PostToolUse", says("hook-after"))
    script = rounds(bash(f"echo ran >> {steps}; echo out"))
    async with rig(tmp_path, script, config=config, permissions=[answers]) as r:
        await r.editor.prompt("go")
        call = r.editor.tool_call()
        assert seen == [("question", ["hook-before"], "pending")], "the question comes behind the hook, before all else"
        written = steps.read_text().split()
        entries = [line["event"] for line in audit(tmp_path)]
        if allowed:
            assert written == ["hook-before", "ran", "hook-after"]
            assert [each for each in call.statuses if each] == ["pending", "in_progress", "completed"]
            assert "out" in results(r, 2)[0]
        else:
            assert written == ["hook-before"] and "in_progress" not in call.statuses
            call.assert_finished("failed")
        assert entries == (["decision", "result"] if allowed else ["decision"])
