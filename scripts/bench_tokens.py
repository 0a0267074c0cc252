"""The tokens of a first request, counted by a real llama.cpp server: `python -m scripts.bench_tokens`. Prints JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from tests.agent.kit import rig
from tests.models.kit import llama

WINDOWS = {"default": 128_000, "small": 16_384}


async def first_request(folder: Path, window: int) -> dict[str, Any]:
    async with rig(folder, ["ok"], config=f"[providers.default]\ncontext_window = {window}\n") as r:
        await r.editor.prompt("hi")
        return r.model.requests[0].body


def main() -> None:
    found = {}
    with tempfile.TemporaryDirectory() as home, llama(Path(home) / "log", "-c", "512", "--jinja") as server:
        for name, window in WINDOWS.items():
            (folder := Path(home) / name).mkdir()
            body = anyio.run(first_request, folder, window)
            tools = [json.dumps(tool["function"], ensure_ascii=False) for tool in body["tools"]]
            found[name] = {
                "tools": sum(map(server.tokens, tools)),
                "system": server.tokens(body["messages"][0]["content"]),
            }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
