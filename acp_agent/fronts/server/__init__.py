"""The agent for clients on other machines, over WebSockets (docs/rooms/server.md)."""
