"""Tools for terminals that can be typed into."""
