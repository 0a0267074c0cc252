"""Undo in a session: what its calls change is recorded, shown and taken back."""
