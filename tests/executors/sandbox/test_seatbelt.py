"""The profile for macOS, as text: nothing here has been run on a Mac."""

from pathlib import Path
from typing import Literal

import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import Invocation, SandboxPolicy
from acp_agent.executors.sandbox.seatbelt import Seatbelt, profile

POLICY = SandboxPolicy(
    writable=(Path("/Users/ada/work"), Path("/private/tmp/w")), readable=(Path("/Users/ada/.cargo"),),
    hidden=(Path("/Users/ada/work/.env"),), protected=(Path("/Users/ada/work/.git/hooks"),),
)  # fmt: skip


def blocks(text: str) -> list[str]:
    """The top-level expressions; fails where the brackets or quotes do not match."""
    found: list[str] = []
    depth, start, quoted, at = 0, 0, False, 0
    while at < len(text):
        letter = text[at]
        if quoted:
            at += letter == "\\"
            quoted = letter != '"'
        elif letter == '"':
            quoted = True
        elif letter == "(":
            start = at if depth == 0 else start
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                found.append(text[start : at + 1])
        at += 1
    assert depth == 0 and not quoted
    return found


def test_only_what_is_named_is_allowed_written_read_protected_and_hidden_in_that_order() -> None:
    found = blocks(profile(POLICY, None))
    assert found[:2] == ["(version 1)", "(deny default)"]
    assert not any(block.startswith(("(allow default", "(allow file-write*)", "(allow file-read*)")) for block in found)
    text = profile(POLICY, Path("/var/folders/x"))
    for name in ("/private/tmp/w", "/tmp/w", "/var/folders/x/tmp", "/private/var/folders/x/tmp"):
        assert f'(subpath "{name}")' in text

    def place(words: str, path: str) -> int:
        return next(i for i, block in enumerate(found) if block.startswith(f"({words}\n") and f'"{path}"' in block)

    order = [
        place("allow file-read* file-map-executable", "/Users/ada/.cargo"),
        place("allow file-read* file-write* file-map-executable", "/Users/ada/work"),
        place("deny file-write*", "/Users/ada/work/.git/hooks"),
        place("deny file-write-unlink", "/Users/ada/work/.git"),
        place("deny file-read* file-write*", "/Users/ada/work/.env"),
    ]
    assert order == sorted(order)


@pytest.mark.parametrize("network", ["all", "none"])
def test_the_network_is_as_the_policy_says(network: Literal["all", "none"]) -> None:
    text = profile(SandboxPolicy(writable=(), network=network), None)
    assert ("(allow network*" in text) is (network == "all") and "unix-socket" not in text
    assert "unix-socket" in profile(SandboxPolicy(writable=(), unix_sockets=True), None)


def test_a_path_cannot_end_its_quotes() -> None:
    found = blocks(profile(SandboxPolicy(writable=(Path('/w/"))(allow default)(deny file-read* (subpath "\\'),)), None))
    assert "(allow default)" not in found
    assert any(r"\"))(allow default)(deny file-read* (subpath \"\\" in block for block in found)
    with pytest.raises(ExecutorError, match="cannot be written"):
        profile(SandboxPolicy(writable=(Path("/w/a\nb"),)), None)


def test_the_profile_goes_with_the_command(tmp_path: Path) -> None:
    confined = Seatbelt().confine(Invocation(("bash", "-c", "x"), tmp_path, {"A": "b"}), POLICY, tmp_path)
    assert confined.argv[:2] == ("/usr/bin/sandbox-exec", "-f") and confined.argv[3:] == ("bash", "-c", "x")
    file = Path(confined.argv[2])
    assert file.read_text() == profile(POLICY, tmp_path)
    confined.close()
    confined.close()
    assert not file.exists()
