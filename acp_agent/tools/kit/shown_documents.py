"""Files as shown to language servers. Does not import pydantic: the first model call does not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from acp_agent.config.model import FilesConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Files, FindQuery
from acp_agent.lsp.base import Document, LanguageServices

log = logging.getLogger(__name__)


async def load_documents(paths: Iterable[Path], files: Files, max_bytes: int) -> list[Document]:
    """Their text as the editor has it; files that are missing, too large or not text are left out."""
    documents = []
    for path in paths:
        try:
            found = await files.stat(path)
            if found is not None and found.kind == "file" and found.size <= max_bytes:
                documents.append(Document(path, (await files.read(path)).text))
        except (OSError, UnicodeDecodeError, ExecutorError) as error:
            log.info("%s is not shown to a language server: %s", path, error)
    return documents


async def source_files(language: LanguageServices, root: Path, files: Files, config: FilesConfig) -> list[Path]:
    """The files of known languages below a folder."""
    listed = await files.find(FindQuery("*", root, config.max_results, config.search_timeout))
    return [match.path for match in listed.matches if match.text == "file" and language.knows(match.path)]
