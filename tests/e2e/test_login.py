"""`acp-coder login`: which provider, what its server says of the key, where it is kept, and that it is used."""

import json
from pathlib import Path

from acp_agent.testing.fake_model import Failure, FakeModel

from .kit import configured
from .test_cli import on_a_terminal, ran, run

GOOD, BAD = "sk-good-not-a-key", "sk-bad-not-a-key"
REFUSED = Failure(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})


class Keyed(FakeModel):
    """A server that lists its models only with the key."""

    def _told(self, request, path):
        listing = request.method == "GET" and path.endswith("/models")
        return (
            REFUSED
            if listing and request.headers.get("authorization") != f"Bearer {GOOD}"
            else super()._told(request, path)
        )


def kept(home: Path) -> dict[str, str]:
    file = home / ".config" / "acp-coder" / "credentials.json"
    return json.loads(file.read_text()) if file.exists() else {}


def two(home: Path, model: FakeModel) -> dict[str, str]:
    """A local provider, which is chosen, and one that is named."""
    text = f'[providers.here]\nbase_url = "{model.base_url}"\n[providers.keyed]\nbase_url = "{model.base_url}"\n'
    return {**configured(home, text), "OPENAI_BASE_URL": "", "OPENAI_MODEL": ""}


async def test_a_key_is_checked_with_the_server_and_one_that_it_refuses_is_not_stored(tmp_path):
    async with Keyed([]) as model:
        settings = two(tmp_path, model)
        done = await ran(model, tmp_path, "login", "keyed", stdin=f"{BAD}\n", **settings)
        assert done.returncode == 2 and kept(tmp_path) == {}
        assert 'keyed refused the API key (HTTP 401): "Incorrect API key provided". Nothing was stored' in done.stderr
        done = await ran(model, tmp_path, "login", "--unchecked", "keyed", stdin=f"{BAD}\n", **settings)
        assert done.returncode == 0 and kept(tmp_path) == {"keyed": BAD}
        done = await ran(model, tmp_path, "login", "--provider", "keyed", stdin=f"{GOOD}\n", **settings)
        assert done.returncode == 0 and kept(tmp_path) == {"keyed": GOOD}
        first, second = done.stderr.splitlines()
        file = tmp_path / ".config" / "acp-coder" / "credentials.json"
        assert first == f"The key for keyed is stored in {file}. {model.base_url} accepts it, and lists 1 model."
        assert second.startswith("New sessions begin with here; `--model keyed:MODEL` uses keyed once")


async def test_what_cannot_be_checked_is_stored_and_that_is_said(tmp_path):
    async with FakeModel([]) as model:
        settings = two(tmp_path, model)
        cases = {
            "lists its models without a key, too": model.models,
            "does not serve this URL (HTTP 404)": Failure(404, {"error": {"message": "no such path"}}),
            "refused the API key (HTTP 403)": Failure(403, {"error": {"message": "Missing scopes: model.read"}}),
        }
        for number, (words, model.models) in enumerate(cases.items()):
            done = await ran(model, tmp_path, "login", "keyed", stdin=f"{GOOD}{number}\n", **settings)
            assert done.returncode == 0 and "It was not checked: " in done.stderr and words in done.stderr
            assert kept(tmp_path) == {"keyed": f"{GOOD}{number}"}
    done = run(tmp_path, "login", "keyed", stdin=f"{GOOD}\n", **settings)
    assert done.returncode == 0 and "It was not checked: keyed: no server listens at" in done.stderr


async def test_at_a_terminal_a_provider_is_picked_and_a_refused_key_asked_about(tmp_path):
    async with Keyed([]) as model:
        settings = two(tmp_path, model)
        cues = (("or a name: ", "keyed\n"), ("API key for keyed: ", f"{BAD}\n"), ("y/N: ", "\n"))
        status, shown = await on_a_terminal(model, tmp_path, ["login"], *cues, **settings)
        assert status == 2 and "nothing was stored" in shown and kept(tmp_path) == {}
        assert "  1. anthropic" in shown and "https://openrouter.ai/api/v1" in shown and BAD not in shown
        cues = (("or a name: ", "99\nnope\n"), ("or a name: ", ""), ("or a name: ", "1\n"), ("for anthropic: ", "\n"))
        status, shown = await on_a_terminal(model, tmp_path, ["login"], *cues, **settings)
        assert "'nope' is not in the configuration" in shown and "no key given" in shown and status == 2


async def test_the_known_providers_are_listed_for_programs(tmp_path):
    done = run(tmp_path, "login", "--list", GROQ_API_KEY="x")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0] == "anthropic  https://api.anthropic.com/v1"
    assert "groq  https://api.groq.com/openai/v1 (has a key: environment variable GROQ_API_KEY)" in lines


async def test_a_stored_key_of_a_known_provider_is_used_beside_configured_ones(tmp_path):
    async with FakeModel(["from here", "from the known one"]) as model:
        settings = {**two(tmp_path, model), "ANTHROPIC_BASE_URL": model.base_url}
        done = await ran(model, tmp_path, "login", "anthropic", stdin=f"{GOOD}\n", **settings)
        assert "New sessions begin with here; `--model anthropic:MODEL` uses anthropic once" in done.stderr
        assert (await ran(model, tmp_path, "-p", "hi", **settings)).stdout == "from here\n"
        done = await ran(model, tmp_path, "-p", "-m", "anthropic:fake-model", "hi", **settings)
        assert done.stdout == "from the known one\n", done.stderr
        assert model.requests[1].headers["x-api-key"] == GOOD and model.requests[1].body["model"] == "fake-model"
