"""Deciding about a tool call: rules, limits, the verdict that they give together, and the record of it."""
