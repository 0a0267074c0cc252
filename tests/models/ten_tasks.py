"""Ten small tasks for a real coding model, with the agent and with a bare loop of one bash block a turn.

    bash scripts/install_model_server.sh --coder
    .venv/bin/python -m tests.models.ten_tasks [--threads 2] [--only loop,native,auto,fenced] [--task NUMBER]

Prints which succeed in which form: `native` tool calls, `auto` (calls that the model writes as text count too) and
`fenced`. The loop is the yardstick: the same model, seed and limits. It takes about an hour; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .kit import ROOT, Server, llama

WEIGHTS = ROOT / "tests" / ".models" / "coder.gguf"
PROGRAM = ROOT / ".venv" / "bin" / "acp-coder"
FORMS = ("loop", "native", "auto", "fenced")
ROUNDS = 6
ANSWER_TOKENS = 300
TASK_SECONDS = 600.0
WINDOW = 16_384

FILES = {
    "README.md": "# wordstat\n\nCounts the words of a text.\n",
    "wordstat.py": (
        "import sys\n\n\ndef count_words(text):\n    return len(text.split())\n\n\n"
        'if __name__ == "__main__":\n    print(count_words(open(sys.argv[1]).read()))\n'
    ),
    "test_wordstat.py": (
        "import unittest\n\nfrom wordstat import count_words\n\n\nclass Test(unittest.TestCase):\n"
        '    def test_two(self):\n        self.assertEqual(count_words("a b"), 2)\n\n'
        '    def test_none(self):\n        self.assertEqual(count_words(""), 0)\n\n'
        '    def test_lines(self):\n        self.assertEqual(count_words("a\\nb c"), 3)\n'
    ),
    "notes.txt": "buy apples\ncall the plumber\nwrite to Ada\nread chapter seven\nwater the plants\n",
    "old.txt": "nobody needs this\n",
    "shapes.py": "import math\n\n\ndef circle_area(radius):\n    return math.pi * radius**2\n",
}
LOOP = (
    "You are a coding agent in a folder of a project. To run a command, write one bash code block; it is run and you "
    "get its output. One block per answer. When the task is done, answer without a block."
)
BLOCK = re.compile(r"```(?:bash|sh|shell)\n(.*?)```", re.DOTALL)


class Done(NamedTuple):
    """What a run left: its last words and the folder."""

    text: str
    folder: Path

    def read(self, name: str) -> str:
        file = self.folder / name
        return file.read_text(errors="replace") if file.is_file() else ""


class Task(NamedTuple):
    prompt: str
    succeeded: Callable[[Done], bool]


def _renamed(done: Done) -> bool:
    text = done.read("wordstat.py")
    return "def word_count(" in text and "print(word_count(" in text and "count_words" not in text


TASKS = (
    Task("Run `python3 wordstat.py notes.txt` and tell me the number it prints.", lambda it: "14" in it.text),
    Task(
        "Create a file hello.txt with the text: hello world", lambda it: it.read("hello.txt").strip() == "hello world"
    ),
    Task("Which file defines the function circle_area?", lambda it: "shapes.py" in it.text),
    Task(
        "In notes.txt, change the word plumber to electrician.",
        lambda it: it.read("notes.txt") == FILES["notes.txt"].replace("plumber", "electrician"),
    ),
    Task("How many lines does notes.txt have?", lambda it: re.search(r"\b(5|five)\b", it.text) is not None),
    Task("Delete the file old.txt.", lambda it: not (it.folder / "old.txt").exists()),
    Task(
        "Run the tests with `python3 -m unittest` and tell me how many tests ran.",
        lambda it: re.search(r"\b(3|three)\b", it.text) is not None,
    ),
    Task("Rename the function count_words to word_count in wordstat.py.", _renamed),
    Task(
        "Add the line `mow the lawn` at the end of notes.txt.",
        lambda it: it.read("notes.txt").splitlines() == [*FILES["notes.txt"].splitlines(), "mow the lawn"],
    ),
    Task(
        "Create a folder named data with an empty file named names.csv in it.",
        lambda it: (it.folder / "data" / "names.csv").is_file() and not it.read("data/names.csv").strip(),
    ),
)


@contextmanager
def project() -> Iterator[Path]:
    """Always the same path: what the model reads about the folder stays the same, and so the server's prompt cache."""
    folder = Path(tempfile.gettempdir()) / "ten-tasks" / "project"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    yield folder


def loop(server: Server, task: Task, folder: Path) -> str:
    """The yardstick: the last answer."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": LOOP}, {"role": "user", "content": task.prompt}]
    text = ""
    for _ in range(ROUNDS):
        body = {"messages": messages, "temperature": 0, "seed": 1, "max_tokens": ANSWER_TOKENS}
        answer = server.ask("/v1/chat/completions", body, seconds=TASK_SECONDS)
        text = answer["choices"][0]["message"]["content"] or ""
        block = BLOCK.search(text)
        if block is None:
            break
        ran = subprocess.run(
            ["bash", "-c", block[1]], cwd=folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
        output = f"{ran.stdout}{ran.stderr}"[-4000:] or "(no output)"
        messages += [
            {"role": "assistant", "content": text[: block.end()]},
            {"role": "user", "content": f"Exit code {ran.returncode}. Output:\n{output}"},
        ]
    return text


def agent(server: Server, task: Task, folder: Path, form: str) -> str:
    """All that `acp-coder prompt` says as the model's answer."""
    config = folder.parent / "config.toml"
    config.write_text(
        f"[agent]\nmax_output_tokens = {ANSWER_TOKENS}\nmax_tool_iterations = {ROUNDS}\n"
        f'[providers.default]\nbase_url = "{server.base_url}"\ntool_calling = "{form}"\n'
    )
    environ = {
        "HOME": str(folder.parent),
        "PATH": os.environ["PATH"],
        "ACP_CODER_CONFIG": str(config),
        "ACP_CODER_KEYRING": "0",
    }
    command = [PROGRAM, "prompt", "--json", "--yes", "--mode", "auto", "--cwd", folder, task.prompt]
    try:
        ran = subprocess.run(
            [*map(str, command)], env=environ, cwd=folder, capture_output=True, text=True, timeout=TASK_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "(no answer in time)"
    (folder.parent / "updates").write_text(ran.stdout + ran.stderr)
    return "".join(_said(line) for line in ran.stdout.splitlines())


def _said(line: str) -> str:
    try:
        update = json.loads(line)
    except ValueError:
        return ""
    update = update.get("update", update) if isinstance(update, dict) else {}
    said = update.get("sessionUpdate") == "agent_message_chunk"
    return str(update["content"].get("text", "")) if said else ""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--only", default=",".join(FORMS))
    options.add_argument("--task", type=int, action="append")
    options.add_argument("--keep", type=Path, help="a folder for what each run said")
    given = options.parse_args()
    forms = given.only.split(",")
    numbers = given.task or range(1, len(TASKS) + 1)
    log = Path(tempfile.gettempdir()) / "ten-tasks.log"
    won = dict.fromkeys(forms, 0)
    with llama(log, "-c", WINDOW, "--jinja", "-np", "1", weights=WEIGHTS, threads=given.threads) as server:
        for form in forms:
            for number in numbers:
                task = TASKS[number - 1]
                with project() as folder:
                    began = time.monotonic()
                    text = loop(server, task, folder) if form == "loop" else agent(server, task, folder, form)
                    good = task.succeeded(Done(text, folder))
                    won[form] += good
                    if given.keep is not None:
                        given.keep.mkdir(parents=True, exist_ok=True)
                        (given.keep / f"{form}-{number}.txt").write_text(text)
                        if (folder.parent / "updates").exists():
                            shutil.copy(folder.parent / "updates", given.keep / f"{form}-{number}.jsonl")
                seconds = time.monotonic() - began
                sys.stdout.write(f"{form:<7} {number:>2} {'ok' if good else '-':<3} {seconds:5.0f} s  {task.prompt}\n")
                sys.stdout.flush()
    shutil.rmtree(Path(tempfile.gettempdir()) / "ten-tasks")
    for form, count in won.items():
        sys.stdout.write(f"{form:<7} {count} of {len(numbers)}\n")


if __name__ == "__main__":
    main()
