"""Logins at MCP servers: `acp-coder mcp login` and `/mcp login`, with an OAuth server of the tests."""

import json
import os
import re
import socket
from pathlib import Path
from threading import Thread

import anyio.to_thread
import pytest

from acp_agent.build.own_credentials import own_credentials
from acp_agent.cli import main
from acp_agent.client.permissions import allow_always
from acp_agent.config.load import load_config
from acp_agent.schema import acp
from tests.mcp.oauth_server import OAuthServer, browse, oauth_server

from .kit import Answer, Call, agent_rig, asks, environ_for, rig, trust
from .test_hooks_that_decide import hook, keeps, kept


@pytest.fixture
def locked():
    with oauth_server() as server:
        yield server


@pytest.fixture
def mcp(locked, tmp_path, monkeypatch, capsys):
    """Runs `acp-coder mcp` in a home where the server is configured."""
    for name in [name for name in os.environ if name.startswith(("XDG_", "ACP_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    for name, value in environ_for(tmp_path, "http://127.0.0.1:9/v1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    # A browser does not wait for the page.
    monkeypatch.setattr("webbrowser.open", lambda url: Thread(target=browse, args=(url,), daemon=True).start())

    def run(*words: str) -> tuple[int, str]:
        status = main(["mcp", *words])
        told = capsys.readouterr()
        return status, told.out + told.err

    run("add", "locked", locked.url)
    return run


def test_a_login_is_kept_private_used_refreshed_and_forgotten(locked: OAuthServer, mcp, tmp_path):
    status, told = mcp("list")
    assert status == 1
    assert "`acp-coder mcp login locked` or `/mcp login locked`" in told
    assert locked.clients == {}
    assert mcp("login", "locked")[0] == 0
    (client,) = locked.clients.values()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", client["redirect_uris"][0])
    file = tmp_path / ".config/acp-coder/credentials.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "locked  ready  1 tools" in mcp("list")[1]
    for _ in range(2):  # The new refresh token is kept, too.
        locked.revoke()
        assert "locked  ready  1 tools" in mcp("list")[1]
    assert locked.grants == ["authorization_code", "refresh_token", "refresh_token"]
    assert locked.access | locked.refresh <= set(own_credentials(load_config().settings, os.environ))
    assert "removed" in mcp("logout", "locked")[1]
    assert "wants a login" in mcp("list")[1]
    assert not locked.access & set(file.read_text().split('"'))


def test_the_secret_of_a_registered_client_is_not_shown(locked: OAuthServer, mcp, tmp_path, capsys):
    file = tmp_path / ".config/acp-coder/config.toml"
    file.write_text(file.read_text() + 'client_id = "mine"\nclient_secret = "hush-hush"\n')
    told = mcp("get", "locked")[1]
    assert "client_id = mine" in told and "client_secret = (not shown)" in told and "hush" not in told
    assert main(["config", "show"]) == 0
    shown = capsys.readouterr().out
    assert 'mcp.servers.locked.client_secret = "(set)"' in shown and "hush" not in shown


def test_a_token_that_has_ended_is_refreshed_before_it_is_sent(locked: OAuthServer, mcp):
    locked.expires = 1
    assert mcp("login", "locked")[0] == 0
    locked.expires = 3600
    assert mcp("list")[0] == 0
    assert locked.grants == ["authorization_code", "refresh_token"]


@pytest.mark.parametrize(("answer", "told"), [
    ({"state": "forged"}, "State parameter mismatch"), ({"code": "", "error": "access_denied"}, "access_denied"),
])  # fmt: skip
def test_an_answer_that_is_not_the_users_yes_is_no_login(locked: OAuthServer, mcp, answer, told):
    locked.answer = answer
    status, said = mcp("login", "locked")
    assert status == 1
    assert told in said
    assert locked.access == set()


def test_only_servers_with_a_url_that_want_one_have_a_login(locked: OAuthServer, mcp):
    mcp("add", "own", "--", "true")
    assert "is a program" in mcp("login", "own")[1]
    assert "there is no server 'other'" in mcp("login", "other")[1]
    locked.access.add("given")
    mcp("add", "given", locked.url, "--header", "Authorization: Bearer given")
    assert "it wants no login" in mcp("login", "given")[1]


@pytest.mark.parametrize("named", ["client", "folder"])
async def test_what_a_session_refreshes_at_a_server_of_the_client_or_the_folder_is_redacted(
    locked: OAuthServer, mcp, tmp_path: Path, named: str
):
    for verb in ("login", "remove"):
        assert (await anyio.to_thread.run_sync(mcp, verb, "locked"))[0] == 0
    before = locked.access | locked.refresh
    locked.revoke()
    script: list[Answer | str] = ["ok", asks(Call("read", {"path": "tokens"})), "ok"]
    async with agent_rig(tmp_path, script, environ={"HOME": str(tmp_path)}) as r:
        server = acp.McpServerHttp(name="locked", url=locked.url, headers=[])
        key = acp.HttpHeader(name="Authorization", value="Bearer one-key-of-mine")
        other = acp.McpServerHttp(name="other", url="http://127.0.0.1:9/", headers=[key])
        if named == "folder":
            (r.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"locked": {"url": locked.url}}}))
        await r.editor.new_session(r.project, mcp_servers=[other, *([server] if named == "client" else [])])
        if named == "folder":
            await trust(r)
        await r.editor.prompt("go")
        assert "mcp_locked_open" in r.tool_names(1)
        fresh = (locked.access | locked.refresh) - before
        assert len(fresh) == 2
        (r.project / "tokens").write_text("\n".join(["These:", *fresh, *before, "one-key-of-mine"]))
        await r.editor.prompt("read them")
        assert "These:" in str(r.messages(3))
        assert not [word for word in (*fresh, *before, "one-key-of-mine") if word in str(r.messages(3))]


async def in_a_browser(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
    """The user opens the URL that is asked about."""
    assert isinstance(request, acp.ElicitationUrlMode)
    Thread(target=browse, args=(request.url,), daemon=True).start()
    return acp.CreateElicitationResponse(action="accept")


@pytest.mark.parametrize("urls", [True, False])
async def test_in_a_session_the_user_logs_in_by_the_clients_question_or_a_url_in_the_conversation(
    locked: OAuthServer, tmp_path: Path, urls: bool
):
    seen = tmp_path / "seen"
    config = f'[mcp.servers.locked]\nurl = "{locked.url}"\n' + hook("Notification", keeps(seen))
    async with rig(tmp_path, ["ok"], config=config, elicitation=in_a_browser if urls else None) as r:
        await r.editor.wait_for(lambda u: "wants a login" in str(getattr(u, "content", "")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(r.editor.prompt, "/mcp login locked")
            if not urls:
                await r.editor.wait_for(lambda u: "Open http" in str(getattr(u, "content", "")))
                url = r.editor.text().rpartition("Open ")[2].split()[0]
                await anyio.to_thread.run_sync(browse, url)
        assert "`locked`: ready (1 tools" in r.editor.text()
        assert len(r.editor.elicitations) == int(urls)
        notified = {line["notification_type"]: line["message"] for line in await kept(seen, 1 + int(urls))}
        assert notified.pop("auth_success") == "You are logged in at the MCP server locked"
        assert [*notified] == ["elicitation_dialog"][: int(urls)]
        await r.editor.prompt("go")
        assert "mcp_locked_open" in r.tool_names(1)


async def test_the_question_about_a_login_ends_with_it_also_if_it_failed(locked: OAuthServer, tmp_path: Path):
    locked.answer = {"code": "", "error": "access_denied"}
    async with rig(tmp_path, [], config=f'[mcp.servers.locked]\nurl = "{locked.url}"\n', elicitation=in_a_browser) as r:
        for number in (1, 2):
            assert "access_denied" in await r.says("/mcp login locked")
            told = [note["params"]["elicitationId"] for note in r.editor.lines("from_agent", "elicitation/complete")]
            assert told == [getattr(asked, "elicitation_id", "") for asked in r.editor.elicitations]
            assert len(told) == number


async def test_a_call_that_the_login_does_not_allow_is_answered_by_a_login_that_allows_more(locked, tmp_path: Path):
    locked.needs = "write"
    config = f'[mcp.servers.locked]\nurl = "{locked.url}"\n'
    script: list[Answer | str] = [
        asks(Call("mcp_locked_open", {})),
        "refused",
        asks(Call("mcp_locked_open", {})),
        "done",
    ]
    async with rig(tmp_path, script, config=config, elicitation=in_a_browser, otherwise=allow_always) as r:
        await r.editor.prompt("/mcp login locked")
        await r.editor.prompt("go")
        assert (
            "it wants a login that allows more (write): `/mcp login locked`"
            in next(iter(r.editor.tool_calls().values())).text()
        )
        await r.editor.prompt("/mcp login locked")
        await r.editor.prompt("again")
        assert "It is open." in list(r.editor.tool_calls().values())[-1].text()
    assert [*locked.scopes.values()] == ["", "write"]


@pytest.mark.parametrize("more", ["", 'client_secret = "hush-hush"\n'])
async def test_a_client_that_is_registered_already_logs_in_where_none_can_be_registered(locked, tmp_path: Path, more):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    locked.registers = False
    locked.clients["mine"] = {"redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
    about = f'url = "{locked.url}"\nclient_id = "mine"\ncallback_port = {port}\n{more}'
    async with rig(tmp_path, ["ok"], config=f"[mcp.servers.locked]\n{about}", elicitation=in_a_browser) as r:
        assert "`locked`: ready" in await r.says("/mcp login locked")
    assert locked.told == ["mine:hush-hush" if more else "mine"]
