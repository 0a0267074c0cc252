"""The tables of programs load: each row has the keys its Struct names, and describes a program once."""

import re
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from acp_agent.safety.lines import always, dangerous, git_folder, last_command, risk, terminal_programs, wrappers
from tests.tables import table


def file_of(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__).with_suffix(".toml")


def test_rows_that_share_a_program_are_found():
    for rows, module in ((dangerous.table(), dangerous), (terminal_programs.rows(), terminal_programs)):
        written = tomllib.loads(file_of(module).read_text(encoding="utf-8"))
        names = Counter(name for first, row in written.items() for name in (first, *row.get("also", ())))
        assert not [name for name, times in names.items() if times > 1]
        assert rows.keys() == names.keys()


def test_every_risk_has_a_reason_and_programs():
    found = risk.tables()
    for row in (*found.high, *found.high_with):
        assert row.reason.startswith("it ") and row.programs
    for rows in (found.high, found.builds, found.changes):
        assert not [name for name, times in Counter(name for row in rows for name in row.programs).items() if times > 1]


def test_shells_and_what_escalates_are_dangerous():
    assert {name for name, row in dangerous.table().items() if row.always} >= wrappers.SHELLS | wrappers.ESCALATING


@table("file", [file_of(module) for module in (dangerous, risk, terminal_programs)])
def test_expressions_of_tables_are_expressions(file: Path):
    for line in file.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(" = ")
        if key in ("operand", "unless", "only"):
            re.compile(tomllib.loads(f"it = {value}")["it"])


def test_scopes_harmless_keys_and_options_before_sub_commands_are_there():
    assert always.table().subs["make"].several and "-v" in always.table().tools["pytest"]
    assert not git_folder.harmless().keys & git_folder.harmless().values.keys()
    assert all(re.compile(value) for value in git_folder.harmless().values.values())
    assert "-C" in last_command.global_options()["git"].with_word


def test_wrappers_have_rows():
    assert wrappers.wrappers()["env"].readers == ("hints", "filters")
    with pytest.raises(KeyError):
        wrappers.behind(["no wrapper"])
