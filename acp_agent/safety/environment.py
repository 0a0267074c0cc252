"""The environment of commands: listed variables, and never a credential.

A credential has a name like one (`*_TOKEN`, `*_API_KEY`, …) or a value that the redactor recognises. A name in
`environment_extra` is passed whatever it contains, since the user has said so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from acp_agent.safety.globs import matches_any

SECRET_NAMES = (
    *("*TOKEN", "*TOKEN_*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*API_KEY*", "*APIKEY*"),
    *("*ACCESS_KEY*", "*PRIVATE_KEY*", "*CREDENTIAL*", "*_AUTH", "*_AUTH_*", "*_PAT", "*_DSN", "*__AUTH*"),
)
"""Names of what is never inherited, unless it is named in full."""


def safe_environment(
    environ: Mapping[str, str],
    allowed: Sequence[str],
    extra: Collection[str],
    hidden: Collection[str],
    is_secret: Callable[[str], bool] = lambda value: False,
) -> dict[str, str]:
    """The part of `environ` that a command inherits. `hidden`: the agent's own keys, never passed."""
    passed = {}
    for name, value in environ.items():
        if name in hidden:
            continue
        harmless = matches_any(allowed, name) and not matches_any(SECRET_NAMES, name) and not is_secret(value)
        if harmless or name in extra:
            passed[name] = value
    return passed
