"""ACP's words: every object of the protocol as a Struct, and the reading of them from JSON.

`acp` is generated from the protocol's JSON schema; `decode` reads parsed JSON into it. Writing needs nothing of ours:
`msgspec.json.encode(value)` gives what belongs on the wire.
"""
