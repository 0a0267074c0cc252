"""Hooks: programs of the user's that are told of events, and may decide about them."""
