"""`acp-coder lsp [-- CMD ...]`: the agent, or any ACP agent, as a language server on stdin and stdout."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from acp_agent.commands.logs import set_up_logs
from acp_agent.config.load import load_config
from acp_agent.config.model import LogConfig, Settings
from acp_agent.errors import ConfigError
from acp_agent.fronts.headless import AGENT_COMMAND
from acp_agent.fronts.lsp_server.server import serve


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """Returns 0 if the editor sent `shutdown` before `exit`, as LSP specifies."""
    try:
        settings = load_config(environ).settings
    except ConfigError:  # Reported where it is used: by the agent.
        settings = Settings(log=LogConfig(file="-"))
    set_up_logs(settings.log, environ, settings.secrets)
    given = list(options.agent)
    argv = given[1:] if given[:1] == ["--"] else given
    return serve(argv or AGENT_COMMAND, environ)
