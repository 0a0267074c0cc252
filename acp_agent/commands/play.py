"""`acp-coder replay`: plays a recording with the agent, and compares."""

from __future__ import annotations

import io
import logging
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import anyio

from acp_agent.commands.one_prompt import view_for
from acp_agent.errors import UsageError
from acp_agent.fronts.headless import STATUS
from acp_agent.fronts.playing.prompts import PromptsJob, play_prompts
from acp_agent.fronts.playing.wire_player import WirePlayer
from acp_agent.fronts.view import PlainView
from acp_agent.llm.recordings.playback import Playback, insert
from acp_agent.llm.recordings.reading import read_recording

UNTRUSTED = (
    "the recording has the messages of an editor, with what its user allowed; if you trust it, `--yes` plays it: its "
    "commands run here, and its MCP servers are started"
)


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """Returns 1 if something differs (with `--check`, or messages of an editor), else what `acp-coder prompt` would."""
    recording = read_recording(Path(options.file).absolute())
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise UsageError(f"{cwd} is not a folder")
    if not recording.calls:
        raise UsageError("the recording has no answers of a model; `--record` with the same file adds them")
    if recording.wire and not options.yes:
        raise UsageError(UNTRUSTED)
    logging.basicConfig(level=logging.ERROR)
    playback = Playback(recording, timed=options.timed)
    insert(playback)
    with tempfile.TemporaryDirectory() as folder:
        if recording.wire:
            player = WirePlayer(playback, cwd, environ, Path(folder))
            anyio.run(player.play)
            return _report(playback, player.differences)
        nobody = options.check or not sys.stdin.isatty()
        job = PromptsJob(
            playback, cwd, environ, Path(folder), options.mode, options.yes, "nobody" if nobody else "person"
        )
        view = PlainView(io.StringIO()) if options.check else view_for(environ)
        reason = anyio.run(play_prompts, job, view)
    return _report(playback, []) if options.check else STATUS.get(reason, 1)


def _report(playback: Playback, differences: list[str]) -> int:
    """Says the first difference."""
    total, left = len(playback.recording.calls), playback.unasked
    if found := [*playback.misses, *differences]:
        sys.stdout.write(f"{found[0]}\n")
        return 1
    if left:
        first = left[0].number
        sys.stdout.write(f"{len(left)} of {total} recorded requests were not made; the first is request {first}.\n")
        return 1
    sys.stdout.write(f"{total} request{'s' * (total != 1)}, all as recorded\n")
    return 0
