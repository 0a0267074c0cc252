"""Settings of language servers and clients. Part of `Settings` (see `model`)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


def key(description: str, *, project: bool = False, **bounds: Any) -> Meta:
    """What is said of a key, and its bounds (`ge`, `gt`, `le`, `max_length`). `project`: a project's own file may set
    it, too."""
    return Meta(description=description, extra={"project": True} if project else None, **bounds)


class LanguageServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[list[str], key("The program and its arguments; it speaks LSP on stdio.")] = []
    languages: Annotated[
        dict[str, str], key('The files it is for: ending -> LSP language id, as in `".py" = "python"`.')
    ] = {}
    root_markers: Annotated[
        list[str], key("Files that are in the folder it works in, above the file; else the session's.")
    ] = []
    group: Annotated[str, key("Of the servers with the same group only the first that is installed is started.")] = ""
    settings: Annotated[
        dict[str, Any], key("What it is told when it asks for `workspace/configuration`, by section.")
    ] = {}
    options: Annotated[dict[str, Any], key("Its `initializationOptions`.")] = {}
    enabled: Annotated[bool, key("`false` keeps it from being started.")] = True


class LspConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Ask the editor's language servers (`_lsp/*`), and read what they publish.")] = True
    request_timeout: Annotated[
        float, key("Seconds an editor has to answer a question to its language servers.", gt=0)
    ] = 10.0
    max_diagnostic_files: Annotated[
        int, key("Files whose published diagnostics are kept, and shown for `@diagnostics`.", ge=1, project=True)
    ] = 50
    max_diagnostics_per_file: Annotated[
        int, key("Diagnostics of one file shown for `@diagnostics`.", ge=1, project=True)
    ] = 20
    own_servers: Annotated[bool, key("Start language servers for what the editor's do not answer.", project=True)] = (
        True
    )
    unconfined: Annotated[
        bool, key("Start them also where there is no sandbox: several of them run what a project's files tell them to.")
    ] = False
    servers: Annotated[
        dict[str, LanguageServerConfig],
        key("Language servers by name, beside the known ones; keys given here replace theirs."),
    ] = {}
    start_timeout: Annotated[float, key("Seconds a language server may take to be ready.", gt=0)] = 20.0
    max_restarts: Annotated[
        int, key("How often a language server that crashes is started again in a session.", ge=0, le=20)
    ] = 3
    max_servers: Annotated[int, key("Language servers of a session at once.", ge=1, le=64)] = 8
    edit_wait: Annotated[
        float, key("Seconds an edit waits for the errors it brings about; 0: they are not asked for.", ge=0, le=60)
    ] = 3.0
    max_new_errors: Annotated[int, key("New errors that are told with an edit.", ge=1, project=True)] = 10
    max_results: Annotated[
        int, key("Places or symbols that a tool gives of a language server.", ge=1, project=True)
    ] = 100
    max_file_bytes: Annotated[int, key("Largest file that is shown to a language server, in bytes.", ge=1024)] = (
        1_048_576
    )


class ClientProfileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reads_files: Annotated[bool | None, key("Read files through it, where it offers that.")] = None
    writes_files: Annotated[bool | None, key("Write files through it, where it offers that.")] = None
    terminals: Annotated[bool | None, key("Run commands in its terminals, where it offers them.")] = None
    terminal_output: Annotated[
        bool | None, key("Send what local commands print as `_meta.terminal_output`, drawn as a terminal.")
    ] = None
    forms: Annotated[bool | None, key("Ask questions by forms, where it offers them.")] = None
    plans: Annotated[bool | None, key("It draws plans; `false`: the steps are in the tool call.")] = None
