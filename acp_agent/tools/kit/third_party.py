"""Tools from outside this package: from installed packages (entry points) and from the project (files).

A package offers tools under the entry point group `acp_coder.tools`: an object created by `@tool`, a subclass of
`Tool`, or a list of these. A project defines them in `.acp-coder/tools/*.py`, as module attributes; such files are
code, so they are only loaded after the user has trusted exactly these files.

One of the places with `except Exception`: third-party code that fails on import must not affect anything else.
"""

from __future__ import annotations

import inspect
import logging
import types
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from acp_agent.tools.kit.base import Tool
from acp_agent.tools.kit.from_function import entry_of
from acp_agent.tools.kit.registry import ENTRY_POINTS, ToolEntry

log = logging.getLogger(__name__)

TOOLS_FOLDER = ".acp-coder/tools"

Made = tuple[ToolEntry, Tool[Any]]


def package_tools() -> tuple[list[Made], list[str]]:
    """The tools of installed packages, and the errors of those that cannot be used."""
    found: list[Made] = []
    trouble: list[str] = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found += _made(_tools_in([point.load()]))
        except (Exception, SystemExit) as error:
            log.exception("the entry point %s failed", point.name)
            trouble.append(f"The tools of the package entry `{point.name}` ({point.value}) were not loaded: {error}")
    return found, trouble


def project_tools(files: Mapping[str, bytes]) -> tuple[list[Made], list[str]]:
    """Runs the files (name -> contents) and collects their tools. Call it only for files the user trusts.

    Exactly these bytes are run: no cached byte code, and no later version of the files.
    """
    found: list[Made] = []
    trouble: list[str] = []
    for name, source in files.items():
        module = types.ModuleType(f"acp_coder_project_tools_{name.removesuffix('.py')}")
        try:
            exec(compile(source, f"{TOOLS_FOLDER}/{name}", "exec"), vars(module))
            found += _made(_tools_in(vars(module).values()))
        except (Exception, SystemExit) as error:
            log.exception("%s failed to load", name)
            trouble.append(f"{name} was not loaded: {type(error).__name__}: {error}")
    return found, trouble


def _tools_in(values: Iterable[Any]) -> list[Tool[Any]]:
    tools: list[Tool[Any]] = []
    for value in values:
        if isinstance(value, Tool):
            tools.append(value)
        elif isinstance(value, list | tuple):
            tools += [item for item in value if isinstance(item, Tool)]
        elif _is_tool_class(value):
            tools.append(value())
    return tools


def _is_tool_class(value: Any) -> bool:
    named = inspect.isclass(value) and issubclass(value, Tool) and getattr(value, "name", None) is not None
    return named and not inspect.isabstract(value)


def _made(tools: Iterable[Tool[Any]]) -> list[Made]:
    return [(entry_of(tool), tool) for tool in tools]
