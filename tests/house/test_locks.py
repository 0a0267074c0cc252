"""The lock files: complete, in line with pyproject.toml, and of the public index only."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from .imports import ROOT

LOCK = (ROOT / "uv.lock").read_text(encoding="utf-8")
PACKAGES = tomllib.loads(LOCK)["package"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOSTS = {"pypi.org", "files.pythonhosted.org"}


def addresses(text: str) -> set[str]:
    return {urlsplit(found).netloc for found in re.findall(r"[a-z+]+://[^\s\"']*", text)}


def test_no_other_host_and_no_path_of_a_machine_is_in_a_lock_file():
    assert addresses(LOCK) == HOSTS and addresses((ROOT / "requirements.lock").read_text(encoding="utf-8")) == set()
    places = {tuple(package["source"].items()) for package in PACKAGES}
    assert places == {(("registry", "https://pypi.org/simple"),), (("editable", "."),)}
    files = [file for package in PACKAGES for file in [package.get("sdist", {}), *package.get("wheels", [])] if file]
    assert len(files) > 500
    assert all(file["url"].startswith("https://files.pythonhosted.org/") and file["hash"] for file in files)


def test_another_host_would_be_found():
    assert addresses(LOCK + 'url = "https://mirror.example.org/simple/x.whl"') - HOSTS == {"mirror.example.org"}
    assert addresses(LOCK + 'url = "file:///opt/wheels/x.whl"') - HOSTS == {""}


def test_the_lock_is_in_line_with_the_project():
    own = next(package for package in PACKAGES if package["name"] == PROJECT["project"]["name"])
    asked = [(item, "") for item in PROJECT["project"]["dependencies"]]
    for extra, items in PROJECT["project"]["optional-dependencies"].items():
        asked += [(item, f"extra == '{extra}'") for item in items]
    assert locked(own["metadata"]["requires-dist"]) == {split(*item) for item in asked}, "run `make lock`"
    for group, items in PROJECT["dependency-groups"].items():
        assert locked(own["metadata"]["requires-dev"][group]) == {split(item) for item in items}, "run `make lock`"


def test_both_lock_files_pin_the_same_versions():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    exported = set(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE))
    assert len(exported) > 50
    assert exported == {(package["name"], package["version"]) for package in PACKAGES if "version" in package}


def split(requirement: str, marker: str = "") -> tuple[str, str, str]:
    """Name, versions, marker."""
    found = re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)", requirement)
    assert found is not None, requirement
    return found[1].lower().replace("_", "-"), ",".join(sorted(found[2].replace(" ", "").split(","))), marker


def locked(entries: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    return {split(entry["name"] + entry.get("specifier", ""), entry.get("marker", "")) for entry in entries}
