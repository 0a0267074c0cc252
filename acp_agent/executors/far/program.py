"""What is sent to a host: the modules that run there, with a few lines that make them importable."""

from __future__ import annotations

import base64
import io
import json
import zipfile
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

BOOT = (
    "import os\ndef r(n):\n b=b''\n while len(b)<n:\n  d=os.read(0,min(65536,n-len(b)))\n  if not d:os._exit(3)\n"
    "  b+=d\n return b\nexec(compile(r(int(r(8))),'acp-coder','exec'))"
)
"""The command line's part: reads the program, of which the first eight digits are the length, and runs it."""
LEAST_PYTHON = (3, 9)
SIDE = "acp_agent.executors.far.side"
SEARCH, LIBRARY = "acp_agent.executors.search_worker", "pathspec"
EMPTY = ("acp_agent", "acp_agent.executors", "acp_agent.executors.far")
PLAIN_STRUCTS = "acp_agent.executors.far.plain_structs"
"""Stands for msgspec there."""
SENT = (
    "acp_agent.disk",
    "acp_agent.errors",
    "acp_agent.lazy",
    "acp_agent.own_programs",
    "acp_agent.executors.base",
    "acp_agent.executors.beneath",
    "acp_agent.executors.encodings",
    "acp_agent.executors.files",
    "acp_agent.executors.marked",
    "acp_agent.executors.tree",
    "acp_agent.executors.tree_walk",
    "acp_agent.executors.far.far_values",
    "acp_agent.executors.far.far_peer",
    SIDE,
)
PRELUDE = """
import base64, importlib.abc, importlib.machinery, json, sys, zlib
if sys.version_info < {least}:
    sys.stderr.write("Python {words} or newer is needed there, and this is " + sys.version.split()[0] + chr(10))
    sys.exit(4)
sources = json.loads(zlib.decompress(base64.b85decode({sources})))
class Sent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in sources:
            package = name in {packages}
            return importlib.machinery.ModuleSpec(name, self, origin=name, is_package=package)
    def exec_module(self, module):
        exec(compile(sources[module.__name__], module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Sent())
from {side} import about, begin, end_other, pass_on
"""


@cache
def _prelude() -> bytes:
    names = {"msgspec": PLAIN_STRUCTS, **{name: name for name in SENT}}
    sources = dict.fromkeys(EMPTY, "") | {name: _source(module) for name, module in names.items()}
    packed = base64.b85encode(zlib.compress(json.dumps(sources).encode("ascii"), 9))
    values = {"least": LEAST_PYTHON, "words": ".".join(map(str, LEAST_PYTHON)), "packages": EMPTY, "side": SIDE}
    return PRELUDE.format(sources=packed, **values).encode("ascii")


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


@cache
def search_program() -> bytes:
    """`search_worker.py` with the library that it needs, as an archive that Python runs."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _source(SEARCH))
        spec = find_spec(LIBRARY)
        assert spec is not None and spec.origin is not None
        top = Path(spec.origin).parent
        for file in sorted(top.rglob("*.py")):
            archive.write(file, file.relative_to(top.parent))
    return made.getvalue()


def program(call: str, *arguments: object) -> bytes:
    """To be written to what runs `BOOT`: calls a function of `side.py`."""
    text = _prelude() + f"{call}({', '.join(map(repr, arguments))})\n".encode()
    return f"{len(text):08d}".encode("ascii") + text
