"""The blocks of the documentation: configuration loads, command lines parse, JSON is JSON."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from acp_agent.commands.parser import _with_command, build_parser
from acp_agent.config.load import load_config
from acp_agent.errors import ConfigError, UsageError

from .imports import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "editors").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(*kinds: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            if found[2] in kinds:
                yield f"{page.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}", found[3]


OTHER_FILES = re.compile(r"^(\[\[rules\]\]|\[\[test\]\]|\[project[.\]]|name = )", re.MULTILINE)
"""Filters, tests of rules, a package's own file, profiles of the conformance kit."""
COMMAND = re.compile(r"^\s*(?:\$ )?(acp-coder .*)$")


def test_every_configuration_loads(tmp_path: Path):
    found = [(place, text) for place, text in blocks("toml") if not OTHER_FILES.search(text)]
    assert len(found) > 15
    file = tmp_path / "config.toml"
    for place, text in found:
        file.write_text(text, encoding="utf-8")
        try:
            load_config({"HOME": str(tmp_path), "ACP_CODER_CONFIG": str(file)})
        except ConfigError as error:
            pytest.fail(f"{place}: {error}")
    for place, text in blocks("toml"):
        assert tomllib.loads(text), place


def test_every_command_line_parses():
    found = [
        (place, command[1])
        for place, text in blocks("sh", "console")
        for line in text.replace("\\\n", " ").splitlines()
        if (command := COMMAND.match(line))
    ]
    assert len(found) > 30
    for place, line in found:
        words = shlex.split(line.partition(" | ")[0], comments=True)[1:]
        try:
            build_parser().parse_args(_with_command(words))
        except UsageError as error:
            pytest.fail(f"{place}: {line}: {error}")


def test_every_json_is_json():
    """A document, members of one, or a document on each line."""
    for place, text in blocks("json"):
        for form in (text, f"{{{text}}}", f"[{','.join(text.splitlines())}]"):
            with suppress(ValueError):
                json.loads(form)
                break
        else:
            pytest.fail(place)
