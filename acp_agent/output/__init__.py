"""Processes tool output for the model and the user."""
