"""npm, pip, cargo and git, for real, through the proxy for commands, from registries of this machine."""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import anyio
import pytest

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.loop.shell.command_network import CommandNetwork
from acp_agent.mcp import stdio_server
from acp_agent.schema import acp
from tests.agent.kit import Answer, asks, bash, put, puts, rig, went
from tests.executors.sandbox.kit import needs_sandbox

BOUND = 60.0
HOST = "registry.test"


def tarball(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def wheel() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("greeting.py", "words = 'hello'\n")
        archive.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        archive.writestr("greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("greeting-1.0.dist-info/RECORD", "")
    return packed.getvalue()


def pages(base: str) -> dict[str, bytes]:
    """What the registries of npm, pip and cargo serve."""
    npm = tarball({"package/package.json": '{"name": "greeting", "version": "1.0.0"}', "package/index.js": ""})
    manifest = '[package]\nname = "greeting"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = tarball({"greeting-1.0.0/Cargo.toml": manifest, "greeting-1.0.0/src/lib.rs": ""})
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(npm).digest()).decode()}"
    dist = {"tarball": f"{base}/npm/greeting.tgz", "integrity": integrity}
    version = {"name": "greeting", "version": "1.0.0", "dist": dist}
    line: dict[str, object] = {
        "name": "greeting", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate).hexdigest(),
    }  # fmt: skip
    line |= {"features": {}, "yanked": False}
    packument = {"name": "greeting", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return {
        "/npm/greeting": json.dumps(packument).encode(), "/npm/greeting.tgz": npm,
        "/pip/greeting/": b'<a href="greeting-1.0-py3-none-any.whl">greeting</a>',
        "/pip/greeting/greeting-1.0-py3-none-any.whl": wheel(),
        "/cargo/config.json": json.dumps({"dl": f"{base}/crates/{{crate}}"}).encode(),
        "/cargo/gr/ee/greeting": json.dumps(line).encode(), "/crates/greeting": crate,
    }  # fmt: skip


@contextmanager
def registries(repositories: Path) -> Iterator[str]:
    """The URL of a server of all of them, under the name that leads here."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path)
            if path.path.startswith("/git/"):
                self._git(path.path.removeprefix("/git"), path.query)
                return
            body = served.get(path.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html" if path.path.endswith("/") else "application/octet-stream")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        do_POST = do_GET

        def _git(self, path: str, query: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            environ = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(repositories), "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "someone",
            }  # fmt: skip
            if encoding := self.headers.get("Content-Encoding"):
                environ["HTTP_CONTENT_ENCODING"] = encoding
            done = subprocess.run(
                ["git", "http-backend"], input=self.rfile.read(length), capture_output=True, env=environ, check=True
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in {**fields, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        base = f"http://{HOST}:{server.server_port}"
        served = pages(base)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield base
        finally:
            server.shutdown()
            thread.join()


def repository(place: Path) -> None:
    """A repository to clone and to push to."""
    place.mkdir(parents=True)
    run = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(place)]
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(place)], check=True)
    subprocess.run([*run, "config", "http.receivepack", "true"], check=True)
    tree = subprocess.run([*run, "mktree"], input=b"", capture_output=True, check=True).stdout.decode().strip()
    made = subprocess.run([*run, "commit-tree", tree, "-m", "first"], capture_output=True, check=True)
    subprocess.run([*run, "update-ref", "refs/heads/main", made.stdout.decode().strip()], check=True)


CARGO = (
    '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
    'greeting = { version = "1", registry = "near" }\n'
)
COMMANDS = {
    "npm": "npm install --no-audit --no-fund --registry {base}/npm greeting && ls node_modules/greeting/index.js",
    "pip": "python3 -m pip download -q --index-url {base}/pip --trusted-host registry.test greeting && ls *.whl",
    "cargo": "CARGO_HOME=$PWD/.cargo-home CARGO_REGISTRIES_NEAR_INDEX=sparse+{base}/cargo/ cargo fetch && "
    "ls Cargo.lock",
    "git": "git clone -q {base}/git/one.git cloned && cd cloned && git config user.email x@example.com && "
    "git config user.name x && git commit -q --allow-empty -m second && git push -q && echo pushed",
}
GOT = {"npm": "node_modules/greeting/index.js", "pip": "greeting-1.0", "cargo": "Cargo.lock", "git": "pushed"}


@pytest.mark.parametrize("manager", COMMANDS)
async def test_a_package_manager_works_through_the_proxy(tmp_path: Path, manager: str, monkeypatch: pytest.MonkeyPatch):
    needs_sandbox()
    if manager == "cargo" and not has_cargo():
        pytest.skip("cargo is not installed, or is rustup's without a toolchain")

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(CommandNetwork, "resolve", staticmethod(resolve))
    repository(tmp_path / "repositories/one.git")
    folders = dict.fromkeys([str(Path(sys.executable).parent)])
    folders |= dict.fromkeys(str(Path(found).parent) for name in COMMANDS if (found := shutil.which(name)))
    environ = {"PATH": os.pathsep.join([*folders, os.defpath]), "HOME": os.environ["HOME"]}
    environ = {name: value for name, value in {**environ, **toolchains()}.items() if value}
    config = f'[tools.web]\nprivate_hosts = ["{HOST}"]\n[store]\npath = "{tmp_path}/sessions.db"\n'
    with registries(tmp_path / "repositories") as base:
        script = [asks(bash(COMMANDS[manager].format(base=base))), Answer(text="done")] * 2
        more = {"sandbox": True, "mode": "auto", "config": config, "environ": environ}
        async with rig(tmp_path, script, permissions=[reject_once, allow_once], **more) as made:
            if manager == "cargo":
                puts(made.project, {"Cargo.toml": CARGO, "src/lib.rs": ""})
            with anyio.fail_after(BOUND):
                await made.editor.prompt("go")
                refused = str(made.messages(2)[-1]["content"])
                await made.editor.prompt("again")
                done = str(made.messages(4)[-1]["content"])
    asked = [request for request in made.editor.permission_requests if "connect" in (request.tool_call.meta or {})]
    assert len(asked) == 2 and HOST in str(asked[0].tool_call.title)
    assert f"Not connected to {HOST}" in refused and GOT[manager] not in refused, "the control"
    assert GOT[manager] in done and f"Connected to {HOST}" in done


def has_cargo() -> bool:
    try:
        return subprocess.run(["cargo", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def toolchains() -> dict[str, str]:
    """Where installers of Rust put it, which is not looked for in the home of a test."""
    return {"RUSTUP_HOME": os.environ.get("RUSTUP_HOME", "")}


@pytest.mark.skipif(shutil.which("npx") is None, reason="npx is not installed")
@pytest.mark.parametrize("words", [["npx", "-y"], ["npm", "exec", "-y"]], ids=" ".join)
async def test_no_package_of_the_repository_is_started_as_a_server_that_is_fetched(tmp_path, monkeypatch, words):
    """npx takes what is in `node_modules`, which commands write, before it asks the registry."""
    command, *args = words
    env = [acp.EnvVariable(name="npm_config_offline", value="true")]
    server = acp.McpServerStdio(name="fetched", command=command, args=[*args, "some-server"], env=env)

    def files(project: Path) -> None:
        package = project / "node_modules/some-server"
        put(package / "package.json", '{"name": "some-server", "version": "1.0.0", "bin": {"some-server": "x.sh"}}')
        put(package / "x.sh", f"#!/bin/sh\ntouch {tmp_path}/ran\n").chmod(0o755)
        (project / "node_modules/.bin").mkdir()
        (project / "node_modules/.bin/some-server").symlink_to("../some-server/x.sh")

    for held in (True, False):
        home = tmp_path / str(held)
        files(home / "project")
        if not held:
            monkeypatch.setattr(stdio_server, "APART", {})
        async with went(home, ["ok"], mcp_servers=[server]):
            assert (tmp_path / "ran").exists() != held
