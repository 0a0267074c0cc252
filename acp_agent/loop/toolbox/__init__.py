"""Which tools there are now, and why not the others: built in, of packages, of the folder, of MCP servers."""
