"""Where plugins come from: a folder, a git repository, an archive, a package of npm or PyPI. Nothing of them is run."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from acp_agent.limits.descriptors import restoring
from acp_agent.own_programs import NoGit, find_program, run_git
from acp_agent.plugins.contained import Files, PluginError, read_files
from acp_agent.plugins.manifest import CLAUDE_MANIFEST, MANIFEST

SECONDS = 120
NEEDED = "`{}` is needed for that and was not found."
GIT = re.compile(r"(?:https://|ssh://|git@|file://|git\+)\S+")
NPM, PYPI = "npm:", "pypi:"
OF_PYPI = re.compile(r"\w[\w.-]*(?:\[[\w.,-]+\])?(?:[=~<>!]=?[\w.+*,<>=!~-]+)?")
"""A name in the registry, with a version. Of an address or a folder pip runs what is there, to know its name."""
ARCHIVES = (".tar.gz", ".tgz", ".zip", ".whl")
MAX_UNPACKED = 200_000_000
MAX_ENTRIES = 20_000
"""Of an archive."""
MAX_DEPTH = 3
"""Folders above a manifest in an archive or a repository."""
MOST_NAMED = 10


class Found(Struct, frozen=True):
    files: Files
    at: str
    """Which state of the source it is: a commit, a file's name; empty for a folder."""


def fetch(source: str, environ: Mapping[str, str]) -> Found:
    """The files of a plugin. A part of a repository or an archive is named by `#FOLDER`, a branch, tag or commit by
    `@REF` before that. Raises PluginError."""
    with tempfile.TemporaryDirectory(prefix="acp-coder-plugin-") as made:
        top = Path(made)
        if source.startswith((NPM, PYPI)):
            archive = _package(source, top, environ)
            return Found(_files(_unpacked(archive, top / "files"), ""), archive.name)
        where, _, part = source.partition("#")
        if GIT.match(where):
            at = _cloned(where.removeprefix("git+"), top / "files", environ)
            return Found(_files(top / "files", part), at)
        path = Path(where).expanduser()
        if path.is_file() and where.endswith(ARCHIVES):
            return Found(_files(_unpacked(path, top / "files"), part), path.name)
        if not path.is_dir():
            words = "a folder, an archive (.tar.gz, .zip), a git URL, npm:NAME or pypi:NAME"
            raise PluginError(f"There is no plugin at {source!r}: give {words}.")
        return Found(read_files(path / part if part else path), "")


def _files(top: Path, part: str) -> Files:
    if part:
        folder = (top / part).resolve()
        if not folder.is_relative_to(top.resolve()):
            raise PluginError(f"#{part} leads out of it.")
        return read_files(folder)
    found = sorted(_with_manifest(top))
    if not found:
        where = f"in it, nor up to {MAX_DEPTH} folders below; name a deeper one: #folder"
        raise PluginError(f"There is neither {MANIFEST} nor {CLAUDE_MANIFEST} {where}.")
    if len(found) > 1:
        names = ", ".join(f"#{folder.relative_to(top)}" for folder in found[:MOST_NAMED])
        names += f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise PluginError(f"There are several plugins in it; name one: {names}.")
    return read_files(found[0])


def _with_manifest(top: Path) -> Iterator[Path]:
    """Those nearest to the top that are plugins."""
    level = [top]
    for _ in range(MAX_DEPTH + 1):
        here = [folder for folder in level if (folder / MANIFEST).is_file() or (folder / CLAUDE_MANIFEST).is_file()]
        if here:
            yield from here
            return
        level = [each for folder in level for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]


def _run(name: str, arguments: list[str], environ: Mapping[str, str], folder: Path) -> str:
    """In an empty folder: npm follows the `.npmrc` of the one in which it runs."""
    program = find_program(name, environ)
    if program is None:
        raise PluginError(NEEDED.format(name))
    argv, nothing = [program, *arguments], subprocess.DEVNULL
    return _done(
        name,
        lambda: subprocess.run(
            argv,
            cwd=folder,
            env=environ,
            stdin=nothing,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            **restoring(),
        ),
    )


def _done(name: str, run: Callable[[], subprocess.CompletedProcess[bytes]]) -> str:
    try:
        done = run()
    except NoGit as error:
        raise PluginError(NEEDED.format(name)) from error
    except subprocess.TimeoutExpired as error:
        raise PluginError(f"`{name}` took longer than {SECONDS} s.") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[-300:]
        raise PluginError(f"`{name}` failed: {said}.")
    return done.stdout.decode("utf-8", "replace").strip()


def _cloned(url: str, folder: Path, environ: Mapping[str, str]) -> str:
    """The commit."""
    url, at, ref = url.rpartition("@") if re.search(r"[^/:]+/[^@]*@[\w./-]+$", url) else (url, "", "")
    _git(
        ["-c", "protocol.file.allow=always", "clone", "--quiet", "--no-recurse-submodules", "--", url, folder], environ
    )
    if at:
        _git(["-C", folder, "checkout", "--quiet", "--detach", ref], environ)
    return _git(["-C", folder, "rev-parse", "HEAD"], environ)


def _git(arguments: list[str | Path], environ: Mapping[str, str]) -> str:
    words = [str(word) for word in arguments]
    return _done("git", lambda: run_git(words, timeout=SECONDS, environ=environ, more={"GIT_LFS_SKIP_SMUDGE": "1"}))


def _package(source: str, top: Path, environ: Mapping[str, str]) -> Path:
    kind, _, name = source.partition(":")
    if not name or name.startswith("-") or (kind != "npm" and OF_PYPI.fullmatch(name) is None):
        raise PluginError(f"{source!r} names no package.")
    folder = top / "package"
    folder.mkdir()
    if f"{kind}:" == NPM:
        _run("npm", ["pack", "--ignore-scripts", "--silent", name], environ, folder)
    else:
        options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--dest", str(folder)]
        _run("pip", ["download", *options, name], environ, folder)
    (archive,) = [each for each in folder.iterdir() if each.name.endswith(ARCHIVES)] or (None,)
    if archive is None:
        raise PluginError(f"{source} has no archive.")
    return archive


def _unpacked(archive: Path, folder: Path) -> Path:
    folder.mkdir()
    try:
        if archive.name.endswith((".zip", ".whl")):
            with zipfile.ZipFile(archive) as opened:
                _check(sum(each.file_size for each in opened.infolist()), len(opened.infolist()))
                opened.extractall(folder)  # It keeps names in the folder, and makes no links.
                for each in opened.infolist():
                    if each.external_attr >> 16 & 0o100 and not each.is_dir():
                        (folder / each.filename).chmod(0o700)
        else:
            with tarfile.open(archive) as opened:
                members = opened.getmembers()
                _check(sum(each.size for each in members), len(members))
                _extract(opened, members, folder)
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise PluginError(f"{archive.name} cannot be unpacked: {error}.") from error
    return folder


def _extract(archive: tarfile.TarFile, members: Sequence[tarfile.TarInfo], folder: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    for each in members:  # Python before 3.11.4: what the filter does, but for links, which are refused.
        place = os.path.normpath(os.path.join(folder, each.name))
        if not (each.isreg() or each.isdir()) or not Path(place).is_relative_to(folder):
            raise tarfile.TarError(f"{each.name} is a link or a device, or lies outside")
        each.mode = each.mode & 0o755 | (0o700 if each.isdir() else 0o600)
        each.uid, each.gid, each.uname, each.gname = os.getuid(), os.getgid(), "", ""
    archive.extractall(folder, members)


def _check(size: int, count: int) -> None:
    if size > MAX_UNPACKED or count > MAX_ENTRIES:
        raise PluginError(f"It has more than {MAX_ENTRIES} entries or {MAX_UNPACKED} bytes.")
