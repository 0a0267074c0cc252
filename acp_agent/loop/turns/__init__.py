"""The turns of a session: from the prompt of the user to the end of its turn."""
