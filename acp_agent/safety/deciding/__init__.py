"""Decisions about a tool call: rules, limits, their combined verdict, and its record."""
