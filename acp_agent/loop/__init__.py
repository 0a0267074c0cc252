"""The agent loop: sessions, turns, the life of a tool call. It speaks ACP's own words and knows no vendor."""
