"""The agent as a language server: an ACP client whose user sits in an editor that speaks LSP.

The editor's open documents are the agent's files, workspace edits its writes, local processes its terminals, message
requests its questions, commands and code actions its prompts, a Markdown document its transcript. Progress,
diagnostics, inlay hints and code lenses show what its tool calls are doing.

`server` registers LSP's methods, `wire` transports them; `front` connects the parts: `conversation` (one ACP session)
on `agent_host` (the process), `buffers` on `documents` (the agent's `fs`), `questions`, `transcript`, and the
display: `status` (the plain data), `drawing`, `progress`. pygls and lsprotocol are imported only here and in
`acp_agent.lsp`.
"""
