"""docs/questions.md: forty questions, each answered within two clicks of the README."""

import re
from pathlib import Path

from .imports import ROOT

PAGE = ROOT / "docs/questions.md"
ROW = re.compile(r"^\| ([^|]*\?) \| (.*) \|$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)#([^)]+)\)")


def section(file: Path, anchor: str) -> str:
    """With its heading, up to the next heading of its level or a higher one; empty if there is none."""
    found, level = [], 0
    fenced = False
    for line in file.read_text(encoding="utf-8").splitlines():
        fenced ^= line.lstrip().startswith("```")
        marks = 0 if fenced else len(line) - len(line.lstrip("#"))
        if marks and level and marks <= level:
            break
        if marks and not level and re.sub(r"[^\w\- ]", "", line[marks:].strip().lower()).replace(" ", "-") == anchor:
            level = marks
        if level:
            found.append(line)
    return "\n".join(found)


def test_each_question_leads_to_its_answer():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    wrong = []
    for question, answer in rows:
        links, words = LINK.findall(answer), re.findall(r"`([^`]+)`", LINK.sub("", answer))
        found = "\n".join(section((PAGE.parent / page).resolve(), anchor) for page, anchor in links)
        wrong += [(question, word) for word in words or ["(no words)"] if word not in found]
    assert len(rows) == 40 and wrong == []


def test_the_questions_are_one_click_from_the_readme_and_the_index():
    assert "(docs/questions.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(questions.md)" in (ROOT / "docs/index.md").read_text(encoding="utf-8")
