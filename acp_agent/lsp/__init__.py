"""Language servers that the agent starts itself, if the editor does not offer its own."""
