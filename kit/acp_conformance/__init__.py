"""A conformance kit for any ACP agent: `acp-conformance -- COMMAND` (docs/internals/conformance.md)."""
