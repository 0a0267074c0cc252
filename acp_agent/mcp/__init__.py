"""MCP servers of a session: their tools, prompts and results.

Use them through `mcp_servers.McpServers`. `base`, `names`, `content` and `stdio_server` do not import `mcp`, which
takes a second; `mcp_client` does, and is loaded in a thread with the first server.
"""
