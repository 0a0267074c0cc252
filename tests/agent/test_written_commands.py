"""Slash commands and sub-agents that are written down in Markdown files."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.lazy import load
from acp_agent.loop.prompts.front_matter import YAML, YAML_LOADER, _plain, read_front_matter
from acp_agent.loop.prompts.library import BUILT_IN, REVIEWER, Library
from acp_agent.loop.prompts.written_agents import read_agent
from acp_agent.loop.prompts.written_commands import MAX_COMMANDS, WrittenCommand
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import AvailableCommandsUpdate
from acp_agent.testing.fake_model import Answer, Call
from tests.repositories import repository

from .kit import asks, bash, put, puts, rig, rounds, trust, went


def prompt(r, number: int = 1) -> str:
    """What the model reads as the user's prompt."""
    content = next(message["content"] for message in reversed(r.messages(number)) if message["role"] == "user")
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def titles(r) -> list[str]:
    return [call.title for call in r.editor.tool_calls().values()]


FIX = """---
description: Fix an issue
argument-hint: number [words]
---
Fix issue $1 ($ARGUMENTS).
Notes: @notes.txt
State: !`echo state of $1`
Write to someone@example.com or @nobody.
"""


async def test_a_command_is_the_prompt_it_stands_for(tmp_path):
    puts(tmp_path, {"project/.agents/commands/fix.md": FIX, "project/notes.txt": "careful\n"})
    async with went(tmp_path, ["done"], mode="auto", prompt='/fix 12 "and more"') as r:
        text = prompt(r)
        assert 'Fix issue 12 (12 "and more").' in text and "careful" in text and "State: state of 12" in text
        assert "Write to someone@example.com or @nobody." in text
        assert titles(r) == ["Read notes.txt", "echo state of 12"]
        r.editor.assert_tool_calls_finished()


async def test_commands_are_listed_with_their_hints_the_project_behind_yours(tmp_path):
    puts(tmp_path, {"project/.agents/commands/fix.md": FIX, "project/.agents/commands/git/tidy.md": "Tidy up"})
    for name in ("help", "Help", "hеlp", "UNDO", "Review"):  # The third with a Cyrillic letter.
        put(tmp_path / f"project/.agents/commands/{name}.md", "Never")
    put(tmp_path / "home/.config/acp-coder/commands/mine.md", "Do it my way")
    put(tmp_path / "home/.config/acp-coder/commands/git/tidy.md", "My tidying")
    async with went(tmp_path, ["done"], prompt="/git:tidy") as r:
        update = next(
            each for each in r.editor.updates[r.editor.session_id] if isinstance(each, AvailableCommandsUpdate)
        )
        listed = {each.name: each for each in update.available_commands}
        assert listed["fix"].description == "Fix an issue (project)"
        assert listed["fix"].input.hint == "number [words]"
        assert listed["mine"].description == "Do it my way (yours)"
        assert listed["help"].description == "List the commands"
        assert BUILT_IN.keys() <= listed.keys()
        assert not {"Help", "hеlp", "UNDO", "Review"} & listed.keys()
        assert prompt(r) == "My tidying"


async def test_commands_in_a_command_are_judged_as_any_and_the_prompt_says_what_was_not_run(tmp_path):
    put(tmp_path / "project/.agents/commands/make.md", "Made: !`touch made`\nRead: @/etc/passwd")
    async with went(tmp_path, ["one", "two"], permissions=[reject_once], prompt="/make") as r:
        assert [request.tool_call.title for request in r.editor.permission_requests] == ["touch made"]
        assert not (r.project / "made").exists()
        assert "The user did not allow this call" in prompt(r) and "outside this session's folders" in prompt(r)
        assert "root:" not in prompt(r)


async def test_a_read_only_mode_runs_no_command(tmp_path):
    put(tmp_path / "project/.agents/commands/make.md", "Made: !`touch made`")
    async with went(tmp_path, ["one"], mode="ask", prompt="/make") as r:
        assert not (r.project / "made").exists()
        assert "is not available in the mode `ask`" in prompt(r)


async def test_arguments_are_text_and_never_name_commands_or_files(tmp_path):
    put(tmp_path / "project/.agents/commands/say.md", "Say: $ARGUMENTS")
    puts(tmp_path, {"project/.agents/commands/plain.md": "Say it.", "project/notes.txt": "careful\n"})
    async with went(tmp_path, ["one", "two"], mode="auto", prompt="/say !`touch made` @notes.txt $1") as r:
        assert prompt(r) == "Say: !`touch made` @notes.txt $1"
        await r.editor.prompt("/plain and !`touch made`")
        assert prompt(r, 2) == "Say it.\n\nArguments: and !`touch made`"
        assert not (r.project / "made").exists()
        assert titles(r) == []


ALLOWS = """---
allowed-tools: Bash(touch:*), Write
---
Go on.
"""
DOES = [
    bash("touch a"), bash("touch b; mkdir c"), bash("touch d > /tmp/x-$$"),
    Call("write", {"path": "e", "content": "x"}), Call("write", {"path": ".git/hooks/pre-commit", "content": "x"}),
]  # fmt: skip


async def test_allowed_tools_of_your_own_commands_need_no_question_in_their_turn(tmp_path):
    put(tmp_path / "home/.config/acp-coder/commands/go.md", ALLOWS)
    script = [*rounds(*DOES), *rounds(bash("touch f"))]
    async with went(tmp_path, script, permissions=[reject_once] * 5, prompt="/go") as r:
        assert [request.tool_call.title for request in r.editor.permission_requests] == [
            "touch b; mkdir c", "touch d > /tmp/x-$$", "Write .git/hooks/pre-commit",
        ]  # fmt: skip
        assert sorted(path.name for path in r.project.iterdir()) == ["a", "e"]
        await r.editor.prompt("and on")
        assert r.editor.permission_requests[-1].tool_call.title == "touch f"


async def test_allowed_tools_of_a_project_that_is_not_trusted_and_a_wider_mode_count_for_nothing(tmp_path):
    put(tmp_path / "project/.agents/commands/go.md", ALLOWS)
    put(tmp_path / "home/.config/acp-coder/commands/wide.md", "---\nmode: auto\n---\nGo.\n")
    async with went(tmp_path, rounds(DOES[0]) * 2, permissions=[reject_once] * 2, prompt="/go") as r:
        assert len(r.editor.permission_requests) == 1
        await r.editor.prompt("/wide")
        assert len(r.editor.permission_requests) == 2


async def test_what_a_folder_has_for_other_agents_counts_once_it_is_trusted(tmp_path):
    put(tmp_path / "project/.claude/commands/go.md", ALLOWS)
    put(tmp_path / "project/.claude/agents/scout.md", "---\ndescription: Scouts\n---\nScout ahead.\n")
    async with went(tmp_path, rounds(DOES[0]), prompt="/go") as r:
        assert "There is no command `/go`." in r.editor.text()
        assert not r.editor.permission_requests and not r.model.requests
        await trust(r)
        await r.editor.prompt("/go")
        assert prompt(r) == "Go on."
        assert not r.editor.permission_requests
        assert "- `scout`: Scouts" in r.context(1)
        (r.project / ".claude/commands/go.md").write_text("Something else")
        await r.editor.new_session(r.project)
        before = len(r.model.requests)
        await r.editor.prompt("/go")
        assert r.editor.text().endswith("The model was not asked.") and len(r.model.requests) == before


async def test_a_command_names_its_model_and_its_mode_for_its_turn_only(tmp_path):
    put(tmp_path / "project/.agents/commands/look.md", "---\nmodel: default/other-model\nmode: ask\n---\nLook.\n")
    put(tmp_path / "project/.agents/commands/odd.md", "---\nmodel: sonnet\nmode: turbo\nagent: nobody\n---\nLook.\n")
    config = '[providers.default]\nmodels = ["fake-model", "other-model"]\n'
    async with went(tmp_path, ["one", "two", "three"], mode="auto", config=config, prompt="/look") as r:
        assert r.request(1)["model"] == "other-model"
        assert "bash" not in r.tool_names(1)
        await r.editor.prompt("next")
        assert r.request(2)["model"] == "fake-model"
        assert "bash" in r.tool_names(2)
        await r.editor.prompt("/odd")
        for words in ("names the model `sonnet`", "names the mode `turbo`", "names the sub-agent `nobody`"):
            assert words in r.editor.text()
        assert r.request(3)["model"] == "fake-model"


# --- sub-agents --------------------------------------------------------------------------------------------------

SCOUT = """---
name: scout
description: Finds things
tools: Read, Grep
model: default/other-model
---
You are the scout. Be quick.
"""


async def test_a_sub_agent_has_its_own_instructions_tools_and_model(tmp_path):
    put(tmp_path / "project/.agents/agents/scout.md", SCOUT)
    config = '[providers.default]\nmodels = ["fake-model", "other-model"]\n'
    call = Call("delegate", {"prompt": "Find it.", "agent": "scout"})
    async with went(tmp_path, [asks(call), "Here.", "done"], config=config) as r:
        assert "can name (`agent`):\n- `scout`: Finds things" in r.context()
        assert r.request(2)["model"] == "other-model"
        assert "You are the scout. Be quick." in r.messages(2)[0]["content"]
        assert r.tool_names(2) == {"read", "grep"}
        assert r.editor.tool_call().title == "Sub-agent scout: Find it."


async def test_a_sub_agent_is_named_in_a_prompt_and_one_that_is_not_there_is_an_error(tmp_path):
    put(tmp_path / "project/.agents/agents/scout.md", SCOUT)
    call = Call("delegate", {"prompt": "Find it.", "agent": "spy"})
    async with went(tmp_path, [asks(call), "done"], prompt="@scout find it, and write to me@scout") as r:
        assert 'call `delegate` with `agent`: "scout"' in prompt(r).replace('\\"', '"')
        assert "There is no sub-agent `spy`. There are: `scout`." in r.messages(2)[-1]["content"]
        assert "- `scout`: Finds things (project)" in await r.says("/agents")


async def test_without_sub_agents_of_a_project_the_request_is_as_ever(tmp_path):
    async with went(tmp_path, ["one"], prompt="@reviewer hello") as r:
        assert prompt(r) == "@reviewer hello"
        assert "Sub-agents" not in r.context()


async def test_a_sub_agent_with_a_narrower_mode_gets_tools_that_only_read(tmp_path):
    put(tmp_path / "project/.agents/agents/scout.md", "---\npermissionMode: plan\n---\nLook.\n")
    call = Call("delegate", {"prompt": "Find it.", "agent": "scout"})
    async with went(tmp_path, [asks(call), "Here.", "done"], mode="auto") as r:
        assert "read" in r.tool_names(2)
        assert not {"bash", "write", "edit"} & r.tool_names(2)


# --- the agent's own ---------------------------------------------------------------------------------------------


async def test_init_asks_for_an_agents_file(tmp_path):
    async with rig(tmp_path, rounds(Call("write", {"path": "AGENTS.md", "content": "# Build\n"}))) as r:
        await r.editor.prompt("/init the tests")
        assert "Write `AGENTS.md`" in prompt(r) and prompt(r).endswith("the tests")
        assert (r.project / "AGENTS.md").exists()


async def test_commit_shows_what_is_there_and_asks_before_it_commits(tmp_path):
    repository(tmp_path / "project", "The first")
    put(tmp_path / "project/new.txt", "x")
    commit = bash("git add new.txt && git commit -qm 'Add new'")
    async with went(tmp_path, rounds(commit), permissions=[allow_once], prompt="/commit") as r:
        assert "?? new.txt" in prompt(r) and "The first" in prompt(r)
        assert [request.tool_call.title for request in r.editor.permission_requests] == [commit.arguments["command"]]


async def test_a_review_is_done_by_a_sub_agent_and_its_findings_have_places(tmp_path):
    repository(tmp_path / "project", "The first")
    put(tmp_path / "project/src/app.py", "x = 1\ny = 2\n")
    found = "src/app.py:2: error: y is wrong.\n    It should be 3.\nsrc/gone.py:9: warning: not there\n\nI read it."
    async with went(tmp_path, [found, "Two findings."], prompt="/review uncommitted") as r:
        assert "You review changes that others made" in r.messages(1)[0]["content"]
        assert '"uncommitted"' in prompt(r)
        assert "write" not in r.tool_names(1)
        call = r.editor.tool_call()
        call.assert_finished("completed")
        assert call.title == "Sub-agent reviewer: /review"
        assert [(Path(each.path).name, each.line) for each in call.locations] == [("app.py", 2)]
        assert call.meta["findings"] == [
            {"path": str(r.project / "src/app.py"), "line": 2, "severity": "error", "message": "y is wrong."}
        ]
        assert r.messages(2)[-1]["role"] == "tool" and "y is wrong" in r.messages(2)[-1]["content"]
        assert r.editor.text().endswith("Two findings.")


# --- parts -------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="ab $@!`1/.ARGUMENTS\n"), st.text(alphabet="ab $@!`'\""))
def test_never_is_an_argument_a_command_or_a_file_of_its_own(body, arguments):
    command = WrittenCommand("c", "", "", body)
    bare = command.pieces("")
    full = command.pieces(arguments)
    assert [piece.kind for piece in full if piece.kind != "text"] == [
        piece.kind for piece in bare if piece.kind != "text"
    ]


def test_a_command_with_commands_without_end_and_thousands_of_places_is_bounded():
    pieces = WrittenCommand("c", "", "", "!`a` " * 50).pieces("")
    assert sum(piece.kind == "command" for piece in pieces) == MAX_COMMANDS
    pieces = WrittenCommand("c", "", "", "$ARGUMENTS " * 5_000).pieces("x" * 10_000)
    assert sum(len(piece.text) for piece in pieces) < 2_000_000


def test_no_project_has_a_command_by_the_name_of_a_plugins(tmp_path):
    put(tmp_path / "project/.agents/commands/tools/fix.md", "Evil")
    library = Library(Roots(tmp_path / "project"), tmp_path / "none", reads=True)
    library.of_plugin("tools", {"fix.md": "Good"}, {})
    command = library.command("tools:fix")
    assert command is not None
    assert command.body == "Good"


LOOSE = {
    "description: Use when: x": {"description": "Use when: x"},
    "description: `x` is: y\ntools: read, grep": {"description": "`x` is: y", "tools": "read, grep"},
    "argument-hint: [a] b\ndescription: d": {"argument-hint": "[a] b", "description": "d"},
    "description:\tx: y\ntools:\n\t- read\n\t- grep": {"description": "x: y", "tools": ["read", "grep"]},
    "description: a: b\n  goes on\nmodel: fast": {"description": "a: b\ngoes on", "model": "fast"},
    "description: |\n  a: [\n  b\ntools: [read, 'grep'": {"description": "a: [\nb", "tools": "[read, 'grep'"},
    "tools: [read, 'grep']\nx: @y": {"tools": ["read", "grep"], "x": "@y"},
    'description: "b" and: "c"\nname: \'x\'': {"description": '"b" and: "c"', "name": "x"},
    "# a remark: y\n\nname: %x": {"name": "%x"}, "a: [": {"a": "["}, f"a: {'x' * 9000}": {"a": "x" * 9000},
    f"a: {'[' * 300}": {"a": "[" * 300},
    "description: Use it. <example>user: 'x'\\nassistant: {y}</example>": {
        "description": "Use it. <example>user: 'x'\\nassistant: {y}</example>",
    },
}  # fmt: skip


@pytest.mark.parametrize(("text", "facts"), LOOSE.items())
def test_a_front_matter_that_is_no_yaml_is_read_by_its_lines(text, facts):
    front, body = read_front_matter(f"\ufeff---\n{text}\n---\nbody", "x.md")
    assert (front._facts, front.trouble, body) == (facts, "", "body")


@pytest.mark.parametrize("text", ["- a", "tools read\ndescription: a: b", "x: y: z\nno key here", "x: y: z\nx: again"])
def test_a_line_of_it_that_says_nothing_is_trouble(text):
    front, body = read_front_matter(f"---\n{text}\n---\nbody", "x.md")
    assert "this line says nothing" in front.trouble
    assert body == "body"


WHAT_IT_MAY = {
    "tools: read, grep\nmode: ask": (("read", "grep"), (), "ask", ""),
    "description: Use when: x\ntools: read, grep\nmode: ask": (("read", "grep"), (), "ask", ""),
    "disallowedTools: Bash, Write": (None, ("Bash", "Write"), "", ""),
    "permissionMode: plan": (None, (), "architect", ""),
    "tools: {read: true}": (None, (), "ask", "`tools` cannot be read"),
    "tools: [read, [grep]]": (None, (), "ask", "`tools` cannot be read"),
    "disallowedTools: {Bash: 1}": (None, (), "ask", "`disallowedTools` cannot be read"),
    "mode: readonly": (None, (), "ask", "there is no mode `readonly`"),
    "mode: [ask]": (None, (), "ask", "`mode` cannot be read"),
    "tools read, grep\ndescription: a: b": (None, (), "ask", "this line says nothing: tools read, grep"),
}


@pytest.mark.parametrize(("front", "may"), WHAT_IT_MAY.items())
def test_a_sub_agent_whose_front_matter_has_trouble_may_only_read(front, may):
    agent = read_agent("a", f"---\n{front}\n---\nGo.", "a.md", title="yours")
    assert agent is not None
    assert (agent.tools, agent.without, agent.mode) == may[:3]
    assert agent.trouble.endswith(may[3])


async def test_that_is_said_in_the_session_and_holds(tmp_path):
    text = "---\ndescription: Looks: here\nmode: reads\n---\nLook.\n"
    script = [Answer(tool_calls=(Call("delegate", {"task": "go", "agent": "looker"}),)), "Looked.", "Done."]
    put(tmp_path / "project/.agents/agents/looker.md", text)
    async with went(tmp_path, script, mode="auto") as r:
        assert "The sub-agent `looker` (project) may only read: there is no mode `reads`." in r.editor.text()
        offered = {tool["function"]["name"] for tool in r.model.requests[1].body["tools"]}
        assert "read" in offered
        assert offered.isdisjoint({"bash", "write", "edit", "delete_path"})


ODD = st.text(alphabet="ab1 :#'\"[]{}|>&*!%@`,-$()/~", max_size=12)


@given(st.dictionaries(st.sampled_from(["a", "b-c", "description"]), ODD, max_size=3))
@example({"a": "1:"})
@example({"a": "1 #"})
def test_plain_front_matter_is_read_as_yaml_reads_it(facts):
    text = "\n".join(f"{name}: {value}" for name, value in facts.items())
    plain = _plain(text)
    if plain is None:
        return
    assert plain == load(YAML)(text, Loader=load(YAML_LOADER)) or not text


def test_files_that_are_odd_are_left_out(tmp_path):
    commands = tmp_path / "project/.agents/commands"
    puts(commands, {"good.md": "Good", "-bad.md": "Bad name", "empty.md": "---\ndescription: x\n---\n"})
    put(commands / "notes.txt", "no Markdown")
    (commands / "out.md").symlink_to(put(tmp_path / "outside.md", "Outside"))
    (commands / "loop").symlink_to(commands)
    library = Library(Roots(tmp_path / "project"), tmp_path / "none", reads=True)
    assert [name for name, _, _ in library.offered()] == [*BUILT_IN, "good"]


def test_what_the_agent_has_of_its_own_can_be_read(tmp_path):
    library = Library(Roots(tmp_path), tmp_path, reads=False)
    for name, (description, hint) in BUILT_IN.items():
        command = library.command(name)
        assert command is not None
        assert (command.description, command.hint) == (description, hint)
    reviewer = library.agent(REVIEWER)
    assert reviewer is not None
    assert "bash" in (reviewer.tools or ())
