"""Confining the commands that run on this machine. The promises: docs/sandbox.md; this room: docs/rooms/sandbox.md."""
