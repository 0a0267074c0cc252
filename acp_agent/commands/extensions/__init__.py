"""`acp-coder hooks`, `plugin` and `mcp`."""
