"""Creates a tool from a typed function.

    from typing import Annotated
    from acp_agent.tools.kit.from_function import tool

    @tool(reads_only=True)
    def word_count(text: Annotated[str, "The text to count."]) -> str:
        \"\"\"Count the words of a text.\"\"\"
        return str(len(text.split()))

The function's name, annotations and docstring become the tool's name, parameters and description. A parameter named
`ctx` gets the `ToolContext`. The function may be `async`; a plain one runs in a thread. It returns text or a
`ToolResult` and raises `ToolError`. The user is asked before each call, unless the tool `reads_only`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast, get_args, get_origin, get_type_hints, overload

import anyio.to_thread
from pydantic import Field, create_model

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, NoAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import ToolKind
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.json_schema import parameters_of
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
TITLE_CHARS = 80


class _FunctionTool(Tool[Any]):
    """The class of tools created by `@tool`."""

    function: ClassVar[Callable[..., Any]]
    wants_context: ClassVar[bool]
    title: ClassVar[str]
    guidance: ClassVar[str]

    def describe(self, params: Any, roots: Roots) -> Description:
        given = ", ".join(f"{name}={value!r}" for name, value in params if value is not None)
        text = f"{self.title} ({given})" if given else self.title
        return Description(text if len(text) <= TITLE_CHARS else text[: TITLE_CHARS - 1] + "…")

    def access(self, params: Any, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        if self.reads_only:
            return [NoAccess()]
        return [ToolAccess(f"tool {self.name}", f"calls of the tool `{self.name}`")]

    async def run(self, params: Any, ctx: ToolContext, preview: Preview) -> ToolResult:
        given = {name: getattr(params, name) for name in type(params).model_fields}
        if self.wants_context:
            given["ctx"] = ctx
        function = type(self).function
        if inspect.iscoroutinefunction(function):
            try:
                result = await function(**given)
            except SystemExit as error:
                raise ToolError(f"The tool tried to exit the program ({error}).") from error
        else:
            result = await anyio.to_thread.run_sync(_without_exit, function, given, abandon_on_cancel=True)
        return result if isinstance(result, ToolResult) else ToolResult(str(result))


def _without_exit(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Runs in a thread, where `sys.exit` would end the event loop that waits for it."""
    try:
        return function(**given)
    except SystemExit as error:
        raise ToolError(f"The tool tried to exit the program ({error}).") from error


@overload
def tool(function: Callable[..., Any], /) -> Tool[Any]: ...
@overload
def tool(
    *,
    name: str = "",
    aliases: tuple[str, ...] = (),
    kind: ToolKind = "other",
    reads_only: bool = False,
    idempotent: bool = False,
    title: str = "",
) -> Callable[[Callable[..., Any]], Tool[Any]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    aliases: tuple[str, ...] = (),
    kind: ToolKind = "other",
    reads_only: bool = False,
    idempotent: bool = False,
    title: str = "",
) -> Tool[Any] | Callable[[Callable[..., Any]], Tool[Any]]:
    """Makes a function a tool; see the module docstring. Raises TypeError if that is impossible."""

    def make(function: Callable[..., Any]) -> Tool[Any]:
        called = name or function.__name__
        if NAME.fullmatch(called) is None:
            raise TypeError(f"{called!r} is not a valid name for a tool (letters, digits and `_`, 64 at most)")
        guidance = inspect.cleandoc(function.__doc__ or "")
        if not guidance:
            raise TypeError(f"the tool `{called}` needs a docstring: it tells the model when to use it")
        made = type(
            f"_{called}",
            (_FunctionTool,),
            {
                "name": called,
                "aliases": aliases,
                "kind": kind,
                "reads_only": reads_only,
                "idempotent": idempotent,
                "Params": _params(called, function),
                "function": staticmethod(function),
                "wants_context": "ctx" in inspect.signature(function).parameters,
                "title": title or called.replace("_", " ").capitalize(),
                "guidance": guidance,
            },
        )
        return cast(Tool[Any], made())

    return make if function is None else make(function)


def _params(name: str, function: Callable[..., Any]) -> type[Params]:
    """The parameters as a pydantic model; a plain string in `Annotated` is a description."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "ctx":
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"the tool `{name}`: {parameter} cannot be given by a model; name each parameter")
        if parameter.name not in hints:
            raise TypeError(f"the tool `{name}`: the parameter `{parameter.name}` needs a type")
        hint, described = hints[parameter.name], ""
        if get_origin(hint) is Annotated:
            words = [extra for extra in get_args(hint)[1:] if isinstance(extra, str)]
            described = words[0] if words else ""
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, Field(default, description=described or parameter.name.replace("_", " ")))
    return create_model(f"{name}_parameters", __base__=Params, **fields)


def entry_of(made: Tool[Any], *, core: bool = False) -> ToolEntry:
    """The entry of a tool that is not in the generated file."""
    guidance = getattr(made, "guidance", None) or inspect.cleandoc(type(made).__doc__ or made.name)
    return ToolEntry(
        name=made.name,
        aliases=tuple(made.aliases),
        kind=made.kind,
        reads_only=made.reads_only,
        description=guidance,
        parameters=parameters_of(made.Params.model_json_schema()),
        idempotent=made.idempotent,
        core=core,
    )
