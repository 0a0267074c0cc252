"""Garbage on a server."""

import gc
import weakref

import anyio
import anyio.lowlevel

from acp_agent.fronts.server import garbage


class Ring:
    def __init__(self) -> None:
        self.itself = self


async def test_it_is_collected_once_no_turn_runs_and_python_s_own_ways_come_back(monkeypatch) -> None:
    monkeypatch.setattr(garbage, "EVERY", 0.0)
    monkeypatch.setattr(garbage, "YOUNG", 10)
    before, quiet, asked = gc.get_threshold(), False, 0

    def is_quiet() -> bool:
        nonlocal asked
        asked += 1
        return quiet

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(garbage.collecting, is_quiet)
            ring = Ring()
            gone = weakref.ref(ring)
            gc.freeze()  # Nothing finds it but the collection of everything.
            del ring
            kept: list[object] = []
            while asked < 3:
                kept.append([[] for _ in range(1000)])
                await anyio.lowlevel.checkpoint()
            assert gone() is not None
            quiet = True
            while gone() is not None:
                kept.append([[] for _ in range(1000)])
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
