"""Input that no good client sends, but that still needs a readable answer."""

import pytest

from acp_agent.errors import PeerError
from tests.tables import table

from .kit import agent_rig, another, environ_for


@table("uri", ["http://[foo", "file://[x", "[", ""])
@table("kind", ["resource_link", "resource"])
async def test_an_address_that_is_none_is_text(again, uri, kind):
    block = {"type": "resource_link", "name": "n", "uri": uri}
    if kind == "resource":
        block = {"type": "resource", "resource": {"uri": uri, "text": "t"}}
    async with again(["ok"], prompt=None) as on:
        params = {"sessionId": on.editor.session_id, "prompt": [block]}
        assert (await on.editor.request("session/prompt", params))["stopReason"] == "end_turn"
        assert uri in str(on.messages(1)[-1]["content"])


@pytest.mark.parametrize("place", ["cwd", "additionalDirectories"])
@pytest.mark.parametrize("kind", ["a long name", "a long path", "a loop"])
async def test_a_folder_that_cannot_be_resolved_is_invalid_params(tmp_path, place, kind):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    folder = {
        "a long name": f"/{'x' * 300}", "a long path": "/tmp" + "/abcdefgh" * 1000,
        "a loop": str(tmp_path / "loop" / "below"),
    }[kind]  # fmt: skip
    async with agent_rig(tmp_path) as on:
        params = {"cwd": str(on.project), "mcpServers": [], "additionalDirectories": []}
        params[place] = folder if place == "cwd" else [folder]
        with pytest.raises(PeerError, match=r"\$\." + place) as error:
            await on.editor.request("session/new", params)
        assert error.value.code == -32602


async def test_a_provider_that_is_not_set_up_is_told_with_its_place(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[agent]\nprovider = "openroter"\n\n[providers.openrouter]\nbase_url = "http://localhost:9"\n')
    async with another(environ_for(tmp_path, "http://localhost:9/v1", ACP_CODER_CONFIG=str(file))) as editor:
        with pytest.raises(PeerError) as error:
            await editor.request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    assert error.value.code == -32603
    assert error.value.message == (
        f'{file}:2: `agent.provider`: unknown provider "openroter"; did you mean `openrouter`? '
        "Known: default, openrouter"
    )
