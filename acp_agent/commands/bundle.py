"""`acp-coder report`: a folder of text files about a problem, to be read before it is sent. Sends nothing."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from acp_agent.build.own_credentials import own_credentials
from acp_agent.commands.config import config_here
from acp_agent.commands.doctor import checks
from acp_agent.commands.logs import log_file
from acp_agent.config.load import Config
from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import ConfigError, StoreError, UsageError
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm.recordings.cleaning import Cleaner
from acp_agent.llm.recordings.form import line_of
from acp_agent.llm.recordings.reading import read_recording

LOG_BYTES = 200_000
"""Of the end of the log."""


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    source, folder = Path(options.file).absolute(), Path(options.to).absolute()
    recording = read_recording(source)
    config = _config(environ)
    values = own_credentials(config.settings, environ) if config else ()
    patterns = config.settings.secrets.extra_patterns if config else ()
    cleaner = Cleaner(Redactor(values=values, extra_patterns=patterns), environ)
    lines = [read_loose_json(line) for line in source.read_bytes().split(b"\n")[:-1] if line]
    versions = [
        f"{mark:<3} {subject:<16} {words}"
        for mark, subject, words in checks(Namespace(offline=True, updates=False), environ)
    ]
    files = {
        "recording.jsonl": (
            b"".join(line_of(cleaner.clean(line)) for line in lines),
            f"requests to a model and answers ({len(recording.calls)}), messages of the editor ({len(recording.wire)})",
        ),
        "doctor.txt": (_text(versions, cleaner), "versions, settings, and what `acp-coder doctor` finds"),
        "log.txt": (_text(_log(config, environ), cleaner), "the end of the agent's log"),
    }
    try:
        folder.mkdir(mode=0o700)
        for name, (data, _) in files.items():
            (folder / name).write_bytes(data)
    except FileExistsError as error:
        raise UsageError(f"{folder} exists already; name another with --to") from error
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    sys.stdout.write(f"{folder}\n")
    for name, (data, words) in files.items():
        sys.stdout.write(f"  {name:<18} {len(data):>9} bytes  {words}\n")
    sys.stdout.write(
        "Nothing was sent. Credentials that the agent knows were taken out; your prompts, code and output are in it: "
        "read the files before you send them.\n"
    )
    return 0


def _config(environ: Mapping[str, str]) -> Config | None:
    try:
        return config_here(environ)
    except (ConfigError, StoreError):
        return None  # What `doctor` says of it is in the report.


def _text(lines: list[str], cleaner: Cleaner) -> bytes:
    text: str = cleaner.clean("\n".join(filter(None, lines)))
    return f"{text}\n".encode("utf-8", "replace")


def _log(config: Config | None, environ: Mapping[str, str]) -> list[str]:
    file = log_file(config.settings.log, environ) if config else None
    try:
        data = file.read_bytes() if file else b""
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]
    end = data[-LOG_BYTES:]
    return end.decode("utf-8", "replace").splitlines()[1 if len(end) < len(data) else 0 :]
