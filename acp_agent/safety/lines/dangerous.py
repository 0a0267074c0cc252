"""Options and operands that turn a program into something else: they run what an argument names, or write where a
program like it does not.

A rule such as `git *` was not written with `git -c core.pager=…` in mind. So a rule must name what is in this table to
allow it. A table, not a parser: a letter that may be in a cluster is searched for in every cluster, and a prefix of a
long option counts as the option.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_agent.safety.lines.programs import words
from acp_agent.safety.lines.wrappers import SHELLS, base

SAFE_ASSIGNMENTS = words(
    "CI NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLORTERM TERM COLUMNS LINES LANG LANGUAGE TZ DEBUG VERBOSE "
    "RUST_BACKTRACE RUST_LOG LOG_LEVEL LOGLEVEL NODE_ENV APP_ENV RAILS_ENV PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE "
    "PYTHONHASHSEED GOOS GOARCH CGO_ENABLED DEBIAN_FRONTEND"
)
"""Variables that change neither which program runs nor where it reads its configuration. A white list: there are too
many others (`PATH`, `LD_PRELOAD`, `IFS`, `BASH_ENV`, `GIT_*`, `NODE_OPTIONS`, `PYTHONPATH`, `RUSTC_WRAPPER`, …)."""


def is_safe_assignment(name: str) -> bool:
    return name in SAFE_ASSIGNMENTS or re.fullmatch(r"LC_[A-Z]+", name) is not None


@dataclass(frozen=True)
class _Row:
    short: str = ""
    """Letters, alone or in a cluster."""
    long: tuple[str, ...] = ()
    """Long options, also with one dash only, as Go has them, and by their beginnings."""
    exact: frozenset[str] = frozenset()
    """Arguments as they stand."""
    subs: frozenset[str] = frozenset()
    """The first operand."""
    before_sub: str = ""
    """Letters that matter before the first operand only (`git -c`, but `git log -c`)."""
    starts: tuple[str, ...] = ()
    """Beginnings of arguments."""
    always: bool = False
    """The program itself can run or change anything: it must be named."""
    operand: re.Pattern[str] | None = field(default=None)
    """An operand in which this is found."""


def dangers_of(command: Sequence[str]) -> tuple[str, ...]:
    """Those of the literal words of a command that a rule must spell out, in their order."""
    if not command:
        return ()
    name = base(command[0])
    row = TABLE.get(name) or TABLE.get(re.sub(r"[\d.]+$", "", name))
    found: dict[str, None] = {}
    if row is not None:
        if row.always:
            found[command[0]] = None
        _collect(row, command[1:], found, anywhere=name in VALUES_UNKNOWN)
        if name == "git" and "clone" in command:
            _collect(CLONE, command[1:], found, anywhere=False)
        if row is TABLE["tar"] and TAR_BUNDLE.fullmatch("".join(command[1:2])):
            found[command[1]] = None
    if row is TABLE["sed"]:
        for script in _sed_scripts(command[1:]):
            if len(script) > MAX_SED or SED_SAFE.fullmatch(script) is None:
                found[script] = None
    return tuple(found)


def _collect(row: _Row, arguments: Sequence[str], found: dict[str, None], *, anywhere: bool) -> None:
    seen_operand = False
    for argument in arguments:
        if argument in row.exact or (row.starts and argument.startswith(row.starts)):
            found[argument.partition("=")[0] if argument not in row.exact else argument] = None
            continue
        if argument.startswith("-") and len(argument) > 1:
            head = _danger(row, argument, not seen_operand)
            if head:
                found[head] = None
            continue
        if argument in row.subs and (anywhere or not seen_operand):
            found[argument] = None
        if row.operand is not None and row.operand.search(argument):
            found[argument] = None
        seen_operand = True


def _danger(row: _Row, argument: str, first: bool) -> str:
    """The option in an argument as far as a rule must spell it."""
    name = argument.partition("=")[0]
    if any(long.startswith(name) and len(name) > 2 for long in row.long) or name in row.long:
        return name
    if argument.startswith("--"):
        return ""
    letters = row.short + (row.before_sub if first else "")
    at = next((number for number, char in enumerate(argument[1:], 1) if char in letters), 0)
    return argument[: at + 1] if at else ""


SED_ADDRESS = r"(?:\d+|\$|/[^/\n\\]*/)"
SED_SAFE = re.compile(
    rf"\s*(?:(?:{SED_ADDRESS}(?:,{SED_ADDRESS})?!?\s*)?"
    r"(?:[pdqnGhHxD=]|y/[^/\n\\]*/[^/\n\\]*/|"
    r"s(?P<d>[/|#,:@])(?:(?!(?P=d))[^\n\\]|\\.)*(?P=d)(?:(?!(?P=d))[^\n\\]|\\.)*(?P=d)[gpiI\d]*)"
    r"\s*(?:[;\n]\s*|\Z))+"
)
"""Scripts that edit what passes through, and nothing else: no `e`, `w`, `r`, `i` with text."""
MAX_SED = 2_000
CLONE = _Row("uc")
"""`git push -u` is something else."""
TAR_BUNDLE = re.compile(r"[A-Za-z]*[IFP][A-Za-z]*")
"""The first argument of tar is letters, with a dash or without."""
VALUES_UNKNOWN = words("npm pnpm yarn docker podman kubectl")
"""Which of their options take a value is not known here: a sub-command counts wherever it stands."""
AWK = re.compile(r"system|getline|\||>|@")
SCRIPTS = _Row("cempri", long=("--eval", "--print", "--require", "--import", "--loader", "--command"))


def _sed_scripts(arguments: Sequence[str]) -> list[str]:
    """The arguments that sed takes for its script."""
    scripts, operands = [], []
    pending = iter(arguments)
    for argument in pending:
        name, equals, value = argument.partition("=")
        if argument.startswith("--"):
            if len(name) > 3 and "--expression".startswith(name):
                scripts.append(value if equals else next(pending, ""))
        elif argument.startswith("-") and "e" in argument:
            scripts.append(argument.partition("e")[2] or next(pending, ""))
        elif not argument.startswith("-"):
            operands.append(argument)
    return scripts or operands[:1]


TABLE: dict[str, _Row] = {
    "git": _Row(
        before_sub="cC",
        long=(
            "--exec-path", "--upload-pack", "--receive-pack", "--exec", "--config-env", "--ext-diff", "--textconv",
            "--open-files-in-pager", "--config", "--template", "--git-dir", "--work-tree", "--output", "--extcmd",
            "--tool", "--to-cmd", "--smtp-server", "--sendmail-cmd", "--cc-cmd", "--upload-archive", "--strategy",
            "--hard",
        ),
        starts=("-O", "-x"),
        exact=words("--force -f --hard -i --interactive -fdx -fd -xdf"),
        subs=words(
            "config filter-branch bisect difftool mergetool submodule daemon instaweb credential hook fast-import "
            "update-index update-ref replace send-email shell svn p4 archive upload-pack receive-pack maintenance "
            "remote-ext remote-fd bundle"
        ),
        operand=re.compile(r"\Aext::|\Afd::"),
    ),
    "hg": _Row(long=("--config", "--ssh", "--remotecmd"), starts=("--config",), operand=re.compile(r"\A-")),
    "svn": _Row(long=("--config-option", "--diff-cmd", "--editor-cmd", "--diff3-cmd")),
    "diff": _Row(long=("--output",)),
    "rg": _Row("z", long=("--pre", "--hostname-bin", "--search-zip")),
    "ag": _Row(long=("--pager",)),
    "ack": _Row(long=("--pager", "--output")),
    "sed": _Row("if", long=("--in-place", "--file")),
    "awk": _Row("fielpD", long=("--file", "--include", "--load", "--exec"), operand=AWK),
    "tar": _Row(
        "IFP",
        long=(
            "--checkpoint-action", "--to-command", "--use-compress-program", "--rsh-command", "--info-script",
            "--new-volume-script", "--rmt-command", "--absolute-names", "--transform", "--one-top-level",
        ),
        operand=re.compile(r"\A[^/ ]+@?[\w.-]*:"),
    ),
    "find": _Row(
        exact=words("-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls -files0-from"),
    ),
    "fd": _Row("xX", long=("--exec", "--exec-batch")),
    "sort": _Row("oTS", long=("--output", "--compress-program", "--temporary-directory", "--files0-from")),
    "man": _Row("PHCLl", long=("--pager", "--html", "--preprocessor", "--config-file", "--local-file")),
    "less": _Row("oOkP", long=("--log-file", "--LOG-FILE", "--lesskey-file"), starts=("+",)),
    "more": _Row(starts=("+",)),
    "bat": _Row(long=("--pager",)),
    "go": _Row(
        long=("-exec", "--exec", "-toolexec", "--toolexec", "-vettool", "--vettool", "-modfile", "-overlay",
              "-ldflags", "-gcflags", "-asmflags", "-gccgoflags", "-o"),
        subs=words("run generate tool install env"),
        starts=("-C",),
    ),
    "cargo": _Row("CZ", long=("--config", "--git", "--registry", "--index", "--manifest-path", "--target-dir"),
                  subs=words("install publish login yank owner")),
    "rustc": _Row("CZo", long=("--codegen", "--sysroot")),
    "gcc": _Row("Bo", long=("-wrapper", "-fplugin", "-specs", "--specs"), starts=("-fplugin", "@")),
    "python": SCRIPTS,
    "pypy": SCRIPTS,
    "node": SCRIPTS,
    "deno": _Row(subs=words("eval run install"), long=("--allow-all", "--allow-run"), short="A"),
    "bun": _Row("epr", long=("--eval", "--preload", "--print"), subs=words("x run exec")),
    "perl": _Row("eEMmIixdS"),
    "ruby": _Row("erIixS", long=("--require",)),
    "php": _Row("rRBEdz", long=("--run", "--process-code", "--define")),
    "lua": _Row("el"),
    "julia": _Row("eEL", long=("--eval", "--print", "--load")),
    "osascript": _Row(always=True),
    "npm": _Row("c", long=("--script-shell", "--prefix", "--node-options", "--userconfig", "--registry", "--call"),
                subs=words("exec x publish config set run-script explore edit login adduser init create")),
    "npx": _Row(always=True),
    "pnpx": _Row(always=True),
    "bunx": _Row(always=True),
    "uvx": _Row(always=True),
    "pipx": _Row(always=True),
    "pnpm": _Row("Cc", long=("--script-shell", "--dir", "--registry"), subs=words("exec dlx publish config create")),
    "yarn": _Row(long=("--cwd", "--script-shell", "--use-yarnrc"), subs=words("exec dlx publish config create node")),
    "make": _Row("fCIE", long=("--file", "--makefile", "--eval", "--directory", "--include-dir"),
                 operand=re.compile(r"\A\s*\w+\s*[:?+!]*=")),
    "just": _Row("fdc", long=("--justfile", "--command", "--shell", "--set", "--working-directory")),
    "mvn": _Row("DfsP", long=("--file", "--settings", "--define"), operand=re.compile("exec:")),
    "gradle": _Row("DPIbc", long=("--init-script", "--build-file", "--project-dir")),
    "pip": _Row("ift", long=("--index-url", "--extra-index-url", "--find-links", "--target", "--prefix", "--root",
                "--trusted-host", "--proxy", "--python", "--global-option", "--config-settings"),
                operand=re.compile(r"://|\Agit\+")),
    "uv": _Row(long=("--directory", "--project", "--config-file", "--python", "--index", "--default-index",
               "--index-url", "--with"), subs=words("tool publish")),
    "poetry": _Row("CP", long=("--directory", "--project"), subs=words("publish config run")),
    "ssh": _Row("oFSDLRWEIJ", always=True),
    "scp": _Row("SoFDJ", operand=re.compile(r"\A[^/]*:")),
    "sftp": _Row("SoFDbJ", always=True),
    "rsync": _Row("eM", long=("--rsh", "--rsync-path", "--remove-source-files", "--delete", "--daemon", "--config",
                  "--copy-dest", "--link-dest", "--log-file", "--files-from"), operand=re.compile(r"\A[^/]*:|::")),
    "curl": _Row(
        "oOKTDcFdXJE",
        long=("--output", "--remote-name", "--config", "--upload-file", "--dump-header", "--cookie-jar", "--form",
              "--data", "--data-binary", "--data-raw", "--data-urlencode", "--json", "--output-dir", "--trace",
              "--trace-ascii", "--request", "--engine", "--proxy", "--netrc-file", "--stderr", "--libcurl",
              "--unix-socket", "--create-dirs", "--etag-save", "--hsts", "--alt-svc"),
        starts=("file:", "@"), operand=re.compile(r"\A(?:file|gopher|dict|scp|sftp|smb):", re.I),
    ),
    "wget": _Row("OPoaiex", long=("--output-document", "--use-askpass", "--directory-prefix", "--output-file",
                 "--append-output", "--post-file", "--post-data", "--body-file", "--execute", "--config",
                 "--input-file", "--method", "--save-cookies", "--warc-file", "--rejected-log")),
    "vim": _Row("csSuUwWi", long=("--cmd", "--startuptime", "--remote", "--listen"), starts=("+",), always=True),
    "emacs": _Row("fl", long=("--eval", "--execute", "--load", "--script", "--funcall"), always=True),
    "ed": _Row(always=True),
    "ex": _Row(always=True),
    "nano": _Row(always=True),
    "tee": _Row(always=True),
    "dd": _Row(always=True),
    "ln": _Row(always=True),
    "install": _Row(always=True),
    "source": _Row(always=True),
    ".": _Row(always=True),
    "eval": _Row(always=True),
    "exec": _Row(always=True),
    "trap": _Row(always=True),
    "alias": _Row(always=True),
    "hash": _Row(always=True),
    "enable": _Row(always=True),
    "shopt": _Row(always=True),
    "set": _Row(always=True),
    "printf": _Row("v"),
    "read": _Row(always=True),
    "mapfile": _Row("Cc"),
    "readarray": _Row("Cc"),
    "complete": _Row(always=True),
    "bind": _Row(always=True),
    "fc": _Row(always=True),
    "xargs": _Row(always=True),
    "parallel": _Row(always=True),
    "watch": _Row(always=True),
    "env": _Row("SCu", long=("--split-string", "--chdir", "--unset")),
    "chroot": _Row(always=True),
    "script": _Row(always=True),
    "zip": _Row("Tm", long=("--unzip-command", "--move"), exact=frozenset(("-TT",))),
    "unzip": _Row("d"),
    "7z": _Row(starts=("-si", "-so", "-o", "-sdel", "-t")),
    "date": _Row("s", long=("--set",), operand=re.compile(r"\A\d")),
    "hostname": _Row("Fb", long=("--file",), operand=re.compile("")),
    "dmesg": _Row("CcDEnW", long=("--clear", "--read-clear", "--console-off", "--console-on", "--console-level")),
    "journalctl": _Row(long=("--vacuum-size", "--vacuum-time", "--vacuum-files", "--rotate", "--flush", "--sync",
                       "--relinquish-var", "--setup-keys", "--update-catalog", "--cursor-file")),
    "ip": _Row("bnB", long=("-batch", "-netns", "--batch", "--netns"), exact=words(
        "add del delete set change replace flush exec append up down")),
    "ifconfig": _Row(exact=words("up down add del"), operand=re.compile(r"\A\d")),
    "systemctl": _Row("HM", long=("--host", "--machine"), subs=words(
        "start stop restart reload enable disable mask unmask kill edit link set-property isolate poweroff reboot "
        "halt suspend hibernate set-environment import-environment daemon-reload daemon-reexec")),
    "sysctl": _Row("wpf", long=("--write", "--load", "--system"), operand=re.compile("=")),
    "docker": _Row("Hcv", long=("--host", "--context", "--config", "--privileged", "--volume", "--mount", "--pid",
                   "--cap-add", "--device", "--security-opt", "--network", "--userns", "--ipc", "--uts"),
                   subs=words("run exec cp login push swarm plugin context")),
    "podman": _Row("v", long=("--privileged", "--volume", "--mount", "--pid", "--cap-add"), subs=words("run exec cp")),
    "kubectl": _Row("s", long=("--kubeconfig", "--server", "--as", "--token"), subs=words(
        "exec run cp port-forward proxy attach debug edit delete")),
    "gdb": _Row(always=True),
    "strace": _Row("oEp", always=True),
    "tcpdump": _Row("zwr", long=("--postrotate-command",)),
    "nmap": _Row("oi", long=("--script", "--interactive")),
    "openssl": _Row(subs=words("enc req s_server s_client engine"), long=("-engine", "-out", "-provider-path")),
    "sqlite3": _Row(long=("-cmd", "-init"), operand=re.compile(r"\A\s*\.|load_extension|writefile|edit\(", re.M)),
    "psql": _Row("fcoLvP", long=("--command", "--file", "--output", "--log-file"), operand=re.compile(r"\\!")),
    "mysql": _Row("e", long=("--execute", "--tee", "--pager", "--init-command")),
    "jq": _Row("fL", long=("--from-file", "--rawfile", "--slurpfile")),
    "yq": _Row("i", long=("--inplace",)),
    "xmllint": _Row(long=("--output", "--shell")),
    "ffmpeg": _Row(always=True),
    "pandoc": _Row("FLo", long=("--filter", "--lua-filter", "--output", "--pdf-engine")),
    "latex": _Row(long=("-shell-escape", "--shell-escape")),
    "pdflatex": _Row(long=("-shell-escape", "--shell-escape")),
    "cp": _Row("tT", long=("--target-directory", "--no-target-directory", "--parents")),
    "mv": _Row("tT", long=("--target-directory", "--no-target-directory")),
    "rm": _Row("rRfd", long=("--recursive", "--force", "--dir", "--no-preserve-root")),
    "chmod": _Row("R", long=("--recursive", "--reference"),
                  operand=re.compile(r"\A[ugo]*[+=]\w*[st]|\A0?[1-7]\d{3}\Z")),
    "chown": _Row(always=True),
    "kill": _Row(exact=words("-1 -9 -KILL"), operand=re.compile(r"\A-?1\Z")),
    "gh": _Row(subs=words("alias extension auth secret api config")),
    "pytest": _Row("pco", long=("--rootdir", "--confcutdir", "--override-ini", "--basetemp", "--junitxml", "--pdbcls")),
    "tsc": _Row(long=("--outDir", "--outFile", "--project")),
    "eslint": _Row("c", long=("--config", "--plugin", "--rulesdir", "--resolve-plugins-relative-to", "--parser")),
    "terraform": _Row(long=("-chdir", "-plugin-dir", "-auto-approve"), subs=words("destroy apply import state")),
    "ansible": _Row(always=True),
    "ansible-playbook": _Row(always=True),
    "crontab": _Row(always=True),
    "at": _Row(always=True),
    "batch": _Row(always=True),
    "nc": _Row("ecl", long=("--exec", "--sh-exec", "--lua-exec"), always=True),
    "ncat": _Row("ecl", long=("--exec", "--sh-exec", "--lua-exec"), always=True),
    "socat": _Row(always=True),
    "telnet": _Row(always=True),
}  # fmt: skip

TABLE.update(
    {
        **dict.fromkeys(("gawk", "mawk", "nawk"), TABLE["awk"]),
        **dict.fromkeys(("gsed",), TABLE["sed"]),
        **dict.fromkeys(("vi", "nvim", "view", "vimdiff", "rvim"), TABLE["vim"]),
        **dict.fromkeys(("g++", "cc", "c++", "clang", "clang++", "ld"), TABLE["gcc"]),
        **dict.fromkeys(("fdfind",), TABLE["fd"]),
        **dict.fromkeys(("ripgrep",), TABLE["rg"]),
        **dict.fromkeys(("gtar", "bsdtar"), TABLE["tar"]),
        **dict.fromkeys(("7za", "7zr"), TABLE["7z"]),
        **dict.fromkeys(("gfind",), TABLE["find"]),
        **dict.fromkeys(("gmake",), TABLE["make"]),
        **dict.fromkeys(("tsx", "ts-node", "nodejs"), TABLE["node"]),
        **dict.fromkeys(SHELLS, _Row("i", always=True, long=("--rcfile", "--init-file"))),
        **dict.fromkeys(words("sudo doas su pkexec runuser run0 sudoedit"), _Row(always=True)),
    }
)
