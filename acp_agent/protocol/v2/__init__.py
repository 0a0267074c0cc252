"""ACP v2 (a preview): what a client of v2 says, read as v1, and what the agent says in v1, rendered as v2.

Nothing here is loaded before a client asks for v2 and `protocol.v2` is on (docs/internals/v2.md).
"""
