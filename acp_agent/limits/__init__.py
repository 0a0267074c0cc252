"""What this process, and what it does for others, may hold at a time."""
