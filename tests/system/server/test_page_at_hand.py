"""What a user of the page does not have to do, on a desktop and on a phone: in the real Chromium."""

import os
import re
import subprocess
from typing import Any

import anyio.to_thread
import pytest
from playwright.async_api import expect

from acp_agent.fronts.server.identities import MINE
from acp_agent.testing.fake_model import Answer, Call, Failure
from tests.forked import COMMAND
from tests.fronts.server.page_kit import ASK, AUTO, Visit, bash, built, chromium, needs_chromium, visit_of, visiting
from tests.fronts.server.test_server import served

__all__ = ["built"]
pytestmark = needs_chromium
SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
each_size = pytest.mark.parametrize("size", SIZES)
SCRIPT = (
    "python3 - <<'END'\n" + "\n".join(f"print({number}, 'quite a long line of it')" for number in range(60)) + "\nEND"
)
EMOJI = re.compile(r'"?Apple Color Emoji"?, "?Segoe UI Emoji"?, "?Noto Color Emoji"?$')


def plan(*statuses: str) -> Answer:
    entries = [{"content": f"Step {number}", "status": status} for number, status in enumerate(statuses, 1)]
    return Answer(tool_calls=(Call("plan", {"entries": entries}),))


async def in_view(part: Any) -> bool:
    """Whether all of it is, nothing cut off at a side."""
    await expect(part).to_be_in_viewport(ratio=0.99)
    return True


@each_size
async def test_a_long_output_stands_at_its_end_with_the_exit_status_and_stays_where_it_is_scrolled(tmp_path, size):
    script = bash("for i in $(seq 1 300); do echo line $i; done; exit 3", "It failed 🎉 `x 🎉`.")
    async with visiting(tmp_path, script, AUTO, **SIZES[size]) as visit:
        await visit.begin("run it", "It failed")
        output = visit.page.get_by_role("region", name=re.compile("Output of"))
        at_end = "(one) => one.scrollHeight - one.scrollTop - one.clientHeight < 2 && one.scrollTop > 1000"
        await expect(output).to_contain_text("line 300")
        assert await output.evaluate(at_end)
        await expect(visit.page.get_by_role("group", name=re.compile("seq 1 300"))).to_contain_text("exit 3")
        for part in ("body", ".markdown code"):
            assert EMOJI.search(
                await visit.page.locator(part).last.evaluate("(one) => getComputedStyle(one).fontFamily")
            )


@each_size
async def test_a_question_says_the_command_once_and_is_read_once(tmp_path, size):
    again = Answer(tool_calls=(Call("bash", {"command": SCRIPT}),))
    async with visiting(tmp_path, [again, again, Answer(text="Done.")], ASK, **SIZES[size]) as visit:
        await visit.begin("do it")
        question = visit.page.get_by_role("region", name="Permission requested")
        await expect(question).to_contain_text("Run this command?")
        shown, read_out = visit.page.locator("body"), visit.page.locator("[aria-live=assertive]")
        said = [(await part.inner_text()).count("print(7, ") for part in (shown, read_out)]
        assert said[0] - said[1] == 1
        allow = question.get_by_role("button", name=re.compile("^Allow once"))
        await expect(allow).to_have_attribute("aria-disabled", "true")
        await question.get_by_role("button", name="Jump to the end").click()
        await expect(allow).not_to_have_attribute("aria-disabled", "true")
        await expect(question.get_by_role("button", name="Jump to the end")).to_have_count(0)
        await visit.page.reload()
        await expect(question).to_contain_text("Run this command?")
        await expect(allow).not_to_have_attribute("aria-disabled", "true")
        asked = await question.get_attribute("data-permission")
        await allow.click()
        await expect(visit.page.locator(f"[data-permission]:not([data-permission='{asked}'])")).to_be_visible()
        await expect(allow).not_to_have_attribute("aria-disabled", "true")
        await allow.click()
        await visit.says("Done.")


@each_size
async def test_a_choice_is_one_tap_and_other_words_can_be_sent(tmp_path, size):
    ask = Answer(tool_calls=(Call("ask_user", {"question": "Which colour?", "choices": ["red", "green"]}),))
    async with visiting(tmp_path, [ask, ask, Answer(text="So be it.")], **SIZES[size]) as visit:
        await visit.begin("choose")
        form = visit.page.get_by_role("form", name="The agent asks")
        assert await in_view(form)
        await form.get_by_role("button", name="green").click()
        await expect(visit.page.get_by_role("group", name="Ask: Which colour?").first).to_contain_text("done")
        assert "The user answered: green" in str(visit.place.model.requests[1].body)
        await form.get_by_role("button", name="Send").click()
        await expect(form).to_contain_text("Say something, or choose one.")
        await form.get_by_role("textbox").fill("blue")
        await form.get_by_role("button", name="Send").click()
        await visit.says("So be it.")
        assert "The user answered: blue" in str(visit.place.model.requests[2].body)


@each_size
async def test_a_finished_plan_is_folded_and_gone_with_the_next_prompt(tmp_path, size):
    script = [
        plan("completed", "in_progress"),
        *bash("sleep 60")[:1],
        plan("completed", "completed"),
        "Done.",
        "And on.",
    ]
    async with visiting(tmp_path, script, **SIZES[size]) as visit:
        await visit.begin("plan it")
        panel = visit.page.locator("details.plan")
        await expect(panel).to_have_attribute("open", "")
        await expect(panel).to_contain_text("1 of 2 done")
        await visit.button("Stop").click()
        await visit.says("Stopped.")
        await visit.send("go on", "Done.")
        await expect(panel).not_to_have_attribute("open", "")
        await expect(panel).to_contain_text("2 of 2 done")
        await visit.send("and?", "And on.")
        await expect(panel).to_have_count(0)


@each_size
async def test_the_thinking_level_says_what_it_is_and_can_be_reached(tmp_path, size):
    async with visiting(tmp_path, ["Thought."], **SIZES[size]) as visit:
        await visit.begin()
        label = visit.page.locator("label", has_text="Thinking")
        level = visit.page.get_by_label("Thinking")
        assert await in_view(label) and await in_view(level)
        await level.select_option("high")
        await visit.send("think", "Thought.")
        assert '"reasoning_effort": "high"' in str(visit.place.model.requests[-1].body).replace("'", '"')


@each_size
async def test_a_file_is_completed_behind_its_sign_and_goes_along(tmp_path, size):
    async with visiting(tmp_path, ["Seen."], **SIZES[size]) as visit:
        (visit.place.project / "src").mkdir()
        (visit.place.project / "src/two words.py").write_text("SECRET_OF_IT = 1\n")
        await visit.begin()
        await visit.box.press_sequentially("look at @two")
        row = visit.page.get_by_role("option", name="two words.py")
        assert await in_view(row)
        await row.click()
        await expect(visit.box).to_have_value("look at @src/two words.py ")
        await expect(visit.page.get_by_role("list", name="Attachments")).to_contain_text("src/two words.py")
        await visit.box.press("Enter")
        await visit.says("Seen.")
        assert "src/two words.py" in str(visit.place.model.requests[-1].body)


@each_size
async def test_a_prompt_that_failed_is_sent_again_by_a_button(tmp_path, size):
    async with visiting(
        tmp_path, [Failure(400, {"error": {"message": "no"}}), "Now it works."], **SIZES[size]
    ) as visit:
        await visit.begin("try it", "The prompt failed.")
        again = visit.button("Try again")
        assert await in_view(again)
        await again.click()
        await visit.says("Now it works.")
        await expect(again).to_have_count(0)
        await expect(visit.page.get_by_role("group", name="You")).to_have_text(["try it", "try it"])


@each_size
async def test_a_refused_key_is_said_once_until_a_prompt_is_answered(tmp_path, size):
    refused = Failure(401, {"error": {"message": "bad key"}})
    async with visiting(tmp_path, [refused, "Now it works."], **SIZES[size]) as visit:
        await visit.begin("try it")
        banner = visit.page.get_by_role("alert").filter(has_text="The agent needs a login.")
        await expect(banner).to_contain_text("refused the API key (HTTP 401)")
        assert (await banner.inner_text()).count("acp-coder login") == 1
        await expect(visit.page.get_by_text("refused the API key")).to_have_count(1)
        await visit.button("Try again").click()
        await visit.says("Now it works.")
        await expect(banner).to_have_count(0)


@each_size
async def test_a_session_begins_in_a_folder_that_is_offered_or_completed(tmp_path, size):
    async with visiting(tmp_path, ["Hello."], **SIZES[size]) as visit:
        inner = visit.place.project / "inner"
        (inner / "most").mkdir(parents=True)
        await expect(visit.button(os.getcwd())).to_be_visible()  # The server's, where nothing is known yet.
        folder = visit.page.get_by_label("Folder on the server")
        await folder.fill("")
        await folder.press_sequentially(f"{visit.place.project}/in")
        assert await in_view(visit.page.get_by_role("option", name="inner/"))
        await folder.press("Tab")
        await expect(folder).to_have_value(f"{inner}/")
        await visit.page.get_by_role("option", name="most/").click()
        await expect(folder).to_have_value(f"{inner}/most/")
        await folder.press("Enter")
        await visit.send("hi", "Hello.")
        if size == "phone":
            await visit.button("Sessions").click()
        await visit.button("New session").click()
        await visit.button(f"{inner}/most").click()
        await expect(visit.box).to_be_focused()


async def test_what_was_begun_in_the_terminal_is_in_the_list_of_the_page(tmp_path):
    async with served(tmp_path, ["From the terminal.", "From the page."], owner=MINE) as place, chromium() as browser:
        argv = [COMMAND, "-p", "begun there"]
        await anyio.to_thread.run_sync(
            lambda: subprocess.run(argv, env=place.environ, cwd=place.project, check=True, capture_output=True)
        )
        visit: Visit = await visit_of(place, await browser.new_context())
        await visit.page.get_by_role("navigation", name="Sessions").get_by_text("begun there").click()
        await visit.says("From the terminal.")
        await visit.send("go on", "From the page.")
        await visit.clean()
