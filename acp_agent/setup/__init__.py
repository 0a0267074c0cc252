"""How each editor is set up: its row in `editors.toml`, the change of its configuration, and the way back."""
