"""The rules for paths of a session, by its configuration and its folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from acp_agent.config.load import Config
from acp_agent.config.xdg import config_dir, config_file, data_dir, state_dir
from acp_agent.safety.deciding.rule_list import RuleList
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.folders.protect import PathRules, also_mounted, configured_folders


def audit_path(config: Config, environ: Mapping[str, str]) -> Path | None:
    """Path of the audit log; `None` without one."""
    audit = config.settings.audit
    if not audit.enabled:
        return None
    return Path(audit.file).expanduser() if audit.file else Path(state_dir(environ)) / "audit.jsonl"


def session_rules(config: Config, roots: Roots, environ: Mapping[str, str], home: Path | None) -> PathRules:
    """The rules for paths in a session's folders. The agent's own files are protected wherever they are: changing them
    would change what the user has allowed."""
    settings = config.settings
    tools = settings.tools
    store = Path(settings.store.path).expanduser() if settings.store.path else None
    audit = audit_path(config, environ)
    own = [Path(find(environ)) for find in (config_dir, state_dir, data_dir, config_file)]
    own += [Path(f"{store}{end}") for end in ("", "-wal", "-shm")] if store is not None else []
    if audit is not None:
        own.append(audit)
    rules = RuleList.compile(tools, environ, home, roots=roots)
    own = list(dict.fromkeys(path.absolute() for path in own))
    return PathRules(
        (*tools.sandbox.protect, *tools.sandbox.protect_existing, *tools.sandbox.report, *_programs(roots, environ)),
        tools.files.deny_read,
        tools.files.allow_read,
        roots.real,
        home,
        own=[*own, *also_mounted(own)],
        absolute=rules.hidden_paths("read"),
        policy=rules.denied_paths(),
        forbidden=_forbidden(tools.risk.forbidden_paths, roots, home),
        key_files=tools.files.key_files,
        disk=roots.disk,
    )


def _programs(roots: Roots, environ: Mapping[str, str]) -> Iterator[str]:
    """The session's folders on PATH (an activated `.venv/bin`): hooks and servers run what is there by its name."""
    for entry in environ.get("PATH", "").split(os.pathsep) if roots.opened else ():
        real = os.path.realpath(entry) if os.path.isabs(entry) else ""
        yield from (real.removeprefix(f"{root}/") for root in roots.real if real.startswith(f"{root}/"))


def _forbidden(texts: Sequence[str], roots: Roots, home: Path | None) -> dict[Path, None]:
    """Those in the session's folders, and in a repository around the first, resolved. A session whose folder is in one
    was opened there on purpose."""
    disk, found = roots.disk, dict[Path, None]()
    top = next((each for each in roots.real[0].parents if disk.stands(each / ".git")), None)
    for text in texts:
        path = home / text[2:] if text.startswith("~/") and home is not None else Path(text)
        if path.is_absolute():
            for each in (path, disk.real_path(path)):
                if roots.contains(each) or (top is not None and top in each.parents):
                    found[each] = None
    return {path: None for path in found if not roots.holds_root(path)}


def home_of(environ: Mapping[str, str]) -> Path | None:
    """The user's home, resolved."""
    home = environ.get("HOME", "")
    return real_path(Path(home)) if home.startswith("/") else None


def roots_of(config: Config, cwd: Path, environ: Mapping[str, str]) -> Roots:
    """The folders of a session in `cwd`, with their protected and hidden paths."""
    roots = Roots(cwd, configured_folders(config.settings.tools.files.allowed_paths))
    roots.rules = session_rules(config, roots, environ, home_of(environ))
    return roots
