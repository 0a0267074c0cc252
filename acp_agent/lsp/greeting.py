"""The `initialize` request with our capabilities, and answers to a server's own requests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types

from acp_agent import __version__
from acp_agent.lsp.uris import uri_of

SYMBOL_KINDS = list(types.SymbolKind)


def initialize_params(folder: Path, options: Mapping[str, Any]) -> types.InitializeParams:
    uri = uri_of(folder)
    return types.InitializeParams(
        # Not ours: inside a sandbox our pid belongs to no process, and servers that look for it would exit.
        process_id=None,
        client_info=types.ClientInfo("acp-coder", __version__),
        root_path=str(folder),
        root_uri=uri,
        workspace_folders=[types.WorkspaceFolder(uri, folder.name or "/")],
        initialization_options=dict(options) or None,
        capabilities=types.ClientCapabilities(
            general=types.GeneralClientCapabilities(
                position_encodings=[types.PositionEncodingKind.Utf16],
                stale_request_support=types.StaleRequestSupportOptions(True, []),
            ),
            window=types.WindowClientCapabilities(work_done_progress=True),
            workspace=types.WorkspaceClientCapabilities(
                apply_edit=False,
                configuration=True,
                workspace_folders=True,
                did_change_configuration=types.DidChangeConfigurationClientCapabilities(dynamic_registration=False),
                did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=False),
                workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
                symbol=types.WorkspaceSymbolClientCapabilities(
                    symbol_kind=types.ClientSymbolKindOptions(value_set=SYMBOL_KINDS)
                ),
                diagnostics=types.DiagnosticWorkspaceClientCapabilities(refresh_support=True),
            ),
            text_document=types.TextDocumentClientCapabilities(
                synchronization=types.TextDocumentSyncClientCapabilities(did_save=True),
                publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
                # Dynamic: some servers register it and offer nothing otherwise.
                diagnostic=types.DiagnosticClientCapabilities(dynamic_registration=True, related_document_support=True),
                definition=types.DefinitionClientCapabilities(link_support=True),
                references=types.ReferenceClientCapabilities(),
                hover=types.HoverClientCapabilities(
                    content_format=[types.MarkupKind.Markdown, types.MarkupKind.PlainText]
                ),
                document_symbol=types.DocumentSymbolClientCapabilities(
                    hierarchical_document_symbol_support=True,
                    symbol_kind=types.ClientSymbolKindOptions(value_set=SYMBOL_KINDS),
                ),
                rename=types.RenameClientCapabilities(prepare_support=True),
            ),
        ),
    )


def configuration(settings: Mapping[str, Any], section: str | None) -> Any:
    """The settings of a dotted section; None if there are none."""
    if not section:
        return settings
    if section in settings:
        return settings[section]
    found: Any = settings
    for part in section.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found
