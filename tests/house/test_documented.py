"""The blocks of the documentation: configuration loads, command lines parse, what they name exists, JSON is JSON.

`tests/e2e/test_documented_commands.py` runs the commands.
"""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from acp_agent.commands.parser import _with_command, build_parser
from acp_agent.config.load import load_config
from acp_agent.config.sources import PROJECT_FILE, read_file
from acp_agent.errors import ConfigError, UsageError
from acp_agent.output.filters import load_filters
from acp_conformance.kit_main import read_options
from tests.documented import BLOCK, PAGES, blocks

from .imports import ROOT

OTHER_FILES = re.compile(
    r"^(\[\[rules\]\]|\[\[test\]\]|\[project[.\]]|name = |\[tools\.(plan|question)\])", re.MULTILINE
)
"""Filters, tests of rules, a package's own file, profiles of the conformance kit."""
INLINE = re.compile(r"`(?:uvx )?(acp-(?:coder|conformance) (?!\d)[^`]+)`")
ALTERNATIVES = re.compile(r"([\w-]+)((?:\|[\w-]+)+)")
LEFT_OPEN = re.compile(r"^the following arguments are required|(invalid int value: '[A-Z]+'|expected one argument)$")
TARGET = re.compile(r"^(?:\w+=\S+ )?make ([a-z0-9-]+)", re.MULTILINE)
INLINE_MAKE = re.compile(r"`(make [^`]*)`")
OURS = re.compile(r"(?:scripts|tests|deploy|editors|docs|evals|acp_agent|kit|schemas|registry)/[\w./-]*\w")
MADE = ("deploy/secrets",)
"""Folders that the commands make."""


def test_every_configuration_loads(tmp_path: Path):
    found = [block for block in blocks("toml") if not OTHER_FILES.search(block.text)]
    assert len(found) > 15
    file = tmp_path / "config.toml"
    for place, _, text in found:
        file.write_text(text, encoding="utf-8")
        try:
            load_config({"HOME": str(tmp_path), "ACP_CODER_CONFIG": str(file)})
        except ConfigError as error:
            pytest.fail(f"{place}: {error}")
    for place, _, text in blocks("toml"):
        assert tomllib.loads(text), place


def test_every_configuration_of_a_project_sets_only_what_a_project_may(tmp_path: Path):
    found = [block for block in blocks("toml") if block.text.startswith(f"# {PROJECT_FILE}")]
    assert found
    for place, _, text in found:
        (tmp_path / "project.toml").write_text(text, encoding="utf-8")
        try:
            load_config({"HOME": str(tmp_path)}, project=read_file(str(tmp_path / "project.toml")))
        except ConfigError as error:
            pytest.fail(f"{place}: {error}")


def test_every_filter_loads():
    found = [block for block in blocks("toml") if "[[rules]]" in block.text]
    assert len(found) == 2
    for place, _, text in found:
        assert load_filters(text)[1] == [], place


PARSER = build_parser()


def parses(line: str) -> str:
    """What is wrong with the command line, or nothing."""
    program, *words = shlex.split(line.partition(" | ")[0])
    try:
        if program == "acp-conformance":
            read_options(words)
        else:
            PARSER.parse_args(_with_command(words))
    except UsageError as error:
        return str(error)
    except SystemExit as ended:
        return f"it ends with {ended.code}" if ended.code else ""
    return ""


def test_every_command_line_parses():
    found = [(block.place, line) for block in blocks("sh", "console", "yaml") for line in block.commands]
    assert len(found) > 50
    for place, line in found:
        assert not parses(line), f"{place}: {line}: {parses(line)}"
    for place, _, text in blocks(""):
        assert not re.search(r"^(\$ )?(uvx )?acp-(coder|conformance) ", text, re.MULTILINE), (
            f"{place} is a block of commands: ```sh"
        )


def written_out(line: str) -> Iterable[str]:
    """`add|list` as two lines; what stands in brackets is left in."""
    line = re.sub(r"[\[\]]|\.\.\.", "", line)
    if (found := ALTERNATIVES.search(line)) is None:
        return [line]
    return [line.replace(found[0], word) for word in found[0].split("|")]


def test_every_command_line_in_a_sentence_parses():
    found = [
        (page, line)
        for page in (*PAGES, ROOT / "CHANGELOG.md")
        for shown in INLINE.findall(" ".join(page.read_text(encoding="utf-8").split()))
        for line in written_out(shown)
    ]
    assert len(found) > 80
    for page, line in found:
        wrong = parses(line)
        assert not wrong or LEFT_OPEN.search(wrong), f"{page.relative_to(ROOT)}: {line}: {wrong}"


def test_every_line_for_a_shell_is_one_and_names_what_there_is():
    found = list(blocks("sh", "console"))
    assert len(found) > 35
    for place, kind, text in found:
        if kind == "console":
            text = "\n".join(re.findall(r"^\$ (.*)$", text, re.MULTILINE))
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, ""), place
        for path in OURS.findall(re.sub(r"(^|\s)#.*|https?:\S+", "", text, flags=re.MULTILINE)):
            assert (ROOT / path).exists() or path.startswith(MADE), f"{place}: {path}"


def test_every_target_of_make_is_one():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert "tests tests/" not in (ROOT / "Makefile").read_text(encoding="utf-8"), "pytest drops the second folder"
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        commands = [block.text for block in blocks("sh", page=page)] + INLINE_MAKE.findall(BLOCK.sub("", text))
        found += [(page, target) for each in commands for target in TARGET.findall(each)]
    assert len(found) > 40 and [(page, target) for page, target in found if target not in targets] == []


def test_every_json_is_json():
    """A document, members of one, or a document on each line."""
    settings = (ROOT / "editors/vscode/package.json").read_text(encoding="utf-8")
    for place, _, text in blocks("json"):
        for form in (text, f"{{{text}}}", f"[{','.join(text.splitlines())}]"):
            with suppress(ValueError):
                json.loads(form)
                break
        else:
            pytest.fail(place)
        for name in re.findall(r'"acpCoder\.\w+"', text):
            assert f"{name}: {{" in settings, f"{place}: {name}"


def test_every_yaml_and_python_parses():
    assert all(yaml.safe_load(block.text) for block in blocks("yaml"))
    for place, _, text in blocks("python"):
        ast.parse(text, place)
