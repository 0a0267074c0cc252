"""The agent loop: sessions, turns, the life of a tool call. Uses ACP's own terms and knows no vendor."""
