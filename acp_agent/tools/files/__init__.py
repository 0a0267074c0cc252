"""Tools for files and folders."""
