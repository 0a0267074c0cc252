"""The environment of commands: only listed variables, and never a credential.

A credential is recognised by its name (`*_TOKEN`, `*_API_KEY`, …) or by a value that the redactor detects. Names in
`environment_extra` are passed whatever their values, since the user asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from acp_agent.safety.globs import matches_any

SECRET_NAMES = (
    *("*TOKEN", "*TOKEN_*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*API_KEY*", "*APIKEY*"),
    *("*ACCESS_KEY*", "*PRIVATE_KEY*", "*CREDENTIAL*", "*_AUTH", "*_AUTH_*", "*_PAT", "*_DSN", "*__AUTH*"),
)
"""Names that are never inherited unless listed in full."""


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
