"""The picture of the page of `acp-coder serve` on a phone, from the real Chromium: `make pictures` writes it.

Two machines do not draw the same bytes, so what it was made of is noted beside it: `tests/e2e/test_pictures.py`."""

import re
from pathlib import Path

from playwright.async_api import expect

from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.server.page_kit import ASK, visiting
from tests.pictures import FILES, FIX, TEST

SCREEN = {"width": 390, "height": 844}
SCRIPT = [
    Answer(tool_calls=(Call("read", {"path": "prices.py"}),)),
    Answer(text="`gross` adds the *rate* to the price, not its share of the price.", tool_calls=(FIX,)),
    Answer(tool_calls=(Call("bash", {"command": TEST}),)),
]
"""A fault is fixed, and the question whether the test may run is open."""


async def page_picture(folder: Path) -> bytes:
    """PNG, of two device pixels for each of the page's."""
    (folder / "project").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / "project" / name).write_text(text, encoding="utf-8")
    phone = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2, "color_scheme": "dark"}
    async with visiting(folder, SCRIPT, ASK, SCREEN, **phone) as visit:
        await visit.begin()
        await visit.send("gross(100) should be 119. Fix it and run the test")
        allow = visit.page.get_by_role("button", name=re.compile("^Allow once"))
        await allow.click()
        await expect(visit.page.get_by_role("group", name=re.compile("^Permission: python3"))).to_be_visible()
        await expect(allow).to_be_visible()
        await visit.page.mouse.move(0, 0)
        return await visit.page.screenshot(animations="disabled")
