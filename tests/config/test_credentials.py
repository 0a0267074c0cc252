"""Where keys are found, and where they are stored."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.errors
import pytest

from acp_agent.config.credentials import Key, credentials_file, find_key, forget_key, store_key
from acp_agent.config.model import ProviderConfig
from acp_agent.errors import ConfigError
from tests.files import put

PROVIDER = ProviderConfig()


class FakeKeyring(keyring.backend.KeyringBackend):
    """Keeps passwords in a dict, or fails as a locked one does."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def _check(self) -> None:
        if self.locked:
            raise keyring.errors.KeyringLocked("locked")

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        del self.kept[service, username]


@pytest.fixture
def ring() -> Iterator[FakeKeyring]:
    before, fake = keyring.get_keyring(), FakeKeyring()
    keyring.set_keyring(fake)
    yield fake
    keyring.set_keyring(before)


@pytest.fixture
def with_ring(tmp_path: Path, ring: FakeKeyring) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "c")}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Without a keyring."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "c"), "ACP_CODER_KEYRING": "0"}


def test_without_any_place_there_is_no_key(environ: dict[str, str]) -> None:
    assert find_key("default", PROVIDER, environ) is None
    assert forget_key("default", environ) == []


def test_the_first_place_that_has_a_key_wins(with_ring: dict[str, str], ring: FakeKeyring) -> None:
    environ = {**with_ring, "ACP_CODER_KEYRING": "0"}
    store_key("default", "from-file", environ)
    file = str(credentials_file(environ))
    assert find_key("default", PROVIDER, with_ring) == Key("from-file", file)
    ring.kept["acp-coder", "default"] = "from-ring"
    assert find_key("default", PROVIDER, with_ring) == Key("from-ring", "keyring")
    assert find_key("default", PROVIDER, environ) == Key("from-file", file)
    configured = ProviderConfig(api_key="from-config")
    assert find_key("default", configured, with_ring) == Key("from-config", "configuration")
    with_ring["OPENAI_API_KEY"] = " from-variable "
    assert find_key("default", configured, with_ring) == Key("from-variable", "environment variable OPENAI_API_KEY")
    assert find_key("other", ProviderConfig(api_key_env="OTHER_KEY"), with_ring) is None


def test_the_file_is_for_its_owner_only(environ: dict[str, str]) -> None:
    place = store_key("default", "secret", environ)
    file = credentials_file(environ)
    assert place == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["credentials.json"]


def test_an_open_file_is_closed_and_a_link_in_its_place_not_followed(environ: dict[str, str], tmp_path: Path) -> None:
    file = credentials_file(environ)
    put(file, '{"other": "kept"}')
    file.chmod(0o644)
    (leftover := file.with_name("credentials.json.new")).write_text("")
    leftover.chmod(0o666)
    store_key("default", "secret", environ)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {"other": "kept", "default": "secret"}
    leftover.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be written"):
        store_key("default", "secret", environ)
    assert not (tmp_path / "elsewhere").exists()


def test_keys_are_kept_in_the_keyring_and_passed_by_where_it_is_locked(with_ring: dict[str, str], ring: FakeKeyring):
    assert store_key("default", "secret", with_ring) == "keyring"
    assert ring.kept == {("acp-coder", "default"): "secret"}
    assert not credentials_file(with_ring).exists()
    assert forget_key("default", with_ring) == ["keyring"]
    assert ring.kept == {}
    ring.locked = True
    assert find_key("default", PROVIDER, with_ring) is None
    file = str(credentials_file(with_ring))
    assert store_key("default", "secret", with_ring) == file
    assert find_key("default", PROVIDER, with_ring) == Key("secret", file)
    assert forget_key("default", with_ring) == [file]


def test_forgetting_removes_the_key_from_every_place(with_ring: dict[str, str], ring: FakeKeyring) -> None:
    store_key("default", "one", {**with_ring, "ACP_CODER_KEYRING": "0"})
    store_key("default", "two", with_ring)
    store_key("other", "three", with_ring)
    assert forget_key("default", with_ring) == ["keyring", str(credentials_file(with_ring))]
    assert find_key("default", PROVIDER, with_ring) is None
    assert find_key("other", PROVIDER, with_ring) == Key("three", "keyring")


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"default": 1}', '{"default": {"key": "x"}}'])
def test_a_damaged_file_is_told_and_left_as_it_is(text: str, environ: dict[str, str]) -> None:
    file = credentials_file(environ)
    put(file, text)
    for act in (
        lambda: find_key("default", PROVIDER, environ), lambda: store_key("default", "x", environ),
        lambda: forget_key("default", environ),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=r"credentials\.json"):
            act()
    assert file.read_text() == text
