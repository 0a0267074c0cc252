"""Answers to `session/request_permission`: a function of the request, and ready-made ones."""

from __future__ import annotations

from typing import Protocol

import anyio

from acp_agent.schema.acp import (
    CancelledPermissionOutcome,
    PermissionOptionKind,
    RequestPermissionOutcome,
    RequestPermissionRequest,
    SelectedPermissionOutcome,
)


class Permissions(Protocol):
    async def __call__(self, request: RequestPermissionRequest, /) -> RequestPermissionOutcome: ...


async def allow_once(request: RequestPermissionRequest) -> RequestPermissionOutcome:
    return _choose(request, "allow_once", "allow_always")


async def allow_always(request: RequestPermissionRequest) -> RequestPermissionOutcome:
    return _choose(request, "allow_always", "allow_once")


async def reject_once(request: RequestPermissionRequest) -> RequestPermissionOutcome:
    return _choose(request, "reject_once", "reject_always")


async def reject_always(request: RequestPermissionRequest) -> RequestPermissionOutcome:
    return _choose(request, "reject_always", "reject_once")


async def cancelled(request: RequestPermissionRequest) -> RequestPermissionOutcome:
    """Answers like a client whose user cancelled the turn."""
    return CancelledPermissionOutcome()


async def never_answers(request: RequestPermissionRequest) -> RequestPermissionOutcome:
    """Behaves like a client whose user went away; ends only by cancellation."""
    await anyio.sleep_forever()
    return CancelledPermissionOutcome()


def _choose(request: RequestPermissionRequest, *kinds: PermissionOptionKind) -> RequestPermissionOutcome:
    """Returns the first option of the first kind that is offered; without one the request is cancelled."""
    for kind in kinds:
        for option in request.options:
            if option.kind == kind:
                return SelectedPermissionOutcome(option_id=option.option_id)
    return CancelledPermissionOutcome()
