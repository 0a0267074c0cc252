"""Stands for the modules of the settings on a host, which gets its settings as values."""

KEY_FILES: tuple[str, ...] = ()
EVERY_NAME: tuple[str, ...] = ()
