"""Settings of language servers and clients. Part of `Settings` (see `model`)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

PROJECT = {"project": True}
"""Marks a key that a project's own file may set too."""


class LanguageServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[list[str], Meta(description="The program and its arguments; it speaks LSP on stdio.")] = []
    languages: Annotated[
        dict[str, str], Meta(description='The files it is for: ending -> LSP language id, as in `".py" = "python"`.')
    ] = {}
    root_markers: Annotated[
        list[str], Meta(description="Files that are in the folder it works in, above the file; else the session's.")
    ] = []
    group: Annotated[
        str, Meta(description="Of the servers with the same group only the first that is installed is started.")
    ] = ""
    settings: Annotated[
        dict[str, Any], Meta(description="What it is told when it asks for `workspace/configuration`, by section.")
    ] = {}
    options: Annotated[dict[str, Any], Meta(description="Its `initializationOptions`.")] = {}
    enabled: Annotated[bool, Meta(description="`false` keeps it from being started.")] = True


class LspConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[
        bool, Meta(description="Ask the editor's language servers (`_lsp/*`), and read what they publish.")
    ] = True
    request_timeout: Annotated[
        float, Meta(gt=0, description="Seconds an editor has to answer a question to its language servers.")
    ] = 10.0
    max_diagnostic_files: Annotated[
        int,
        Meta(
            ge=1, description="Files whose published diagnostics are kept, and shown for `@diagnostics`.", extra=PROJECT
        ),
    ] = 50
    max_diagnostics_per_file: Annotated[
        int, Meta(ge=1, description="Diagnostics of one file shown for `@diagnostics`.", extra=PROJECT)
    ] = 20
    own_servers: Annotated[
        bool, Meta(description="Start language servers for what the editor's do not answer.", extra=PROJECT)
    ] = True
    unconfined: Annotated[
        bool,
        Meta(
            description="Start them also where there is no sandbox: several of them run what a project's files tell "
            "them to."
        ),
    ] = False
    servers: Annotated[
        dict[str, LanguageServerConfig],
        Meta(description="Language servers by name, beside the known ones; keys given here replace theirs."),
    ] = {}
    start_timeout: Annotated[float, Meta(gt=0, description="Seconds a language server may take to be ready.")] = 20.0
    max_restarts: Annotated[
        int, Meta(ge=0, le=20, description="How often a language server that crashes is started again in a session.")
    ] = 3
    max_servers: Annotated[int, Meta(ge=1, le=64, description="Language servers of a session at once.")] = 8
    edit_wait: Annotated[
        float,
        Meta(
            ge=0, le=60, description="Seconds an edit waits for the errors it brings about; 0: they are not asked for."
        ),
    ] = 3.0
    max_new_errors: Annotated[int, Meta(ge=1, description="New errors that are told with an edit.", extra=PROJECT)] = 10
    max_results: Annotated[
        int, Meta(ge=1, description="Places or symbols that a tool gives of a language server.", extra=PROJECT)
    ] = 100
    max_file_bytes: Annotated[
        int, Meta(ge=1024, description="Largest file that is shown to a language server, in bytes.")
    ] = 1_048_576


class ClientProfileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reads_files: Annotated[bool | None, Meta(description="Read files through it, where it offers that.")] = None
    writes_files: Annotated[bool | None, Meta(description="Write files through it, where it offers that.")] = None
    terminals: Annotated[bool | None, Meta(description="Run commands in its terminals, where it offers them.")] = None
    terminal_output: Annotated[
        bool | None, Meta(description="Send what local commands print as `_meta.terminal_output`, drawn as a terminal.")
    ] = None
    forms: Annotated[bool | None, Meta(description="Ask questions by forms, where it offers them.")] = None
    plans: Annotated[bool | None, Meta(description="It draws plans; `false`: the steps are in the tool call.")] = None
