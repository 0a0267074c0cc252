"""Folders and files: which paths tools may access, which are special, and which of a folder's files are trusted."""
