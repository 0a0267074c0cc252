"""The agent's tools: one file each, with their text for the model next to them in a `.md`. `registry` lists them."""
