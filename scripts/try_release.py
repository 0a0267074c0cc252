"""Runs the steps of .github/workflows/release.yml here, as far as they go: in a fresh clone of what is committed, on
this system alone. What only the hosted service can do (setting up Python, publishing) is named and left out; `gh` says
what it was called with. Usage: try_release.py [OUT] (the folder for what the workflow would have published)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from acp_agent import __version__

ROOT = Path(__file__).parents[1]
REPOSITORY = "owner/acp-coder"
SYSTEM = "Linux"
KNOWN = {"runner.os": SYSTEM, "github.token": "no-token"}
GH = '#!/bin/sh\necho "gh would be called with: $*"\n'


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main(out: Path) -> int:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    with tempfile.TemporaryDirectory() as name:
        (programs := Path(name, "bin")).mkdir()
        (programs / "gh").write_text(GH)
        (programs / "gh").chmod(0o755)
        environ = {
            **os.environ, "GITHUB_REF_NAME": f"v{__version__}", "GITHUB_REPOSITORY": REPOSITORY,
            "PATH": f"{programs}:{os.environ['PATH']}",
        }  # fmt: skip
        artifacts = Path(name, "artifacts")
        for title, job in jobs.items():
            checkout = Path(name, title)
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
            for step in job["steps"]:
                say(f"{title}: {step.get('name') or step.get('uses') or step['run'].splitlines()[0]}")
                if code := _step(step, checkout, artifacts, environ):
                    say(f"{title}: failed with exit status {code}")
                    return 1
        shutil.copytree(checkout / "dist", out, dirs_exist_ok=True)
    return 0


def _step(step: dict[str, Any], checkout: Path, artifacts: Path, environ: dict[str, str]) -> int:
    given = step.get("with", {})
    match step.get("uses", "").partition("@")[0]:
        case "":
            if _applies(step.get("if", "")):
                more = {key: _filled(value) for key, value in step.get("env", {}).items()}
                argv = ["bash", "-e", "-o", "pipefail", "-c", _filled(step["run"])]
                return subprocess.run(argv, cwd=checkout, env={**environ, **more}, check=False).returncode
            say("  not on this system")
        case "actions/checkout":
            say("  done: a fresh clone")
        case "actions/upload-artifact":
            shutil.copytree(checkout / given["path"], artifacts / _filled(given["name"]))
        case "actions/download-artifact":
            for each in artifacts.glob(given["pattern"]):
                shutil.copytree(each, checkout / given["path"], dirs_exist_ok=True)
        case _:
            say("  only there")
    return 0


def _applies(condition: str) -> bool:
    left, sign, right = re.fullmatch(r"(?:(\S+) (==|!=) '(\w+)')?", condition).groups()  # type: ignore[union-attr]
    return sign is None or (KNOWN[left] == right) is (sign == "==")


def _filled(text: str) -> str:
    return re.sub(r"\$\{\{ *([\w.]+) *\}\}", lambda found: KNOWN[found[1]], text)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
