"""The agent behind other doors than an editor's, each an ACP client of its own."""
