"""The one place that assembles objects: those that all sessions share, and the parts of each."""
