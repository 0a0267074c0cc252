"""Deny rules against commands in disguise, allow rules against commands they were not meant for."""

from pathlib import Path

import pytest

from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.globs import matches
from acp_agent.safety.lines.examine import examine
from acp_agent.safety.lines.examined import Examined


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".vscode").mkdir()
    (tmp_path / "a").write_text("a\n")
    return tmp_path


def examined(command: str, project: Path) -> Examined:
    return examine(command, Roots(project), project)


def denied(command: str, project: Path, *patterns: str) -> bool:
    return any(matches(pattern, text) for text in examined(command, project).candidates for pattern in patterns)


@pytest.mark.parametrize("command", [
    "{rm,-rf,a}", "{rm,-r{f,v},a}", "rm${IFS}a", "rm$IFS-rf$IFS-a", "cat <<EOF | sh\nrm -rf a\nEOF",
    "cat <<'EOF' | bash -s\necho x; rm a\nEOF", "echo 'rm a' | sh", "uv run rm a", "poetry run rm a",
    "bundle exec rm a", "npx -c 'rm a'", "perf stat rm a", "fish -c 'rm a'", "tcsh -c 'rm a'", "firejail rm a",
    "tmux new rm a",
])  # fmt: skip
def test_a_deny_is_found(command: str, project: Path) -> None:
    assert denied(command, project, "rm *")


@pytest.mark.parametrize("command", ["echo {a,b}", "cat <<EOF\nrm a\nEOF", "grep rm a", "echo rm", "uv sync"])
def test_what_is_no_such_command_is_not_taken_for_it(command: str, project: Path) -> None:
    assert not any(part.words and part.words[0] == "rm" for part in examined(command, project).parts)


@pytest.mark.parametrize(("command", "pattern", "passes"), [
    ("cp a .git/hooks/x", "cp *", False), ("cp a .git/hooks/x", "cp * .git/hooks/*", True), ("cp a b", "cp *", True),
    ("mv a .vscode/tasks.json", "mv *", False), ("mv a .vscode/tasks.json", "mv * .vscode/*", True),
    ("touch .mcp.json", "touch *", False), ("touch x", "touch *", True), ("mkdir .idea", "mkdir *", False),
    ("chmod u+x .git/hooks/x", "chmod *", False), ("chmod u+x x", "chmod *", True), ("tee .envrc", "tee *", False),
    ("install -D a .git/hooks/x", "install *", False), ("dd if=a of=.git/config", "dd *", False),
    ("cargo build --target-dir=.git/x", "cargo *", False), ("cargo build", "cargo *", True),
])  # fmt: skip
def test_a_glob_does_not_cover_what_other_programs_trust(command: str, pattern: str, passes, project: Path) -> None:
    def match(text: str) -> str | None:
        return pattern if matches(pattern, text) else None

    assert examined(command, project).permitted_by(match) is passes


@pytest.mark.parametrize("option", ["--hard", "--har", "--ha"])
def test_a_beginning_of_a_dangerous_option_is_as_dangerous(option: str, project: Path) -> None:
    assert examined(f"git reset {option}", project).risk.level == "high"


@pytest.mark.parametrize("wrapper", ["sudo ", "timeout 1 ", "env ", "xargs "])
def test_deep_nesting_is_not_understood_and_takes_no_time_to_speak_of(wrapper: str, project: Path) -> None:
    found = examined(wrapper * (9_000 // len(wrapper)) + "x", project)
    assert not found.understood
    assert len(found.parts) < 50
    assert len(found.candidates) < 500
