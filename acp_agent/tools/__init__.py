"""The agent's tools: one file each, their model-facing text beside them in a `.md`. `registry` is the table."""
