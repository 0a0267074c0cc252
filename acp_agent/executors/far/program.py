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
LEAST_PYTHON, ALL_GLOBS = (3, 9), (3, 11)
SIDE = "acp_agent.executors.far.side"
SEARCH, LIBRARY = "acp_agent.executors.searching.search_worker", "pathspec"
STANDING = {
    "msgspec": "acp_agent.executors.far.plain_structs",
    "msgspec.structs": "acp_agent.executors.far.plain_structs",
    "acp_agent.config.safety_settings": "acp_agent.executors.far.plain_settings",
    "acp_agent.config.trusted_files": "acp_agent.executors.far.plain_settings",
}
"""By module: what stands for it there."""
SENT = (
    "acp_agent.disk",
    "acp_agent.errors",
    "acp_agent.lazy",
    "acp_agent.limits.descriptors",
    "acp_agent.own_programs",
    "acp_agent.executors.default_signals",
    "acp_agent.executors.base",
    "acp_agent.executors.beneath",
    "acp_agent.executors.encodings",
    "acp_agent.executors.files",
    "acp_agent.executors.marked",
    "acp_agent.executors.tree",
    "acp_agent.executors.tree_walk",
    "acp_agent.executors.far.far_values",
    "acp_agent.executors.far.far_peer",
    "acp_agent.executors.far.older_glob",
    SIDE,
)
PRELUDE = """
import base64, importlib.abc, importlib.machinery, json, sys, zlib
if sys.version_info < {least}:
    sys.stderr.write("Python {words} or newer is needed there, and this is " + sys.version.split()[0] + chr(10))
    sys.exit(4)
def learn(data):
    sources.update(json.loads(zlib.decompress(data)))
sources = {{}}
learn(base64.b85decode({sources}))
class Sent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in sources:
            package = any(other.startswith(name + ".") for other in sources)
            return importlib.machinery.ModuleSpec(name, self, origin=name, is_package=package)
    def exec_module(self, module):
        exec(compile(sources[module.__name__], module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Sent())
if sys.version_info < {globs}:
    from acp_agent.executors.far.older_glob import install
    install()
import {side}
{side}.learn = learn
from {side} import about, begin, end_other, pass_on
"""


@cache
def sources(modules: tuple[str, ...]) -> bytes:
    """Of modules, with the packages that they are in."""
    parts = {name: name.split(".") for name in modules}
    packages = {".".join(each[:length]): "" for each in parts.values() for length in range(1, len(each))}
    texts = {name: _source(STANDING.get(name, name)) for name in modules}
    return zlib.compress(json.dumps({**packages, **texts}).encode("ascii"), 9)


@cache
def _prelude() -> bytes:
    packed = base64.b85encode(sources(("msgspec", "msgspec.structs", *SENT)))
    values = {"least": LEAST_PYTHON, "words": ".".join(map(str, LEAST_PYTHON)), "globs": ALL_GLOBS, "side": SIDE}
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
