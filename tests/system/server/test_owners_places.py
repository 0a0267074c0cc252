"""The commands of two owners run in two containers."""

import json
from pathlib import Path

import pytest

from acp_agent.testing.fake_model import Answer, Call
from tests import containers
from tests.fronts.server.test_owners import AUTO, results
from tests.fronts.server.test_server import editor, served


def places() -> str:
    if why := containers.missing():
        pytest.skip(why)
    found = AUTO
    for owner, fruit in (("me", "papaya"), ("other", "quince")):
        arguments = json.dumps([*containers.ARGUMENTS, "--env", f"FRUIT={fruit}"])
        found += f'[places.{fruit}]\nimage = "{containers.WITH_BASH}"\narguments = {arguments}\n'
        found += f'[server.owners.{owner}]\nplace = "{fruit}"\n'
    return found


async def test_the_commands_of_two_owners_run_in_two_places_and_nowhere_else(tmp_path: Path) -> None:
    look = Call("bash", {"command": "echo the fruit: $FRUIT"})
    script = [part for _ in range(2) for part in (Answer(tool_calls=(look,)), Answer(text="ok"))]
    async with served(tmp_path, script, config=places()) as place:
        for token, fruit in ((place.token, "papaya"), (place.identities.add("other"), "quince")):
            async with editor(place, token) as made:
                session = await made.new_session(place.project)
                assert "place" not in [option.id for option in session.config_options or ()]
                (said,) = await results(place, made)
                assert f"the fruit: {fruit}" in said
                for elsewhere in ("local", "papaya", "quince", "container:x:/"):
                    if elsewhere != fruit:
                        await made.prompt(f"/place {elsewhere}")
                        assert f"only '{fruit}' can be had" in made.text()
                tools = {tool["function"]["name"]: tool["function"] for tool in place.model.requests[-1].body["tools"]}
                assert "place" not in tools["bash"]["parameters"]["properties"]
