"""What may go wrong between a client and the process that runs its session."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.fronts.server.test_house import SCRIPT, asked, cut_off, exists, turns
from tests.fronts.server.test_processes import postgres, said, two  # noqa: F401
from tests.fronts.server.test_server import editor
from tests.postgres_server import MISSING, PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


async def test_a_turn_goes_on_without_its_client_that_was_connected_elsewhere(
    postgres: PostgresServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    async with two(postgres, tmp_path, SCRIPT) as (one, other), editor(one, check=False) as first:
        session = (await first.new_session(one.project)).session_id
        async with cut_off(other) as second, anyio.create_task_group() as tasks:
            await second.load_session(session, one.project)
            tasks.start_soon(asked, second)
            await exists(one.project / "begun")
            second._transport.close()
        house = one.server.house("me")
        while len(house.watched(session)) > 1:
            await anyio.sleep(0.01)
        (one.project / "go").touch()
        await first.wait_until(lambda: turns(first)[-1:] != [{"state": "running"}])
        assert turns(first)[-1] == {"state": "idle", "stopReason": "end_turn"}
