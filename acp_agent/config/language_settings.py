"""Settings for language servers and clients. Part of `Settings` (see `model`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


def key(description: str, *, project: bool = False, **bounds: Any) -> Meta:
    """The description of a key, and its bounds (`ge`, `gt`, `le`, `max_length`). `project`: a project's own file may
    set it, too."""
    return Meta(description=description, extra={"project": True} if project else None, **bounds)


class LanguageServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[list[str], key("The program and its arguments; it must speak LSP on stdio.")] = []
    languages: Annotated[
        dict[str, str], key('The files it handles: file extension -> LSP language id, as in `".py" = "python"`.')
    ] = {}
    root_markers: Annotated[
        list[str], key("Files that mark its root folder, searched upwards from the file; else the session's folder.")
    ] = []
    group: Annotated[str, key("Only the first installed server of a group is started.")] = ""
    settings: Annotated[dict[str, Any], key("Its answers to `workspace/configuration`, by section.")] = {}
    options: Annotated[dict[str, Any], key("Its `initializationOptions`.")] = {}
    enabled: Annotated[bool, key("`false`: it is not started.")] = True


class LspConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Use the editor's language servers (`_lsp/*`) and the diagnostics they publish.")] = (
        True
    )
    request_timeout: Annotated[float, key("Seconds an editor has to answer a language server request.", gt=0)] = 10.0
    max_diagnostic_files: Annotated[
        int, key("Maximum files whose published diagnostics are kept and shown for `@diagnostics`.", ge=1, project=True)
    ] = 50
    max_diagnostics_per_file: Annotated[
        int, key("Maximum diagnostics per file shown for `@diagnostics`.", ge=1, project=True)
    ] = 20
    own_servers: Annotated[bool, key("Start language servers for what the editor's do not answer.", project=True)] = (
        True
    )
    unconfined: Annotated[bool, key("Start them even without a sandbox: some of them run code from the project.")] = (
        False
    )
    servers: Annotated[
        dict[str, LanguageServerConfig],
        key("Language servers by name, in addition to the known ones, whose keys can be overridden here."),
    ] = {}
    start_timeout: Annotated[float, key("Seconds a language server may take to get ready.", gt=0)] = 20.0
    max_restarts: Annotated[int, key("How often a crashed language server is restarted in a session.", ge=0, le=20)] = 3
    max_servers: Annotated[int, key("Maximum language servers of a session at a time.", ge=1, le=64)] = 8
    edit_wait: Annotated[
        float, key("Seconds an edit waits for the errors it causes; 0: it does not ask for them.", ge=0, le=60)
    ] = 3.0
    max_results: Annotated[
        int, key("Maximum locations or symbols from a language server that a tool returns.", ge=1, project=True)
    ] = 100
    max_file_bytes: Annotated[int, key("Largest file sent to a server, in bytes.", ge=1024)] = 1_048_576


class ProtocolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    unstable: Annotated[
        bool,
        key("Offer what only drafts of ACP have (docs/acp.md says which), which may change with any version."),
    ] = False
    v2: Annotated[bool, key("Speak v2 of ACP, a preview, with a client that asks for it.")] = True


class ClientProfileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reads_files: Annotated[bool | None, key("Read files through it, if it offers that.")] = None
    writes_files: Annotated[bool | None, key("Write files through it, if it offers that.")] = None
    terminals: Annotated[bool | None, key("Run commands in its terminals, if it offers them.")] = None
    terminal_output: Annotated[
        bool | None, key("Send the output of local commands as `_meta.terminal_output`, drawn as a terminal.")
    ] = None
    forms: Annotated[bool | None, key("Ask questions with forms, if it offers them.")] = None
    plans: Annotated[bool | None, key("It draws plans; `false`: the tool call shows the steps.")] = None


class ChatConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: Annotated[Literal["emacs", "vi"], key("Keys of the input in the terminal's chat.")] = "emacs"
    notify: Annotated[
        Literal["off", "bell", "osc9"],
        key("What the terminal gets when the chat asks or is done: the bell, or a notification (OSC 9)."),
    ] = "off"
