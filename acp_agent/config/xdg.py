"""The folders of this program, by the XDG base directory rules and `platformdirs`.

On Linux the rule is two lines and is applied here, since this runs before the first answer; a test holds it against
`platformdirs`, which answers everywhere else.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, MutableMapping

from acp_agent.lazy import load

APP = "acp-coder"

MAKE_FOLDER = "tempfile:mkdtemp"

PLATFORM_DIRS = {
    "config": "platformdirs:user_config_dir",
    "data": "platformdirs:user_data_dir",
    "state": "platformdirs:user_state_dir",
}


def config_dir(environ: Mapping[str, str]) -> str:
    """Where the user's configuration lives."""
    return _folder("config", "XDG_CONFIG_HOME", ".config", environ)


def state_dir(environ: Mapping[str, str]) -> str:
    """Where sessions, logs and permission answers live."""
    return _folder("state", "XDG_STATE_HOME", ".local/state", environ)


def data_dir(environ: Mapping[str, str]) -> str:
    """Where the files of plugins live."""
    return _folder("data", "XDG_DATA_HOME", ".local/share", environ)


def plugin_index(environ: Mapping[str, str]) -> str:
    """The file that says which plugins the user has added, whether it exists or not."""
    return f"{state_dir(environ)}/plugins.json"


def config_file(environ: Mapping[str, str]) -> str:
    """The user's configuration file, whether it exists or not; `ACP_CODER_CONFIG` names another."""
    return environ.get("ACP_CODER_CONFIG") or f"{config_dir(environ)}/config.toml"


def ensure_home(environ: MutableMapping[str, str]) -> None:
    """Sets HOME where it is missing and the user has no entry either, as in some containers, to a folder of this user's
    own in the temporary one. Later runs find the same."""
    if environ.get("HOME"):
        return
    environ.pop("HOME", None)
    if os.path.expanduser("~") != "~":
        return
    home = f"{environ.get('TMPDIR') or '/tmp'}/{APP}-home-{os.getuid()}"
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        found = os.lstat(home)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            home = load(MAKE_FOLDER)()  # Somebody else has made it.
    except OSError:
        return
    environ["HOME"] = home


def _folder(which: str, variable: str, below_home: str, environ: Mapping[str, str]) -> str:
    if sys.platform != "linux":
        return str(load(PLATFORM_DIRS[which])(APP, appauthor=False))
    base = environ.get(variable, "").strip()
    if not base:
        home = environ.get("HOME") or os.path.expanduser("~")
        base = f"{home}/{below_home}"
    return f"{base}/{APP}"
