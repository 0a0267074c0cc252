"""Persistent data: sessions with one append-only log each, and remembered permission answers."""
