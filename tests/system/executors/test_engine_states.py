"""What is said of a container that a lost link led to."""

import os
from pathlib import Path

import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_link import GONE
from acp_agent.executors.places.engine import find_engine

STATES = {
    '{"Status": "paused", "Running": false, "Paused": true}': "waits; go on: `podman unpause box`",
    '{"Status": "paused", "Running": true, "Paused": true}': "waits; go on: `podman unpause box`",
    '{"Status": "exited", "Running": false}': "does not run",
}


@pytest.mark.parametrize(("state", "words"), STATES.items())
def test_what_runs_in_a_paused_container_has_not_ended(tmp_path: Path, state: str, words: str) -> None:
    (program := tmp_path / "podman").write_text(f"#!/bin/sh\necho '[{{\"State\": {state}}}]'\n")
    program.chmod(0o755)
    engine = find_engine(str(program), {"PATH": os.environ["PATH"]}, ())
    with pytest.raises(ExecutorError) as error:
        engine.running("box")
    assert words in str(error.value)
    assert any(gone in str(error.value) for gone in GONE) == ("exited" in state), "else the link is tried again"
