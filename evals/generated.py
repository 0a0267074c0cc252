"""Small tasks that a seed makes: names, files, wording and order differ, so that nobody tunes to known sentences.

24 kinds, of one to four calls each. A task is written as a folder in the format of `evals/tasks`, so all that runs
those runs these. The name has kind and seed.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from evals.tasks import TASKS, Task, read_task

SECONDS = 900
NOUNS = (
    "lamp river ticket garden parcel violin harbour candle engine meadow basket lantern pocket saddle kettle".split()
)
THINGS = "invoice order customer shipment report recipe player sensor booking payment".split()
KEYS = "timeout retries port workers limit interval depth width".split()
NAMES = "Ada Bruno Chen Dora Emil Farah Goran Hana Igor Jana".split()
ANSWER = (TASKS / "first-count-lines/tests/check.py").read_text(encoding="utf-8").partition("assert ")[0]
"""Finds what the agent said; each task has it, since a task is whole by itself."""
TEST = (TASKS / "first-count-lines/tests/test.sh").read_text(encoding="utf-8")
IMPORT = "import sys\n\nsys.path.insert(0, '.')\nimport {}\n\n"
ABOUT = """\
[metadata]
difficulty = "generated"
wants = "{}"

[agent]
timeout_sec = {}
"""
READ = "from pathlib import Path\n\n\ndef text(name):\n    return Path(name).read_text(encoding='utf-8')\n\n\n"


class Made(Struct, frozen=True):
    """One task, made from a seed."""

    files: Mapping[str, str]
    instruction: str
    check: str
    """Python: raises if it is not done."""
    solve: str
    """bash."""
    answers: bool = False
    """Whether words are wanted, and no change."""


class Dice:
    """What a kind is made of."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._nouns = self._random.sample(NOUNS, len(NOUNS))
        self._things = self._random.sample(THINGS, len(THINGS))

    def noun(self) -> str:
        return self._nouns.pop()

    def thing(self) -> str:
        return self._things.pop()

    def one(self, *of: str) -> str:
        return self._random.choice(of)

    def some(self, of: Sequence[str], count: int) -> list[str]:
        return self._random.sample(list(of), count)

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def lines(self, count: int) -> list[str]:
        return [f"{name} {self.one('buys', 'sells', 'paints', 'repairs')} a {noun}" for name, noun in zip(
            self._random.choices(NAMES, k=count), self._random.sample(NOUNS, count), strict=True
        )]  # fmt: skip


def _same(name: str, text: str) -> str:
    return f"{READ}assert text({name!r}).strip() == {text.strip()!r}\n"


def _says(*patterns: str) -> str:
    return ANSWER + "".join(f"assert re.search({pattern!r}, answer(), re.IGNORECASE)\n" for pattern in patterns)


def change_word(d: Dice) -> Made:
    file, lines, old, new = f"{d.noun()}.txt", d.lines(5), d.noun(), d.noun()
    lines[d.number(0, 4)] = f"the {old} is in the cellar"
    text = "\n".join(lines) + "\n"
    words = d.one(f"In {file}, replace the word {old} by {new}.", f"Change {old} to {new} in {file}.")
    return Made({file: text}, words, _same(file, text.replace(old, new)), f"sed -i 's/\\b{old}\\b/{new}/' {file}")


def json_number(d: Dice) -> Made:
    file, (key, other) = f"{d.noun()}.json", d.some(KEYS, 2)
    old, new = d.number(10, 99), d.number(100, 999)
    text = json.dumps({"name": d.noun(), key: old, other: d.number(1, 9)}, indent=2) + "\n"
    words = d.one(f"Set {key} to {new} in {file}.", f"{file}: the {key} should be {new}.")
    check = (
        f"{READ}import json\n\nfound = json.loads(text({file!r}))\nassert found[{key!r}] == {new} and len(found) == 3\n"
    )
    return Made({file: text}, words, check, f'sed -i \'s/"{key}": {old}/"{key}": {new}/\' {file}')


def append_line(d: Dice) -> Made:
    file, lines = f"{d.noun()}.md", d.lines(4)
    new = f"{d.one(*NAMES)} keeps the {d.noun()}"
    words = d.one(f'Add the line "{new}" at the end of {file}.', f"Append this line to {file}: {new}")
    text = "\n".join(lines) + "\n"
    return Made({file: text}, words, _same(file, text + new), f"echo {shlex.quote(new)} >> {file}")


def insert_line(d: Dice) -> Made:
    file, thing = f"{d.noun()}.py", d.thing()
    text = f"import os\n\n\ndef {thing}(path):\n    return os.path.basename(path)\n"
    words = d.one(
        f"Add `import sys` below `import os` in {file}.", f"{file} also needs `import sys`, after `import os`."
    )
    want = text.replace("import os\n", "import os\nimport sys\n", 1)
    return Made({file: text}, words, _same(file, want), f"sed -i 's/^import os$/import os\\nimport sys/' {file}")


def delete_file(d: Dice) -> Made:
    one, other = f"{d.noun()}.log", f"{d.noun()}.log"
    words = d.one(f"Delete {one}.", f"Remove the file {one}, nothing else.")
    check = f"from pathlib import Path\n\nassert not Path({one!r}).exists() and Path({other!r}).exists()\n"
    return Made({one: "x\n", other: "y\n"}, words, check, f"rm {one}")


def delete_lines(d: Dice) -> Made:
    file, lines, word = f"{d.noun()}.txt", d.lines(6), d.noun().upper()
    for at in d.some(["0", "2", "5"], 2):
        lines[int(at)] += f" {word}"
    left = "\n".join(line for line in lines if word not in line)
    words = d.one(f"Delete all lines with {word} from {file}.", f"Remove every line that contains {word} in {file}.")
    return Made({file: "\n".join(lines) + "\n"}, words, _same(file, left), f"sed -i /{word}/d {file}")


def new_file(d: Dice) -> Made:
    file, text = f"{d.noun()}.txt", f"The {d.noun()} belongs to {d.one(*NAMES)}."
    words = d.one(f"Create {file} with the text: {text}", f'Write "{text}" into a new file {file}.')
    return Made({"README.md": "# Notes\n"}, words, _same(file, text), f"echo {shlex.quote(text)} > {file}")


def new_folder(d: Dice) -> Made:
    folder, name = d.noun(), d.thing()
    words = d.one(
        f"Make a folder {folder} with an empty file {name}.py in it.", f"Create an empty file {folder}/{name}.py."
    )
    check = f"from pathlib import Path\n\nassert not Path('{folder}/{name}.py').read_text().strip()\n"
    return Made({"README.md": "# Notes\n"}, words, check, f"mkdir {folder} && touch {folder}/{name}.py")


def rename_file(d: Dice) -> Made:
    old, new, text = f"{d.noun()}.txt", f"{d.noun()}.txt", "\n".join(d.lines(3)) + "\n"
    words = d.one(f"Rename {old} to {new}.", f"The file {old} should be called {new}.")
    check = _same(new, text) + f"assert not Path({old!r}).exists()\n"
    return Made({old: text}, words, check, f"mv {old} {new}")


def rename_function(d: Dice) -> Made:
    one, other, old, new = d.noun(), d.noun(), f"get_{d.thing()}", f"load_{d.thing()}"
    files = {
        f"{one}.py": f"def {old}(number):\n    return number * 2\n",
        f"{other}.py": f"from {one} import {old}\n\nprint({old}(21))\n",
    }
    words = d.one(f"Rename the function {old} to {new} everywhere.", f"Call {old} {new} instead, in all files.")
    check = (
        f"{READ}import subprocess\nimport sys\n\nassert not any({old!r} in text(each) for each in {sorted(files)!r})\n"
        f"assert subprocess.check_output([sys.executable, {other + '.py'!r}]).strip() == b'42'\n"
        f"assert {new!r} in text({one + '.py'!r})\n"
    )
    return Made(files, words, check, f"sed -i s/{old}/{new}/ *.py")


def count_lines(d: Dice) -> Made:
    file, count = f"{d.noun()}.csv", d.number(11, 97)
    text = "".join(f"{number},{d.one(*NAMES)}\n" for number in range(count))
    words = d.one(f"How many lines does {file} have?", f"Count the lines of {file}.")
    return Made({file: text}, words, _says(rf"\b{count}\b"), f"wc -l {file}", answers=True)


def find_function(d: Dice) -> Made:
    names, wanted = d.some(THINGS, 4), f"parse_{d.noun()}"
    files = {f"src/{name}.py": f"def make_{name}():\n    return {name!r}\n" for name in names}
    files[f"src/{names[0]}.py"] += f"\n\ndef {wanted}(text):\n    return text.split()\n"
    words = d.one(f"Which file defines the function {wanted}?", f"Where is {wanted} defined?")
    return Made(files, words, _says(rf"{names[0]}\.py"), f"grep -rl 'def {wanted}' .", answers=True)


def find_value(d: Dice) -> Made:
    file, key, value = f"config/{d.noun()}.ini", d.one(*KEYS), d.number(100, 999)
    text = f"[{d.thing()}]\nname = {d.noun()}\n{key} = {value}\n"
    words = d.one(f"What is {key} in {file}?", f"Look into {file}: which {key} is set?")
    return Made({file: text}, words, _says(rf"\b{value}\b"), f"grep {key} {file}", answers=True)


def count_files(d: Dice) -> Made:
    folder, count = d.noun(), d.number(3, 9)
    files = {f"{folder}/{name}.py": "x = 1\n" for name in d.some(NOUNS, count)} | {f"{folder}/notes.md": "x\n"}
    words = d.one(f"How many Python files are in the folder {folder}?", f"Count the .py files in {folder}.")
    number = rf"\b({count}|{'zero one two three four five six seven eight nine'.split()[count]})\b"
    return Made(files, words, _says(number), f"ls {folder}/*.py | wc -l", answers=True)


def run_program(d: Dice) -> Made:
    file, one, other = f"{d.noun()}.py", d.number(12, 99), d.number(12, 99)
    text = f"total = 0\nfor number in range({one}):\n    total += number * {other}\nprint('total', total)\n"
    result = sum(number * other for number in range(one))
    words = d.one(f"Run {file} and tell me what it prints.", f"What does python3 {file} print?")
    return Made({file: text}, words, _says(rf"\b{result:,}\b|\b{result}\b"), f"python3 {file}", answers=True)


def _tested(d: Dice, wrong: str, right: str, call: str, want: object) -> tuple[str, dict[str, str], str]:
    """A module, the files, and the right text."""
    module = d.noun()
    test = (
        f"import unittest\n\nimport {module}\n\n\nclass Test(unittest.TestCase):\n    def test_it(self):\n"
        f"        self.assertEqual({module}.{call}, {want!r})\n\n\nif __name__ == '__main__':\n    unittest.main()\n"
    )
    return module, {f"{module}.py": wrong, f"test_{module}.py": test}, right


PASSES = "import subprocess\nimport sys\n\nsubprocess.run([sys.executable, '-m', 'unittest', '-q'], check=True)\n"


def failing_test(d: Dice) -> Made:
    thing, number = d.thing(), d.number(2, 9)
    code = f"def {thing}(value):\n    return value + {number}\n"
    _, files, _ = _tested(d, code, code, f"{thing}(1)", number + 2)
    words = d.one(
        f"Run the tests. Which value does {thing}(1) give, and which one is expected?",
        "Run `python3 -m unittest` and tell me both numbers of the failure.",
    )
    return Made(
        files, words, _says(rf"\b{number + 1}\b", rf"\b{number + 2}\b"), "python3 -m unittest 2>&1 || true", True
    )


def fix_bug(d: Dice) -> Made:
    thing, number = d.thing(), d.number(2, 9)
    wrong = f"def {thing}(values):\n    return sum(values) - {number}\n"
    right = wrong.replace(" - ", " + ")
    module, files, _ = _tested(d, wrong, right, f"{thing}([1, 2])", 3 + number)
    words = d.one(
        f"The test of {module}.py fails. Fix {module}.py.", f"Make `python3 -m unittest` pass: {module}.py is wrong."
    )
    check = f"{PASSES}assert '{thing}([1, 2])' in open('test_{module}.py').read()\n"
    return Made(files, words, check, f"sed -i 's/ - {number}/ + {number}/' {module}.py")


def add_function(d: Dice) -> Made:
    module, thing = d.noun(), d.thing()
    text = "def double(number):\n    return number * 2\n"
    words = d.one(
        f"Add a function triple(number) to {module}.py that returns three times the number.",
        f"{module}.py needs a function `triple` like `double`, times three.",
    )
    check = f"{IMPORT.format(module)}assert ({module}.triple(7), {module}.double(4)) == (21, 8)\n"
    solve = f"printf '\\n\\ndef triple(number):\\n    return number * 3\\n' >> {module}.py"
    return Made({f"{module}.py": text, f"{thing}.md": "# x\n"}, words, check, solve)


def add_default(d: Dice) -> Made:
    module, thing, key, value = d.noun(), d.thing(), d.one(*KEYS), d.number(2, 60)
    text = f"def {thing}(name, {key}):\n    return f'{{name}}:{{{key}}}'\n"
    words = d.one(
        f"In {module}.py, give the parameter {key} of {thing} the default {value}.",
        f"{thing} in {module}.py: {key} should default to {value}.",
    )
    calls = f"assert {module}.{thing}('a') == 'a:{value}'\nassert {module}.{thing}('a', 1) == 'a:1'\n"
    check = IMPORT.format(module) + calls
    return Made({f"{module}.py": text}, words, check, f"sed -i 's/, {key})/, {key}={value})/' {module}.py")


def sort_lines(d: Dice) -> Made:
    file, lines = f"{d.noun()}.txt", d.some(NOUNS, 7)
    words = d.one(f"Sort the lines of {file} alphabetically.", f"Put the lines of {file} in alphabetical order.")
    return Made({file: "\n".join(lines) + "\n"}, words, _same(file, "\n".join(sorted(lines))), f"sort -o {file} {file}")


def copy_file(d: Dice) -> Made:
    file, folder, text = f"{d.noun()}.txt", d.noun(), "\n".join(d.lines(3)) + "\n"
    words = d.one(f"Copy {file} into the folder {folder}.", f"Put a copy of {file} into {folder}/.")
    check = _same(f"{folder}/{file}", text) + f"assert Path({file!r}).exists()\n"
    return Made({file: text, f"{folder}/README.md": "x\n"}, words, check, f"cp {file} {folder}/")


def replace_in_all(d: Dice) -> Made:
    old, new, names = f"{d.noun()}.example.org", f"{d.noun()}.example.org", d.some(THINGS, 3)
    files = {f"{name}.md": f"# {name}\n\nSee https://{old}/{name} for more.\n" for name in names}
    words = d.one(
        f"Replace {old} by {new} in all .md files.", f"Our host is {new} now, no longer {old}: correct the .md files."
    )
    check = READ + "".join(f"assert text({name!r}) == {body.replace(old, new)!r}\n" for name, body in files.items())
    return Made(files, words, check, f"sed -i s/{old}/{new}/ *.md")


def ini_section(d: Dice) -> Made:
    file, (one, other), key = f"{d.noun()}.ini", d.some(THINGS, 2), d.one(*KEYS)
    old, new = d.number(10, 99), d.number(100, 999)
    text = f"[{one}]\n{key} = {old}\n\n[{other}]\n{key} = {old}\n"
    words = d.one(
        f"In {file}, set {key} of the section {other} to {new}.", f"{file}: {key} in [{other}] must be {new}."
    )
    want = text.replace(f"[{other}]\n{key} = {old}", f"[{other}]\n{key} = {new}")
    return Made({file: text}, words, _same(file, want), f"sed -i '/^.{other}/,$ s/{key} = .*/{key} = {new}/' {file}")


def sum_column(d: Dice) -> Made:
    file, out, values = f"{d.noun()}.csv", f"{d.noun()}.txt", [d.number(10, 99) for _ in range(6)]
    text = "name,amount\n" + "".join(f"{d.one(*NAMES)},{value}\n" for value in values)
    words = d.one(
        f"Add up the column amount of {file} and write the sum into {out}.",
        f"Write the total of all amounts in {file} to a new file {out}.",
    )
    check = f"{READ}import re\n\nassert re.findall(r'\\d+', text({out!r})) == ['{sum(values)}']\n"
    return Made({file: text}, words, check, f"awk -F, 'NR>1 {{s+=$2}} END {{print s}}' {file} > {out}")


KINDS: tuple[Callable[[Dice], Made], ...] = (
    change_word, json_number, append_line, insert_line, delete_file, delete_lines, new_file, new_folder, rename_file,
    rename_function, count_lines, find_function, find_value, count_files, run_program, failing_test, fix_bug,
    add_function, add_default, sort_lines, copy_file, replace_in_all, ini_section, sum_column,
)  # fmt: skip


def _written(file: str, text: str) -> str:
    name = shlex.quote(file)
    return f"mkdir -p {shlex.quote(str(Path(file).parent))}\nprintf %s {shlex.quote(text)} > {name}\n"


def write_tasks(folder: Path, seed: int, kinds: Sequence[str] = ()) -> list[Task]:
    """Writes a task of each kind, or of those named, into `folder`, and returns them in the seed's order."""
    tasks = []
    for kind in random.Random(seed).sample(KINDS, len(KINDS)):
        if kinds and kind.__name__ not in kinds:
            continue
        name = f"{kind.__name__.replace('_', '-')}-{seed}"
        made, at = kind(Dice(name)), folder / name
        for part in ("environment", "solution", "tests"):
            (at / part).mkdir(parents=True, exist_ok=True)
        wants = "answer" if made.answers else "changes"
        head = "#!/usr/bin/env bash\nset -euo pipefail\n"
        lines = [_written(file, text) for file, text in made.files.items()]
        for file, text in {
            "instruction.md": f"{made.instruction}\n",
            "task.toml": ABOUT.format(wants, SECONDS),
            "environment/setup.sh": head + "".join(lines),
            "solution/solve.sh": f"{head}{made.solve}\n",
            "tests/test.sh": TEST,
            "tests/check.py": made.check,
        }.items():
            (at / file).write_text(text, encoding="utf-8")
        tasks.append(read_task(at))
    return tasks
