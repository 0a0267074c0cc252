"""The extension in VS Code: how long activation takes, and how smoothly the chat draws streamed text.

A separate program, since it uses the kit of the editor tests: `python -m scripts.bench_vscode` in the root of the
repository writes one JSON object with a list of samples for each benchmark. It needs what
`scripts/install_editors.sh` installs.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import anyio

from acp_agent.testing.fake_model import Answer
from tests.editors.chat import Chat
from tests.editors.kit import VsCode, packaged, vscode, working
from tests.editors.window import Window

ROUNDS = 3
DELTAS = 2000
# A failing window reports where it keeps its screen, by the name of the test.
TEST = "scripts/bench_vscode.py::bench (call)"

PROBE = """() => {
    const gaps = { last: performance.now(), longest: 0, frames: 0 };
    const frame = () => {
        const now = performance.now();
        gaps.longest = Math.max(gaps.longest, now - gaps.last);
        gaps.last = now;
        gaps.frames += 1;
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    window.gaps = gaps;
}"""


async def settled(code: VsCode, window: Window, number: int) -> None:
    """Waits until VS Code has activated its own extensions, in this and `number` windows before it."""

    async def hosts() -> int:
        logs = [file.read_text(encoding="utf-8") for file in code.root.glob("user/logs/**/remoteexthost.log")]
        return sum("Eager extensions activated" in log for log in logs)

    await window.eventually(hosts, lambda count: count > number)


async def activation(window: Window) -> float:
    """Milliseconds that VS Code reports for loading the extension's code and running `activate`."""
    await window.command("Developer: Show Running Extensions")
    # Only visible rows are drawn, the slowest first.
    await window.page.set_viewport_size({"width": 1400, "height": 4000})
    row = window.page.locator(".runtime-extensions-editor .monaco-list-row", has_text="acp-coder")
    text = await window.eventually(row.first.inner_text, lambda text: "Activation: " in text)
    (told,) = re.findall(r"Activation: (\d+)ms", text)
    return float(told)


async def one_round(code: VsCode, home: Path, number: int) -> tuple[float, float]:
    """Activation, and the longest gap between two frames while `DELTAS` deltas are drawn, both in milliseconds."""
    script = [Answer(deltas=DELTAS, interval_ms=1, delta_text="**{number}** words, ")]
    async with working(code, home, script) as (window, _):
        chat = Chat(window)
        await settled(code, window, number)
        await chat.open()
        body = chat.frame.locator("body")
        await body.evaluate(PROBE)
        await chat.send("Go")
        # Reading all of the text repeatedly would itself cost frames.
        stop = chat.frame.get_by_role("button", name="Stop", exact=True)
        await stop.wait_for()
        await stop.wait_for(state="hidden")
        gaps = await body.evaluate("() => window.gaps")
        assert (await chat.answers())[-1].endswith(f"{DELTAS - 1} words,")
        return await activation(window), gaps["longest"]


async def main() -> int:
    os.environ.setdefault("PYTEST_CURRENT_TEST", TEST)
    with tempfile.TemporaryDirectory(prefix="bench-vscode-") as name:
        root = Path(name)
        async with vscode(root / "vscode", packaged()) as code:
            rounds = []
            for number in range(ROUNDS):
                home = root / f"round-{number}"
                home.mkdir()
                rounds.append(await one_round(code, home, number))
    active, longest = zip(*rounds, strict=True)
    sys.stdout.write(json.dumps({"activation": active, "longest_gap": longest}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
