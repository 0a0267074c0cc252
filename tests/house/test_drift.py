"""What pages say of this repository is so: the paths in backticks, the tests they name, and their counts.

Commands, targets of make and blocks: `test_documented.py`. Links: `make docs`.
"""

import re
import subprocess
from collections.abc import Callable

from acp_agent.config.wire_apis import WIRE_APIS
from tests.documented import BLOCK, PAGES

from .imports import ROOT
from .test_comparison import AGENTS
from .test_troubleshooting import QUOTED

OF_OURS = ("docs/internals/", "docs/decisions/", "docs/architecture.md", "docs/conformance.md", "docs/releasing.md",
           "AGENTS.md", "CONTRIBUTING.md", "kit/", "evals/")  # fmt: skip
"""Pages for who works on it: each file that they name is one of the repository."""
OTHERS = {"docs/history.md", "docs/trusted-files.md"}
"""What was, and what others load."""
CODE = re.compile(r"`(\.?[\w./*-]+?)(?:::(\w+)|:\d+)?`")
FILE = re.compile(r"\w\.(?:py|md|toml|sh|tsx?|json|ya?ml|svg|lua|el|js|css|html|sql|jinja)$")
PLACEHOLDER = re.compile(r"NAME|VERSION|EDITOR|OWNER")
MADE = {
    "tests/.agents/results", "tests/.editors", "dist/", "acp_conformance/_wire",  # by commands
    "extension/", "completions/",  # in an archive of a release
    "shown/", "src/a.py", "pylock.toml", "echo_agent.py",  # of a user, or of others
}  # fmt: skip
"""Named, and not in the repository."""


def listed() -> list[str]:
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return found.stdout.splitlines()


def named() -> list[tuple[str, str, str]]:
    """Page, path and test of what is named in backticks and meant to be in the repository."""
    top = {file.split("/")[0] for file in listed() if "/" in file and not file.startswith(".")} | {"acp_conformance"}
    found = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        for path, test in CODE.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
            inside = "/" in path and path.split("/")[0] in top
            ours = name.startswith(OF_OURS) and (FILE.search(path) or path.endswith("/"))
            meant = inside or ours or path.endswith(".py")
            if name not in OTHERS and meant and path[0] not in "./~" and not PLACEHOLDER.search(path):
                found.append((name, path, test))
    return found


def test_every_path_in_backticks_is_there():
    files = "".join(f"/{file}\n" for file in listed())
    missing = []
    for page, path, _ in named():
        pattern = re.escape(path.rstrip("/")).replace(r"\*", "[^/\n]*")
        if not re.search(f"/{pattern}[/\n]", files) and path not in MADE:
            missing.append((page, path))
    assert len(named()) > 1000 and missing == []
    assert [path for path in MADE if path not in {path for _, path, _ in named()}] == [], "nobody names these any more"


def test_every_test_that_is_named_is_there():
    found = [(page, path, test) for page, path, test in named() if test.startswith("test_")]
    texts = {path: (ROOT / "tests" / path.removeprefix("tests/")).read_text(encoding="utf-8") for _, path, _ in found}
    assert [(page, path, test) for page, path, test in found if f"def {test}(" not in texts[path]] == []
    assert len(found) > 50


WORDS = {word: number for number, word in enumerate("zero one two three four five six seven eight nine ten".split())}
WORDS |= {"fifty": 50}
COUNTS: list[tuple[str, str, Callable[[], int]]] = [
    ("README.md", r"(\w+) kinds of API", lambda: sum(not (row.free or row.recorded) for row in WIRE_APIS.values())),
    ("CONTRIBUTING.md", r"and (\w+) walks through the code", lambda: walks()),
    ("CONTRIBUTING.md", r"A tool is (\w+) files", lambda: steps("A tool")),
    ("CONTRIBUTING.md", r"a provider with an API of its own (\w+)\.", lambda: steps("A provider")),
    ("docs/architecture.md", r"## (\w+) walks", lambda: walks()),
    ("docs/questions.md", r"\[(\w+) messages\]", lambda: len(QUOTED)),
    ("docs/comparison.md", r"(\w+) agents that you may know", lambda: len(AGENTS) - 1),
]
"""Page, sentence with a number, and what it counts."""


def walks() -> int:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return text.partition("walks\n")[2].partition("\n## ")[0].count("\n### ")


def steps(heading: str) -> int:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"\n### {heading}\n")[2]
    return len(re.findall(r"^\d\. ", text.partition("\n### ")[0], re.MULTILINE))


def test_every_count_is_what_there_is():
    for page, sentence, count in COUNTS:
        found = re.search(sentence, (ROOT / page).read_text(encoding="utf-8"))
        assert found, f"{page}: {sentence}: the sentence has other words"
        word = found[1].lower()
        assert (int(word) if word.isdigit() else WORDS[word]) == count(), f"{page}: {found[0]}"


def test_every_run_of_the_kit_has_all_requirements():
    """Passed, not there and failed of a row add up; of one, the page says why it has one more."""
    text = (ROOT / "docs/conformance.md").read_text(encoding="utf-8").partition("\n## Results\n")[2]
    (whole,) = re.findall(r"MUST: (\d+) requirements", text)
    later = dict(re.findall(r"The row of ([\w-]+) is a run of [^:]+, when there were (\d+)\s+requirements", text))
    rows = re.findall(
        r"^\| ([\w-]+) \| [\d.]+ \| (\d+) \| (\d+) \|([A-Z0-9, -]*)\|([A-Z0-9, -]*)\|$", text, re.MULTILINE
    )
    assert len(rows) > 5
    for name, passed, absent, *failed in rows:
        many = sum(len(re.findall(r"[A-Z0-9]+-\d+", cell)) for cell in failed)
        assert int(passed) + int(absent) + many == int(later.get(name, whole)) + ("RPC-1," in failed[0]), name
