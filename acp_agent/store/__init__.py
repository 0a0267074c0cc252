"""What outlives the process: sessions with one append-only log each, and remembered permission answers."""
