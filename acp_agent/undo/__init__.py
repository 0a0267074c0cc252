"""What the agent changed, kept so that it can be taken back: the log of operations and the contents."""
