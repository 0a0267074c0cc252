"""Converts HTML to text: what a user would read on a page, and what a CSS selector finds in it. Pure.

Headings, lists, code and tables stay readable; links become `[text](address)`. Menus, scripts, buttons and hidden
parts are left out. The tree is walked without recursion, since pages can be arbitrarily deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from acp_agent.errors import ToolError

LEFT_OUT = frozenset(
    """
    script style noscript template svg canvas iframe object embed audio video nav footer aside button select input
    textarea dialog head link meta map
    """.split()
)
LEFT_OUT_ROLES = frozenset("navigation banner contentinfo complementary search dialog menu menubar toolbar".split())
PARAGRAPHS = frozenset("p div section article main header blockquote ul ol dl table figure form fieldset pre".split())
"""Elements with an empty line before and after."""
LINES = frozenset("li tr dt dd figcaption caption address details summary legend option thead tbody".split())
HEADINGS = {f"h{level}": level for level in range(1, 7)}
BLOCKS = PARAGRAPHS | LINES | HEADINGS.keys() | {"td", "th", "hr"}
HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
NO_TEXT = frozenset(("script", "style", "template", "noscript"))
LONGEST_TEXT = 100_000
"""Characters of one element's text."""
SHORT = 200
"""Characters of a page's main part below which the whole page may be more informative."""


class PageText(Struct, frozen=True):
    title: str
    text: str
    truncated: bool
    """Whether the page has more than requested."""


class Element(Struct, frozen=True):
    """The elements a selector found."""

    text: str
    html: str
    attributes: dict[str, str]


def parse(html: str) -> LexborHTMLParser:
    return LexborHTMLParser(html or "<html></html>")


def page_text(html: str, url: str, max_chars: int) -> PageText:
    """The main text of the page at `url`, at most `max_chars` characters. Links are made absolute."""
    tree = parse(html)
    title = " ".join(text_of(node).split()) if (node := tree.css_first("title")) is not None else ""
    base = tree.css_first("base[href]")
    if base is not None:
        url = link_of(base, url) or url
    main = _main(tree)
    text, truncated = _Writer(url, max_chars).write(main) if main is not None else ("", False)
    if len(text) < SHORT and tree.body is not None:
        whole, whole_truncated = _Writer(url, max_chars).write(tree.body)
        if len(whole) > len(text):
            text, truncated = whole, whole_truncated
    return PageText(title[:300], text, truncated)


def select(html: str, selector: str, limit: int) -> tuple[list[Element], int]:
    """The first `limit` elements that `selector` finds, and how many there are. Raises ToolError for a bad selector."""
    found = select_nodes(parse(html), selector)
    elements = [
        Element(text_of(node), node.html or "", {name: value or "" for name, value in node.attributes.items()})
        for node in found[:limit]
    ]
    return elements, len(found)


def select_nodes(tree: LexborHTMLParser, selector: str) -> list[LexborNode]:
    try:
        return tree.css(selector)
    except (SelectolaxError, UnicodeError) as error:
        raise ToolError(
            f"{selector[:200]!a} is not a CSS selector. Use one as for `querySelectorAll`, for "
            "example `article h2 a` or `table#prices td`.",
            "invalid_parameters",
        ) from error


def text_of(node: LexborNode) -> str:
    """All text below the node, in one line."""
    return _Writer(None, LONGEST_TEXT).write(node)[0]


def link_of(node: LexborNode, url: str, attribute: str = "href") -> str | None:
    """The absolute http(s) or mailto address that an element links to."""
    target = (node.attributes.get(attribute) or "").strip()
    if not target or target.startswith("#"):
        return None
    try:
        whole = urljoin(url, target)
    except ValueError:
        return None
    return whole if whole.startswith(("https:", "http:", "mailto:")) and len(whole) <= 2000 else None


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    marked = tree.css_first("main, [role=main]")
    if marked is not None:
        return marked
    articles = tree.css("article")
    return articles[0] if len(articles) == 1 else None


def _left_out(node: LexborNode) -> bool:
    if node.tag in LEFT_OUT:
        return True
    attributes = node.attributes
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or (attributes.get("role") or "") in LEFT_OUT_ROLES
        or HIDDEN_STYLE.search(attributes.get("style") or "") is not None
    )


class _Writer:
    """Walks a part of a page and writes its text until there is enough. Without a `url`: plain text, in one line."""

    def __init__(self, url: str | None, max_chars: int) -> None:
        self._url = url
        self._max = max_chars
        self._out: list[str] = []
        self._length = 0
        self._gap = 0
        """Line breaks pending before the next text."""
        self._space = False
        """A blank pending before the next text."""
        self._lists: list[int | None] = []
        """Open lists: the number of the last item, `None` without numbers."""
        self._cells = 1 if url is None else 0
        """Open table cells, whose contents are on one line."""
        self._after_mark = False
        """Whether a list's mark was just written; its text follows on the same line."""
        self._links: list[tuple[int, str | None]] = []
        """Open links: their start in `_out`, and their address."""

    def write(self, node: LexborNode) -> tuple[str, bool]:
        """Returns the text, and whether it was cut."""
        stack: list[tuple[LexborNode, Iterator[LexborNode]]] = []
        self._open(node, stack)
        while stack and self._length <= self._max:
            parent, children = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                self._close(parent)
            elif child.is_text_node:
                self._text(child.text_content or "")
            elif child.is_element_node and not self._skips(child):
                self._open(child, stack)
        text = "".join(self._out).strip("\n ")
        return text[: self._max], bool(stack) or len(text) > self._max

    def _skips(self, node: LexborNode) -> bool:
        return node.tag in NO_TEXT if self._url is None else _left_out(node)

    def _open(self, node: LexborNode, stack: list[tuple[LexborNode, Iterator[LexborNode]]]) -> None:
        tag = node.tag or ""
        if self._url is None:
            self._break(1 if tag == "br" or tag in BLOCKS else 0)
            stack.append((node, node.iter(include_text=True)))
            return
        if tag == "pre":
            self._code(node.text() or "")
            return
        if tag in ("code", "kbd", "samp"):
            if inner := " ".join((node.text() or "").split()):
                self._put(f"`{inner}`")
            return
        if tag == "br":
            self._break(1)
            return
        if tag == "img":
            if alt := " ".join((node.attributes.get("alt") or "").split()):
                self._text(f"(image: {alt[:200]})")
            return
        self._begin(tag)
        if tag == "a":
            self._links.append((len(self._out), link_of(node, self._url)))
        stack.append((node, node.iter(include_text=True)))

    def _begin(self, tag: str) -> None:
        if tag in HEADINGS:
            self._break(2)
            self._put("#" * HEADINGS[tag] + " ")
        elif tag in ("ul", "ol"):
            self._break(2)
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._break(1)
            mark = "- "
            if self._lists and (number := self._lists[-1]) is not None:
                self._lists[-1] = number + 1
                mark = f"{number + 1}. "
            self._put("  " * max(0, len(self._lists) - 1) + mark)
            self._after_mark = True
        elif tag in ("td", "th"):
            if self._out and self._gap == 0 and not self._out[-1].endswith("\n"):
                self._put(" | ")
            self._cells += 1
        elif tag == "hr":
            self._break(2)
            self._put("---")
            self._break(2)
        elif tag in PARAGRAPHS:
            self._break(2)
        elif tag in LINES:
            self._break(1)

    def _close(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if self._url is None:
            self._break(1 if tag in BLOCKS else 0)
        elif tag == "a":
            self._end_link(*self._links.pop())
        elif tag in ("td", "th"):
            self._cells -= 1
        elif tag in ("ul", "ol"):
            self._lists.pop()
            self._after_mark = False
            self._break(2)
        elif tag in HEADINGS or tag in PARAGRAPHS:
            self._break(2)
        elif tag in LINES:
            self._break(1)

    def _end_link(self, start: int, address: str | None) -> None:
        inner = "".join(self._out[start:])
        words = " ".join(inner.split())
        if address is None or not words:
            return
        ahead = inner[: len(inner) - len(inner.lstrip())]
        self._length -= len(inner)
        del self._out[start:]
        mark, rest = "", words
        if (heading := re.match(r"#{1,6} |- ", words)) is not None:
            mark, rest = heading[0], words[heading.end() :]
        self._add(f"{ahead}{mark}[{rest}]({address})")

    def _code(self, text: str) -> None:
        if not text.strip():
            return
        if self._cells:
            self._text(text)
            return
        self._break(2)
        fence = "````" if "```" in text else "```"
        self._put(f"{fence}\n{text.strip(chr(10)).rstrip()[: self._max]}\n{fence}")
        self._break(2)

    def _text(self, text: str) -> None:
        words = " ".join(text.split())
        if not words:
            self._space = self._space or bool(text)
            return
        if text[0].isspace():
            self._space = True
        self._put(words)
        self._space = text[-1].isspace()

    def _break(self, lines: int) -> None:
        if self._cells:
            self._space = self._space or lines > 0
        elif self._out and not self._after_mark:
            self._gap = max(self._gap, 1 if self._lists and lines else lines)

    def _put(self, text: str) -> None:
        if self._gap:
            self._add("\n" * self._gap)
        elif self._space and self._out and not self._out[-1].endswith((" ", "\n")):
            self._add(" ")
        self._gap, self._space, self._after_mark = 0, False, False
        self._add(text)

    def _add(self, text: str) -> None:
        self._out.append(text)
        self._length += len(text)
