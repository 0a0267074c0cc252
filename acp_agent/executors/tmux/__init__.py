"""tmux: a window for the user on what runs in terminals."""
