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
            f"`tools.scope.run_as_user` names {text!r}, and there is no such user on this machine"
        ) from error
    if os.geteuid() not in (0, found.pw_uid):
        raise ExecutorError(
            f"`tools.scope.run_as_user` is {text!r}, and this process has no right to change users; "
            "start the agent as root, or leave the key out"
        )
    groups = tuple(entry.gr_gid for entry in grp.getgrall() if found.pw_name in entry.gr_mem)
    return User(found.pw_name, found.pw_uid, found.pw_gid, (*groups, found.pw_gid), Path(found.pw_dir))


def find_user(text: str) -> User | None:
    """The user by name or number; `None` where it is who we are, or `text` is empty.

    Raises ExecutorError where there is none, or where this process may not become it.
    """
    user = _find(text) if text else None
    return None if user is None or user.uid == os.geteuid() else user
