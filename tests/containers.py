"""Real containers: podman, with images made from busybox and from this machine's bash. No registry is asked."""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
from functools import cache
from pathlib import Path
from typing import Any

from acp_agent.config.place_settings import PlaceConfig

LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
ARGUMENTS = (*(("--runtime", "runc") if shutil.which("runc") or Path("/usr/sbin/runc").exists() else ()), *LIMITS)
"""What podman needs where it runs inside of something that limits it."""

PLAIN, WITH_BASH = "acp-coder-test:busybox", "acp-coder-test:bash"
SECONDS = 60.0

_shared: dict[Path, str] = {}


def podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"podman {arguments[0]}: {done.stderr}")
    return done.stdout.strip()


@cache
def missing() -> str:
    """Why no container can be run here; empty if one can."""
    absent = [name for name in ("podman", "busybox") if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    try:
        for image in (PLAIN, WITH_BASH):
            subprocess.run(
                ["podman", "import", "--quiet", "-", image], input=_root(bash=image == WITH_BASH), capture_output=True,
                timeout=SECONDS, check=True,
            )  # fmt: skip
        argv = ["run", "--rm", "--init", *ARGUMENTS, "--network", "none", PLAIN, "echo", "runs"]
        return "" if podman(*argv) == "runs" else "podman runs nothing"
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"podman runs no container here: {error} {getattr(error, 'stderr', b'')!r}"


def _root(*, bash: bool) -> bytes:
    """The files of an image, the same each time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("bin", "etc", "tmp", "proc", "dev", "sys", "root"):
            _add(tar, name, tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)
        _add(tar, "etc/passwd", data=b"root:x:0:0:root:/root:/bin/sh\n")
        busybox = Path(str(shutil.which("busybox"))).resolve()
        _add(tar, "bin/busybox", data=busybox.read_bytes(), mode=0o755)
        for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                _add(tar, f"bin/{name}", tarfile.SYMTYPE, target="busybox")
        if bash:
            listed = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
            for file in ("/bin/bash", *re.findall(r"(/\S+) \(", listed)):
                _add(tar, file.lstrip("/"), data=Path(file).read_bytes(), mode=0o755)
    return out.getvalue()


def _add(
    tar: tarfile.TarFile, name: str, kind: bytes = tarfile.REGTYPE, *, data: bytes = b"", mode: int = 0o644,
    target: str = "",
) -> None:  # fmt: skip
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), target
    tar.addfile(entry, io.BytesIO(data))


def from_image(image: str = WITH_BASH, **more: Any) -> PlaceConfig:
    return PlaceConfig(image=image, arguments=list(ARGUMENTS), **more)


def running(folder: Path) -> str:
    """The name of a running container that has `folder` at the same path; one for all tests of this process."""
    if folder not in _shared:
        _shared[folder] = start(folder)
    return _shared[folder]


def with_python(folder: Path, at: str = "/app", *more: str) -> str:
    """A running one that has `folder` elsewhere, and this machine's programs."""
    mounts = [name for name in ("/usr", "/lib", "/lib64", sys.base_prefix) if Path(name).exists()]
    volumes = [part for name in dict.fromkeys(mounts) for part in ("--volume", f"{name}:{name}:ro")]
    path = f"PATH=/usr/local/bin:/usr/bin:/bin:{sys.base_prefix}/bin"
    return start(folder, WITH_BASH, *volumes, "--env", path, "--env", "FRUIT=papaya", *more, at=at)


def start(folder: Path, image: str = WITH_BASH, *more: str, at: str = "") -> str:
    name = f"acp-test-{uuid.uuid4().hex[:12]}"
    argv = ["--name", name, "--volume", f"{folder}:{at or folder}", "--user", f"{os.getuid()}:{os.getgid()}"]
    podman("run", "--detach", "--rm", "--init", *ARGUMENTS, "--network", "none", *argv, *more, image, "sleep", "100000")
    return name


def names() -> list[str]:
    """Of all containers, running or not."""
    return podman("ps", "--all", "--format", "{{.Names}}").split()


def processes(container: str) -> list[str]:
    """The command lines of all processes in it."""
    script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null"
    return podman("exec", container, "sh", "-c", script, check=False).splitlines()


def remove(name: str) -> None:
    podman("rm", "--force", "--time", "0", name, check=False)


def remove_all() -> None:
    while _shared:
        remove(_shared.popitem()[1])
