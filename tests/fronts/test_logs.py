"""What gets into the log, and what does not."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_agent.commands.logs import set_up_logs
from acp_agent.config.model import LogConfig, SecretsConfig

KEY = "sk-" + "proj-" + "A1b2C3d4" * 6
MINE = "my-very-own-" + "value-0001"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    level, raising = root.level, logging.raiseExceptions
    yield
    root.setLevel(level)
    logging.raiseExceptions = raising


def written(tmp_path: Path, secrets: SecretsConfig) -> str:
    file = tmp_path / "agent.log"
    root = logging.getLogger()
    others, root.handlers = root.handlers, []
    set_up_logs(LogConfig(file=str(file)), {"SOME_TOKEN": MINE}, secrets)
    log = logging.getLogger("acp_agent.test")
    log.warning("a key %s and %s", KEY, MINE)
    log.warning("badge 123456")
    try:
        raise ValueError(f"refused: {KEY}")
    except ValueError:
        log.exception("it broke")
    log.info("not severe enough")
    ours, root.handlers = root.handlers, others
    for handler in ours:
        handler.close()
    return file.read_text()


def test_credentials_are_taken_out_of_lines_and_tracebacks_unless_switched_off(tmp_path: Path) -> None:
    text = written(tmp_path, SecretsConfig(extra_patterns=[r"badge \d+"]))
    assert KEY not in text and MINE not in text and "123456" not in text
    assert "WARNING acp_agent.test: a key [redacted: OpenAI key] and [redacted: " in text
    assert "ValueError: refused: [redacted: OpenAI key]" in text and "not severe enough" not in text
    assert KEY in written(tmp_path, SecretsConfig(redact=False))
