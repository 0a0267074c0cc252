"""The client side: an ACP client over the same `Peer` and `Connection` as the agent.

`AcpClient` talks to an agent; `Files`, `Terminals` and `permissions` are what it lets the agent use; `spawn` starts the
agent as a child. The fronts and the test kit are built on it.
"""

from acp_agent.client.acp_client import AcpClient
from acp_agent.client.fs import Files
from acp_agent.client.spawn import AgentProcess, SpawnedAgent, agent_process, spawn_agent
from acp_agent.client.terminals import Terminals

__all__ = ["AcpClient", "AgentProcess", "Files", "SpawnedAgent", "Terminals", "agent_process", "spawn_agent"]
