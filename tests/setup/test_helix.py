"""Helix's `languages.toml`."""

import tomllib

import pytest

from acp_agent.errors import UsageError
from acp_agent.setup.helix import add, ask_helix, known, remove

SERVER = {"command": "/opt/acp-coder", "args": ["lsp"]}

MINE = """\
# mine
[language-server.ruff]
command = "ruff"   # from pipx

[[language]]
name = "python"
auto-format = true
language-servers = [
  "ruff",   # lint
  { name = "basedpyright", except-features = ["hover"] },
]

[[language]]
name = "rust"
auto-format = false
"""


def servers_of(language: str) -> tuple[str, ...]:
    return known()[language]


def languages(text: str) -> dict[str, list[object]]:
    return {item["name"]: item.get("language-servers", []) for item in tomllib.loads(text)["language"]}


def test_an_empty_file_gets_the_server_behind_those_that_helix_has():
    text = add("", SERVER, servers_of, "languages.toml")
    assert tomllib.loads(text)["language-server"]["acp-coder"] == SERVER
    assert languages(text)["rust"] == ["rust-analyzer", "acp-coder"] and languages(text).keys() == known().keys()
    assert remove(text, "languages.toml").strip() == ""


def test_a_persons_own_lists_and_comments_stay():
    text = add(MINE, SERVER, servers_of, "languages.toml")
    assert languages(text)["python"] == ["ruff", {"name": "basedpyright", "except-features": ["hover"]}, "acp-coder"]
    assert languages(text)["rust"] == ["rust-analyzer", "acp-coder"]
    for words in ("# mine", "# from pipx", "# lint", "auto-format = false"):
        assert words in text
    back = tomllib.loads(remove(text, "languages.toml"))
    assert back["language"][0] == tomllib.loads(MINE)["language"][0]
    assert [item["name"] for item in back["language"]] == ["python", "rust"]
    assert back["language-server"] == tomllib.loads(MINE)["language-server"]


def test_adding_twice_or_removing_what_is_not_there_changes_nothing():
    once = add(MINE, SERVER, servers_of, "languages.toml")
    assert add(once, SERVER, servers_of, "languages.toml") == once
    text = '[[language]]\nname = "python"\n\n[language-server.x]\ncommand = "x"\n'
    text += '\n[[language]]\nname = "rust"\n# the end\n'
    assert remove(text, "languages.toml") == text


def test_what_is_no_toml_is_refused_in_words():
    with pytest.raises(UsageError, match="languages.toml: not valid TOML"):
        add("[[language", SERVER, servers_of, "languages.toml")


def test_helix_itself_is_asked_for_its_servers(tmp_path):
    program = tmp_path / "hx"
    program.write_text(
        "#!/bin/sh\n"
        "printf 'Configured language servers:\\n  \\033[31mx\\033[m one: not found\\n"
        "  \\033[32mo\\033[m acp-coder: y\\n  \\033[32mo\\033[m two-ls: /bin/two\\nConfigured debug adapter: None\\n'\n"
    )
    program.chmod(0o755)
    assert ask_helix(str(program))("python") == ["one", "two-ls"]


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense", "cat"])
def test_where_helix_does_not_say_what_is_known_of_it_counts(tmp_path, script):
    (program := tmp_path / "hx").write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert ask_helix(str(program))("rust") == known()["rust"]
    assert ask_helix(str(tmp_path / "missing"))("rust") == known()["rust"]


@pytest.mark.parametrize("text", [
    'language = [{ name = "python" }]\n', 'language-server = { a = { command = "x" } }\n', "language = 3\n",
    '[language]\nname = "x"\n', "[[language-server]]\nx = 1\n",
    '[[language]]\nname = "python"\nlanguage-servers = "x"\n',
])  # fmt: skip
def test_a_form_that_cannot_be_added_to_is_told_and_left_alone(text):
    with pytest.raises(UsageError, match="nothing was changed"):
        add(text, {"command": "x"}, lambda _: [], "languages.toml")


def test_what_a_person_wrote_behind_is_kept_when_it_is_taken_back():
    added = add("", {"command": "x"}, lambda _: ["k"], "languages.toml")
    back = remove(f'{added}\n# mine\n[[language]]\nname = "mine"\n# the last\n', "languages.toml")
    assert "# mine\n" in back and 'name = "mine"\n# the last\n' in back
    assert "acp-coder" not in [
        name for item in tomllib.loads(back)["language"] for name in item.get("language-servers", [])
    ]
