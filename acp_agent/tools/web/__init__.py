"""Tools for the web."""
