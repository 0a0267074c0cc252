"""Writes every generated file: `python scripts/generate.py`. `render_all()` returns their texts, for a test to compare.

Sources of truth: `schemas/acp-v1.schema.json` (ACP's types), the tool classes with the `.md` beside them, the
configuration model, the shell output envelope, the methods of undo.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from acp_agent.config.load import Key, keys
from acp_agent.config.model import Settings
from acp_agent.config.sources import ENVIRONMENT, PROJECT_FILE
from acp_agent.config.trusted_files import TRUSTED
from acp_agent.lazy import load
from acp_agent.output.envelope import ShellOutput
from acp_agent.output.observation import Observation
from acp_agent.safety.deciding.audit import AuditEntry
from acp_agent.tools.kit.base import Tool
from acp_agent.tools.kit.json_schema import parameters_of
from acp_agent.tools.kit.registry import STEP_AWAY, TOOLS, user_words

__all__ = ["SECTIONS", "render_all"]

ROOT = Path(__file__).resolve().parent.parent
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SECTIONS = ("When to use:", "When not to use:", "Disambiguation:", "Examples:")
"""Required in every tool's guidance, each at the beginning of a line, in this order."""

Definition = dict[str, Any]


def render_all() -> dict[Path, str]:
    """Absolute path -> text of every generated file."""
    definitions = [_definition(name, load(row)) for name, row in TOOLS.items()]
    acp = runpy.run_path(str(ROOT / "scripts" / "generate_acp.py"))
    undo = runpy.run_path(str(ROOT / "scripts" / "generate_undo.py"))
    return {
        **acp["render"](),
        **undo["render"](),
        ROOT / "acp_agent" / "tools" / "definitions.json": _json(definitions),
        ROOT / "schemas" / "tool-parameters.schema.json": _json(_tool_parameters(definitions)),
        ROOT / "schemas" / "shell-output-envelope.schema.json": _json(_envelope()),
        ROOT / "schemas" / "tool-observation.schema.json": _json(_observation()),
        ROOT / "schemas" / "audit-entry.schema.json": _json(
            _published(AuditEntry, "Line of the audit log", "One line of `audit.jsonl`, see docs/security.md.")
        ),
        ROOT / "schemas" / "config.schema.json": _json(_config_schema()),
        ROOT / "docs" / "configuration.md": _configuration(),
        **_tools(definitions),
        ROOT / "docs" / "trusted-files.md": _trusted_files(),
        ROOT / "docs" / "imports.svg": runpy.run_path(str(ROOT / "scripts" / "draw_imports.py"))["picture"](),
    }


def main() -> None:
    for path, text in render_all().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


# --- tools ----------------------------------------------------------------------------------------------------


def _definition(name: str, tool: type[Tool[Any]]) -> Definition:
    if tool.name != name:
        raise ValueError(f"the row {name!r} names a tool called {tool.name!r}")
    return {
        "name": name,
        "aliases": list(tool.aliases),
        "kind": tool.kind,
        "reads_only": tool.reads_only,
        "description": _guidance(name),
        "parameters": parameters_of(tool.Params.model_json_schema()),
        "idempotent": tool.idempotent,
    }


def _guidance(name: str) -> str:
    *folders, _ = TOOLS[name].partition(":")[0].split(".")
    return ROOT.joinpath(*folders, f"{name}.md").read_text(encoding="utf-8").strip()


def _tool_parameters(definitions: Iterable[Definition]) -> dict[str, Any]:
    return {
        "$schema": DRAFT,
        "title": "Parameters of the built-in tools",
        "description": "An object that holds, under a tool's name, the arguments of a call of it.",
        "type": "object",
        "properties": {tool["name"]: tool["parameters"] for tool in definitions},
        "additionalProperties": False,
    }


SUBJECTS = {
    "commands": ("Commands and terminals", "running commands, also in the background, and programs in terminals"),
    "files": ("Files", "reading, searching and changing files and folders"),
    "code": ("Code", "what a language server knows: errors, definitions, uses, names"),
    "web": ("The web", "reading pages, calling services, searching, and a browser"),
    "session": ("The session", "plans, questions, sub-agents, memories, schedules, skills and modes"),
}
"""Of the pages below docs/tools: heading, and what its tools are for."""
SUBJECT_OF = {
    "bash": "commands", "background_tools": "commands", "terminal": "commands", "files": "files",
    "read_overflow": "files", "code": "code", "web": "web",
}  # fmt: skip
"""Module or folder of `acp_agent.tools` -> its page; others are of the session."""
GENERATED_TOOLS = "<!-- Generated by scripts/generate.py from the tool classes and the text beside them. -->"


def _tools(definitions: Iterable[Definition]) -> dict[Path, str]:
    """The overview, and a page for each subject."""
    overview = [
        "# Tools",
        "",
        GENERATED_TOOLS,
        "",
        "What the model can call, by a tool's own name or one of its aliases. The model reads the guidance in plain",
        "sentences (`tools.guidance`). A tool *found by `tools`* is sent to it once it has searched for it. Tools that",
        "only read are offered in every mode; calls of one message that only read run at the same time, questions one",
        "after the other. The schemas are in `schemas/tool-parameters.schema.json`.",
        "",
    ]
    pages: dict[Path, str] = {}
    words = user_words()
    for subject, (heading, purpose) in SUBJECTS.items():
        overview += [f"## {heading}", "", "| tool | | what it does |", "| --- | --- | --- |"]
        page = [f"# Tools: {heading[0].lower()}{heading[1:]}", "", GENERATED_TOOLS, ""]
        page += [f"What the model can call for {purpose}: parameters, and what it is told. [All tools](../tools.md)."]
        page.append("")
        for tool in definitions:
            if SUBJECT_OF.get(TOOLS[tool["name"]].split(":")[0].split(".")[2], "session") == subject:
                overview.append(_overview_row(tool, subject, words))
                page += _tool_section(tool, words)
        overview.append("")
        pages[ROOT / "docs" / "tools" / f"{subject}-tools.md"] = "\n".join(page)
    return {ROOT / "docs" / "tools.md": "\n".join(overview), **pages}


def _effect(tool: Definition) -> str:
    effect = "only reads" if tool["reads_only"] else "may change something"
    return effect + ("; found by `tools`" if tool["name"] in STEP_AWAY else "")


def _overview_row(tool: Definition, subject: str, words: Mapping[str, str]) -> str:
    does = words[tool["name"]]
    return f"| [`{tool['name']}`](tools/{subject}-tools.md#{tool['name']}) | {_effect(tool)} | {_cell(does)} |"


def _tool_section(tool: Definition, words: Mapping[str, str]) -> list[str]:
    aliases = ", ".join(f"`{alias}`" for alias in tool["aliases"]) or "none"
    lines = [f"## `{tool['name']}`", "", words[tool["name"]], ""]
    lines += [f"Kind: `{tool['kind']}`; {_effect(tool)}. Aliases: {aliases}.", ""]
    lines += ["| Parameter | Type | Required | Default | Meaning |", "| --- | --- | --- | --- | --- |"]
    required = tool["parameters"].get("required", ())
    for name, schema in tool["parameters"]["properties"].items():
        default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        need = "yes" if name in required else "no"
        lines.append(f"| `{name}` | {_schema_words(schema)} | {need} | {default} | {_cell(schema['description'])} |")
    return [*lines, "", tool["description"], ""]


def _schema_words(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_schema_words(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        items = schema["items"]
        if items.get("type") == "object":
            names = ", ".join(f"`{name}`" for name in items["properties"])
            return f"list of objects with {names}"
        return f"list of {_schema_words(items)}"
    return str(schema["type"])


# --- trusted files --------------------------------------------------------------------------------------------


LEVELS = {
    "protect": "cannot be changed or created",
    "protect_existing": "cannot be changed; you are told of new ones",
    "report": "you are told of new and changed ones",
}


def _trusted_files() -> str:
    lines = [
        "# Files that other programs load",
        "",
        "<!-- Generated by scripts/generate.py from acp_agent/config/trusted_files.json. -->",
        "",
        "Their content makes a program run something although nobody starts a build or a test. File tools ask about",
        "each change of them, in every mode and in any folder; [sandbox.md](sandbox.md#files-that-other-programs-load)",
        "says what commands may do. Your own lists in `tools.sandbox.protect`, `protect_existing` and `report` replace",
        "these.",
        "",
        "| Files | Loaded by | When | Commands in the sandbox |",
        "| --- | --- | --- | --- |",
    ]
    for row in TRUSTED:
        names = " ".join(f"`{name}`" for name in row.names.split())
        where = " (home folder only)" if row.home else ""
        lines.append(f"| {names}{where} | {row.who} | {row.when} | {LEVELS[row.level]} |")
    lines += [
        "",
        "Not in the table is what only a build, a test, a linter or a language server loads (`Makefile`,",
        "`package.json`, `conftest.py`, `eslint.config.js`, `build.rs`): that is ordinary code of the project, to be",
        "reviewed like the rest. The same is true of text for models (`AGENTS.md`, `CLAUDE.md`), and of `.gitmodules`,",
        "which git checks itself.",
        "",
    ]
    return "\n".join(lines)


# --- configuration --------------------------------------------------------------------------------------------


def _envelope() -> dict[str, Any]:
    return _published(ShellOutput, "Output of a shell command", "`rawOutput` of a call of the tool `bash`.")


def _observation() -> dict[str, Any]:
    return _published(Observation, "Observation of a tool's result", "What the model reads with `tools.observation`.")


def _config_schema() -> dict[str, Any]:
    return _published(Settings, "Configuration of acp-coder", "The content of `config.toml`.")


def _published(of: type, title: str, description: str) -> dict[str, Any]:
    """msgspec's schema with the root inlined."""
    (schema,), definitions = msgspec.json.schema_components([of], ref_template="#/$defs/{name}")
    root = definitions.pop(schema["$ref"].rpartition("/")[2])
    root.pop("title", None)
    root.pop("description", None)
    published = {"$schema": DRAFT, "title": title, "description": description, **root}
    if definitions:
        published["$defs"] = {name: definitions[name] for name in sorted(definitions)}
    return published


INTRODUCTION = f"""\
# Configuration

<!-- Generated by scripts/generate.py from acp_agent/config. -->

Every setting: its type, its default, and who may set it. Nothing has to be set: without any configuration the agent
asks OpenAI with the key in `OPENAI_API_KEY`.

## Where values come from

Each source overrides the ones before it:

1. the defaults in the table below;
2. your file, `config.toml` in the configuration folder (`~/.config/acp-coder` on Linux, or below `XDG_CONFIG_HOME`;
   the platform's usual folder elsewhere). `ACP_CODER_CONFIG` names another file;
3. the project's file, `{PROJECT_FILE}` below the session's working directory. It may set only the keys marked
   "project": a repository you cloned must not decide where your key is sent or what runs without asking;
4. environment variables;
5. what a program that embeds the agent gives it (`Agent(Opening(flags={{"agent.mode": "ask"}}))`).

A wrong key or value is an error that names the file, the line and the nearest valid key. A few keys are accepted under
another common name (`tools.shell` for `tools.bash`), with a note that names the present one. Sessions, logs and
permission answers are kept in the state folder (`~/.local/state/acp-coder` on Linux, or below `XDG_STATE_HOME`).

## Example

```toml
[agent]
provider = "local"
model = "qwen3-coder"
mode = "code"

[providers.local]
api = "chat"
base_url = "http://localhost:11434/v1"

[tools.bash]
timeout = 120
```

## Keys of providers

The key of a provider is taken from the first of these places that has one:

1. the environment variable that `providers.NAME.api_key_env` names (`OPENAI_API_KEY` unless set);
2. `providers.NAME.api_key` in your file;
3. the system's keyring, where the optional package `keyring` is installed (`ACP_CODER_KEYRING=0` turns it off);
4. `credentials.json` in the configuration folder, readable by you only.

`acp-coder login` puts a key into the keyring, or into the file where there is none. In a terminal it shows the known
providers to pick from; `acp-coder login PROVIDER` reads a piped key, `acp-coder login --list` names them. The server is
asked for its models with the key: a key that it refuses is not stored (`--unchecked` does), one that cannot be checked
is, and that is said. Commands that the agent runs do not get these environment variables.

A model is `model`, `provider/model` or `provider:model`; Ollama's `name:tag` is a model. What the server does not list
is told with the nearest names before it is asked.

## All keys

`NAME` stands for the name you give a provider or a server, or for the name of a tool. "Project" says whether a
project's file may set the key.

| Key | Type | Default | Environment | Project | Meaning |
| --- | --- | --- | --- | --- | --- |
"""


def _configuration() -> str:
    variables: dict[str, list[str]] = {}
    for variable, key in ENVIRONMENT.items():
        variables.setdefault(_generic(key), []).append(variable)
    rows = [_row(key, variables.get(key.name, ())) for key in keys()]
    return INTRODUCTION + "\n".join(rows) + "\n"


def _generic(key: str) -> str:
    return key.replace("providers.default.", "providers.NAME.", 1)


def _row(key: Key, variables: Iterable[str]) -> str:
    names = ", ".join(f"`{variable}`" for variable in variables)
    if names and ".NAME." in key.name:
        names += " (for `default`)"
    default = json.dumps(key.default, ensure_ascii=False, default=msgspec.to_builtins)
    project = "yes" if key.project else ""
    return f"| `{key.name}` | {_words(key.type)} | `{default}` | {names} | {project} | {_cell(key.description)} |"


PLAIN: dict[Any, str] = {Any: "anything", str: "text", int: "whole number", float: "number", bool: "true or false"}


def _words(kind: Any) -> str:
    """A type in readable form."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table with " + ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
    if origin is Literal:
        return "one of " + ", ".join(f"`{json.dumps(value)}`" for value in arguments)
    if origin is Annotated:
        return _words(arguments[0])
    if origin is list:
        return f"list of {_words(arguments[0])}"
    if origin is dict:
        return f"table of {_words(arguments[1])}"
    if origin in (Union, UnionType):
        return " or ".join(_words(argument) for argument in arguments if argument is not NoneType)
    raise TypeError(f"no words for the type {kind!r}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
