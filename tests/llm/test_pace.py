"""How often many streams are read at once."""

from types import SimpleNamespace

import pytest

from acp_agent.llm.transport import pace


async def test_many_streams_wait_for_the_next_interval_and_few_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = 100.01, []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(pace, "anyio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: now))
    found = pace.Pace()

    async def read(streams: int) -> int:
        waits.clear()
        for stream in range(streams):
            await found.wait(stream)
        assert all(0 < wait <= pace.INTERVAL for wait in waits)
        return len(waits)

    for _ in range(5):
        assert await read(pace.MANY) == 0, "one that is read often is one stream"
    assert await read(pace.MANY + 3) == 3
    now += pace.INTERVAL
    assert await read(2) == 2, "as many as before are expected"
    now += pace.INTERVAL
    assert await read(pace.MANY) == 0
