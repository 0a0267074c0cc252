"""What `make release` makes, and that the wheel runs on each supported Python with nothing else around."""

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import uv

import acp_agent
from acp_agent.commands.extensions.this_version import commit_of, version_line
from acp_agent.fronts.server.page import FILES, FOLDER
from tests.house.imports import ROOT
from tests.tables import table

VERSION = acp_agent.__version__
REPOSITORY = "https://example.com/acp-coder"
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
UV = uv.find_uv_bin()
BUILT_FROM_SOURCE = "jsonrpcserver"
"""Pure Python; it has no wheel on PyPI."""
LAUNCHING = ("sh", "realpath", "dirname")
"""All that the empty root has of programs; what uv makes `acp-coder` of is a shell script."""
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read())
sys.exit(None if error is None else str(error))
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release") / "dist"
    argv = ["bash", str(ROOT / "scripts" / "release.sh"), REPOSITORY, str(out)]
    subprocess.run(argv, env={**os.environ, "PYTHON": sys.executable}, check=True, timeout=600)
    return out


def wheel(dist: Path, name: str = "acp_coder") -> Path:
    (found,) = dist.glob(f"{name}-*.whl")
    return found


def test_the_wheel_has_the_page(dist: Path):
    with zipfile.ZipFile(wheel(dist)) as made:
        for name, _ in FILES.values():
            assert made.read(f"acp_agent/fronts/server/static/{name}") == (FOLDER / name).read_bytes()


def test_every_file_is_there_and_has_its_checksum(dist: Path):
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    files = {str(file.relative_to(dist)): file for file in dist.rglob("*") if file.is_file()}
    del files["SHA256SUMS"]
    assert sums == {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    archive = [name for name in files if re.fullmatch(rf"acp-coder-{VERSION}-\w+-\w+\.tar\.gz", name)]
    archive = [name for name in archive if not name.endswith("-docs.tar.gz")]
    assert len(archive) == 1
    assert files.keys() - archive == {
        f"acp_coder-{VERSION}-py3-none-any.whl", f"acp_coder-{VERSION}.tar.gz", f"acp-coder-{VERSION}.vsix",
        f"acp_conformance-{VERSION}-py3-none-any.whl", f"acp_conformance-{VERSION}.tar.gz",
        f"acp-coder-{VERSION}.cdx.json", f"acp-coder-{VERSION}-docs.tar.gz", "acp-coder.1",
        "completions/acp-coder.bash", "completions/acp-coder.zsh", "completions/acp-coder.fish",
        "extension/extension.toml", "extension/icons/acp-coder.svg",
        "registry/acp-coder/agent.json", "registry/acp-coder/icon.svg", "Containerfile",
    }  # fmt: skip
    assert json.loads(zipfile.ZipFile(dist / f"acp-coder-{VERSION}.vsix").read("extension/package.json"))["version"]
    assert not [name for name in zipfile.ZipFile(wheel(dist)).namelist() if "conformance" in name]
    assert zipfile.ZipFile(wheel(dist)).read("acp_agent/COMMIT").decode().strip() == commit_of(ROOT)


@table("name", ["acp_coder", "acp_conformance"])
def test_the_addresses_are_those_of_the_repository_and_nothing_in_the_text_is_relative(dist: Path, name: str):
    with zipfile.ZipFile(wheel(dist, name)) as packed:
        (file,) = [each for each in packed.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = packed.read(file).decode()
    urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", metadata, re.MULTILINE))
    assert urls.keys() == {"Homepage", "Documentation", "Issues", "Source", "Changelog"}
    assert all(url.startswith(REPOSITORY) for url in urls.values())
    assert f"{REPOSITORY}/actions/workflows/check.yml/badge.svg" in metadata
    assert not runpy.run_path(str(ROOT / "scripts" / "addresses.py"))["LINK"].findall(metadata)
    (sources,) = dist.glob(f"{name}-*.tar.gz")
    with tarfile.open(sources) as archive:
        pyproject = archive.extractfile(f"{name}-{VERSION}/pyproject.toml")
        assert pyproject is not None and tomllib.loads(pyproject.read().decode())["project"]["urls"] == urls
    package = json.loads(zipfile.ZipFile(dist / f"acp-coder-{VERSION}.vsix").read("extension/package.json"))
    assert package["repository"]["url"] == f"{REPOSITORY}.git"


def test_the_site_is_whole(dist: Path):
    with tarfile.open(dist / f"acp-coder-{VERSION}-docs.tar.gz") as archive:
        page = archive.extractfile("site/index.html")
        assert page is not None and REPOSITORY in page.read().decode()


def test_the_entries_name_the_archives_of_every_system(dist: Path, tmp_path: Path):
    (here,) = dist.glob("acp-coder-*-*.tar.gz")
    other = f"acp-coder-{VERSION}-darwin-aarch64.tar.gz"
    shutil.copy(here, tmp_path)
    (tmp_path / other).write_bytes(b"of another system")
    (tmp_path / f"acp_coder-{VERSION}.tar.gz").write_bytes(b"the sources")
    script = [sys.executable, str(ROOT / "scripts" / "name_archives.py"), REPOSITORY, f"{REPOSITORY}/releases/"]
    subprocess.run([*script, str(tmp_path)], check=True, timeout=60)
    manifest = tomllib.loads((tmp_path / "extension" / "extension.toml").read_text())
    entry = json.loads((tmp_path / "registry" / "acp-coder" / "agent.json").read_text())
    targets = manifest["agent_servers"]["acp-coder"]["targets"]
    assert entry["distribution"]["binary"] == targets
    assert {target["archive"] for target in targets.values()} == {
        f"{REPOSITORY}/releases/{name}" for name in (here.name, other)
    }
    assert targets["darwin-aarch64"]["sha256"] == hashlib.sha256(b"of another system").hexdigest()
    done = subprocess.run([*script, str(ROOT / "docs")], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "holds no archive" in done.stderr


def test_the_sbom_is_valid_and_has_every_dependency_with_its_version(dist: Path):
    text = (dist / f"acp-coder-{VERSION}.cdx.json").read_text()
    library = "cyclonedx-python-lib[json-validation]"
    argv = [UV, "run", "--quiet", "--no-project", "--with", library, "python", "-c", VALIDATE]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    listed = {each["name"] for each in json.loads(text)["components"] if each["version"]}
    with zipfile.ZipFile(wheel(dist)) as packed:
        (metadata,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        needed = re.findall(r"^Requires-Dist: ([\w.-]+)", packed.read(metadata).decode(), re.MULTILINE)
    assert len(needed) > 20 and not set(needed) - listed


def interpreter(version: str) -> str:
    """Skips where neither this machine nor uv has that Python. 3.14 is Debian's own if need be."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    pyenv += ROOT.glob(f"tests/.python/usr/bin/python{version}")
    asked = [UV, "python", "find", "--no-project", version]
    for more in ([], ["--python-preference=only-managed"]):
        done = subprocess.run([*asked, *more], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    if not pyenv:
        pytest.skip(f"no Python {version} here")
    return str(pyenv[-1])


@pytest.mark.parametrize("version", PYTHONS)
def test_uvx_runs_the_wheels_in_an_empty_root_without_a_compiler(dist: Path, tmp_path: Path, version: str):
    python = interpreter(version)
    home, programs = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    programs.mkdir()
    for name in LAUNCHING:
        (programs / name).symlink_to(shutil.which(name) or name)
    kept = {name: os.environ[name] for name in ("SSL_CERT_FILE", "UV_DEFAULT_INDEX") if name in os.environ}
    environ = {**kept, "HOME": str(home), "PATH": str(programs), "ACP_CODER_KEYRING": "0"}
    uvx = [str(Path(UV).with_name("uvx")), "--no-config", "--quiet", "--python", python, "--from"]

    def ran(*command: str, given: str = "") -> str:
        argv = [*uvx, str(wheel(dist, command[0].replace("-", "_"))), *command]
        done = subprocess.run(
            argv, input=given, env=environ, cwd=home, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert ran("acp-coder", "--version") == f"acp-coder {version_line()}\n"
    answer = json.loads(ran("acp-coder", given=json.dumps(INITIALIZE) + "\n"))
    assert answer["result"]["agentInfo"]["version"] == VERSION
    assert ran("acp-coder", "man").startswith(".TH")
    assert ran("acp-conformance", "--version") == f"acp-conformance {VERSION}\n"
    agent = [sys.executable, str(ROOT / "tests" / "conformance" / "small_agent.py")]
    assert "1 passed, 0 failed" in ran("acp-conformance", "--only", "INIT-1", "--", *agent)


@pytest.mark.parametrize("version", PYTHONS)
def test_every_dependency_has_a_wheel(dist: Path, tmp_path: Path, version: str):
    """But for one of pure Python. This needs no such Python."""
    only = ["--only-binary", ":all:", "--no-binary", BUILT_FROM_SOURCE]
    argv = [UV, "pip", "install", "--no-config", "--dry-run", "--python-version", version, *only]
    argv += ["--target", str(tmp_path), str(wheel(dist)), str(wheel(dist, "acp_conformance"))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
