"""Writes the addresses of the project into a tree that a release is built from: the repository itself names none.

Usage: addresses.py REPOSITORY TREE. `[project.urls]` of both packages, badges and whole links in their README files
(an index of packages shows these without the repository around them), the extension's repository, the site's link."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?![a-z]+:|#)([^()\s]+)\)")
"""A relative one."""
PACKAGES = (("acp-coder", ""), ("acp-conformance", "kit/"))
"""Their names and folders."""
WORKFLOWS = ("check", "editors")
"""Those with a badge."""


def main(repository: str, folder: str) -> None:
    repository, tree = repository.rstrip("/"), Path(folder)
    found = re.search(r'__version__ = "(.+)"', (tree / "acp_agent" / "__init__.py").read_text(encoding="utf-8"))
    assert found is not None
    for name, below in PACKAGES:
        project, readme = tree / below / "pyproject.toml", tree / below / "README.md"
        if "[project.urls]" in project.read_text(encoding="utf-8"):
            sys.exit(f"{project} has addresses already")
        _put(project, "[project.scripts]\n", f"{_urls(repository)}\n[project.scripts]\n")
        text = readme.read_text(encoding="utf-8")
        readme.write_text(whole(text, repository, f"v{found[1]}", below), encoding="utf-8")
        _put(readme, f"# {name}\n", f"# {name}\n\n{_badges(repository)}\n")
    _put(tree / "mkdocs.yml", "site_name: acp-coder\n", f"site_name: acp-coder\nrepo_url: {repository}\n")
    _put(tree / "editors" / "vscode" / "package.json", '  "license":', f'{_of_extension(repository)}  "license":')


def whole(text: str, repository: str, tag: str, below: str = "") -> str:
    """Markdown whose relative links lead to that tag of the repository. `below`: the folder that the text is in."""

    def address(match: re.Match[str]) -> str:
        parts: list[str] = []
        for part in f"{below}{match[2]}".split("/"):
            parts = parts[:-1] if part == ".." else [*parts, part]
        return f"{match[1]}({repository}/{'raw' if match[1][0] == '!' else 'blob'}/{tag}/{'/'.join(parts)})"

    return LINK.sub(address, text)


def _urls(repository: str) -> str:
    rows = {"Homepage": "", "Documentation": "/blob/main/docs/index.md", "Issues": "/issues", "Source": ""}
    rows |= {"Changelog": "/blob/main/CHANGELOG.md"}
    return "[project.urls]\n" + "".join(f"{name} = {json.dumps(repository + path)}\n" for name, path in rows.items())


def _badges(repository: str) -> str:
    pages = ((name, f"{repository}/actions/workflows/{name}.yml") for name in WORKFLOWS)
    return " ".join(f"[![{name}]({page}/badge.svg)]({page})" for name, page in pages)


def _of_extension(repository: str) -> str:
    more = {
        "repository": {"type": "git", "url": f"{repository}.git", "directory": "editors/vscode"},
        "homepage": f"{repository}/blob/main/docs/editors/vscode.md",
        "bugs": {"url": f"{repository}/issues"},
    }
    return "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in more.items())


def _put(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    if text.count(old) != 1:
        sys.exit(f"{file}: {old.strip()!r} must stand there once, and stands there {text.count(old)} times")
    file.write_text(text.replace(old, new), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
