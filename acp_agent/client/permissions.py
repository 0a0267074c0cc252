"""Answers to `session/request_permission`: a function of the request, and ready-made ones."""

from __future__ import annotations

from typing import Protocol

import anyio

from acp_agent.schema import acp


class PermissionHandler(Protocol):
    async def __call__(self, request: acp.RequestPermissionRequest, /) -> acp.RequestPermissionOutcome: ...


async def allow_once(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
    return choose(request, "allow_once", "allow_always")


async def allow_always(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
    return choose(request, "allow_always", "allow_once")


async def reject_once(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
    return choose(request, "reject_once", "reject_always")


async def reject_always(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
    return choose(request, "reject_always", "reject_once")


async def cancelled(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
    """Answers like a client whose user cancelled the turn."""
    return acp.CancelledPermissionOutcome()


async def never_answers(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
    """Behaves like a client whose user went away; ends only by cancellation."""
    await anyio.sleep_forever()
    return acp.CancelledPermissionOutcome()


def choose(request: acp.RequestPermissionRequest, *kinds: str) -> acp.RequestPermissionOutcome:
    """Returns the first option of the first kind that is offered; without one the request is cancelled."""
    for kind in kinds:
        for option in request.options:
            if option.kind == kind:
                return acp.SelectedPermissionOutcome(option_id=option.option_id)
    return acp.CancelledPermissionOutcome()
