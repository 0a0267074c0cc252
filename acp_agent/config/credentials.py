"""Where a provider's key is: environment, configuration, keyring, or a file only its owner can read.

`login` stores it in the keyring if the optional package `keyring` and a usable backend are available, else in the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.config.model import ProviderConfig
from acp_agent.config.xdg import config_dir
from acp_agent.errors import ConfigError
from acp_agent.lazy import load
from acp_agent.limits.decoding import read_loose_json

SERVICE = "acp-coder"
KEYRING = {
    "get": "keyring:get_password",
    "set": "keyring:set_password",
    "delete": "keyring:delete_password",
    "error": "keyring.errors:KeyringError",
}


class Key(Struct, frozen=True):
    value: str
    origin: str
    """In words: the variable, the file, the keyring."""


def credentials_file(environ: Mapping[str, str]) -> Path:
    return Path(config_dir(environ)) / "credentials.json"


def find_key(name: str, provider: ProviderConfig, environ: Mapping[str, str]) -> Key | None:
    """The key of the provider `name`, from the first place that has one; of one that needs no key, only its own."""
    if not provider.api_key_env:
        return Key(provider.api_key, "configuration") if provider.api_key else None
    if value := environ.get(provider.api_key_env, "").strip():
        return Key(value, f"environment variable {provider.api_key_env}")
    if provider.api_key:
        return Key(provider.api_key, "configuration")
    if kept := _from_keyring(name, environ):
        return Key(kept, "keyring")
    if written := _read(credentials_file(environ)).get(name, ""):
        return Key(written, str(credentials_file(environ)))
    return None


def host_key(host: str, env: str, environ: Mapping[str, str]) -> str:
    """The credential for a host: of the variable, else what `login --host` stored; empty if there is none."""
    if env:
        return environ.get(env, "").strip()
    return _from_keyring(host_name(host), environ) or _read(credentials_file(environ)).get(host_name(host), "")


def host_name(host: str) -> str:
    """The name under which `store_key` keeps the credential for a host."""
    return f"host {host}"


class McpLogins:
    """What logins at MCP servers gave, by the URL of the server. `know` is told what of it must stay secret."""

    def __init__(self, environ: Mapping[str, str], know: Callable[[Sequence[str]], None] = lambda words: None) -> None:
        self._environ = environ
        self._know = know

    def read(self, url: str) -> str:
        text = _from_keyring(_login_name(url), self._environ) or str(
            _read(credentials_file(self._environ)).get(_login_name(url), "")
        )
        self._know(_tokens(text))
        return text

    def write(self, url: str, text: str) -> None:
        self._know(_tokens(text))
        store_key(_login_name(url), text, self._environ)

    def forget(self, url: str) -> list[str]:
        """As `forget_key`."""
        return forget_key(_login_name(url), self._environ)

    def tokens(self, url: str) -> list[str]:
        """What of it must stay secret."""
        return _tokens(self.read(url))


def _tokens(login: str) -> list[str]:
    try:
        kept = read_loose_json(login or "{}")
        words = [kept["token"].get("access_token"), kept["token"].get("refresh_token")]
        return [word for word in (*words, kept["client"].get("client_secret")) if word and isinstance(word, str)]
    except (ValueError, LookupError, AttributeError, TypeError):
        return []


def _login_name(url: str) -> str:
    return f"mcp {url}"


def stored_keys(environ: Mapping[str, str]) -> list[str]:
    """The keys in the file, and the tokens of logins."""
    kept = _read(credentials_file(environ)).items()
    return [word for name, text in kept for word in (_tokens(text) if name.startswith(_login_name("")) else [text])]


def stored_names(environ: Mapping[str, str]) -> list[str]:
    """The providers that `login` has stored a key of."""
    return [name for name in _read(credentials_file(environ)) if not name.startswith((_login_name(""), host_name("")))]


def store_key(name: str, value: str, environ: Mapping[str, str]) -> str:
    """Stores the key; returns where, in words. Raises ConfigError if that fails everywhere."""
    if _has_keyring(environ):
        try:
            load(KEYRING["set"])(SERVICE, name, value)
            kept = _read(credentials_file(environ))
            if name not in kept and name != "default" and " " not in name:
                _write(credentials_file(environ), {**kept, name: ""})  # It says that the keyring has one.
            return "keyring"
        except load(KEYRING["error"]):
            pass  # No usable backend (a server without a desktop, say): use the file.
    file = credentials_file(environ)
    _write(file, {**_read(file), name: value})
    return str(file)


def forget_key(name: str, environ: Mapping[str, str]) -> list[str]:
    """Removes the stored key everywhere; returns the places."""
    places = []
    if _from_keyring(name, environ):
        try:
            load(KEYRING["delete"])(SERVICE, name)
            places.append("keyring")
        except load(KEYRING["error"]) as error:
            raise ConfigError(f"the keyring did not remove the key: {error}") from error
    file = credentials_file(environ)
    known = _read(file)
    if (kept := known.pop(name, None)) is not None:
        _write(file, known)
        places += [str(file)] if kept else []
    return places


def _has_keyring(environ: Mapping[str, str]) -> bool:
    return environ.get("ACP_CODER_KEYRING", "1") != "0" and find_spec("keyring") is not None


def _from_keyring(name: str, environ: Mapping[str, str]) -> str | None:
    if not _has_keyring(environ):
        return None
    try:
        found = load(KEYRING["get"])(SERVICE, name)
    except load(KEYRING["error"]):
        return None  # A locked or missing backend holds nothing for us.
    return str(found) if found else None


def _read(file: Path) -> dict[str, Any]:
    try:
        found = read_loose_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigError(f"{file}: must hold a JSON object of provider names and keys")
    return found


def _write(file: Path, keys: dict[str, Any]) -> None:
    """Creates it readable only by the owner from the start."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = file.with_name(file.name + ".new")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            os.fchmod(fd, 0o600)
            json.dump(keys, stream)
        beside.replace(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error}") from error
