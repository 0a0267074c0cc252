"""How each editor is set up: its row in `editors.toml`, the change to its configuration, and how to undo it."""
