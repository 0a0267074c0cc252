"""The one place that assembles: what all sessions share, and the parts of each."""
