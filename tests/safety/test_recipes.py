"""What docs/permissions.md says of each of its blocks is what is decided."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from acp_agent.config.load import load_config
from acp_agent.loop.calls.session_rules import session_rules
from acp_agent.safety.access import Access, Allow, Ask, Deny, ExecuteAccess, PathAccess, Verdict
from acp_agent.safety.deciding.deciders import CallFacts, Deciders
from acp_agent.safety.folders.paths import Roots

PAGE = Path(__file__).parents[2] / "docs/permissions.md"
CLAIM = re.compile(r"^- (Runs|Asks|Denied|Read)(?: to (write|read))?: (.+)$", re.MULTILINE)
VERDICTS: dict[str, type[Verdict]] = {"Runs": Allow, "Read": Allow, "Asks": Ask, "Denied": Deny}


class Claim(NamedTuple):
    settings: str
    verdict: type[Verdict]
    tool: str
    what: str
    """The command, or the path."""


def claims() -> Iterator[Claim]:
    """With each block, what follows it up to the next one or the next heading."""
    text = PAGE.read_text(encoding="utf-8")
    for found in re.finditer(r"^```toml\n(.*?)^```$(.*?)(?=^```toml|^## |\Z)", text, re.MULTILINE | re.DOTALL):
        for words, tool, listed in CLAIM.findall(found[2]):
            for what in re.findall(r"`([^`]+)`", listed):
                yield Claim(found[1], VERDICTS[words], "read" if words == "Read" else tool or "bash", what)


CLAIMS = list(claims())


def decided(claim: Claim, tmp_path: Path, mode: str) -> Verdict:
    file = tmp_path / "config.toml"
    file.write_text(claim.settings)
    config = load_config({"ACP_CODER_CONFIG": str(file), "HOME": str(tmp_path)})
    project = tmp_path / "project"
    (project / "web").mkdir(parents=True)
    tools = config.settings.tools
    roots = Roots(project)
    roots.rules = session_rules(config, roots, {}, tmp_path)
    access: Access = ExecuteAccess(claim.what, project)
    given = {"command": claim.what}
    if claim.tool != "bash":
        path = project / claim.what
        given, access = {"path": claim.what}, PathAccess("write" if claim.tool == "write" else "read", path)
    deciders = Deciders.from_config(tools, roots, {}, None, lambda key, index: f"{key}[{index}]")
    return deciders.decide(CallFacts(claim.tool, given, [access]), mode=mode, may_change=True).verdict


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.verdict.__name__} {claim.what}")
def test_what_the_page_says_is_decided(claim: Claim, tmp_path: Path) -> None:
    assert isinstance(decided(claim, tmp_path, "code"), claim.verdict)


def test_most_of_the_page_is_looked_at() -> None:
    assert len(CLAIMS) >= 25 and {claim.verdict for claim in CLAIMS} == {Allow, Ask, Deny}
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
    assert len(lines) == len(CLAIM.findall("\n".join(lines)))


def test_no_network_is_none(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## No network")[2]
    found = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert found is not None and tomllib.loads(found[1]) == {"tools": {"sandbox": {"network": "deny"}}}
    file = tmp_path / "config.toml"
    file.write_text(found[1])
    config = load_config({"ACP_CODER_CONFIG": str(file), "HOME": str(tmp_path)})
    assert config.settings.tools.sandbox.network == "deny"
