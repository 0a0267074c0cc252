"""Plugins: packages of skills, commands, sub-agents, hooks and MCP servers, as others publish them."""
