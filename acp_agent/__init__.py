"""acp-coder: a coding agent that editors start and talk to over the Agent Client Protocol.

Empty on purpose: every start would pay for what it imports.
"""

__version__ = "0.3.0"
