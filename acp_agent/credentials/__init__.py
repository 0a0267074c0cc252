"""Credentials out of text, on the way to every channel. Nothing here decides what may run; it redacts."""
