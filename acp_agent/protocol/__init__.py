"""JSON-RPC 2.0 on a byte stream, and the editor as the agent may ask it.

`peer` is sans-IO and imports only the standard library's `json`, since it is on the path to the first answer.
`connection` puts it on an event loop, `transports` are its streams, `client` is the typed view of the editor. This
package imports none of them, so that start-up pays only for what it uses.
"""
