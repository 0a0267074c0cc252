"""Tool output on its way to the model and the user."""
