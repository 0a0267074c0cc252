"""The page in the real Chromium, once; `tests/system/server/test_page.py` has all of it."""

import re

from playwright.async_api import expect

from tests.fronts.server.page_kit import bash, built, needs_chromium, visiting

__all__ = ["built"]
pytestmark = needs_chromium


async def test_a_command_shows_its_output_and_a_reload_shows_the_session_again(tmp_path):
    async with visiting(tmp_path, bash("printf 'one\\ntwo\\n'; touch made", "It is **made**.")) as visit:
        await visit.begin("make it", "It is made.")
        card = visit.page.get_by_role("group", name=re.compile("printf"))
        await expect(card).to_contain_text("done")
        await expect(card.get_by_role("region", name=re.compile("Output of"))).to_contain_text("one\ntwo")
        assert (visit.place.project / "made").exists()
        address = visit.page.url
        assert "#session=" in address
        await visit.page.reload()
        await visit.says("It is made.")
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text("make it")
        other = await visit.page.context.new_page()
        await other.goto(address)
        await expect(other.get_by_role("log")).to_contain_text("It is made.")
        await other.close()
