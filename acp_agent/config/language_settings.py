"""Settings for language servers and clients. Part of `Settings` (see `model`)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

PROJECT = {"project": True}
"""Marks a key that a project's own file may set too."""


class LanguageServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[list[str], Meta(description="The program and its arguments; it must speak LSP on stdio.")] = []
    languages: Annotated[
        dict[str, str],
        Meta(description='The files it handles: file extension -> LSP language id, as in `".py" = "python"`.'),
    ] = {}
    root_markers: Annotated[
        list[str],
        Meta(description="Files that mark its root folder, searched upwards from the file; else the session's folder."),
    ] = []
    group: Annotated[str, Meta(description="Only the first installed server of a group is started.")] = ""
    settings: Annotated[dict[str, Any], Meta(description="Its answers to `workspace/configuration`, by section.")] = {}
    options: Annotated[dict[str, Any], Meta(description="Its `initializationOptions`.")] = {}
    enabled: Annotated[bool, Meta(description="`false`: it is not started.")] = True


class LspConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[
        bool, Meta(description="Use the editor's language servers (`_lsp/*`) and the diagnostics they publish.")
    ] = True
    request_timeout: Annotated[
        float, Meta(gt=0, description="Seconds an editor has to answer a language server request.")
    ] = 10.0
    max_diagnostic_files: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum files whose published diagnostics are kept and shown for `@diagnostics`.",
            extra=PROJECT,
        ),
    ] = 50
    max_diagnostics_per_file: Annotated[
        int, Meta(ge=1, description="Maximum diagnostics per file shown for `@diagnostics`.", extra=PROJECT)
    ] = 20
    own_servers: Annotated[
        bool, Meta(description="Start language servers for what the editor's do not answer.", extra=PROJECT)
    ] = True
    unconfined: Annotated[
        bool,
        Meta(description="Start them even without a sandbox: some of them run code from the project."),
    ] = False
    servers: Annotated[
        dict[str, LanguageServerConfig],
        Meta(description="Language servers by name, in addition to the known ones, whose keys can be overridden here."),
    ] = {}
    start_timeout: Annotated[float, Meta(gt=0, description="Seconds a language server may take to get ready.")] = 20.0
    max_restarts: Annotated[
        int, Meta(ge=0, le=20, description="How often a crashed language server is restarted in a session.")
    ] = 3
    max_servers: Annotated[int, Meta(ge=1, le=64, description="Maximum language servers of a session at a time.")] = 8
    edit_wait: Annotated[
        float,
        Meta(ge=0, le=60, description="Seconds an edit waits for the errors it causes; 0: it does not ask for them."),
    ] = 3.0
    max_new_errors: Annotated[
        int, Meta(ge=1, description="Maximum new errors reported with an edit.", extra=PROJECT)
    ] = 10
    max_results: Annotated[
        int,
        Meta(
            ge=1, description="Maximum locations or symbols from a language server that a tool returns.", extra=PROJECT
        ),
    ] = 100
    max_file_bytes: Annotated[int, Meta(ge=1024, description="Largest file sent to a server, in bytes.")] = 1_048_576


class ClientProfileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reads_files: Annotated[bool | None, Meta(description="Read files through it, if it offers that.")] = None
    writes_files: Annotated[bool | None, Meta(description="Write files through it, if it offers that.")] = None
    terminals: Annotated[bool | None, Meta(description="Run commands in its terminals, if it offers them.")] = None
    terminal_output: Annotated[
        bool | None,
        Meta(description="Send the output of local commands as `_meta.terminal_output`, drawn as a terminal."),
    ] = None
    forms: Annotated[bool | None, Meta(description="Ask questions with forms, if it offers them.")] = None
    plans: Annotated[bool | None, Meta(description="It draws plans; `false`: the tool call shows the steps.")] = None
