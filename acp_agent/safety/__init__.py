"""Pure deciders: what a tool call touches, and whether it may run. Nothing here waits, reads configuration or asks the
user."""
