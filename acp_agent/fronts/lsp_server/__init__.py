"""The agent as a language server: an ACP client whose user sits in an editor that speaks LSP.

The editor's open documents are the agent's files, edits of the workspace its writes, local processes its terminals,
message requests its questions, commands and code actions its prompts, a Markdown document its transcript. Progress,
diagnostics, inlay hints and code lenses show what its tool calls are doing.

`server` registers LSP's methods, `wire` carries them; `front` puts the parts together: `conversation` (one ACP session)
on `agent_host` (the process), `buffers` on `editor_documents` (the agent's `fs`), `questions`, `transcript`, and what
draws: `status` (the plain data), `drawing`, `progress`. pygls and lsprotocol are imported nowhere else but in
`acp_agent.lsp`.
"""
