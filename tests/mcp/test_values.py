"""Names, specs, arguments and content: tables, without a server."""

import base64
import re
import subprocess
import sys
from itertools import permutations
from typing import get_args

import pytest

from acp_agent.config.mcp_settings import McpServerConfig
from acp_agent.errors import AgentError, ConfigError
from acp_agent.mcp import base as mcp
from acp_agent.mcp.content import read_content, read_result, readable
from acp_agent.mcp.names import unique_names
from acp_agent.schema.acp import EnvVariable, HttpHeader, McpServerHttp, McpServerSse, McpServerStdio


@pytest.mark.parametrize(("server", "tool", "name"), [
    ("github", "create_issue", "mcp_github_create_issue"), ("my server", "a.b/c", "mcp_my_server_a_b_c"),
    ("files-2", "read-it", "mcp_files-2_read-it"), ("größe", "naïve", "mcp_gr__e_na_ve"), ("", "", "mcp__"),
    ("s", "\ud800\n", "mcp_s___"), ("s", "t" * 58, "mcp_s_" + "t" * 58),
])  # fmt: skip
def test_a_name_is_one_that_models_accept(server, tool, name):
    assert unique_names([(server, tool)]) == {(server, tool): name}


def test_names_are_unique_whatever_their_length_and_order():
    pairs = [("s", "t" * 59), ("s", "t" * 300), ("s" * 300, "t")]
    names = unique_names(pairs)
    assert len(set(names.values())) == 3
    assert all(len(name) == 64 and re.search(r"_[0-9a-f]{8}$", name) for name in names.values())
    pairs = [("a", "b_c"), ("a_b", "c"), ("a.b", "c"), ("other", "c")]
    results = [unique_names(order) for order in permutations(pairs)]
    assert all(result == results[0] for result in results) and len(set(results[0].values())) == 4
    assert results[0]["other", "c"] == "mcp_other_c"
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in results[0].values())


def test_the_servers_of_a_client_are_read():
    stdio = McpServerStdio(name="s", command="npx", args=["-y"], env=[EnvVariable(name="A", value="1")])
    headers = [HttpHeader(name="k", value="v")]
    assert mcp.from_acp(stdio) == mcp.ServerSpec("s", "stdio", "npx", ("-y",), {"A": "1"})
    http = McpServerHttp(name="h", url="http://x", headers=headers)
    assert mcp.from_acp(http) == mcp.ServerSpec("h", "http", url="http://x", headers={"k": "v"})
    assert mcp.from_acp(McpServerSse(name="e", url="http://x", headers=[])) == mcp.ServerSpec(
        "e", "sse", url="http://x"
    )


@pytest.mark.parametrize(("config", "spec"), [
    (McpServerConfig(command="x", args=["y"], env={"A": "1"}), mcp.ServerSpec("n", "stdio", "x", ("y",), {"A": "1"})),
    (McpServerConfig(url="http://x", headers={"k": "v"}),
     mcp.ServerSpec("n", "http", url="http://x", headers={"k": "v"})),
    (McpServerConfig(url="http://x", transport="sse"), mcp.ServerSpec("n", "sse", url="http://x")),
    (McpServerConfig(), "`url` is not set"), (McpServerConfig(command="x", transport="http"), "`url` is not set"),
    (McpServerConfig(url="http://x", transport="stdio"), "`command` is not set"),
])  # fmt: skip
def test_the_servers_of_a_configuration_are_read(config, spec):
    if isinstance(spec, mcp.ServerSpec):
        assert mcp.from_config("n", config) == spec
    else:
        with pytest.raises(ConfigError, match=spec):
            mcp.from_config("n", config)


def test_the_clients_servers_take_the_place_of_configured_ones():
    client = [McpServerStdio(name="a", command=c, args=[], env=[]) for c in ("one", "two")]
    config = {
        "a": McpServerConfig(command="other"), "b": McpServerConfig(command="b"),
        "off": McpServerConfig(command="off", enabled=False), "wrong": McpServerConfig(),
    }  # fmt: skip
    specs, troubles = mcp.gather(client, config)
    assert [(spec.name, spec.command) for spec in specs] == [("a", "one"), ("a-2", "two"), ("b", "b")]
    assert [name for name, _ in troubles] == ["wrong"]
    specs, troubles = mcp.gather(client, config, programs=False)
    assert [(spec.name, spec.command) for spec in specs] == [("a", "other"), ("b", "b")]
    assert [name for name, _ in troubles] == ["a", "a", "wrong"]


def test_every_code_has_a_category():
    assert set(mcp.TOOL_CATEGORIES) == set(get_args(mcp.McpErrorCode))
    assert isinstance(mcp.McpError("transient", "x"), AgentError)


NONE = mcp.McpPrompt("s", "p", "", "")
ONE = mcp.McpPrompt("s", "p", "", "", (mcp.PromptArgument("topic", required=True),))
TWO = mcp.McpPrompt("s", "p", "", "", (mcp.PromptArgument("a", required=True), mcp.PromptArgument("b")))


@pytest.mark.parametrize(("prompt", "text", "given"), [
    (NONE, "", {}), (NONE, "too much", "takes 0 arguments"), (ONE, " all of it's text ", {"topic": "all of it's text"}),
    (ONE, "topic=x", {"topic": "x"}), (ONE, "", "needs topic"), (TWO, "x 'y z'", {"a": "x", "b": "y z"}),
    (TWO, "b=1 x", {"a": "x", "b": "1"}), (TWO, "b=1", "needs a"), (TWO, "'x", "unclosed quote"),
    (TWO, "c=3 x y", "takes 2 arguments"),
])  # fmt: skip
def test_text_behind_a_command_becomes_arguments(prompt, text, given):
    if isinstance(given, dict):
        assert mcp.prompt_arguments(prompt, text) == given
    else:
        with pytest.raises(mcp.McpError, match=given) as error:
            mcp.prompt_arguments(prompt, text)
        assert error.value.code == "invalid_input"


@pytest.mark.parametrize(("text", "shown"), [
    ("plain\ttext\n", "plain\ttext\n"), ("a\r\nb", "a\nb"), ("\x1b[1;31mred\x1b[0m\x1b]0;title\x07", "red"),
    ("half \ud800", "half ?"), ("one\x00nul", "onenul"),
    ("\x00\x01\x02" * 100, "[300 characters of binary data are not shown]"),
])  # fmt: skip
def test_text_is_made_readable(text, shown):
    assert readable(text) == shown


IMAGE = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(300)).decode()}


@pytest.mark.parametrize(("block", "shown"), [
    ({**IMAGE, "mimeType": "image/tiff"}, "image, image/tiff: cannot be shown"),
    ({**IMAGE, "data": "no base64!"}, "image, image/png: cannot be shown"),
    ({"type": "hologram"}, "content of type hologram cannot be shown"),
    ({"type": "resource_link", "name": "n", "uri": "u", "description": "d\nd"}, "[resource] n: u (d d)"),
])  # fmt: skip
def test_what_cannot_be_shown_is_named(block, shown):
    text, images = read_content([block], 1000)
    assert shown in text and not images


def test_a_result_is_bounded_as_a_whole_and_has_a_text():
    blob = {"type": "resource", "resource": {"uri": "u", "mimeType": "image/png", "blob": IMAGE["data"]}}
    assert read_content([blob], 1000)[1] == read_content([IMAGE], 1000)[1] != ()
    text = {"type": "text", "text": "ü" * 600}
    result = read_result({"content": [IMAGE, text, text, IMAGE], "structuredContent": {"x": "y" * 2000}}, 1000)
    assert len(result.parts) == 1 and len(result.text) < 600
    assert result.text.count("more bytes of the result are not shown") == 2
    assert "[an image of 300 bytes is too large and not shown]" in result.text and result.structured is None
    assert read_result({"content": [], "structuredContent": {"ä": 1}}, 1000).text == '{"ä": 1}'
    link = {"type": "resource_link", "uri": "x:y", "name": "n"}
    assert read_result({"content": [link] * 53}, 1000).text.endswith("\n[3 more links are not shown]")
    both = read_result({"content": [{"type": "text", "text": "x"}], "structuredContent": [1]}, 1000)
    assert (both.text, both.structured) == ("x", [1])


def test_the_package_is_not_loaded_before_there_is_a_server():
    code = "import sys, acp_agent.mcp.mcp_servers; print([name for name in ('mcp', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("one", "other", "same"), [
    ("http://localhost:1/mcp?sig=a", "http://localhost:2/mcp?sig=b", True), ("http://[::1]:1/", "http://[::1]/", True),
    ("http://localhost:1/a", "http://localhost:1/b", False), ("https://a.example:1/", "https://a.example:2/", False),
])  # fmt: skip
def test_an_address_is_the_same_server_whatever_port_this_machine_gave_it(one, other, same):
    assert (mcp.ServerSpec("s", "http", url=one).digest() == mcp.ServerSpec("s", "http", url=other).digest()) == same
