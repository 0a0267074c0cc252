"""The kit as others install it: its wheel, in an environment that has what the wheel declares and no agent of ours."""

import json
import os
import shlex
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.forked import COMMAND

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SMALL = [sys.executable, str(HERE / "small_agent.py")]
TRAP = """
import pathlib
pathlib.Path({mark!r}).touch()
raise ImportError("the installed kit imports acp_agent")
"""
EVERYTHING = """
import importlib, json, pkgutil, sys
import acp_conformance
for module in pkgutil.walk_packages(acp_conformance.__path__, "acp_conformance."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""


def pip(*arguments: str | Path) -> None:
    """Offline: what builds the package is one of the development tools."""
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--quiet", "--no-deps", "--no-index"]
    subprocess.run(command, check=True, timeout=120)


def needed(names: list[str]) -> set[str]:
    """These distributions, and all that they need here."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            asked = map(Requirement, distribution(name).requires or [])
            names += [each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def declared(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as packed:
        (metadata,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        lines = packed.read(metadata).decode().splitlines()
    return [Requirement(line.partition(": ")[2]).name for line in lines if line.startswith("Requires-Dist: ")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", ROOT / "kit", "--no-build-isolation", "--wheel-dir", out)
    (made,) = out.glob("acp_conformance-*.whl")
    return made


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The environment's folder of programs. In it is what the wheel declares, pytest, and a trap for the agent."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    for name in needed([*declared(wheel), "pytest"]):
        there = distribution(name)
        for top in {file.parts[0] for file in there.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(there.locate_file(top))  # type: ignore[arg-type]
    pip("--python", home / "bin/python", "install", wheel)
    (site / "acp_agent.py").write_text(TRAP.format(mark=str(home / "sprung")))
    yield home / "bin"
    assert not (home / "sprung").exists()


def ran(command: list[str], folder: Path, status: int = 0) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def results(programs: Path, folder: Path, arguments: list[str], *only: str, status: int = 0) -> dict[str, str]:
    """Of a run, by requirement."""
    options = [word for id_ in only for word in ("--only", id_)]
    report = folder / "report.json"
    command = [str(programs / "acp-conformance"), *options, "--report", "json", str(report), *arguments]
    ran(command, folder, status)
    return {row["id"]: row["outcome"] for row in json.loads(report.read_text(encoding="utf-8"))["results"]}


def test_every_module_is_imported_from_the_package_alone(programs: Path, tmp_path: Path) -> None:
    loaded = json.loads(ran([str(programs / "python"), "-c", EVERYTHING], tmp_path))
    assert {"acp_conformance._wire.testing.fake_model", "acp_conformance.pytest_kit", "msgspec"} <= {*loaded}
    assert [name for name in loaded if name.startswith("acp_agent")] == []


def test_it_drives_this_agent(programs: Path, tmp_path: Path) -> None:
    asked = ("INIT-1", "NEW-1", "PR-1", "PERM-6", "FS-1", "END-1")
    found = results(programs, tmp_path, ["--profile", "acp-coder", "--", COMMAND], *asked)
    assert found == dict.fromkeys(asked, "passed")


def test_it_drives_an_agent_of_the_sdk(programs: Path, tmp_path: Path) -> None:
    """What fails is what docs/conformance.md says of the SDK's own example."""
    agent = ["--", sys.executable, str(HERE / "sdk_agent.py")]
    found = results(programs, tmp_path, agent, "INIT-1", "INIT-3", "NEW-2", "EXT-3", "LOAD-2", status=1)
    assert found == {
        "INIT-1": "passed", "INIT-3": "failed", "NEW-2": "passed", "EXT-3": "failed", "LOAD-2": "not here",
    }  # fmt: skip


def test_it_applies_patches_in_the_checks_of_version_2(programs: Path, tmp_path: Path) -> None:
    profile = tmp_path / "small.toml"
    profile.write_text((HERE / "small.toml").read_text())
    agent = [sys.executable, str(HERE / "small_agent_v2.py")]
    found = results(programs, tmp_path, ["--protocol", "2", "--profile", str(profile), "--", *agent], "V2-DIFF-4")
    assert found == {"V2-DIFF-4": "passed"}


def test_it_asks_a_client(programs: Path, tmp_path: Path) -> None:
    client = [sys.executable, "-m", "tests.conformance.small_client", str(tmp_path), "{agent}"]
    said = ran([str(programs / "acp-conformance"), "client", "--only", "CFS-1", "--", *client], ROOT)
    assert "1 passed, 0 failed, 0 not here" in said


def test_it_is_run_by_pytest(programs: Path, tmp_path: Path) -> None:
    options = ["--pyargs", "acp_conformance.pytest_kit", "--acp-agent", shlex.join(SMALL), "-k", "NEW-3 or LIST-1"]
    said = ran([str(programs / "python"), "-m", "pytest", "--strict-markers", *options], tmp_path)
    assert "2 passed" in said


def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """The archive has what the wheel was given of the agent, and is built where there is no checkout."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "kit", check=True, timeout=120, stdout=subprocess.DEVNULL)
    (archive,) = tmp_path.glob("acp_conformance-*.tar.gz")
    pip("wheel", archive, "--no-build-isolation", "--wheel-dir", tmp_path)
    (again,) = tmp_path.glob("acp_conformance-*.whl")
    first, second = zipfile.ZipFile(wheel), zipfile.ZipFile(again)
    names = sorted(name for name in first.namelist() if not name.endswith("/RECORD"))  # It has them in another order.
    assert names == sorted(name for name in second.namelist() if not name.endswith("/RECORD"))
    assert [name for name in names if first.read(name) != second.read(name)] == []
