"""Terminals that a program is given, and that can be typed into."""
