"""The user that commands run as (`tools.scope.run_as_user`)."""

from __future__ import annotations

import grp
import os
import pwd
from functools import cache
from pathlib import Path

from msgspec import Struct

from acp_agent.errors import ExecutorError


class User(Struct, frozen=True):
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path


@cache
def _find(text: str) -> User:
    try:
        found = pwd.getpwuid(int(text)) if text.isdigit() else pwd.getpwnam(text)
    except (KeyError, OverflowError) as error:
        raise ExecutorError(
            f"`tools.scope.run_as_user` names {text!r}, which does not exist on this machine"
        ) from error
    if os.geteuid() not in (0, found.pw_uid):
        raise ExecutorError(
            f"`tools.scope.run_as_user` is {text!r}, but this process may not switch users; start the agent as root, "
            "or remove the key"
        )
    groups = tuple(entry.gr_gid for entry in grp.getgrall() if found.pw_name in entry.gr_mem)
    return User(found.pw_name, found.pw_uid, found.pw_gid, (*groups, found.pw_gid), Path(found.pw_dir))


def find_user(text: str) -> User | None:
    """The user by name or number; `None` for our own user or empty `text`.

    Raises ExecutorError if it does not exist or this process may not switch to it.
    """
    user = _find(text) if text else None
    return None if user is None or user.uid == os.geteuid() else user
