"""The page in the real Chromium, on the real server: what a user does, and that nobody else can do it."""

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from playwright.async_api import Route, expect

from acp_agent.config.load import load_config
from acp_agent.fronts.server.app import Server
from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.server.page_kit import ASK, AUTO, AXE, PHONE, Visit, bash, built, needs_chromium, visit_of, visiting
from tests.fronts.server.test_server import Place
from tests.system.executors.test_far import sleeping
from tests.waits import until

__all__ = ["built"]
pytestmark = needs_chromium


# --- getting in -----------------------------------------------------------------------------------------------------


async def test_the_link_logs_in_and_its_token_is_gone_from_the_address_and_from_what_scripts_see(tmp_path):
    async with visiting(tmp_path) as visit:
        page = visit.page
        await expect(page.get_by_role("heading", name="New session")).to_be_visible()
        assert page.url == f"{visit.place.http}/"
        assert not [url for url in visit.asked if visit.place.token in url]
        seen = await page.evaluate(
            "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, document.body.outerHTML])"
        )
        assert visit.place.token not in seen
        (cookie,) = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["value"]) == (True, "Strict", visit.place.token)
        await page.reload()
        await expect(page.get_by_role("heading", name="New session")).to_be_visible()
        await page.go_back()
        assert "token" not in page.url


async def test_without_a_link_the_page_asks_for_the_token_and_forgets_it_when_one_logs_out(tmp_path):
    async with visiting(tmp_path) as visit:
        await expect(visit.page.get_by_role("heading", name="New session")).to_be_visible()
        await visit.page.context.clear_cookies()
        await visit.page.goto(visit.place.http)
        field = visit.page.get_by_label("Token")
        await expect(field).to_be_focused()
        await field.fill("acp_wrong")
        await field.press("Enter")
        await expect(visit.page.get_by_role("alert")).to_contain_text("does not know this token")
        await field.fill(visit.place.token)
        await visit.button("Log in").click()
        await expect(visit.page.get_by_role("heading", name="New session")).to_be_visible()
        await visit.button("Log out").click()
        await visit.page.get_by_role("dialog").get_by_role("button", name="Log out").click()
        await expect(field).to_be_visible()
        assert await visit.page.context.cookies() == []
        await visit.page.reload()
        await expect(field).to_be_visible()


# --- a session ------------------------------------------------------------------------------------------------------


async def test_output_is_shown_while_the_command_runs_and_stop_ends_it(tmp_path):
    async with visiting(tmp_path, [bash(f"echo {word}; exec sleep 7072")[0] for word in ("begun", "again")]) as visit:
        await visit.begin("go")
        await expect(visit.page.get_by_role("region", name=re.compile("Output of"))).to_contain_text("begun")
        await visit.button("Stop").click()
        await visit.says("Stopped.")
        await expect(visit.button("Stop")).to_have_count(0)
        await visit.send("go on")
        await expect(visit.page.get_by_role("region", name=re.compile("Output of")).last).to_contain_text("again")
        await visit.page.keyboard.press("Control+.")
        await expect(visit.page.get_by_text("Stopped.")).to_have_count(2)
        await until(lambda: not sleeping("7072"))


def writes(content: str = "hello\nworld\n") -> list[Answer]:
    return [Answer(tool_calls=(Call("write", {"path": "greeting.txt", "content": content}),)), Answer(text="Written.")]


async def test_an_edit_is_asked_about_with_its_diff_and_a_click_allows_it(tmp_path):
    async with visiting(tmp_path, writes(), ASK) as visit:
        await visit.begin("greet")
        question = visit.page.get_by_role("region", name="Permission requested")
        await expect(question).to_contain_text("+hello")
        await expect(question).to_contain_text("Asked because it changes a file")
        assert not (visit.place.project / "greeting.txt").exists()
        await question.get_by_role("button", name=re.compile("^Allow")).first.click()
        await visit.says("Written.")
        assert (visit.place.project / "greeting.txt").read_text() == "hello\nworld\n"
        await expect(visit.page.get_by_role("region", name="Changes in greeting.txt")).to_contain_text("+world")
        await visit.page.get_by_title("Open the diff of greeting.txt").click()
        dialog = visit.page.get_by_role("dialog", name="Changes")
        await expect(dialog).to_contain_text(str(visit.place.project / "greeting.txt"))
        await visit.page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)


async def test_everything_up_to_an_answer_can_be_done_by_keyboard_alone(tmp_path):
    async with visiting(tmp_path, bash("touch made"), ASK) as visit:
        page, keys = visit.page, visit.page.keyboard
        await expect(page.get_by_label("Folder on the server")).to_be_focused()
        await keys.type(str(visit.place.project))
        await keys.press("Enter")
        await expect(visit.box).to_be_focused()
        await keys.type("make it")
        await keys.press("Enter")
        await expect(page.get_by_role("region", name="Permission requested")).to_be_visible()
        allow = visit.button(re.compile("^Allow once"))
        await expect(allow).not_to_have_attribute("aria-disabled", "true")  # Its end has been in view.
        assert await tabbed_to(visit, re.compile("^Allow"))
        await keys.press("Enter")
        await visit.says("Done.")
        assert (visit.place.project / "made").exists()
        assert await tabbed_to(visit, re.compile("^Delete: make it"))
        await keys.press("Enter")
        await expect(page.get_by_role("dialog", name="Delete the session?")).to_be_visible()
        await keys.press("Escape")
        await expect(visit.button("Delete: make it")).to_be_focused()


async def tabbed_to(visit: Visit, name: re.Pattern[str]) -> bool:
    """Whether Tab leads to a button of that name; each stop on the way shows where the focus is."""
    for _ in range(60):
        await visit.page.keyboard.press("Shift+Tab")
        label, shown = await visit.page.evaluate(
            """() => { const at = document.activeElement, style = getComputedStyle(at);
            const box = at.closest('.input') ?? at;
            return [(at.getAttribute('aria-label') ?? at.textContent).trim(),
                at === document.body || style.outlineStyle !== 'none' || box !== at]; }"""
        )
        assert shown, label
        if name.search(label):
            return True
    return False


async def test_what_the_agent_did_is_taken_back_and_redone(tmp_path):
    async with visiting(tmp_path, writes()) as visit:
        await visit.begin("greet", "Written.")
        file = visit.place.project / "greeting.txt"
        assert file.exists()
        await visit.button("Restore to here").click()
        dialog = visit.page.get_by_role("dialog")
        await dialog.get_by_role("button", name=re.compile("Files and chat")).click()
        await expect(dialog).to_contain_text("-hello")
        await dialog.get_by_role("button", name="Restore", exact=True).click()
        await expect(visit.button("Redo")).to_be_visible()
        await expect(visit.box).to_have_value("greet")
        assert not file.exists()
        await visit.button("Redo").click()
        await dialog.get_by_role("button", name="Redo", exact=True).click()
        await visit.says("Written.")
        assert file.read_text() == "hello\nworld\n"


async def test_the_agent_asks_by_a_form(tmp_path):
    ask = Call("ask_user", {"question": "Which colour?", "choices": ["red", "green"]})
    async with visiting(tmp_path, [Answer(tool_calls=(ask,)), Answer(text="So be it.")]) as visit:
        await visit.begin("choose")
        form = visit.page.get_by_role("form", name="The agent asks")
        await expect(form).to_contain_text("Which colour?")
        await form.get_by_text("green").click()
        await visit.says("So be it.")
        assert "green" in str(visit.place.model.requests[-1].body)


async def test_sessions_are_listed_opened_closed_and_deleted(tmp_path):
    paged = f"{AUTO}[limits]\nlist_page = 1\n"
    async with visiting(tmp_path, [Answer(text="First."), Answer(text="Second.")], paged) as visit:
        await visit.begin("one", "First.")
        await visit.button("New session").click()
        await visit.begin("two", "Second.")
        titles = visit.page.get_by_role("navigation", name="Sessions").locator("li .title")
        await expect(titles).to_have_text(["two"])
        await visit.button("Show older ones").click()
        await expect(titles).to_have_text(["two", "one"])
        await expect(visit.button("Show older ones")).to_have_count(0)
        await titles.nth(1).click()
        await visit.says("First.")
        await visit.page.go_back()
        await visit.says("Second.")
        await visit.button("Delete: one").click()
        await visit.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(titles).to_have_text(["two"])
        await visit.button("Close the session").click()
        await expect(visit.page.get_by_role("heading", name="New session")).to_be_visible()
        await titles.click()
        await visit.says("Second.")


async def test_a_folder_that_may_not_be_opened_is_said_beside_its_field(tmp_path):
    async with visiting(tmp_path) as visit:
        for folder, words in (("project", "begins with"), ("/nowhere/at/all", "/nowhere/at/all")):
            await visit.page.get_by_label("Folder on the server").fill(folder)
            await visit.button("Begin").click()
            await expect(visit.page.get_by_role("alert").filter(has_text=words)).to_be_visible()


# --- links ----------------------------------------------------------------------------------------------------------


async def test_a_server_that_was_restarted_is_found_again_with_the_session_and_what_was_being_written(tmp_path):
    async with visiting(tmp_path, [Answer(text="First."), Answer(text="Second.")]) as visit:
        await visit.begin("one", "First.")
        await visit.box.fill("half a prom")
        visit.place.stop.set()
        await expect(visit.page.get_by_text("The connection is lost. Trying again…")).to_be_visible()
        await expect(visit.page.get_by_role("log")).to_contain_text("First.")
        async with restarted(visit.place):
            await expect(visit.page.get_by_text("The connection is lost. Trying again…")).to_have_count(0)
            await visit.says("First.")
            await expect(visit.box).to_have_value("half a prom")
            await visit.send("two", "Second.")


@asynccontextmanager
async def restarted(place: Place) -> AsyncIterator[None]:
    listens = None
    while listens is None:  # The one before still says goodbye.
        with suppress(OSError):
            listens = socket.create_server(("127.0.0.1", int(place.http.rpartition(":")[2])))
        await anyio.sleep(0.02)
    stop = anyio.Event()
    server = Server(load_config(place.environ).settings, place.environ, place.identities, listens)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.until, stop)
        try:
            yield
        finally:
            stop.set()


async def test_a_turn_goes_on_without_its_page_which_can_still_stop_it_after_a_reload(tmp_path):
    async with visiting(tmp_path, bash("echo begun; touch begun; exec sleep 7073")) as visit:
        await visit.begin("go")
        await until((visit.place.project / "begun").exists)
        await visit.page.reload()
        await expect(visit.page.get_by_role("group", name=re.compile("echo begun"))).to_contain_text("running")
        await visit.box.fill("and then?")
        await visit.box.press("Enter")
        await expect(visit.page.get_by_role("region", name="Sent next")).to_contain_text("and then?")
        await visit.button("Remove from the queue: and then?").click()
        await visit.button("Stop").click()
        await expect(visit.page.get_by_role("group", name=re.compile("echo begun"))).to_contain_text("cancelled")
        await expect(visit.button("Stop")).to_have_count(0)
        await until(lambda: not sleeping("7073"))


async def test_two_pages_share_a_session_and_a_question_is_answered_in_one_of_them(tmp_path):
    async with visiting(tmp_path, [*bash("touch made", "Made it."), Answer(text="Again.")], ASK) as visit:
        await visit.begin()
        other = await beside(visit, visit.place.token)
        await visit.send("make it")
        for each in (visit, other):
            await each.says("make it")
            await expect(each.page.get_by_role("region", name="Permission requested")).to_be_visible()
            await expect(each.button("Stop")).to_be_visible()
        await other.button(re.compile("^Allow once")).click()
        for each in (visit, other):
            await each.says("Made it.")
            await expect(each.button("Stop")).to_have_count(0)
            await expect(each.page.get_by_role("region", name="Permission requested")).to_have_count(0)
        await visit.says("Answered elsewhere.")
        await expect(other.page.get_by_text("Answered elsewhere.")).to_have_count(0)
        await other.send("again")
        for each in (visit, other):
            await each.says("Again.")
        await other.clean()


async def test_who_may_only_approve_answers_and_stops_and_who_may_only_watch_does_neither(tmp_path):
    async with visiting(tmp_path, [*bash("touch made", "Made it."), bash("exec sleep 60")[0]], ASK) as visit:
        await visit.begin()
        place = visit.place
        approves, watches = [
            await beside(visit, place.identities.add(scope, scope=scope, owner="me")) for scope in ("approve", "watch")
        ]
        await visit.send("make it")
        await expect(approves.page.get_by_role("region", name="Permission requested")).to_be_visible()
        await expect(watches.page.get_by_role("group", name="touch made")).to_contain_text("waiting")
        for each in (approves, watches):
            await expect(each.box).to_have_count(0)
            for name in ("New session", re.compile("^Delete"), "Edit the message and send it again"):
                await expect(each.button(name)).to_have_count(0)
        await expect(watches.button(re.compile("[Aa]llow"))).to_have_count(0)
        await approves.button(re.compile("^Allow once")).click()
        await watches.says("Made it.")
        await visit.send("sleep")
        await visit.button(re.compile("^Allow once")).click()
        await expect(watches.button("Stop")).to_have_count(0)
        await approves.button("Stop").click()
        await visit.says("Stopped.")
        for each in (approves, watches):
            await each.clean()


async def beside(visit: Visit, token: str) -> Visit:
    """Another browser at the same session."""
    browser = visit.page.context.browser
    assert browser is not None
    other = await visit_of(visit.place, await browser.new_context(), f"{visit.place.http}/#token={token}")
    await expect(other.page.get_by_role("navigation", name="Sessions")).to_be_visible()
    await other.page.goto(visit.page.url)
    await expect(other.page.get_by_role("button", name="Close the session")).to_be_visible()
    return other


async def test_a_token_that_was_revoked_leads_to_the_form(tmp_path):
    async with visiting(tmp_path) as visit:
        await expect(visit.page.get_by_role("heading", name="New session")).to_be_visible()
        visit.place.identities.revoke("me")
        await visit.page.reload()
        await expect(visit.page.get_by_label("Token")).to_be_visible()


# --- everybody can use it -------------------------------------------------------------------------------------------

LONG = "word " * 60 + "https://example.com/" + "a" * 300


async def test_a_phone_has_room_for_everything_and_nothing_is_too_small_for_a_finger(tmp_path):
    call = Call("bash", {"command": f"touch made; echo {'x' * 400}; printf 'a\\tb\\n'"})
    script = [Answer(tool_calls=(call,)), Answer(text=f"{LONG}\n\n```py\n{'y' * 300}\n```\n\n|a|b|\n|-|-|\n|{LONG}|c|")]
    async with visiting(tmp_path, script, ASK, PHONE, has_touch=True, is_mobile=True) as visit:
        await fits(visit)
        await visit.begin()
        await fits(visit)
        await visit.send(LONG)
        question = visit.page.get_by_role("region", name="Permission requested")
        await expect(question).to_be_visible()
        await fits(visit)
        await question.get_by_role("region").evaluate("(subject) => subject.scrollTo(0, subject.scrollHeight)")
        await question.get_by_role("button", name=re.compile("^Allow")).first.tap()
        await visit.says("word word")
        await expect(visit.page.get_by_role("table")).to_be_visible()
        await fits(visit)
        nav = visit.page.get_by_role("navigation", name="Sessions")
        await expect(nav).to_have_count(0)  # Hidden, so that nobody tabs into it.
        await visit.button("Sessions").tap()
        await expect(visit.button("Close the list")).to_be_focused()
        await fits(visit)
        await visit.page.keyboard.press("Escape")
        await expect(nav).to_have_count(0)
        await expect(visit.button("Sessions")).to_be_focused()


async def fits(visit: Visit) -> None:
    wide, small = await visit.page.evaluate(
        """() => {
          const all = [...document.querySelectorAll('button, summary, select, input, textarea, [role=button]')];
          const shown = all.filter((one) => one.checkVisibility({visibilityProperty: true}) && !one.closest('[inert]'));
          const small = shown.filter((one) => {
            const box = (one.closest('label') ?? one).getBoundingClientRect();
            return box.width > 0 && (box.height < 43.5 || box.width < 43.5);
          });
          return [document.scrollingElement.scrollWidth, small.map((one) => one.outerHTML.slice(0, 120))];
        }"""
    )
    assert wide <= PHONE["width"] and small == []


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_a_screen_reader_finds_its_way_in_both_colours(tmp_path, colours):
    script = [*bash("touch made; echo one", "# It *is* done\n\nSee `made`.\n\n```py\nx = 1  # why\n```"), *writes()]
    async with visiting(tmp_path, script, ASK, color_scheme=colours) as visit:
        await expect(visit.page.get_by_label("Folder on the server")).to_be_focused()
        await accessible(visit)
        await visit.begin()
        await accessible(visit)
        await visit.send("make it")
        question = visit.page.get_by_role("region", name="Permission requested")
        await expect(question).to_be_visible()
        await accessible(visit)
        await expect(visit.page.locator("[aria-live=assertive]")).to_contain_text("Permission requested: touch made")
        await question.get_by_role("button", name=re.compile("^Allow")).first.click()
        await expect(visit.page.locator("[aria-live=polite]")).to_contain_text("is* done")
        await visit.send("greet")
        await expect(question).to_contain_text("+hello")
        await accessible(visit)
        await question.get_by_role("button", name=re.compile("^Allow")).first.click()
        await visit.says("Written.")
        await visit.button("Delete: make it").click()
        await expect(visit.page.get_by_role("dialog")).to_be_visible()
        await accessible(visit)


async def accessible(visit: Visit) -> None:
    await visit.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await visit.page.evaluate(
        """async (options) => (await axe.run(document, options)).violations.map(({id, nodes}) =>
        [id, nodes.map(({html, failureSummary}) => [html.slice(0, 160), failureSummary])])""",
        {
            "runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"],
            # A box with suggestions is a combobox to readers, of several lines or not.
            "rules": {"aria-allowed-role": {"enabled": False}},
        },
    )
    assert found == []


async def test_nothing_moves_for_who_wants_no_motion(tmp_path):
    async with visiting(tmp_path, bash("sleep 60"), reduced_motion="reduce") as visit:
        await visit.begin("go")
        await expect(visit.button("Stop")).to_be_visible()
        moving = "document.getAnimations().filter((one) => one.playState === 'running').length"
        assert await visit.page.evaluate(moving) == 0
        await visit.button("Stop").click()
        await visit.says("Stopped.")


# --- nobody else can ------------------------------------------------------------------------------------------------

ATTACK = """async (http) => {
  const ws = http.replace('http', 'ws') + '/acp';
  const socket = () => new Promise((done) => {
    const one = new WebSocket(ws);
    one.onopen = () => done('open'); one.onerror = () => done('refused');
  });
  const tried = async (path, init) => {
    try { const answer = await fetch(http + path, init); return answer.type + answer.status; }
    catch { return 'failed'; }
  };
  return [
    await socket(),
    await tried('/sessions', {credentials: 'include'}),
    await tried('/sessions', {credentials: 'include', mode: 'no-cors'}),
    await tried('/login', {method: 'POST', credentials: 'include', mode: 'no-cors'}),
    await tried('/acp', {method: 'POST', credentials: 'include', mode: 'no-cors', body: '{}'}),
    await tried('/sessions/1', {method: 'DELETE', credentials: 'include'}),
  ];
}"""


@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "localhost"])
async def test_another_page_gets_nothing_with_the_cookie_that_the_browser_has(tmp_path, elsewhere):
    """On another port of the same host, which for cookies is the same site, and on another site."""
    async with visiting(tmp_path, [Answer(text="private")]) as visit:
        await visit.begin("say it", "private")
        page, http, got = await visit.page.context.new_page(), visit.place.http, []
        page.on("response", lambda answer: got.append((answer.url.removeprefix(http), answer.status)))

        async def evil(route: Route) -> None:
            await route.fulfill(body="<title>evil</title>", content_type="text/html")

        await page.route(re.compile(rf"^http://{re.escape(elsewhere)}:9/"), evil)
        await page.goto(f"http://{elsewhere}:9/")
        opened, *fetched = await page.evaluate(ATTACK, http)
        assert opened == "refused"
        assert fetched == ["failed", "failed", "failed", "failed", "failed"]
        for kind, path in (("GET", "/sessions"), ("POST", "/login"), ("POST", "/sessions"), ("POST", "/acp")):
            await page.goto(f"http://{elsewhere}:9/")
            form = f"<form method={kind} action={http}{path}></form>"
            await page.evaluate("(form) => { document.body.innerHTML = form; document.forms[0].submit(); }", form)
            await page.wait_for_url(f"{http}/**")
        assert [row for row in got if row[1] < 400 and row[0].startswith("/")] == []
        await page.goto(f"http://{elsewhere}:9/")
        await page.evaluate("(src) => { document.body.innerHTML = `<iframe src=${src}></iframe>` }", f"{http}/")
        await expect(page.frame_locator("iframe").get_by_role("heading", name="say it")).to_have_count(0)
        await page.close()
        visit.asked = [url for url in visit.asked if ":9/" not in url]


async def test_a_message_of_the_model_runs_no_script_and_asks_nobody(tmp_path):
    nasty = (
        "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>\n\n"
        "![picture](http://127.0.0.1:9/leak.png) [link](javascript:document.title='hacked')\n\n"
        "<style>*{display:none}</style>"
    )
    async with visiting(tmp_path, [Answer(text=nasty)]) as visit:
        await visit.begin("be nasty", "<script>")
        assert "hacked" not in await visit.page.title()
        assert await visit.page.locator("script:not([src]), style, .markdown img").count() == 0
