"""`_lsp/*`: what the agent gets from the editor's language servers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import CapabilityMissing, InvalidParams
from acp_agent.handshake import LSP_NOTIFICATIONS
from acp_agent.protocol.client import Client
from acp_agent.schema.decode import MalformedResult
from acp_agent.schema.lsp_types import METHODS, NOTIFICATIONS, Position
from acp_agent.testing.fake_editor import AnswersError, AnswersGarbage, NeverAnswers
from tests.agent.kit import Answer, Call, Rig, asks, put, rig

PLACE = {"start": {"line": 2, "character": 4}, "end": {"line": 2, "character": 9}}


def diagnostic(message: str, severity: int = 1, **more: Any) -> dict[str, Any]:
    return {"range": PLACE, "message": message, "severity": severity, **more}


def publish(rig: Rig, file: Path, *diagnostics: dict[str, Any]) -> None:
    params = {"sessionId": rig.editor.session_id, "uri": file.as_uri(), "diagnostics": list(diagnostics)}
    rig.editor.notify("_lsp/publishDiagnostics", params)


def answering(items: list[dict[str, Any]]) -> Callable[[str, dict[str, Any]], Any]:
    async def answer(method: str, params: dict[str, Any]) -> Any:
        assert method == "_lsp/diagnostics" and params["sessionId"]
        return {"items": items}

    return answer


async def prompted(rig: Rig, text: str) -> str:
    """What the model read for the prompt."""
    await rig.editor.prompt(text)
    content = rig.messages(len(rig.model.requests))[-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def test_problems_in_a_prompt_become_those_of_the_editor_errors_first(tmp_path):
    project = tmp_path / "project"
    items = [
        {
            "uri": (project / "b.py").as_uri(),
            "diagnostics": [diagnostic("unused import", 2, source="ruff", code="F401")],
        },
        {"uri": (project / "a b.py").as_uri(), "diagnostics": [diagnostic("a\nhint", 4), diagnostic("no such name")]},
        {"uri": "file:///etc/passwd", "diagnostics": [diagnostic("of another folder")]},
        {"uri": "untitled:Untitled-1", "diagnostics": [diagnostic("of no file")]},
    ]
    async with rig(tmp_path, [Answer(text="ok")], language_servers=answering(items)) as it:
        assert await prompted(it, "fix @problems please") == (
            "fix @problems please\n<diagnostics>\n"
            "a b.py:3:5: error: no such name\n"
            "a b.py:3:5: hint: a hint\n"
            "b.py:3:5: warning: unused import [ruff F401]\n"
            "</diagnostics>"
        )


@pytest.mark.parametrize(
    "text", ["mail me@diagnostics.org", "see @problems/readme", "x@problems", "@problems.md", "@diagnosticsfoo"]
)
async def test_what_only_looks_like_a_mention_asks_nobody(tmp_path, text):
    async with rig(tmp_path, [Answer(text="ok")], language_servers=answering([])) as it:
        assert await prompted(it, text) == text


@pytest.mark.parametrize("text", ["@diagnostics", "What of (@problems)?", "@problems.", "@diagnostics, please"])
async def test_a_mention_may_stand_anywhere_in_a_sentence(tmp_path, text):
    async with rig(tmp_path, [Answer(text="ok")], language_servers=answering([])) as it:
        read = await prompted(it, text)
    assert "reports no diagnostics in the folders of this session" in read


async def test_published_diagnostics_count_where_the_editor_answers_nothing(tmp_path):
    async with rig(tmp_path, [Answer(text="ok")] * 3) as it:
        assert "the tool `diagnostics`" in await prompted(it, "@diagnostics")
        publish(it, it.project / "a.py", diagnostic("first"))
        publish(it, it.project / "b.py", diagnostic("second"))
        publish(it, it.project / "a.py")  # repaired
        read = await prompted(it, "@diagnostics")
        assert "b.py:3:5: error: second" in read and "a.py" not in read


async def test_the_cache_is_bounded_and_a_saved_file_is_kept_longest(tmp_path):
    config = "[lsp]\nmax_diagnostic_files = 2\nmax_diagnostics_per_file = 1\n"
    async with rig(tmp_path, [Answer(text="ok")], config=config) as it:
        for name in ("a.py", "b.py"):
            publish(it, it.project / name, diagnostic("one"), diagnostic("two"), diagnostic("three"))
        saved = {"sessionId": it.editor.session_id, "textDocument": {"uri": (it.project / "a.py").as_uri()}}
        it.editor.notify("_lsp/didSave", saved)
        publish(it, it.project / "c.py", diagnostic("one"))
        read = await prompted(it, "@diagnostics")
        assert "b.py" not in read and "a.py:3:5: error: one" in read and "two" not in read
        assert "a.py: more than 1 diagnostics; the others are left out" in read and "c.py:3:5: error: one" in read


async def test_what_is_hidden_from_the_model_is_hidden_here(tmp_path):
    async with rig(tmp_path, [Answer(text="ok")], config='[tools.files]\ndeny_read = ["**/secret.py"]\n') as it:
        publish(it, it.project / "secret.py", diagnostic("password = 'x'"))
        assert "reports no diagnostics" in await prompted(it, "@diagnostics")


@pytest.mark.parametrize("behaviour", [AnswersError(), AnswersGarbage({"items": 3}), NeverAnswers()])
async def test_an_editor_that_fails_leaves_what_it_published(tmp_path, behaviour):
    config = "[lsp]\nrequest_timeout = 0.2\n"
    async with rig(tmp_path, [Answer(text="ok")], config=config, language_servers=answering([])) as it:
        it.editor.misbehave["_lsp/diagnostics"] = behaviour
        publish(it, it.project / "a.py", diagnostic("published"))
        assert "a.py:3:5: error: published" in await prompted(it, "@diagnostics")


@pytest.mark.parametrize("params", [
    None, 3, {}, {"sessionId": "s", "uri": 1, "diagnostics": []},
    {"sessionId": "s", "uri": "file:///x", "diagnostics": [{}]},
])  # fmt: skip
async def test_malformed_and_foreign_notifications_change_nothing(tmp_path, params):
    async with rig(tmp_path, [Answer(text="ok")]) as it:
        it.editor.notify("_lsp/publishDiagnostics", params)
        it.editor.notify("_lsp/didSave", params)
        it.editor.notify("_lsp/publishDiagnostics", {"sessionId": "unknown", "uri": "file:///x", "diagnostics": []})
        assert "the tool `diagnostics`" in await prompted(it, "@diagnostics")


async def test_switched_off_nothing_is_asked_nothing_kept_nothing_advertised(tmp_path):
    async with rig(
        tmp_path, [Answer(text="ok")], config="[lsp]\nenabled = false\n", language_servers=answering([])
    ) as it:
        assert it.editor.initialized is not None
        assert "lsp" not in (it.editor.initialized.agent_capabilities.meta or {})
        publish(it, it.project / "a.py", diagnostic("published"))
        assert "the tool `diagnostics`" in await prompted(it, "@diagnostics")


async def test_the_agent_says_what_it_reads_and_resolves(tmp_path):
    async with rig(tmp_path) as it:
        assert it.editor.initialized is not None
        lsp = (it.editor.initialized.agent_capabilities.meta or {})["lsp"]
        assert lsp["notifications"] == list(LSP_NOTIFICATIONS) == list(NOTIFICATIONS)
        assert lsp["mentions"] == ["@diagnostics", "@problems"]


# --- the client's methods -----------------------------------------------------------------------------------------

LOCATION = {"uri": "file:///p/a.py", "range": PLACE}
ANSWERS: dict[str, Any] = {
    "_lsp/diagnostics": {"items": [{"uri": "file:///p/a.py", "diagnostics": [diagnostic("x", unknown=1)]}]},
    "_lsp/hover": {"contents": {"kind": "markdown", "value": "`int`"}, "range": PLACE}, "_lsp/definition": [LOCATION],
    "_lsp/references": [LOCATION, LOCATION],
    "_lsp/documentSymbols": [
        {"name": "A", "kind": 5, "range": PLACE, "selectionRange": PLACE, "children": [{"name": "b", "kind": 6}]}
    ],
    "_lsp/workspaceSymbols": [{"name": "A", "kind": 5, "location": LOCATION, "containerName": "p"}],
    "_lsp/rename": {"changes": {"file:///p/a.py": [{"range": PLACE, "newText": "z"}]}},
}  # fmt: skip


async def call_all(client: Client) -> dict[str, Any]:
    uri = "file:///p/a.py"
    return {
        "_lsp/diagnostics": await client.diagnostics(uri), "_lsp/hover": await client.hover(uri, 2, 5),
        "_lsp/definition": await client.definition(uri, 2, 5),
        "_lsp/references": await client.references(uri, 2, 5, include_declaration=False),
        "_lsp/documentSymbols": await client.document_symbols(uri),
        "_lsp/workspaceSymbols": await client.workspace_symbols("A"),
        "_lsp/rename": await client.rename(uri, 2, 5, "z"),
    }  # fmt: skip


def client_of(it: Rig) -> Client:
    session = it.agent.sessions.get(it.editor.session_id)
    assert session is not None
    return session.client


async def test_each_method_reaches_the_editor_with_lsps_own_params_and_its_answer_is_read(tmp_path):
    asked: dict[str, dict[str, Any]] = {}

    async def answer(method: str, params: dict[str, Any]) -> Any:
        asked[method] = params
        return ANSWERS[method]

    async with rig(tmp_path, language_servers=answer) as it:
        found = await call_all(client_of(it))
        session = it.editor.session_id
    assert asked.keys() == METHODS.keys()
    assert asked["_lsp/diagnostics"] == {"sessionId": session, "uri": "file:///p/a.py"}
    at = {"sessionId": session, "textDocument": {"uri": "file:///p/a.py"}, "position": {"line": 2, "character": 5}}
    assert asked["_lsp/hover"] == asked["_lsp/definition"] == at
    assert asked["_lsp/references"] == {**at, "context": {"includeDeclaration": False}}
    assert asked["_lsp/workspaceSymbols"] == {"sessionId": session, "query": "A"}
    assert found["_lsp/diagnostics"].items[0].diagnostics[0].message == "x"
    assert found["_lsp/hover"].contents.value == "`int`"
    assert found["_lsp/definition"][0].range.start == Position(2, 4)
    assert len(found["_lsp/references"]) == 2 and found["_lsp/documentSymbols"][0].children[0].name == "b"
    assert found["_lsp/workspaceSymbols"][0].container_name == "p"
    assert asked["_lsp/rename"] == {**at, "newName": "z"}
    assert found["_lsp/rename"].changes["file:///p/a.py"][0].new_text == "z"


async def test_null_means_nothing_was_found(tmp_path):
    async def answer(method: str, params: dict[str, Any]) -> Any:
        return None

    async with rig(tmp_path, language_servers=answer) as it:
        found = await call_all(client_of(it))
    assert found.pop("_lsp/diagnostics").items == [] and found.pop("_lsp/rename").changes == {}
    assert found.pop("_lsp/hover") is None
    assert all(value == [] for value in found.values())


async def test_what_the_client_did_not_offer_is_not_asked(tmp_path):
    async with rig(tmp_path) as it:
        with pytest.raises(CapabilityMissing, match="_lsp/hover"):
            await client_of(it).hover("file:///x", 0, 0)


async def test_a_refusal_and_a_malformed_answer_are_errors_with_words(tmp_path):
    async def answer(method: str, params: dict[str, Any]) -> Any:
        if method == "_lsp/hover":
            raise InvalidParams("position: expected line and character, counted from 0")
        return [{"uri": "file:///x"}]

    async with rig(tmp_path, language_servers=answer) as it:
        client = client_of(it)
        with pytest.raises(Exception, match="counted from 0"):
            await client.hover("file:///x", -1, 0)
        with pytest.raises(MalformedResult, match=r"_lsp/definition: .*range"):
            await client.definition("file:///x", 0, 0)


async def test_the_editors_servers_are_asked_by_the_tools_and_a_rename_is_one_change_of_several_files(tmp_path):
    put((project := tmp_path / "project") / "a.py", "def old():\n    pass\n")
    (project / "b.py").write_text("from a import old\n")

    def change(line: int, start: int) -> dict[str, Any]:
        place = {"start": {"line": line, "character": start}, "end": {"line": line, "character": start + 3}}
        return {"range": place, "newText": "new"}

    async def answer(method: str, params: dict[str, Any]) -> Any:
        if method == "_lsp/rename":
            assert params["position"] == {"line": 0, "character": 4}
            return {
                "changes": {(project / "a.py").as_uri(): [change(0, 4)], (project / "b.py").as_uri(): [change(0, 14)]}
            }
        return {"items": []} if method == "_lsp/diagnostics" else []

    script = [asks(Call("rename", {"path": "a.py", "symbol": "old", "new_name": "new"})), Answer(text="done")]
    async with rig(tmp_path, script, language_servers=answer, mode="auto", config="[lsp]\nown_servers = false\n") as it:
        await it.editor.prompt("go")
        assert it.editor.tool_call().status == "completed"
    assert (project / "a.py").read_text() == "def new():\n    pass\n"
    assert (project / "b.py").read_text() == "from a import new\n"


async def test_the_errors_that_an_edit_brought_about_are_those_that_the_editor_did_not_have_before(tmp_path):
    put((project := tmp_path / "project") / "a.py", "one = 1\n")
    now: list[dict[str, Any]] = [diagnostic("was there before")]

    async def answer(method: str, params: dict[str, Any]) -> Any:
        return {"items": [{"uri": (project / "a.py").as_uri(), "diagnostics": now}]}

    async def after_the_write(it: Rig) -> None:
        while (project / "a.py").read_text() != "one = two\n":
            await anyio.sleep(0.01)
        now.append(diagnostic("two is not defined", source="ty"))
        publish(it, project / "a.py", *now)

    edit = Call("edit", {"path": "a.py", "old_string": "one = 1", "new_string": "one = two"})
    script = [asks(edit), Answer(text="done")]
    async with rig(tmp_path, script, language_servers=answer, mode="auto") as it, anyio.create_task_group() as tasks:
        tasks.start_soon(after_the_write, it)
        await it.editor.prompt("go")
        (told,) = [item["content"] for item in it.messages(2) if item["role"] == "tool"]
    assert "1 new error after this change:" in told
    assert "two is not defined [ty]" in told and "was there before" not in told
