"""Another model goes on where one is overloaded, out of quota or away."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.errors import PeerError, ProviderError
from acp_agent.loop.model.advice import advised
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel, Reply

from .kit import Rig, another, asks, environ_for

OVERLOADED = Failure(529, {"error": {"message": "Overloaded", "type": "overloaded_error"}})
EMPTY = Failure(429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}})
LIMITED = Failure(429, {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}})
BAD_KEY = Failure(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})
BAD_REQUEST = Failure(400, {"error": {"message": "temperature is wrong", "type": "invalid_request_error"}})
UNKNOWN = Failure(404, {"error": {"message": "The model `a` does not exist", "code": "model_not_found"}})
LOOK = asks(Call("list_directory", {}))


@dataclass
class Two:
    editor: FakeEditor
    first: FakeModel
    second: FakeModel
    says = Rig.says

    def words(self, number: int) -> str:
        """What the second model read in its n-th call."""
        return str(self.second.requests[number - 1].body["messages"])


@asynccontextmanager
async def two(
    tmp_path, first: Sequence[Reply | str], second: Sequence[Reply | str], *, agent: str = "", provider: str = "",
    fallback: str = '"second/b"', config: str = "", **editor: Any,
) -> AsyncIterator[Two]:  # fmt: skip
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    async with FakeModel(first) as one, FakeModel(second) as other:
        (tmp_path / "config.toml").write_text(
            f'[agent]\nmodel = "first/a"\nfallback_models = [{fallback}]\n{agent}\n'
            f'[providers.first]\nbase_url = "{one.base_url}"\nmodels = ["a"]\nmax_retries = 0\n'
            f'[providers.second]\nbase_url = "{other.base_url}"\nmodels = ["b"]\nmax_retries = 0\n{provider}\n{config}'
        )
        environ = environ_for(home, "", ACP_CODER_CONFIG=str(tmp_path / "config.toml"))
        del environ["OPENAI_BASE_URL"], environ["OPENAI_MODEL"]
        async with another(environ, **editor) as fake:
            await fake.new_session(project)
            yield Two(fake, one, other)


async def test_the_fallback_goes_on_with_the_same_turn_and_the_user_is_told(tmp_path):
    async with two(tmp_path, [LOOK, OVERLOADED], ["done", "again"]) as r:
        assert (await r.editor.prompt("go")).stop_reason == "end_turn"
        assert r.editor.text().endswith("done")
        assert "`first/a` does not answer: first failed (HTTP 529)" in r.editor.text()
        assert "`second/b` goes on. `first/a` is tried again after 300 seconds." in r.editor.text()
        assert r.second.requests[0].body["model"] == "b"
        roles = [message["role"] for message in r.second.requests[0].body["messages"]]
        assert roles == ["system", "user", "assistant", "tool"]
        await r.editor.prompt("more")
        assert (len(r.first.requests), len(r.second.requests)) == (2, 2), "the first rests"
        assert "`first/a` (in use)" in await r.says("/model"), "the choice of the user stays"


@pytest.mark.parametrize("failure", [EMPTY, LIMITED, Failure(503, ""), "refused connection"])
async def test_quota_rate_limit_outage_and_a_server_that_is_away_lead_to_the_fallback(tmp_path, failure):
    gone = failure == "refused connection"
    async with two(tmp_path, [] if gone else [failure], ["done"]) as r:
        if gone:
            await r.first.aclose()
        assert (await r.says("go")).endswith("done")


@pytest.mark.parametrize("failure", [BAD_KEY, BAD_REQUEST, UNKNOWN])
async def test_what_the_user_must_mend_does_not_lead_to_the_fallback(tmp_path, failure):
    async with two(tmp_path, [failure], ["never"]) as r:
        with pytest.raises(PeerError):
            await r.editor.prompt("go")
        assert r.second.requests == []


async def test_after_a_while_the_first_model_is_used_again(tmp_path):
    async with two(tmp_path, [OVERLOADED, "back"], ["done"], agent="fallback_retry_after = 0") as r:
        await r.editor.prompt("go")
        assert (await r.says("more")).endswith("back")
        assert "done" in str(r.first.requests[-1].body["messages"])


async def test_within_a_turn_the_first_model_is_used_again_too(tmp_path):
    async with two(tmp_path, [OVERLOADED, "back"], [LOOK], agent="fallback_retry_after = 0") as r:
        await r.editor.prompt("go")
        assert r.editor.text().endswith("back") and "`first/a` is tried again." in r.editor.text()


async def test_an_answer_that_broke_off_is_gone_on_with(tmp_path):
    async with two(tmp_path, [Answer(text=("The sum of ", "never"), drop_after=1)], ["it is 4."]) as r:
        await r.editor.prompt("go")
        assert "The sum of " in r.editor.text() and r.editor.text().endswith("it is 4.")
        *_, answer, note = r.second.requests[0].body["messages"]
        assert (answer["role"], answer["content"]) == ("assistant", "The sum of ")
        assert note["role"] == "user" and "The answer broke off here." in str(note["content"])


async def test_if_no_model_answers_the_error_names_each_and_each_was_asked_once(tmp_path):
    for_ever = [Answer(text="never")] * 3
    async with two(
        tmp_path, [OVERLOADED, *for_ever], [BAD_KEY, *for_ever], agent="fallback_retry_after = 0",
        fallback='"second/b", "first/a", "third/c"',
    ) as r:  # fmt: skip
        with pytest.raises(PeerError) as caught:
            await r.editor.prompt("go")
        words = caught.value.message
        assert words.startswith("None of the models answers. `first/a`: first failed (HTTP 529)")
        assert "`second/b`: second refused the API key (HTTP 401)" in words and "`third/c`: Invalid params" not in words
        assert "`third/c`: the provider 'third' is not in the configuration" in words
        assert caught.value.data["kind"] == "server"
        assert (len(r.first.requests), len(r.second.requests)) == (1, 1)
        assert (await r.says("again")).endswith("never"), "the first is asked again"


async def test_a_history_goes_on_over_another_wire_api(tmp_path):
    async with two(tmp_path, [LOOK, OVERLOADED], ["done"], provider='api = "messages"\napi_key = "k"') as r:
        assert (await r.says("go")).endswith("done")
        assert r.second.requests[0].path.endswith("/messages")
        assert "tool_result" in r.words(1)


async def test_a_smaller_context_is_made_to_fit_first(tmp_path):
    long = Answer(text="word " * 8000, usage=None)
    async with two(tmp_path, [long, long, OVERLOADED], ["the summary", "done"], provider="context_window = 16000") as r:
        await r.editor.prompt("one")
        await r.editor.prompt("two")
        await r.editor.prompt("three")
        assert r.editor.text().endswith("done") and "The conversation was shortened" in r.editor.text()
        assert len(r.words(len(r.second.requests))) < len(str(r.first.requests[-1].body["messages"]))


async def test_a_fallback_without_tools_gets_them_as_text(tmp_path):
    no_tools = Failure(400, {"error": {"message": "This model does not support tools"}})
    async with two(tmp_path, [LOOK, OVERLOADED], [no_tools, "done"]) as r:
        assert (await r.says("go")).endswith("done")
        assert "tools" not in r.second.requests[1].body


async def test_a_sub_agent_falls_back_and_its_parent_goes_on_with_the_same_model(tmp_path):
    delegate = asks(Call("delegate", {"prompt": "Look.", "title": "look"}))
    async with two(tmp_path, [delegate, OVERLOADED], ["seen", "done"]) as r:
        assert (await r.says("go")).endswith("done")
        assert (len(r.first.requests), len(r.second.requests)) == (2, 2)
        assert r.second.requests[0].body["model"] == "b"


async def test_a_model_that_the_user_chooses_again_is_tried_although_it_failed(tmp_path):
    async with two(tmp_path, [OVERLOADED, "mine"], ["done", "more"]) as r:
        await r.editor.prompt("go")
        await r.editor.prompt("/model second/b")
        await r.editor.prompt("go on")
        await r.editor.prompt("/model first/a")
        assert (await r.says("go on")).endswith("mine")


async def test_the_fallback_has_its_own_price(tmp_path):
    price = '[[agent.prices]]\nmodel = "second/b"\noutput = 1000000\n'
    async with two(tmp_path, [LOOK, OVERLOADED], ["done"], config=price) as r:
        await r.editor.prompt("go")
        shown = await r.says("/cost")
        assert "- `second/b`: $5.00; 1 model call" in shown and "- `first/a`: $0.00; 1 model call" in shown


async def test_a_summary_falls_back_too(tmp_path):
    async with two(tmp_path, ["one", OVERLOADED], ["THE SUMMARY"], fallback='"second:b"') as r:
        await r.editor.prompt("go " * 500)
        assert "THE SUMMARY" in await r.says("/compact")


HOURS = Failure(
    429, {"error": {"message": "Daily limit reached", "code": "rate_limit_exceeded"}}, {"Retry-After": "7200"}
)
SPENT = Failure(402, {"error": {"message": "No credit"}})


@pytest.mark.parametrize(("failure", "until"), [(HOURS, "It is at its limit until "), (SPENT, "It has used up")])
async def test_at_a_limit_that_lasts_the_user_chooses_the_model_that_goes_on(tmp_path, failure, until):
    shown: list[acp.RequestPermissionRequest] = []

    async def choose(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        shown.append(request)
        return acp.SelectedPermissionOutcome(option_id="second/b")

    async with two(tmp_path, [failure], ["done", "more"], fallback="", permissions=[choose]) as r:
        assert (await r.says("go")).endswith("done")
        assert str(shown[0].tool_call.title).startswith(until) and "first/a. Continue with" in str(
            shown[0].tool_call.title
        )
        assert [option.name for option in shown[0].options] == ["Continue with second/b", "Stop here"]
        assert (await r.says("again")).endswith("more") and len(r.first.requests) == 1, "it is the session's model now"


async def test_at_a_limit_that_lasts_a_no_ends_the_turn_with_its_time(tmp_path):
    async with two(tmp_path, [HOURS], ["never"], fallback="", permissions=[reject_once]) as r:
        with pytest.raises(PeerError, match=r"first is receiving too many requests .* The limit ends at \d\d:\d\d\."):
            await r.editor.prompt("go")
        assert r.second.requests == []


LONG = Failure(400, {"error": {"message": "prompt is too long", "code": "context_length_exceeded"}})
ADVICE = {
    "auth": (BAD_KEY, {
        "once": "`acp-coder login first` stores another key.", "chat": "`acp-coder login first` stores another key.",
        "editor": "In a terminal, `acp-coder login first` stores another key; then send the prompt again.",
    }),
    "model": (UNKNOWN, {
        "once": "Choose another model with `--model` (`acp-coder models` lists them).",
        "chat": "Pick another model with `/model`.", "editor": "Choose another model (`/model` lists them).",
    }),
    "balance": (SPENT, {
        "once": "Add credit or raise the limit at the provider, or choose another model with `--model` (`acp-coder "
        "models` lists them).",
        "chat": "Add credit or raise the limit at the provider, or pick another model with `/model`.",
        "editor": "Add credit or raise the limit at the provider, or choose another model (`/model` lists them).",
    }),
    "window": (LONG, {
        "once": "Begin a new session (without `--continue` and `--session`), or choose one that reads more with "
        "`--model` (`acp-coder models` lists them).",
        "chat": "Begin a new session with `/new`, or pick one that reads more with `/model`.",
        "editor": "Begin a new session, or choose one that reads more (`/model` lists them).",
    }),
}  # fmt: skip
CLIENTS = {"once": "acp-coder-prompt", "chat": "acp-coder-chat", "editor": "zed"}


@pytest.mark.parametrize("kind", [kind for kind in ADVICE if kind != "window"])
@pytest.mark.parametrize("front", CLIENTS)
async def test_an_error_says_what_this_user_does_next_in_one_paragraph(tmp_path, kind, front):
    failure, advice = ADVICE[kind]
    info = acp.Implementation(name=CLIENTS[front], version="1")
    async with two(tmp_path, [failure] * 4, [], fallback="", permissions=[reject_once], info=info) as r:
        with pytest.raises(PeerError) as caught:
            await r.editor.prompt("go")
        words = caught.value.message
        assert "\n" not in words and words.endswith(advice[front]), words
        others = [said for _, rows in ADVICE.values() for said in rows.values() if said not in advice.values()]
        assert words.count("login") <= 1 and not any(words.endswith(said) for said in others)
        assert "default" not in words and "first " in words


async def test_the_key_that_is_refused_is_named_where_it_is_from(tmp_path):
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    for text, words in {
        'api_key = "sk-not-a-key"\n': "The key is `providers.first.api_key` of your configuration: change it there.",
        'api_key_env = "MY_KEY"\n': "The key is that of the environment variable MY_KEY: change it there, and start",
    }.items():
        async with FakeModel([BAD_KEY]) as model:
            (tmp_path / "config.toml").write_text(
                f'[providers.first]\nbase_url = "{model.base_url}"\nmodels = ["a"]\n{text}'
            )
            environ = environ_for(tmp_path / "home", "", ACP_CODER_CONFIG=str(tmp_path / "config.toml"), MY_KEY="sk-x")
            del environ["OPENAI_BASE_URL"], environ["OPENAI_MODEL"]
            async with another(environ) as editor:
                await editor.new_session(tmp_path / "project")
                with pytest.raises(PeerError) as caught:
                    await editor.prompt("go")
                assert words in caught.value.message and "login" not in caught.value.message


async def test_a_conversation_that_cannot_be_made_to_fit_is_told_in_one_paragraph(tmp_path):
    async with two(tmp_path, [LONG] * 4, [], fallback="") as r:
        words = await r.says("go")
        assert words.startswith("first says that the conversation is too long (HTTP 400)") and "\n" not in words.strip()
        assert words.count("/model") == 1 and "compact it" not in words
    for front, advice in ADVICE["window"][1].items():
        error = ProviderError("context_too_long", "It is too long. Compact it.", fact="It is too long.")
        assert advised(error, CLIENTS[front]) == f"It is too long. {advice}"
