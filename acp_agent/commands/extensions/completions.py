"""`acp-coder completions bash|zsh|fish`: a script with which that shell completes `acp-coder`.

The scripts know no command: they ask `acp-coder completions words -- WORD ...` (50 ms), which reads the parser, so what
they offer is what this version takes.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence

from acp_agent.commands.parser import build_parser

BASH = r"""# In ~/.bashrc: eval "$(acp-coder completions bash)"
_acp_coder() {
  local IFS=$'\n'
  COMPREPLY=($(acp-coder completions words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _acp_coder acp-coder
"""
ZSH = r"""#compdef acp-coder
# In ~/.zshrc, after compinit: eval "$(acp-coder completions zsh)"; or in a folder of $fpath as the file _acp-coder
_acp_coder() {
  local -a found
  found=("${(@f)$(acp-coder completions words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=("${(@)found//:/\\:}")
  found=("${(@)found/$'\t'/:}")
  if [[ -n $found[1] ]]; then _describe -o acp-coder found; else _files; fi
}
if [[ $funcstack[1] == _acp-coder ]]; then _acp_coder "$@"; else compdef _acp_coder acp-coder; fi
"""
FISH = r"""# In ~/.config/fish/config.fish: acp-coder completions fish | source
function __acp_coder
    set -l found (acp-coder completions words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c acp-coder -f -a '(__acp_coder)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
COUNTS = {None: 1, "?": 0}
"""How many words follow an option, by its `nargs`."""
Words = Iterator[tuple[str, str]]


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    if options.shell in SCRIPTS:
        sys.stdout.write(SCRIPTS[options.shell])
        return 0
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    for word, about in candidates(build_parser(), words or [""]):
        sys.stdout.write(f"{word}\t{about}\n")
    return 0


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> Words:
    """What the last of the words can become, with what it does. Nothing where a file or free text belongs."""
    *before, typed = (word for number, word in enumerate(words, 1) if word != "=" or number == len(words))
    typed = typed.removeprefix("=")  # bash makes `--mode=as` three words.
    name, equals, value = typed.partition("=")
    if equals and name in parser_of(parser, before)[0]._option_string_actions:
        before, typed = [*before, name], value
    for word, about in _offered(parser, before, typed):
        if word.startswith(typed):
            yield (f"{name}={word}" if equals else word), about


def parser_of(
    parser: argparse.ArgumentParser, before: Sequence[str]
) -> tuple[argparse.ArgumentParser, list[argparse.Action], str]:
    """The parser of the words' sub-command, the actions one of which takes the next word, and the second words of
    commands of two."""
    left, second = list(before), ""
    places = [action for action in parser._actions if not action.option_strings]
    while left:
        word = left.pop(0)
        action = parser._option_string_actions.get(word)
        if action is not None:
            count = action.nargs if isinstance(action.nargs, int) else COUNTS.get(action.nargs, 1)
            if len(left) < count:
                return parser, [action], ""
            del left[:count]
        elif word.startswith("-") or not places:
            continue
        elif isinstance(places[0], argparse._SubParsersAction):
            commands = places[0].choices
            two = f"{word} {left[0]}" if left else ""
            if two in commands:
                left.pop(0)
            if (chosen := commands.get(two) or commands.get(word)) is None:
                return parser, [], ""
            second = "" if two in commands or left else word
            parser, places = chosen, [action for action in chosen._actions if not action.option_strings]
        elif places[0].nargs == argparse.REMAINDER:
            return parser, [], ""
        elif places[0].nargs not in ("*", "+"):
            places.pop(0)
    return parser, places[:1], second


def _offered(top: argparse.ArgumentParser, before: Sequence[str], typed: str) -> Words:
    parser, actions, second = parser_of(top, before)
    if second:
        for name, about in _commands(top):
            if name.startswith(f"{second} "):
                yield name.removeprefix(f"{second} "), about
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((name, about) for name, about in _commands(parser) if " " not in name)
        else:
            yield from ((str(choice), "") for choice in action.choices or ())
    if typed.startswith("-") and not any(action.option_strings for action in actions) and "--" not in before:
        for action in parser._actions:
            yield from ((name, _about(parser, action)) for name in action.option_strings if name.startswith("--"))


def _commands(parser: argparse.ArgumentParser) -> Words:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((each.dest, each.help or "") for each in action._choices_actions)


def _about(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return " ".join(parser._get_formatter()._expand_help(action).split()) if action.help else ""
