"""Probing for a sandbox: it counts only as what it demonstrates."""

from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
import pytest
from msgspec.structs import replace

from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox import base, bubblewrap, landlock_alone, probe
from acp_agent.executors.sandbox.base import Confined, Invocation, Sandbox, SandboxPolicy
from acp_agent.executors.sandbox.noop import Noop
from acp_agent.executors.sandbox.probe import find_sandbox, try_out
from acp_agent.own_programs import find_program
from tests.executors.sandbox.kit import needs_sandbox


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_found", {})


async def test_the_best_one_is_found_once_and_says_what_it_is_made_of() -> None:
    needs_sandbox()
    found = find_sandbox(SandboxConfig())
    assert found.sandbox.kind == "bubblewrap"
    assert found.words.startswith("bubblewrap ") and found.words.endswith("network by host")
    assert (find_sandbox(SandboxConfig(network="deny"))).words.endswith("network blocked")
    needs_sandbox()
    first = find_sandbox(SandboxConfig())
    assert find_sandbox(SandboxConfig()) is first


async def test_switched_off_there_is_none_and_no_trouble() -> None:
    found = find_sandbox(SandboxConfig(disabled=True))
    assert (found.sandbox.kind, found.disabled, found.trouble) == ("none", True, ())


@pytest.mark.parametrize("strict", [False, True])
async def test_where_there_is_none_each_reason_is_told(strict: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(bubblewrap, "USUAL", tmp_path / "bwrap")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(landlock_alone, "abi", lambda: 2)
    found = find_sandbox(SandboxConfig(strict=strict))
    assert found.sandbox.kind == "none"
    assert found.trouble == (
        "bubblewrap: bubblewrap is not installed: apt-get install bubblewrap (or your system's package manager)",
        "landlock: the kernel's Landlock is too old to be used alone (ABI 2; 3 comes with Linux 6.2)",
    )
    invocation = Invocation(("true",), tmp_path, {})
    policy = SandboxPolicy(writable=(tmp_path,))
    if strict:
        with pytest.raises(ExecutorError, match=r"(?s)tools\.sandbox\.strict.*not installed.*too old"):
            found.sandbox.confine(invocation, policy, tmp_path)
    else:
        assert found.sandbox.confine(invocation, policy, tmp_path).argv == ("true",)


async def test_without_namespaces_it_is_landlock_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_sandbox()
    refuses = tmp_path / "bwrap"
    refuses.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\n'
        "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    refuses.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "USUAL", refuses)
    found = find_sandbox(SandboxConfig())
    assert found.sandbox.kind == "landlock" and len(found.trouble) == 1
    assert "refuses user namespaces" in found.trouble[0] and "uid map" in found.trouble[0]


@pytest.mark.parametrize(("version", "mode", "words"), [
    ("0.7.0", 0o755, "0.8 or newer"), ("0.10.1", 0o4755, "setuid"), ("", 0o755, "does not report its version"),
])  # fmt: skip
async def test_a_bad_bubblewrap_is_not_used(
    version: str, mode: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (program := tmp_path / "bwrap").write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    program.chmod(mode)
    monkeypatch.setattr(bubblewrap, "USUAL", program)
    with pytest.raises(ExecutorError, match=words):
        bubblewrap.find(SandboxConfig())


async def test_a_bubblewrap_in_the_session_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (program := tmp_path / "bin" / "bwrap").write_text("#!/bin/sh\necho bubblewrap 9.9\n")
    program.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "USUAL", tmp_path / "none")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    other = find_program("bwrap")
    assert bubblewrap.find(SandboxConfig(), other).program == program
    assert find_program("bwrap", outside=[tmp_path]) != other
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExecutorError, match="not installed"):
        bubblewrap.find(SandboxConfig(), other)


@dataclass(frozen=True)
class Leaky:
    """A sandbox with a hole: the policy it keeps is another one."""

    sandbox: Sandbox
    hole: str
    kind: base.SandboxKind = "bubblewrap"

    def words(self) -> str:
        return "leaky"

    def way(self, user: object) -> None:
        return None

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        place = policy.readable[0].parent
        match self.hole:
            case "writes":
                policy = replace(policy, readable=(), writable=(*policy.writable, *policy.readable))
            case "reads":
                policy = replace(policy, readable=(*policy.readable, place / "outside"))
            case "network":
                policy = replace(policy, network="all")
            case "refuses writing":
                policy = replace(policy, writable=(), readable=(*policy.readable, *policy.writable))
            case "refuses reading":
                policy = replace(policy, readable=())
        return self.sandbox.confine(invocation, policy, folder)


@pytest.mark.parametrize(("hole", "words"), [
    ("writes", "could be written"), ("reads", "outside could be read"), ("network", "network could be reached"),
    ("refuses writing", "nothing could be written"), ("refuses reading", "could not be read"),
])  # fmt: skip
async def test_a_sandbox_that_does_not_hold_is_not_believed(hole: str, words: str) -> None:
    needs_sandbox()
    config = SandboxConfig(network="deny")
    sandbox = bubblewrap.find(config)
    try_out(sandbox, config)
    with pytest.raises(ExecutorError, match=words):
        try_out(Leaky(sandbox, hole), config)
    with pytest.raises(ExecutorError, match="does not confine"):
        try_out(Noop(), config)


async def test_another_thread_does_not_bind_the_command_to_its_own_end(tmp_path: Path) -> None:
    """The thread that starts bubblewrap may end at any time; the main one ends with the agent."""
    needs_sandbox()
    sandbox = bubblewrap.find(SandboxConfig())
    invocation = Invocation(("/bin/true",), tmp_path.resolve(), {})
    policy = SandboxPolicy(writable=(tmp_path.resolve(),))

    def options(confined: Confined) -> str:
        text = next(path for path in confined.files.values() if path.suffix == ".args").read_text()
        confined.close()
        return text

    here = sandbox.confine(invocation, policy, tmp_path)
    assert here.killed_at_once and "--die-with-parent" in options(here)
    there = await anyio.to_thread.run_sync(sandbox.confine, invocation, policy, tmp_path)
    assert not there.killed_at_once and "--die-with-parent" not in options(there)
    script = await anyio.to_thread.run_sync(sandbox.confine, replace(invocation, by_script=True), policy, tmp_path)
    assert "--die-with-parent" in options(script)


async def test_a_folder_the_sandbox_does_not_show_is_no_place_to_run_in(tmp_path: Path) -> None:
    needs_sandbox()
    (tmp_path / "a").mkdir()
    sandbox = bubblewrap.find(SandboxConfig())
    policy = SandboxPolicy(writable=(tmp_path.resolve() / "a",))
    with pytest.raises(ExecutorError, match=r"outside the session's folders"):
        sandbox.confine(Invocation(("true",), tmp_path.resolve(), {}), policy, tmp_path)
