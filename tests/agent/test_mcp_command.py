"""`acp-coder mcp`: what it writes, keeps, shows and refuses."""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

from acp_agent.cli import main
from acp_agent.config.load import load_config
from acp_agent.errors import UsageError
from acp_agent.loop.toolbox.extensions import TOOL
from acp_agent.opening import open_store
from acp_agent.safety.folders.folder_trust import own_files, scope_of
from acp_agent.setup.mcp_table import with_server, without_server
from tests.mcp.kit import HERE

from .kit import environ_for, put

RAW = [sys.executable, "-S", str(HERE / "raw_server.py"), "good", ""]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("XDG_", "ACP_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    for name, value in environ_for(tmp_path, "http://127.0.0.1:9/v1").items():
        monkeypatch.setenv(name, value)
    (project := tmp_path / "project").mkdir()
    monkeypatch.chdir(project)
    return tmp_path


def mcp(capsys, *words: str) -> tuple[int, str]:
    status = main(["mcp", *words])
    told = capsys.readouterr()
    return status, told.out + told.err


def file(home: Path) -> Path:
    return home / ".config/acp-coder/config.toml"


def test_what_is_added_is_listed_shown_and_removed_and_the_rest_of_the_file_stays(home, capsys):
    before = '# mine\n[agent]\nmode = "ask" # why\n\n[mcp]\nprompt_wait = 1.0\n'
    put(file(home), before)
    assert mcp(capsys, "add", "raw", "--env", "A=secret", "--deny", "e*", "--", *RAW)[0] == 0
    assert mcp(capsys, "add", "far", "http://127.0.0.1:9/mcp", "--header", "X: secret", "--transport", "sse")[0] == 0
    servers = load_config().settings.mcp.servers
    assert (servers["raw"].command, servers["raw"].args, servers["raw"].env) == (RAW[0], RAW[1:], {"A": "secret"})
    assert (servers["far"].headers, servers["far"].transport) == ({"X": "secret"}, "sse")
    status, told = mcp(capsys, "list")
    assert status == 1
    assert "raw  ready  11 tools" in told and "far  failed  " in told
    shown = mcp(capsys, "get", "raw")[1] + mcp(capsys, "get", "far")[1]
    assert "deny = ['e*']" in shown and "secret" not in shown
    assert mcp(capsys, "remove", "far")[0] == 0
    assert mcp(capsys, "list")[0] == 0
    assert mcp(capsys, "remove", "raw")[0] == 0
    assert file(home).read_text().startswith(before)
    assert tomllib.loads(file(home).read_text())["mcp"] == {"prompt_wait": 1.0}


def test_wrong_command_lines_are_refused_and_change_nothing(home, capsys):
    mcp(capsys, "add", "raw", "--", *RAW)
    before = file(home).read_text()
    for words, told in (
        (("add", "a b", "x"), "at most 64"), (("add", "raw", "x"), "there is a server 'raw' already"),
        (("add", "far", "https://x.invalid/", "y"), "nothing follows"),
        (("add", "far", "https://x.invalid/", "--env", "A=b"), "--env"),
        (("add", "own", "--header", "A:b", "--", "x"), "--header"),
        (("add", "own", "--env", "A", "--", "x"), "'A' is not NAME=VALUE"),
        (("remove", "other"), "there is no server 'other'"), (("get", "other"), "there is no server 'other'"),
    ):  # fmt: skip
        status, said = mcp(capsys, *words)
        assert status == 2
        assert told in said
    assert file(home).read_text() == before


def test_list_tries_the_servers_of_a_folder_only_if_it_is_trusted(home, capsys):
    project = Path.cwd()
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": {"command": RAW[0], "args": RAW[1:]}}}))
    assert "There are no MCP servers" in mcp(capsys, "list")[1]
    store = open_store(load_config(), os.environ)
    store.remember(str(project), TOOL, scope_of(own_files(project)), "allow")
    store.close()
    assert "own  ready" in mcp(capsys, "list")[1]


def test_a_file_that_cannot_be_edited_safely_is_refused():
    for text in ("mcp = { prompt_wait = 1 } # a\nx = 1\n", "mcp = 1\n", "x = \n"):
        with pytest.raises(UsageError, match="nothing was changed"):
            with_server(text, "new", {"command": "c"}, "f")


def test_tables_are_edited_however_they_are_written():
    for text in (
        "", "x = 1\n", '[mcp.servers]\na = { url = "u" }\n',
        '[mcp.servers.a]\nurl = "u" # b\n[x]\n[mcp.servers.c]\nurl = "v"\n', 'mcp.servers.a.url = "u"\n',
    ):  # fmt: skip
        made = with_server(text, "new", {"command": "c", "env": {"A": 'q"'}}, "f")
        assert tomllib.loads(made)["mcp"]["servers"]["new"] == {"command": "c", "env": {"A": 'q"'}}
        for line in text.splitlines():
            assert line.partition("#")[2] in made
        again = tomllib.loads(without_server(made, "new", "f"))
        assert {"mcp": {"servers": {}}, **again} == {"mcp": {"servers": {}}, **tomllib.loads(text)}
