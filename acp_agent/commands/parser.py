"""The sub-commands' arguments. Each command's work is a row of a table, loaded when it is chosen."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from acp_agent.errors import AgentError, ConfigError, StoreError, UsageError
from acp_agent.lazy import load
from acp_agent.loop.modes import MODES

COMMANDS: dict[str, str] = {
    "chat": "acp_agent.commands.one_prompt:chat",
    "prompt": "acp_agent.commands.one_prompt:run",
    "models": "acp_agent.commands.extensions.list_models:run",
    "sessions": "acp_agent.commands.sessions:run",
    "login": "acp_agent.commands.login:login",
    "logout": "acp_agent.commands.login:logout",
    "doctor": "acp_agent.commands.doctor:run",
    "serve": "acp_agent.commands.servers:serve",
    "config": "acp_agent.commands.config:run",
    "audit": "acp_agent.commands.verify_audit:run",
    "mcp serve": "acp_agent.commands.extensions.mcp_serve:run",
    "plugin": "acp_agent.commands.extensions.plugin_command:run",
    "mcp": "acp_agent.commands.extensions.mcp_command:run",
    "hooks": "acp_agent.commands.extensions.try_hooks:run",
    "policy": "acp_agent.commands.explain_policy:run",
    "setup": "acp_agent.commands.setup:run",
    "uninstall": "acp_agent.commands.extensions.uninstall:run",
    "lsp": "acp_agent.commands.servers:lsp",
    "conformance": "acp_conformance.kit_main:main",
    "conformance client": "acp_conformance.kit_main:main",
    "conformance agent": "acp_conformance.kit_main:main",
    "demo": "acp_agent.commands.demo:run",
    "replay": "acp_agent.commands.play:run",
    "report": "acp_agent.commands.bundle:run",
    "completions": "acp_agent.commands.extensions.completions:run",
    "man": "acp_agent.commands.extensions.manual:run",
}

KIT_OPTIONS = "acp_conformance.kit_main:ADDS"
NO_KIT = (
    "the conformance kit is a package of its own. `uvx acp-conformance -- COMMAND` runs it; after `pip install "
    "acp-conformance` (in a checkout `pip install ./kit`) this command does, too"
)
NAMES = "acp_agent.config.place_settings:NAMES"
TMUX_SESSION = "main"
"""The name of a session in tmux that was given none."""
PLACES = {"container": "NAME[:DIR]", "devcontainer": "DIR", "ssh": "[USER@]HOST[:DIR]"}
"""Options that name another place, and what follows them."""
STDIO = "acp_agent.commands.stdio:run"
VERSION_LINE = "acp_agent.commands.extensions.this_version:version_line"
USAGE_STATUS = 2
FAILURE_STATUS = 1

WELCOME = """\
  acp-coder                               opens a chat here; without a terminal it speaks ACP, as editors start it
  acp-coder "Why does the build fail?"    opens the chat with that
  acp-coder -p "Explain this" < log.txt   answers once, on stdout; what is piped in belongs to the prompt
  acp-coder -c                            continues the newest session of this folder
  acp-coder setup                         adds the agent to your editor
  acp-coder doctor                        shows what is configured and what is missing
"""
GROUPS: dict[str, tuple[str, ...]] = {
    "Talk": ("chat", "prompt", "sessions", "models"),
    "Set up": ("setup", "login", "logout", "doctor", "config", "mcp", "plugin", "hooks", "policy",
               "uninstall"),
    "Other fronts": ("lsp", "serve", "mcp serve"),
    "Look into it": (
        "audit", "replay", "report", "demo", "conformance", "conformance client", "conformance agent", "completions",
        "man",
    ),
}  # fmt: skip
"""The commands of `--help`."""
VALUED = frozenset(
    ("-m", "--model", "--mode", "--cwd", "--session", "--output-format", "--record", "--record-wire", "--container",
     "--devcontainer", "--ssh")
)  # fmt: skip
"""Options of a prompt that are followed by a value."""
ONCE = frozenset(("-p", "--print", "-y", "--yes", "--deny", "--json", "--output-format", "--keep-running"))
"""Options of a prompt that is run once."""
LIKELY, LIKELY_ALONE = 0.75, 0.6
"""How alike a first word must be to a command to be taken for it; if it is the only one."""


def agent_variables(record: str | None, wire: str | None, place: str | None, tmux: str | None = None) -> dict[str, str]:
    """The variables that make an agent record, work in another place (as in `agent.place`), and show its terminals in
    tmux."""
    files = {"ACP_CODER_RECORD": record, "ACP_CODER_RECORD_WIRE": wire}
    found = {name: str(Path(file).absolute()) for name, file in files.items() if file}
    return found | {name: word for name, word in (("ACP_CODER_PLACE", place), ("ACP_CODER_TMUX", tmux)) if word}


def _tmux_name(text: str) -> str:
    """What follows `--tmux` although it may stand alone. Raises ArgumentTypeError for what was meant otherwise."""
    if text in COMMANDS:
        raise argparse.ArgumentTypeError(f"it is an option of `acp-coder` and `acp-coder prompt`, not of {text}")
    if not re.search(load(NAMES), text):
        words = "is no name (letters, digits, - and _); before a prompt write --tmux=NAME"
        raise argparse.ArgumentTypeError(f"{text!r} {words}")
    return text


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _TopParser(_Parser):
    def format_help(self) -> str:
        """The plain forms first, then the commands in groups."""
        about = {
            each.dest: each.help or ""
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for each in action._choices_actions
        }
        lines = [self.description or "", "", WELCOME.rstrip("\n")]
        for title, names in GROUPS.items():
            lines += ["", f"{title}:", *(f"  {name:<19} {about.get(name, '')}" for name in names)]
        lines += ["", "Options, before the words or behind them: acp-coder prompt --help, acp-coder chat --help"]
        return "\n".join(lines) + "\n"


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(f"acp-coder {load(VERSION_LINE)()}\n")
        parser.exit()


def run(arguments: list[str]) -> int:
    """The exit status: 2 with one sentence for a wrong command line or configuration, 1 for other failures."""
    try:
        if arguments[0] == "conformance":
            if find_spec("acp_conformance") is None:
                raise UsageError(NO_KIT)
            return int(load(COMMANDS["conformance"])(arguments[1:]))
        options = build_parser().parse_args(_with_command(arguments))
        place = options.serve_place
        given = agent_variables(options.serve_record, options.serve_record_wire, place, options.serve_tmux)
        if options.command is None and given:
            os.environ.update(given)
            return int(load(STDIO)([]))
        if given:
            kind = place.partition(":")[0] if place else ""
            other = ("--tmux", "") if options.serve_tmux else ("--record", "FILE")
            name, given_with = (f"--{kind}", PLACES[kind]) if kind else other
            if options.command not in ("prompt", "chat"):
                raise UsageError(f"{name} is an option of `acp-coder` and `acp-coder prompt`, not of {options.command}")
            raise UsageError(f"{name} stands behind the command: acp-coder prompt {name} {given_with}".rstrip())
        if options.command is None:
            raise UsageError(
                "no command given: `acp-coder --help` lists them; without arguments it speaks ACP on stdio"
            )
        status = int(load(COMMANDS[options.command])(options, os.environ))
        sys.stdout.flush()
        return status
    except (UsageError, ConfigError) as error:
        sys.stderr.write(f"acp-coder: {error}\n")
        return USAGE_STATUS
    except (AgentError, StoreError) as error:
        sys.stderr.write(f"acp-coder: {error}\n")
        return FAILURE_STATUS
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes stdout once more at exit.
        return 128 + signal.SIGPIPE


def _with_command(arguments: list[str]) -> list[str]:
    """`arguments`, begun with the command that is meant: words are a prompt, in the chat or run once. Raises UsageError
    for a word that is no command."""
    lead, rest = _lead(arguments)
    two = " ".join(rest[:2])
    if two in COMMANDS and len(rest) > 1:
        return [*lead, two, *rest[2:]]
    if rest and rest[0] in COMMANDS:
        return [rest[0], *lead, *rest[1:]] if rest[0] in ("chat", "prompt") and _names(lead) - SERVED else arguments
    if rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        return arguments
    talks = bool(_names(lead) - SERVED) or is_terminal()
    if not rest and not talks:
        return arguments
    if rest and not _names(lead) - SERVED and rest[0] not in ("-", "--") and len(rest[0].split()) == 1:
        first, most = rest[0], LIKELY if len(rest) > 1 else LIKELY_ALONE
        if near := difflib.get_close_matches(first, COMMANDS, 1, most):
            raise UsageError(f"there is no command {first!r}; did you mean `acp-coder {near[0]}`?")
        if len(rest) == 1:
            raise UsageError(f'there is no command {first!r}; for a prompt: `acp-coder -p "{first}"`')
    once = _names(lead) & ONCE or (rest and not is_terminal())
    return ["prompt" if once else "chat", *lead, *rest]


SERVED = frozenset(("--record", "--record-wire", "--container", "--devcontainer", "--ssh", "--tmux"))
"""Options of `acp-coder` that speaks ACP, too."""


def _names(options: list[str]) -> set[str]:
    return {option.partition("=")[0] for option in options if option.startswith("-")}


def _lead(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options before the first word, and the rest."""
    rest, lead = list(arguments), []
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--", "-h", "--help", "--version"):
        if not _known(rest[0]):
            return [], arguments
        lead.append(rest.pop(0))
        if rest and (lead[-1] in VALUED or (lead[-1] == "--tmux" and len(rest) == 1 and rest[0] not in COMMANDS)):
            lead.append(rest.pop(0))
    return lead, rest


def _known(option: str) -> bool:
    return option.partition("=")[0] in VALUED | ONCE | SERVED | {"-c", "--continue"}


def is_terminal() -> bool:
    """Whether a person is on both sides."""
    return os.isatty(0) and os.isatty(1)


def build_parser() -> argparse.ArgumentParser:
    parser = _TopParser(prog="acp-coder", description="A coding agent for editors and the terminal.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and its commit, and exit")
    _add_agent(parser, "serve_")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    _add_prompts(commands)
    _add_sessions(commands)
    for name, words in (
        ("login", "store an API key in the keyring or a private file"),
        ("logout", "forget an API key"),
    ):
        stored = commands.add_parser(name, help=words)
        stored.add_argument("name", nargs="?", default=None, metavar="PROVIDER", help="whose key (default: asks)")
        stored.add_argument("--provider", default=None, help="the same; without a terminal, the configured one")
        stored.add_argument("--host", default=None, help="a host of `[network.credentials]` instead of a provider")
        if name == "login":
            stored.add_argument("--list", action="store_true", help="only list the known providers")
            stored.add_argument("--unchecked", action="store_true", help="do not ask the server about the key")

    _add_serve(commands)
    _add_conformance(commands)
    doctor = commands.add_parser("doctor", help="check configuration, key, model and tools")
    doctor.add_argument("--offline", action="store_true", help="do not contact the model's server")
    doctor.add_argument("--all", action="store_true", help="show all that was looked at")
    doctor.add_argument("--updates", action="store_true", help="ask the package index for a newer version")

    uninstall = commands.add_parser("uninstall", help="list what is on this machine of it, or remove that")
    uninstall.add_argument("--purge", action="store_true", help="remove it, after a question")
    uninstall.add_argument("--yes", action="store_true", help="with --purge: without asking")

    models = commands.add_parser("models", help="list the models that can be chosen here")
    models.add_argument("provider", nargs="?", default=None, help="only this provider's")
    _add_config(commands)

    audit = commands.add_parser("audit", help="check that nothing in the audit log was changed or removed")
    audit.add_argument("verb", choices=("verify", "accept"), help="`accept`: you changed it; begin a new chain")
    audit.add_argument("--owner", default="", help="that of an owner of `acp-coder serve`", metavar="NAME")

    policy = commands.add_parser("policy", help="explain what the rules say about a call, or test them")
    asks = policy.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    explain = asks.add_parser("explain", help="what would happen to a command line, part by part")
    explain.add_argument("text", help="the command line; with --tool, the arguments of the call as JSON")
    explain.add_argument("--tool", default="", help="a call to this tool instead of a command line")
    test = asks.add_parser("test", help="check the rules against a file of expected verdicts")
    test.add_argument("file", help="TOML: [[test]] with command, or tool and arguments, and expect = allow|ask|deny")
    learned = asks.add_parser("learned", help="list or forget which sequences of calls went wrong in a project")
    learned.add_argument("rest", nargs="*", metavar="forget NUMBER", help="or `forget all`")
    for one in (explain, test, learned):
        one.add_argument(
            "--mode", choices=tuple(MODES), default=None, help="the session's mode (default: as configured)"
        )
        one.add_argument("--cwd", default=None, help="the session's folder (default: the current one)")

    for add in (_add_hooks, _add_plugin, _add_mcp):
        add(commands)
    setup = commands.add_parser("setup", help="add the agent to an editor's configuration, or undo that")
    setup.add_argument("editor", nargs="?", default=None, help="the editor; without it, lists the known ones")
    setup.add_argument("--undo", action="store_true", help="undo what was written")
    setup.add_argument("--config", default=None, help="the configuration file (default: where the editor looks)")
    setup.add_argument("--program", default=None, help="the agent's program (default: this one)")
    answer = setup.add_mutually_exclusive_group()
    answer.add_argument("--yes", action="store_true", help="write without asking")
    answer.add_argument("--dry-run", action="store_true", help="only show the diff")

    lsp = commands.add_parser("lsp", help="the agent as a language server on stdio")
    lsp.add_argument("agent", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="another ACP agent's command")
    _add_recordings(commands)
    _add_shell(commands)
    return parser


def _add_prompts(commands: argparse._SubParsersAction[_Parser]) -> None:
    chat = commands.add_parser("chat", help="open a chat in this terminal, as `acp-coder` alone does")
    prompt = commands.add_parser("prompt", help="answer one prompt, as `acp-coder -p` does")
    for one, words in ((chat, "what to begin with"), (prompt, "the prompt; `-`: it is what is piped in")):
        one.add_argument("text", nargs="*", help=words)
        one.add_argument("--cwd", default=None, help="the folder to work in (default: the current one)")
        one.add_argument("--mode", choices=tuple(MODES), help="the session's mode")
        one.add_argument("-m", "--model", help="`provider/model` or `model`")
        which = one.add_mutually_exclusive_group()
        which.add_argument(
            "-c", "--continue", dest="newest", action="store_true", help="continue the newest session of the folder"
        )
        which.add_argument("--session", metavar="ID", help="continue this session; its id is printed at the end")
        _add_agent(one, "")
    prompt.add_argument("-p", "--print", action="store_true", help="as `prompt` does anyway")
    prompt.add_argument(
        "--output-format", choices=("text", "json", "stream-json"), default="text",
        help="`json`: one object at the end; `stream-json`: session updates as lines",
    )  # fmt: skip
    prompt.add_argument("--json", dest="output_format", action="store_const", const="stream-json", help="the latter")
    prompt.add_argument("--keep-running", action="store_true", help="leave background processes running at the end")
    answers = prompt.add_mutually_exclusive_group()
    answers.add_argument("-y", "--yes", action="store_true", help="allow every request, once each")
    answers.add_argument("--deny", action="store_true", help="reject every request, what was always allowed too")


def _add_agent(parser: argparse.ArgumentParser, prefix: str) -> None:
    """`prefix`: of the options' names here, so that those of a sub-command do not reset those before it."""
    parser.add_argument(
        "--record", dest=f"{prefix}record", metavar="FILE", help="append what the model is asked and answers to FILE"
    )
    parser.add_argument(
        "--record-wire",
        dest=f"{prefix}record_wire",
        metavar="FILE",
        help="append the messages of client and agent to FILE, which may be the same",
    )
    parser.add_argument(
        "--tmux",
        dest=f"{prefix}tmux",
        nargs="?",
        const=TMUX_SESSION,
        type=_tmux_name,
        metavar="SESSION",
        help="show what runs in terminals in tmux, to which you can attach, in a session of that name",
    )
    where = parser.add_mutually_exclusive_group()
    kinds: dict[str, tuple[Callable[[str], str], str]] = {
        "container": (
            lambda name: f"container:{name}",
            "run commands in the place, the running container or a container of the image NAME; in a running one keep "
            "files, too, in the folder DIR",
        ),
        "devcontainer": (
            lambda folder: f"devcontainer:{Path(folder).absolute()}",
            "run commands in the dev container of the folder DIR",
        ),
        "ssh": (
            lambda host: f"ssh:{host}",
            "run commands and keep files on that host, in the folder DIR there, or that of the same path",
        ),
    }
    for kind, (given, words) in kinds.items():
        where.add_argument(f"--{kind}", dest=f"{prefix}place", type=given, metavar=PLACES[kind], help=words)


def _add_serve(commands: argparse._SubParsersAction[_Parser]) -> None:
    serve = commands.add_parser("serve", help="serve clients on other machines over WebSockets")
    serve.add_argument("--host", help="the address to listen on (default: `server.host`)")
    serve.add_argument("--port", type=int, help="the port; 0: any (default: `server.port`)")
    serve.add_argument("--token-file", metavar="FILE", help="where tokens are kept (default: in the state folder)")
    serve.add_argument("--cert", metavar="FILE", help="certificate for TLS, in PEM")
    serve.add_argument("--key", metavar="FILE", help="its private key")
    serve.add_argument(
        "--without-tls", action="store_true", help="listen beyond this machine without TLS: behind a proxy that has it"
    )
    serve.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that share the port and a store on PostgreSQL"
    )
    what = serve.add_subparsers(dest="what", metavar="token", parser_class=_Parser)
    token = what.add_parser("token", help="add, list or revoke tokens")
    token.add_argument("verb", choices=("add", "list", "revoke"))
    token.add_argument("name", nargs="?", help="whose it is")
    token.add_argument(
        "--folder", action="append", default=[], metavar="DIR", help="a folder that it may open (default: any)"
    )
    token.add_argument(
        "--scope",
        choices=("prompt", "approve", "watch"),
        default="prompt",
        help="what it may do: everything (the default), answer questions and stop turns, or only look on",
    )
    token.add_argument("--owner", default="", metavar="NAME", help="whose sessions it reaches (default: its own)")
    token.add_argument("--mine", action="store_true", help="it reaches those of your terminal and editors, too")


def _add_hooks(commands: argparse._SubParsersAction[_Parser]) -> None:
    hooks = commands.add_parser("hooks", help="list the hooks, or show what they would do")
    verbs = hooks.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    listed = verbs.add_parser("list", help="those that take effect in the folder")
    test = verbs.add_parser("test", help="run the hooks of an event, and show what would happen")
    test.add_argument(
        "event", metavar="EVENT", help="PreToolUse, PostToolUse, PermissionRequest, UserPromptSubmit, ..."
    )
    test.add_argument("--tool", default="bash", help="the tool that is called (ours or Claude Code's name)")
    test.add_argument("--kind", default="", help="what matchers of other events are compared with: startup, auto, ...")
    test.add_argument(
        "--input", default="{}", metavar="JSON", help="the arguments of the call; else fields of the event"
    )
    test.add_argument("--mode", choices=tuple(MODES), default=None, help="the session's mode")
    for one in (listed, test):
        one.add_argument("--cwd", default=None, help="the session's folder (default: the current one)")


def _add_plugin(commands: argparse._SubParsersAction[_Parser]) -> None:
    serve = commands.add_parser("mcp serve", help="be an MCP server on stdio, to which other agents give work")
    serve.add_argument(
        "--folder", action="append", default=[], metavar="DIR", help="where it may work (default: the current one)"
    )
    serve.add_argument("--mode", choices=tuple(MODES), default=None, help="of its sessions (default: as configured)")
    plugin = commands.add_parser("plugin", help="add, list, show, update, remove or check plugins")
    verbs = plugin.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    add = verbs.add_parser("add", help="show a plugin, and use it if you accept it")
    add.add_argument("source", help="a folder, an archive, a git URL, npm:NAME, pypi:NAME; #FOLDER names a part of it")
    update = verbs.add_parser("update", help="show what is new in its source, and use it if you accept it")
    update.add_argument("name", nargs="?", default="", help="default: all")
    verbs.add_parser("list", help="those that are used, with their sources and digests")
    for verb, words in (("show", "what runs and when, what it adds, its files"), ("remove", "remove it and its data")):
        verbs.add_parser(verb, help=words).add_argument("name")
    check = verbs.add_parser("check", help="for authors: what of a plugin would not be used, and why")
    check.add_argument("source", metavar="DIR")
    for one in (add, update):
        answers = one.add_mutually_exclusive_group()
        answers.add_argument("--yes", action="store_true", help="accept what is shown")
        answers.add_argument("--digest", default="", help="accept it only if this is its digest")


def _add_mcp(commands: argparse._SubParsersAction[_Parser]) -> None:
    mcp = commands.add_parser("mcp", help="add, list, show or remove MCP servers")
    verbs = mcp.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    add = verbs.add_parser("add", help="add a server to your configuration")
    add.add_argument("name")
    add.add_argument("words", nargs="+", metavar="URL | -- COMMAND ...", help="where it is, or what starts it")
    for option, value, words in (
        ("--env", "NAME=VALUE", "a variable for the program"),
        ("--inherit", "NAME", "a variable of yours that the program gets, too"),
        ("--header", "NAME:VALUE", "an HTTP header sent with every request"),
        ("--allow", "PATTERN", "offer only tools like this"),
        ("--deny", "PATTERN", "do not offer tools like this"),
    ):
        add.add_argument(option, action="append", default=[], metavar=value, help=words)
    add.add_argument("--cwd", default="", metavar="DIR", help="the program's folder (default: the session's)")
    add.add_argument(
        "--transport", choices=("stdio", "http", "sse"), default="", help="default: `http` with a URL, else `stdio`"
    )
    verbs.add_parser("list", help="connect each server that a session here would have, and show what it offers")
    verbs.add_parser("get", help="how one is configured").add_argument("name")
    verbs.add_parser("remove", help="remove one from your configuration").add_argument("name")
    login = verbs.add_parser("login", help="log in at a server by OAuth, in a browser on this machine")
    login.add_argument("name")
    login.add_argument("--no-browser", action="store_true", help="only print the URL")
    verbs.add_parser("logout", help="forget the login").add_argument("name")


def _add_conformance(commands: argparse._SubParsersAction[_Parser]) -> None:
    """For the list of commands; where the kit is installed its options are completed, too."""
    adds = load(KIT_OPTIONS) if find_spec("acp_conformance") else {}
    for word, about in (
        ("", "drive any ACP agent and say which requirements it keeps"),
        ("client", "ask an ACP client everything, and say what it really does"),
        ("agent", "an agent that asks the client everything and answers with it"),
    ):
        command = commands.add_parser(f"conformance {word}".rstrip(), help=about)
        if word in adds:
            adds[word](command)


def _add_config(commands: argparse._SubParsersAction[_Parser]) -> None:
    config = commands.add_parser("config", help="show, change or check the configuration")
    verbs = config.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    show = verbs.add_parser("show", help="every key and its value")
    show.add_argument("--origin", action="store_true", help="and where the value comes from")
    show.add_argument("--changed", action="store_true", help="only what is not the default")
    verbs.add_parser("path", help="where your configuration file is")
    verbs.add_parser("edit", help="open it in $EDITOR, and check it")
    change = verbs.add_parser("set", help="set a key in it: acp-coder config set agent.mode ask")
    change.add_argument("key", help="the dotted key")
    change.add_argument("value", help="the value, as TOML; what is no TOML is a text")
    verbs.add_parser("check", help="whether it is right")


def _add_sessions(commands: argparse._SubParsersAction[_Parser]) -> None:
    sessions = commands.add_parser("sessions", help="list, show, export, undo or delete sessions")
    verbs = sessions.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    listing = verbs.add_parser("list", help="the sessions, newest first")
    listing.add_argument("--cwd", help="only this folder's")
    kinds = {"show": "a session as text", "export": "its log as JSON lines", "delete": "delete it permanently"}
    for verb, words in kinds.items():
        one = verbs.add_parser(verb, help=words)
        one.add_argument("id", help="the session's id, or a unique prefix of it")
        if verb == "export":
            one.add_argument("file", nargs="?", help="write it there as a recording (`acp-coder replay`) instead")
    rename = verbs.add_parser("rename", help="give it another title")
    rename.add_argument("id", help="the session's id, or a unique prefix of it")
    rename.add_argument("title", nargs="+", help="the title")
    taking_back = {
        "checkpoints": "list its prompts and what was changed for each",
        "undo": "take back a prompt and all after it, or one call",
        "redo": "take back the last undo",
    }
    for verb, words in taking_back.items():
        one = verbs.add_parser(verb, help=words)
        one.add_argument("id", help="the session's id, or a unique prefix of it")
        if verb != "checkpoints":
            one.add_argument("words", nargs="*", help="as after `/undo`: NUMBER or CALL, what, merge, yes")


def _add_recordings(commands: argparse._SubParsersAction[_Parser]) -> None:
    commands.add_parser("demo", help="fix a small sample project with recorded model answers")
    replay = commands.add_parser("replay", help="play a recording: its prompts, with the recorded answers of the model")
    replay.add_argument("file", help="the recording")
    replay.add_argument("--check", action="store_true", help="compare every request, and say whether all were the same")
    replay.add_argument("--cwd", default=None, help="the folder to work in (default: the current one)")
    replay.add_argument("--mode", choices=tuple(MODES), help="the session's mode (default: the recorded one)")
    replay.add_argument("--yes", action="store_true", help="answer permissions as recorded; its commands run here")
    replay.add_argument("--timed", action="store_true", help="as slowly as the model answered then")

    report = commands.add_parser("report", help="put a recording, versions, settings and the log into a folder")
    report.add_argument("file", help="the recording")
    report.add_argument("--to", default="acp-coder-report", help="the new folder (default: %(default)s)")


def _add_shell(commands: argparse._SubParsersAction[_Parser]) -> None:
    completions = commands.add_parser("completions", help="print a script with which a shell completes `acp-coder`")
    completions.add_argument("shell", choices=("bash", "zsh", "fish", "words"), help="`words`: what the scripts ask")
    completions.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- WORD ...", help="of the command line so far"
    )
    commands.add_parser("man", help="print the manual page: acp-coder man | man -l -")
