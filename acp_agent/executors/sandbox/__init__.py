"""Confining the commands that run on this machine. See docs/sandbox.md."""
