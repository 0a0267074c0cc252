"""Folders and files: which paths tools may touch, which are special, and what of a folder is trusted."""
