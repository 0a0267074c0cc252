"""Language servers that the agent starts itself, where the editor does not offer its own."""
