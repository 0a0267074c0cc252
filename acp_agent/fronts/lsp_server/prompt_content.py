"""Builds the prompt for each of the editor's commands: the text, and the place that it is about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urldefrag

from lsprotocol.types import Position, Range
from msgspec import Struct

from acp_agent.fronts.lsp_server.documents.editor_documents import Documents, path_of
from acp_agent.fronts.lsp_server.documents.text_positions import Text
from acp_agent.schema.acp import ContentBlock, EmbeddedResource, ResourceLink, TextContent, TextResourceContents

LONGEST_PASSAGE = 100_000
"""Characters of a selection that are included; the agent can read the rest."""

QUESTION_LENGTH = 2_000
COMMENT = re.compile(r"^\s*(?://+!?|#+|--+|;+|%+|/\*+|\*+|<!--+|\"\"\")\s?(.*?)\s*(?:\*/|-->|\"\"\")?\s*$")
LINK = re.compile(r"\[[^\]\n]*\]\((file://[^)\s]+)\)")
LINES = re.compile(r"^L(\d+)(?:[-:]L?(\d+))?$")


class Passage(Struct, frozen=True):
    """Lines `first` to `last` of a file, counted from 1, and their current text, saved or not."""

    uri: str
    first: int
    last: int
    text: str

    @property
    def name(self) -> str:
        path = path_of(self.uri)
        lines = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{path.name if path is not None else self.uri}:{lines}"

    @property
    def link(self) -> str:
        return f"{self.uri}#L{self.first}" + (f"-L{self.last}" if self.last != self.first else "")

    @property
    def markdown(self) -> str:
        return f"[{self.name}]({self.link})"


class Prompt(Struct, frozen=True):
    """`text` is what a user would have typed."""

    text: str
    passages: Sequence[Passage] = ()

    def blocks(self, *, embedded: bool) -> list[ContentBlock]:
        """`embedded`: whether the agent accepts embedded text in the prompt; else it gets a link and the text."""
        blocks: list[ContentBlock] = [TextContent(text=self.text)]
        for place in self.passages:
            if embedded:
                blocks.append(EmbeddedResource(resource=TextResourceContents(uri=place.link, text=place.text)))
            else:
                blocks.append(ResourceLink(uri=place.link, name=place.name))
                if place.text:
                    blocks.append(TextContent(text=f"{place.name} says:\n\n{place.text}"))
        return blocks


def passage(documents: Documents, uri: str, where: Range | None) -> Passage:
    """The lines that a selection touches; without one, the whole file."""
    document = documents.get(uri)
    text = document.now if document is not None else _on_disk(uri, documents)
    if where is None:
        return Passage(uri, 1, max(1, len(text.lines)), _bounded(text.text))
    start, end = sorted((where.start, where.end), key=lambda place: (place.line, place.character))
    last = end.line
    if end.character == 0 and last > start.line:
        last -= 1  # A selection of whole lines ends at the beginning of the next.
    selected = Range(start=text.line_start(start.line), end=text.line_end(last))
    return Passage(uri, start.line + 1, last + 1, _bounded(text.slice(selected)))


def _bounded(text: str) -> str:
    more = len(text) - LONGEST_PASSAGE
    return text if more <= 0 else f"{text[:LONGEST_PASSAGE]}\n[{more} more characters are left out: read the file]\n"


def is_cursor(text: Text, where: Range) -> bool:
    """Whether nothing is selected, or one character: Helix's cursor is a selection of one."""
    return len(text.slice(where).rstrip("\r\n")) <= 1


def question_in(text: Text, where: Range) -> str:
    """Returns the selection, or the line of the cursor, if it reads like a request: a comment, or a question."""
    selected = text.slice(where).strip()
    if not selected or is_cursor(text, where):
        selected = text.line(where.start.line).strip()
    lines = selected.splitlines()
    if len(selected) > QUESTION_LENGTH:
        return ""
    comments = [COMMENT.match(line) for line in lines if line.strip()]
    if comments and all(comments):
        words = " ".join(found.group(1) for found in comments if found is not None).strip()
    elif selected.endswith("?") and len(lines) <= 5:
        words = " ".join(line.strip() for line in lines)
    else:
        return ""
    return words if re.search(r"\w\W+\w", words) else ""


def fix(message: str, source: str, place: Passage) -> Prompt:
    said = f" ({source})" if source else ""
    return Prompt(f"Fix this problem at {place.markdown}: {message}{said}", (place,))


def explain(place: Passage) -> Prompt:
    return Prompt(f"Explain {place.markdown}: what it does and why it is done this way. Change nothing.", (place,))


def test(place: Passage) -> Prompt:
    return Prompt(f"Write a test for {place.markdown}, in the style of this project's tests, and run it.", (place,))


def linked(documents: Documents, text: str) -> Prompt:
    """A prompt as written by a user, with the files that it links to."""
    places = []
    for uri in dict.fromkeys(LINK.findall(text)):
        file, fragment = urldefrag(uri)
        found = LINES.match(fragment)
        where = None
        if found is not None:
            first, last = int(found[1]), int(found[2] or found[1])
            where = Range(
                start=Position(line=max(first, 1) - 1, character=0), end=Position(line=max(first, last), character=0)
            )
        if documents.get(file) is not None or (path_of(file) or Path("/")).is_file():
            places.append(passage(documents, file, where))
    return Prompt(text, tuple(places))


def _on_disk(uri: str, documents: Documents) -> Text:
    path = path_of(uri)
    try:
        # Reading a pipe would block everything.
        text = path.read_bytes().decode("utf-8", "replace") if path is not None and path.is_file() else ""
    except OSError:
        text = ""
    return Text(text, documents.encoding)
