"""One tool call: from the model's words to its last report."""
