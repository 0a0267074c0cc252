"""Whether this agent needs a login, and the methods to log in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from acp_agent.config.credentials import find_key, forget_key
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig
from acp_agent.config.sources import merge
from acp_agent.errors import AuthRequired, ConfigError, InvalidParams, MethodNotFound
from acp_agent.handshake import AGENT_METHOD, GATEWAYS, needs_login
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.client_provider import ClientProvider

CLIENT_PROVIDER = "acp_agent.client_provider:ClientProvider"
SERVER_LABEL = "acp_agent.llm.provider_errors:server_label"
HINT = (
    "{server} needs an API key, and none was found. Set {variable} in the environment that acp-coder is started "
    "with (or that of another known provider: ANTHROPIC_API_KEY, GEMINI_API_KEY, ...), run `acp-coder login`, or set "
    "OPENAI_BASE_URL to a local server that needs no key."
)


class Login:
    """The state of one connection: after `logout`, a key in the environment counts only after `authenticate`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.by_client: ClientProvider | None = None
        self._logged_out = False

    def client(self) -> ClientProvider:
        """What the client sets instead of the provider that is configured."""
        if self.by_client is None:
            self.by_client = load(CLIENT_PROVIDER)()
        return self.by_client

    def authenticate(self, method_id: str, config: Callable[[], Config], meta: Mapping[str, Any] | None = None) -> None:
        """Looks for the key again, if one is needed, or takes the client's provider. Raises InvalidParams for other
        methods, AuthRequired without a key; what counted before counts then."""
        if method_id in GATEWAYS:
            self.client().login(method_id, meta)
            return
        if method_id != AGENT_METHOD:
            raise InvalidParams(
                f"Invalid params: $.methodId: {method_id!r} is not available; the agent offers {AGENT_METHOD!r}"
            )
        given = None if self.by_client is None else self.by_client.end_login()
        found = config()
        if _wanted(found) and not self._has_key(found):
            if self.by_client is not None:
                self.by_client.given = given or self.by_client.given
            raise AuthRequired(_hint(found))
        self._logged_out = False

    def logout(self, config: Config) -> None:
        """Forgets the client's provider, if it logged in with one, else the stored key. Raises MethodNotFound where no
        login is needed (it is not advertised then)."""
        if self.by_client is not None and self.by_client.end_login() is not None:
            self._logged_out = True
            return
        if not _wanted(config):
            raise MethodNotFound("Method not found: logout (no login is needed)")
        forget_key(_provider(config)[0], self._environ)
        self._logged_out = True

    def need(self, config: Config) -> None:
        """Raises AuthRequired, with instructions, only if a login is really missing; ConfigError without a provider."""
        if self.by_client is not None and self.by_client.decides:
            self.by_client.need()
            return
        name, provider = _provider(config)
        if provider is None:
            raise ConfigError(_unknown(name, config))
        if _wanted(config) and (self._logged_out or not self._has_key(config)):
            raise AuthRequired(_hint(config))

    def state(self, config: Config) -> str:
        """As `auth/status` of ACP's draft has it: whether sessions can be started, without asking anybody."""
        if self.by_client is not None and self.by_client.decides:
            return "unauthenticated" if self.by_client.disabled else "authenticated"
        if _provider(config)[1] is None:
            return "unknown"
        if not _wanted(config):
            return "not_required"
        return "authenticated" if not self._logged_out and self._has_key(config) else "unauthenticated"

    def _has_key(self, config: Config) -> bool:
        name, provider = _provider(config)
        return provider is not None and find_key(name, provider, self._environ) is not None


def _wanted(config: Config) -> bool:
    return needs_login(merge(list(config.layers)))


def _provider(config: Config) -> tuple[str, ProviderConfig | None]:
    """The provider of new sessions."""
    name = config.settings.chosen_provider
    return name, config.settings.provider(name)


def _unknown(name: str, config: Config) -> str:
    known = list(dict.fromkeys(["default", *config.settings.providers]))
    near = load("difflib:get_close_matches")(name, known, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else "."
    origin = config.origin("agent.provider")
    return f'{origin}: `agent.provider`: unknown provider "{name}"{hint} Known: {", ".join(known)}'


def _hint(config: Config) -> str:
    name, provider = _provider(config)
    variable = provider.api_key_env if provider is not None else ProviderConfig().api_key_env
    server = load(SERVER_LABEL)(name, provider.base_url if provider is not None else "")
    return HINT.format(server=server, variable=variable)
