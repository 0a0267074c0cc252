"""Which tools are available, and why others are not: built in, from packages, from the folder, from MCP servers."""
