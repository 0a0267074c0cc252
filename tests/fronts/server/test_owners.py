"""What the configuration says of single owners: where their commands run, and their model."""

import asyncio
import json
from argparse import Namespace
from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.commands.verify_audit import run
from acp_agent.config.load import load_config
from acp_agent.config.xdg import state_dir
from acp_agent.errors import ConfigError, UsageError
from acp_agent.schema.acp import McpServerStdio
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.server.test_server import Place, editor, served

AUTO = '[agent]\nmode = "auto"\n'


async def results(place: Place, made: FakeEditor) -> list[str]:
    """Of all tool calls in the last request to the model."""
    await made.prompt("go")
    return [each["content"] for each in place.model.requests[-1].body["messages"] if each["role"] == "tool"]


async def test_no_program_that_a_client_names_is_started_for_who_is_kept_in_a_place(tmp_path: Path) -> None:
    kept = AUTO + '[server.owners.kept]\nplace = "container:no-such"\n'
    async with served(tmp_path, ["ok"] * 2, config=kept) as place:
        for owner, starts in (("me", True), ("kept", False)):
            program = McpServerStdio(name="x", command="/bin/touch", args=[str(tmp_path / owner)], env=[])
            async with editor(place, place.token if owner == "me" else place.identities.add(owner)) as made:
                await made.new_session(place.project, mcp_servers=[program])
                await made.prompt("go")
            assert (tmp_path / owner).exists() == starts


async def test_no_program_that_a_folder_names_is_started_for_who_is_kept_in_a_place(tmp_path: Path) -> None:
    kept = AUTO + '[server.owners.kept]\nplace = "container:no-such"\n'
    async with served(tmp_path, ["ok"] * 2, config=kept) as place:
        (own := place.project / ".acp-coder").mkdir()
        for owner, starts in (("me", True), ("kept", False)):
            made = tmp_path / owner
            (own / "config.toml").write_text(f'[mcp.servers.x]\ncommand = "/bin/touch"\nargs = ["{made}"]\n')
            async with editor(place, place.token if owner == "me" else place.identities.add(owner)) as first:
                await first.new_session(place.project)
                for word in ("/trust", "/trust yes"):
                    await first.prompt(word)
                assert ("Trusted and loaded" in first.text()) == starts
                await first.new_session(place.project)
                await first.prompt("go")
            assert made.exists() == starts


async def test_no_answer_lets_file_tools_out_of_the_folders_of_a_session(tmp_path: Path) -> None:
    (theirs := tmp_path / "theirs").mkdir()
    (theirs / "secret").write_text("tangerine")
    calls = Call("read", {"path": f"{theirs}/secret"}), Call("write", {"path": f"{theirs}/made", "content": "x"})
    script = [Answer(tool_calls=calls), Answer(text="ok")]
    async with served(tmp_path, script, config=AUTO) as place, editor(place, permissions=[allow_once] * 2) as made:
        await made.new_session(place.project)
        said = await results(place, made)
        assert len(said) == 2 and all("is outside this session's folders" in each for each in said)
        assert not made.permission_requests
    assert [each.name for each in theirs.iterdir()] == ["secret"]


async def test_a_model_of_theirs_is_that_of_new_sessions_and_an_unknown_place_told_at_the_start(tmp_path: Path) -> None:
    async with served(tmp_path, config='[server.owners.me]\nmodel = "default/theirs"\n') as place:
        assert place.server.opening("me").config().settings.agent.model == "default/theirs"
        assert place.server.opening("other").config().settings.agent.model != "default/theirs"
    (file := tmp_path / "config.toml").write_text('[places.web]\nimage = "x"\n[server.owners.anna]\nplace = "wbe"\n')
    with pytest.raises(ConfigError) as caught:
        load_config({"ACP_CODER_CONFIG": str(file)})
    words = "`server.owners.anna.place`: 'wbe' is not in the configuration; configured: local, web"
    assert str(caught.value) == f"{file}:4: {words}"


async def test_each_owners_audit_log_names_the_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look = Call("bash", {"command": "echo it"})
    script = [part for _ in range(3) for part in (Answer(tool_calls=(look,)), Answer(text="ok"))]
    async with served(tmp_path, script, config=AUTO) as place:
        tokens = {"me": place.token, "phone": place.identities.add("phone", owner="me")}
        tokens["other"] = place.identities.add("other")
        for token in tokens.values():
            async with editor(place, token) as made:
                await made.new_session(place.project)
                await made.prompt("go")
        environ = place.environ
    logs = Path(state_dir(environ)) / "owners"
    for owner, names in (("me", {"me", "phone"}), ("other", {"other"})):
        lines = [json.loads(line) for line in (logs / owner / "audit.jsonl").read_text().splitlines()]
        assert {line["token"] for line in lines if "tool" in line} == names
        assert not [line for line in lines if "unrecorded" in line]
        assert await verified(owner, environ) == 0
        assert f"ok, {len(lines)} lines" in capsys.readouterr().out
    with pytest.raises(UsageError, match="no audit log of an owner"):
        await verified("nobody", environ)
    (logs / "me" / "audit.jsonl").write_text("")
    assert await verified("me", environ) == 1


async def verified(owner: str, environ: dict[str, str]) -> int:
    return await asyncio.to_thread(run, Namespace(verb="verify", owner=owner), environ)
