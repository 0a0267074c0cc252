"""JSON-RPC 2.0 on a byte stream, and the editor as the agent may ask it.

`peer` is sans-IO and imports only the standard library's `json`: it is on the path to the first answer. `connection`
puts it on an event loop, `transports` are its streams, `client` is the typed view of the editor. This face imports
none of them, so that a start pays for what it uses.
"""
