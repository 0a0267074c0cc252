"""MCP servers of a session: their tools, prompts and results.

`mcp_servers.McpServers` is the door. `base`, `names`, `content` and `stdio_server` are free of the `mcp` package, which
takes a second to import; `mcp_client` is where it is used, loaded in a thread at the first server.
"""
