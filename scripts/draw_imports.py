"""Draws docs/imports.svg: the parts of the package on their floors, and who imports whom.

An arrow that follows from two others is left out, and so are imports for types only.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.house.imports import imports, modules  # noqa: E402
from tests.house.test_house import FLOORS, part  # noqa: E402

BOX_WIDTH, BOX_HEIGHT, GAP, ROW = 112, 34, 22, 86
LEFT = 60


def parts() -> dict[int, list[str]]:
    """The parts on each floor."""
    found = {part(name) for _, name in modules()} - {"", "__main__", "py"}
    floors: dict[int, list[str]] = defaultdict(list)
    for name in sorted(found):
        floors[FLOORS[name]].append(name)
    return floors


def edges() -> set[tuple[str, str]]:
    """Importer and imported, without pairs that follow from others."""
    below: dict[str, set[str]] = defaultdict(set)
    for item in imports():
        if item.imported.startswith(("acp_agent.", "acp_conformance.")) and not item.typing_only:
            here, there = part(item.importer), part(item.imported)
            if here != there and here and there:
                below[here].add(there)

    def reach(name: str) -> set[str]:
        return below[name].union(*(reach(lower) for lower in tuple(below[name])))

    return {
        (here, there)
        for here in tuple(below)
        for there in below[here]
        if not any(there in reach(other) for other in below[here] - {there})
    }


def picture() -> str:
    """The text of the SVG."""
    floors, places = parts(), {}
    width = LEFT + max(len(row) for row in floors.values()) * (BOX_WIDTH + GAP)
    height = len(floors) * ROW + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#789"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    boxes = []
    for row, floor in enumerate(sorted(floors, reverse=True)):
        top, names = 16 + row * ROW, floors[floor]
        start = LEFT + (width - LEFT - len(names) * (BOX_WIDTH + GAP)) / 2
        boxes.append(f'<text x="14" y="{top + 22}" fill="#567">{floor}</text>')
        for column, name in enumerate(names):
            left = start + column * (BOX_WIDTH + GAP)
            places[name] = (left + BOX_WIDTH / 2, top)
            boxes.append(
                f'<rect x="{left:.0f}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="#eef3f8" '
                f'stroke="#567"/><text x="{left + BOX_WIDTH / 2:.0f}" y="{top + 22}" text-anchor="middle">{name}</text>'
            )
    for here, there in sorted(edges()):
        if here in places and there in places:
            (x1, y1), (x2, y2) = places[here], places[there]
            begin = y1 + BOX_HEIGHT if y2 > y1 else y1 + BOX_HEIGHT / 2
            lines.append(
                f'<line x1="{x1:.0f}" y1="{begin:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" '
                'stroke="#789" marker-end="url(#end)"/>'
            )
    return "\n".join([*lines, *boxes, "</svg>"]) + "\n"
