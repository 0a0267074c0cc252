"""The agent for clients on other machines, over WebSockets (docs/internals/server.md)."""

COUNTS = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names a folder in which workers count together. prometheus_client looks for it when it is loaded,
and when a kind of value is first made; commands of the agent do not get it."""
