"""Confining the commands that run on this machine. The guarantees: docs/sandbox.md; this package:
docs/internals/sandbox.md."""
