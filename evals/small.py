"""Small tasks with a real, small coding model, and with a bare loop of one bash block an answer as the yardstick.

    bash scripts/install_model_server.sh --coder
    .venv/bin/python -m evals.small [--seed N] [--kinds NAMES] [--only loop,native,auto,fenced] [--tasks PATTERNS]

24 tasks that the seed makes (`evals/generated.py`), or with `--tasks` those of `evals/tasks`.

`native`: tool calls of the server; `auto`, the agent's default: calls that the model writes as text count too;
`fenced`: only these. The loop has the same model, seed and limits. Each takes up to an hour; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from acp_agent import __version__
from evals.generated import write_tasks
from evals.results import HEAD, Run, line, summary
from evals.run import Plan, run
from evals.tasks import Place, Task, check, chosen, set_up
from evals.tasks import environ as environ_of
from evals.trial import LAST_WORDS, SOLVED, Result
from tests.models.kit import ROOT, Server, llama

WEIGHTS = ROOT / "tests" / ".models" / "coder.gguf"
FORMS = ("loop", "native", "auto", "fenced")
MODEL = "local/coder"
ROUNDS = 6
ANSWER_TOKENS = 300
WINDOW = 16_384
CONFIG = """\
[agent]
provider = "local"
max_output_tokens = {tokens}
max_tool_iterations = {rounds}
[providers.local]
base_url = "{base_url}"
context_window = {window}
tool_calling = "{form}"
"""
LOOP = (
    "You are a coding agent in a folder of a project. To run a command, write one bash code block; it is run and you "
    "get its output. One block per answer. When the task is done, answer without a block."
)
BLOCK = re.compile(r"```(?:bash|sh|shell)\n(.*?)```", re.DOTALL)


def loop(server: Server, task: Task, place: Place, slow: float) -> Result:
    """The yardstick for one task."""
    set_up(task, place)
    before, began = place.state(), time.monotonic()
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": LOOP},
        {"role": "user", "content": task.instruction},
    ]
    text, rounds, tokens, outcome = "", 0, [0, 0, 0], "round limit"
    while rounds < ROUNDS:
        rounds += 1
        body = {"messages": messages, "temperature": 0, "seed": 1, "max_tokens": ANSWER_TOKENS}
        answer = server.ask("/v1/chat/completions", body, seconds=task.seconds * slow)
        text = answer["choices"][0]["message"]["content"] or ""
        counts = answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"], answer["timings"]["cache_n"]
        tokens = [sum(pair) for pair in zip(tokens, counts, strict=True)]
        block = BLOCK.search(text)
        if block is None:
            outcome = ""
            break
        ran = subprocess.run(
            ["bash", "-c", block[1]],
            cwd=place.project,
            env=environ_of(place),
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        output = f"{ran.stdout}{ran.stderr}"[-4000:] or "(no output)"
        messages += [
            {"role": "assistant", "content": text[: block.end()]},
            {"role": "user", "content": f"Exit code {ran.returncode}. Output:\n{output}"},
        ]
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    (place.logs / "agent" / "acp-events.jsonl").write_text(json.dumps({"payload": {"update": chunk}}) + "\n")
    seconds = round(time.monotonic() - began, 1)
    if check(task, place):
        outcome = SOLVED
    elif not outcome:
        idle = rounds == 1 if task.wants == "answer" else before == place.state()
        outcome = "gave up" if idle else "wrong"
    return Result(task.name, outcome, rounds, tokens[0], tokens[1], tokens[2], None, seconds, 0, text[-LAST_WORDS:])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--only", default=",".join(FORMS))
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--tasks", default="", help="of evals/tasks, instead of those that the seed makes")
    options.add_argument("--kinds", default="", help="of the seed's tasks, e.g. append_line,fix_bug")
    options.add_argument("--slow", type=float, default=1.0, metavar="FACTOR", help="how much longer a task may take")
    options.add_argument("--out", type=Path, default=Path(".bench/small"), help="a folder for the results of each form")
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="acp-evals-small-") as folder,
        llama(
            Path(folder) / "server.log",
            *("-c", WINDOW, "--jinja", "-np", "1", "--alias", MODEL.partition("/")[2]),
            weights=WEIGHTS,
            threads=given.threads,
        ) as server,
    ):
        if given.tasks:
            tasks = chosen(given.tasks.split(","))
        else:
            tasks = write_tasks(Path(folder) / "tasks", given.seed, given.kinds.split(",") if given.kinds else ())
        for form in given.only.split(","):
            sys.stdout.write(f"{form}\n{HEAD}\n")
            began = time.monotonic()
            if form == "loop":
                results = []
                for task in tasks:
                    results.append(loop(server, task, Place(Path(folder) / "loop"), given.slow))
                    sys.stdout.write(line(results[-1]) + "\n")
                    sys.stdout.flush()
                done = Run(f"{MODEL} in a bare loop", __version__, round(time.monotonic() - began, 1), results)
                done.save(given.out / "loop.json")
            else:
                config = Path(folder) / "config.toml"
                config.write_text(
                    CONFIG.format(
                        tokens=ANSWER_TOKENS, rounds=ROUNDS, base_url=server.base_url, window=WINDOW, form=form
                    )
                )
                environ = {**os.environ, "ACP_CODER_CONFIG": str(config)}
                plan = Plan(MODEL, tasks, environ, given.out / f"{form}.json", jobs=1, factor=given.slow)
                done = anyio.run(run, plan)
            sys.stdout.write("\n".join(summary(done)) + "\n\n")


if __name__ == "__main__":
    main()
