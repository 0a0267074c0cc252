"""A conformance kit for any ACP agent: `acp-coder conformance -- COMMAND` (docs/internals/conformance.md)."""
