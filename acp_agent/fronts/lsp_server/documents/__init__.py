"""The editor's documents: their texts and positions, and the edits that turn one text into another."""
