"""The chat in the terminal: an ACP client that draws below the scrollback."""
