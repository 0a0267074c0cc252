"""A conformance kit for any ACP agent: `acp-coder conformance -- COMMAND` (docs/rooms/conformance.md)."""
