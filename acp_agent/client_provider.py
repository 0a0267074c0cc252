"""The model provider that a client sets for its connection: `providers/*` of ACP's draft, and the convention
`_meta.gateway` of `authenticate`. Kept in memory; neither written nor logged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct, to_builtins

from acp_agent.config.model import ProviderConfig, as_choice
from acp_agent.config.wire_apis import ELSE, WIRE_APIS
from acp_agent.errors import AuthRequired, InvalidParams
from acp_agent.handshake import GATEWAYS
from acp_agent.schema import acp

if TYPE_CHECKING:
    from acp_agent.config.load import Config
    from acp_agent.config.model import Settings

MAIN = "main"
"""The one id that clients may set: the provider of new sessions."""
NAME = "client"
"""Its name in the configuration."""
APIS = {row.client_type: api for api, row in sorted(WIRE_APIS.items(), reverse=True) if row.client_type}
"""Types of ACP -> the first of ours."""
OPENAI = "https://api.openai.com/v1"
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(r"([\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?)?")
FRAMING = ("connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
"""Headers that belong to the connection."""


class Given(Struct, frozen=True):
    type: str
    base_url: str
    headers: dict[str, str] = {}
    login: bool = False
    """Whether it came with `authenticate`, so that another login or a logout ends it."""


class ClientProvider:
    """Of one connection."""

    def __init__(self) -> None:
        self.given: Given | None = None
        self.disabled = False

    @property
    def decides(self) -> bool:
        """Whether the client has said anything."""
        return self.disabled or self.given is not None

    def need(self) -> None:
        """Raises AuthRequired if there is none."""
        if self.disabled:
            raise AuthRequired("The client has disabled the model provider; it must set one (`providers/set`)")

    def listed(self, config: Config) -> acp.ListProvidersResponse:
        """`config`: with what the client has set."""
        name = config.settings.chosen_provider
        main = acp.ProviderInfo(
            provider_id=MAIN,
            supported=sorted(APIS),
            required=False,
            current=None if self.disabled else self._current(config.settings.provider(name)),
        )
        return acp.ListProvidersResponse(providers=[main])

    def _current(self, provider: ProviderConfig | None) -> acp.ProviderCurrentConfig | None:
        if self.given is not None:
            return acp.ProviderCurrentConfig(api_type=self.given.type, base_url=self.given.base_url)
        if provider is None:
            return None
        type_ = WIRE_APIS[provider.api or ELSE].client_type or f"_{provider.api}"
        return acp.ProviderCurrentConfig(api_type=type_, base_url=provider.base_url or OPENAI)

    def set(self, request: acp.SetProviderRequest) -> None:
        """Raises InvalidParams."""
        if request.provider_id != MAIN:
            raise InvalidParams(f"Invalid params: $.providerId: {request.provider_id!r} is not known, only {MAIN!r}")
        if request.api_type not in APIS:
            words = " and ".join(map(repr, sorted(APIS)))
            raise InvalidParams(f"Invalid params: $.apiType: {request.api_type!r} is not supported, only {words}")
        self._take(Given(request.api_type, request.base_url, request.headers or {}), "$")

    def disable(self, provider_id: str) -> None:
        """Of any name; only the main one is used."""
        if provider_id == MAIN:
            self.given, self.disabled = None, True

    def login(self, method_id: str, meta: Mapping[str, Any] | None) -> None:
        """`authenticate` with one of `GATEWAYS`. Raises InvalidParams."""
        gateway = (meta or {}).get("gateway")
        at = "$._meta.gateway"
        if not isinstance(gateway, dict):
            raise InvalidParams(f"Invalid params: {at}: expected an object with `baseUrl` and `headers`")
        base_url, headers = gateway.get("baseUrl"), gateway.get("headers") or {}
        if not isinstance(base_url, str):
            raise InvalidParams(f"Invalid params: {at}.baseUrl: expected a string")
        if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
            raise InvalidParams(f"Invalid params: {at}.headers: expected an object with strings")
        self._take(Given(GATEWAYS[method_id], base_url, headers, login=True), at)

    def end_login(self) -> Given | None:
        """Returns what the login had given, if there was one."""
        if self.given is None or not self.given.login:
            return None
        given, self.given = self.given, None
        return given

    def _take(self, given: Given, at: str) -> None:
        if not _usable(given.base_url):
            words = "expected a URL with http or https, without a user's name and a query"
            raise InvalidParams(f"Invalid params: {at}.baseUrl: {words}")
        for index, (name, value) in enumerate(given.headers.items(), 1):
            if HEADER.fullmatch(name) is None or VALUE.fullmatch(value) is None:  # Either may hold the credential.
                raise InvalidParams(f"Invalid params: {at}.headers: number {index} is not a header of HTTP")
            if name.lower() in FRAMING:
                raise InvalidParams(f"Invalid params: {at}.headers: {name!r} cannot be set")
        self.given, self.disabled = given, False

    def flags(self, settings: Settings) -> dict[str, Any]:
        """What the configuration, `settings` without it, gets by it. Nothing is left of a provider that the user has
        given the same name, and no request goes to another provider that the client has not chosen."""
        if self.given is None:
            return {}
        base_url = self.given.base_url.rstrip("/")
        if self.given.type == "anthropic" and not base_url.endswith("/v1"):
            base_url += "/v1"  # As clients of this API have it.
        api, headers = APIS[self.given.type], self.given.headers
        about = to_builtins(ProviderConfig(api=api, base_url=base_url, headers=headers, api_key_env=""))
        agent = settings.agent
        return {f"providers.{NAME}.{key}": value for key, value in about.items()} | {
            "agent.provider": NAME,
            "agent.model": settings.choice(agent.model).partition("/")[2],
            "agent.fallback_models": [each for each in agent.fallback_models if "/" not in as_choice(each)],
        }


def _usable(base_url: str) -> bool:
    try:
        url = urlsplit(base_url)
        place = bool(url.scheme in ("http", "https") and url.hostname and url.port != 0)
    except ValueError:  # Malformed brackets or ports.
        return False
    odd = re.search(r"[\s?#\\]", base_url) or re.search("[@%]", url.netloc)
    return place and base_url.isprintable() and not odd
