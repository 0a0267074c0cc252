"""What the input completes (`/command`, `@file`) and remembers (the prompts of a folder)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from acp_agent.fronts.folder_files import FolderFiles
from acp_agent.fronts.terminal.screens import CommandRow
from acp_agent.limits.decoding import read_json

HISTORY_PROMPTS = 500
MENTION = re.compile(r"(?:^|\s)@([^\s@]*)$")


class PromptCompleter(Completer):
    def __init__(self, folder: Path) -> None:
        self.commands: Iterable[CommandRow] = ()
        self._files = FolderFiles(folder)

    def know(self, commands: Iterable[CommandRow]) -> None:
        self.commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and not re.search(r"\s", text):
            name = text[1:].lower()
            named = [row for row in self.commands if name in row.name.lower()]
            for row in sorted(named, key=lambda row: (not row.name.lower().startswith(name), row.name)):
                yield Completion(f"/{row.name} ", -len(text), display=f"/{row.name}", display_meta=row.description)
        elif found := MENTION.search(text):
            for path in self._files.matching(found[1]):
                end = "" if path.endswith("/") else " "
                yield Completion(f"@{path}{end}", -len(found[1]) - 1, display=path)


class FolderHistory(History):
    """The prompts of one folder, in a file that only the user reads: a JSON string a line."""

    def __init__(self, state: Path, folder: Path) -> None:
        super().__init__()
        name = sha256(os.fsencode(folder)).hexdigest()[:16]
        self._file = state / "history" / f"{name}.jsonl"

    def load_history_strings(self) -> Iterable[str]:
        """The newest first."""
        try:
            lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()[-HISTORY_PROMPTS:]
        except OSError:
            return []
        found = []
        for line in reversed(lines):
            try:
                text = read_json(line)
            except ValueError:
                continue
            found += [text] if isinstance(text, str) else []
        return found

    def store_string(self, string: str) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(string) + "\n")
        except OSError:
            return  # Without a folder of ours there is no history.
