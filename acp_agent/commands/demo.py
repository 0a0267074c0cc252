"""`acp-coder demo`: a real task with recorded model answers.

Everything but the model is real: the connection between client and agent, files, edits, permissions, the shell.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from acp_agent.commands.one_prompt import view_for
from acp_agent.fronts.headless import Headless, run_headless
from acp_agent.own_programs import find_program

PROMPT = "The tests of this project fail. Find out why and fix it."
TESTS = ("-m", "unittest", "-q")
TEST_SECONDS = 60


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """Returns 0 only if the sample's tests failed before and pass afterwards."""
    with as_file(files("acp_agent.fronts").joinpath("demo")) as demo, tempfile.TemporaryDirectory() as folder:
        project = Path(folder).resolve() / "sample"
        shutil.copytree(demo / "sample", project, ignore=shutil.ignore_patterns("__pycache__"))
        _say(f"A sample project with a failing test was copied to {project}.")
        _say("The model is the built-in scripted one with recorded answers. Everything else is real.\n")
        if _green(project, environ):
            _say("The sample's tests already pass, so there is nothing to show.")
            return 1
        _say(f"$ acp-coder prompt --yes {PROMPT!r}")
        status = run_headless(_job(project, demo, Path(folder), environ), view_for(environ)).status
        green = _green(project, environ)
        _say(f"\nThe sample's tests: red before, {'green' if green else 'still red'} after.")
    return status or (0 if green else 1)


def _job(project: Path, demo: Path, folder: Path, environ: Mapping[str, str]) -> Headless:
    """Reads and writes nothing of the user's: configuration, sessions and log are in the temporary folder."""
    (folder / "config.toml").write_text("[undo]\nenabled = false\n", encoding="utf-8")
    own = {
        "ACP_CODER_API": "scripted",
        "ACP_CODER_PROVIDER": "default",
        "ACP_CODER_SCRIPT": str(demo / "answers.json"),
        "ACP_CODER_MODE": "code",
        "ACP_CODER_CONFIG": str(folder / "config.toml"),
        "ACP_CODER_STORE": str(folder / "sessions.db"),
        "ACP_CODER_LOG_FILE": "-",
        "ACP_CODER_AUDIT_FILE": str(folder / "audit.jsonl"),
    }
    kept = {name: value for name, value in environ.items() if not name.startswith(("OPENAI_", "ACP_CODER_"))}
    return Headless(PROMPT, project, {**kept, **own}, answers="allow")


def _green(project: Path, environ: Mapping[str, str]) -> bool:
    argv = (find_program("python3", environ, (project,)) or sys.executable, *TESTS)
    done = subprocess.run(argv, cwd=project, env=dict(environ), capture_output=True, timeout=TEST_SECONDS, check=False)
    return done.returncode == 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
