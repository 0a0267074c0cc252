"""The pictures of docs/editors/vscode.md. Written only with `ACP_CODER_SCREENSHOTS=1`, else just taken."""

import os
from pathlib import Path

from playwright.async_api import FloatRect

from acp_agent.testing.fake_model import Answer, Call

from .chat import Chat
from .held_tools import held
from .kit import working
from .window import DARK, LIGHT, Window

DOCS = Path(__file__).parents[2] / "docs" / "editors"
MOST_BYTES = 150_000
PRICES = '''"""Prices of an order."""

from decimal import Decimal

VAT = Decimal("0.19")


def net(prices: list[Decimal]) -> Decimal:
    return sum(prices, Decimal())


def gross(prices: list[Decimal]) -> Decimal:
    """With value added tax."""
    return net(prices) * (1 + VAT)


def receipt(prices: list[Decimal]) -> str:
    lines = [f"{price:>10}" for price in prices]
    return "\\n".join([*lines, f"{gross(prices):>10}"])
'''
TEST = """from decimal import Decimal

from prices import gross


def test_gross_is_rounded_to_cents():
    assert gross([Decimal("9.99")]) == Decimal("11.89")
"""
CHECK = "python3 -c 'from prices import *; print(gross([Decimal(\"9.99\")]))'"
STEPS = [
    {"content": "Find where totals are made", "status": "completed"},
    {"content": "Round them to cents", "status": "in_progress"}, {"content": "Check", "status": "pending"},
]  # fmt: skip
SCRIPT = [
    Answer(
        thought="The receipt prints more digits than a user wants to see.", text="I look at how totals are made.",
        tool_calls=(
            Call("plan", {"entries": STEPS}), Call("grep", {"pattern": "VAT", "path": "."}),
            Call("held_read", {"path": "prices.py", "offset": 12, "limit": 3}),
        ),
    ),
    Answer(
        text="`gross` does not round. I change that in one place.",
        tool_calls=(
            Call(
                "edit",
                {
                    "path": "prices.py", "old_string": "    return net(prices) * (1 + VAT)",
                    "new_string": '    return (net(prices) * (1 + VAT)).quantize(Decimal("0.01"))',
                },
            ),
        ),
    ),
    Answer(tool_calls=(Call("delegate", {"title": "who relies on the digits", "prompt": "Who uses gross?"}),)),
    Answer(tool_calls=(Call("grep", {"pattern": "gross", "path": "."}), Call("read", {"path": "test_prices.py"}))),
    "Only the receipt and one test.", Answer(tool_calls=(Call("bash", {"command": CHECK}),)),
    Answer(tool_calls=(Call("plan", {"entries": [{**step, "status": "completed"} for step in STEPS]}),)),
    "`gross` now rounds to cents:\n\n"
    "- the change is one line, in `prices.py`\n"
    "- the receipt and `test_prices.py` are the only users\n\n"
    '```python\ngross([Decimal("9.99")])  # 11.89\n```',
]  # fmt: skip


class Camera:
    def __init__(self, window: Window, folder: Path) -> None:
        self.window = window
        self.folder = folder

    async def take(self, name: str, clip: FloatRect | None = None) -> None:
        """The window, or a part of it, dark and light; it is dark before and after."""
        await self.one(name, "dark", clip)
        await self.use(LIGHT)
        await self.one(name, "light", clip)
        await self.use(DARK)

    async def use(self, theme: str) -> None:
        """The window's watcher of the settings may miss a change while the machine is busy: it is written again."""
        try:
            await self.window.use_theme(theme)
        except AssertionError:
            await self.window.use_theme(theme)

    async def one(self, name: str, theme: str, clip: FloatRect | None) -> None:
        # No tooltip covers anything.
        await self.window.page.mouse.move(0, 0)
        file = self.folder / f"vscode-{name}-{theme}.png"
        picture = await self.window.page.screenshot(path=file, clip=clip)
        assert 5_000 < len(picture) < MOST_BYTES, f"{file.name}: {len(picture)} bytes"


async def part(window: Window, selector: str, height: float | None = None) -> FloatRect:
    """Where an element stands, to at most this height."""
    box = await window.page.locator(selector).bounding_box()
    assert box is not None
    return {**box, "height": min(box["height"], height or box["height"])}


async def widen(window: Window, by: int) -> None:
    """Drags the edge between the side bar and the editor."""
    box = await part(window, ".part.sidebar")
    edge = box["x"] + box["width"]
    await window.page.mouse.move(edge, 300)
    await window.page.mouse.down()
    await window.page.mouse.move(edge + by, 300, steps=4)
    await window.page.mouse.up()


async def test_the_pictures_of_the_documentation_can_be_taken(code, tmp_path):
    folder = DOCS if os.environ.get("ACP_CODER_SCREENSHOTS") else tmp_path / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "acpCoder.inlineStatus.fadeAfter": 60, "acpCoder.inlineStatus.codeLens": True,
        "editor.renderWhitespace": "none", "editor.occurrencesHighlight": "off",
    }  # fmt: skip
    files = {"prices.py": PRICES, "test_prices.py": TEST}
    environment = held(tmp_path / "package")
    async with working(code, tmp_path, SCRIPT, files=files, settings=settings, **environment) as (window, _):
        project = tmp_path / "project"
        chat, camera = Chat(window), Camera(window, folder)
        await window.open_file(project / "prices.py")
        await chat.open()
        await widen(window, 130)

        await chat.send("Receipts show too many digits. Round the totals to cents.")
        await window.eventually(
            window.decorations, lambda texts: any(text[1:].startswith(" Read prices.py") for text in texts)
        )
        await window.eventually(window.lenses, lambda texts: "Stop" in texts)
        await camera.take("inline", await part(window, ".part.editor", 500))

        (project / "go").touch()
        await window.tab("prices.py (proposed)").wait_for()
        await window.eventually(window.diff, lambda sides: "quantize" in sides[1])
        await window.eventually(chat.options, len)
        await window.page.locator(".part.titlebar, .editor-actions").get_by_role("button", name="Allow Once").wait_for()
        await camera.take("diff")

        await chat.permit("Allow once")
        await window.eventually(chat.options, lambda options: any("exact command" in option for option in options))
        await chat.permit("Allow once")
        await window.eventually(chat.answers, lambda texts: texts[-1].startswith("gross now rounds"))
        await window.tab("prices.py").click()
        await camera.take("chat", await part(window, ".part.sidebar"))
        await window.view("Chat").locator(".pane-header").click()  # The tool calls get its room.
        await window.expand_view("Tool Calls")
        await window.page.mouse.move(0, 0)
        await window.eventually(lambda: window.rows("Tool Calls"), lambda rows: len(rows) >= 8)
        await camera.take("tools", await part(window, ".pane:has(h3:text-is('Tool Calls'))", 290))
