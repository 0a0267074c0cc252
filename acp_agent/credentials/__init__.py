"""Redacts credentials from text on its way to every channel. Nothing here decides what may run."""
