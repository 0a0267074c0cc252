"""ACP's words: every object of the protocol as a Struct, and the reading of them from JSON.

`acp` is generated from the protocol's JSON schema; `decode` reads parsed JSON into it. Writing needs nothing of ours:
`msgspec.json.encode(value)` gives what belongs on the wire.
"""

from msgspec import UNSET, UnsetType

from acp_agent.schema import acp
from acp_agent.schema.acp import *  # noqa: F403
from acp_agent.schema.decode import MalformedResult, Side, decode_params, decode_result

__all__ = ["UNSET", "MalformedResult", "Side", "UnsetType", "decode_params", "decode_result"]
__all__ += acp.__all__
