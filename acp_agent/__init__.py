"""acp-coder: a coding agent that editors start and speak the Agent Client Protocol with.

This face stays empty on purpose: whatever it imported would be paid for by every start.
"""

__version__ = "0.2.0"
