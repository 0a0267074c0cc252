"""A root with Python, bash and a few plain programs: no git, rg, bubblewrap, /etc, home folder or users."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAMS = "bash sh cat ls env uname id sleep mkdir rm cp mv sed grep head tail stdbuf tee"


def bare(project: Path, command: Sequence[str], **environ: str) -> list[str]:
    """The command line that runs a command as root in such a root, with `project` as `/app` and exactly this
    environment."""
    words = ["/usr/bin/bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--uid", "0", "--gid", "0"]
    words += ["--die-with-parent", "--clearenv", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    # The interpreter, the environment it is in, and this repository, without what the tests have installed.
    shown = {
        Path(sys.base_prefix), Path(sys.prefix), ROOT / "acp_agent", ROOT / "tests" / "system" / "evals",
        ROOT / "evals",
    }  # fmt: skip
    shown |= {ROOT / "tests" / "mcp", *map(Path, ("/lib", "/lib64", "/usr/lib", "/usr/lib64"))}
    for path in sorted(shown):
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in PROGRAMS.split():
        words += ["--ro-bind", os.path.realpath(shutil.which(name) or name), f"/usr/bin/{name}"]
    words += ["--symlink", sys.executable, "/usr/bin/python3", "--symlink", "usr/bin", "/bin"]
    words += ["--bind", str(project), "/app", "--chdir", "/app"]
    for name, value in {"PATH": "/usr/bin:/bin", **environ}.items():
        words += ["--setenv", name, value]
    return [*words, "--", *command]
