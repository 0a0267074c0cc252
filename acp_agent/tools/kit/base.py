"""The interface of a tool.

A tool sees interfaces, not backends: `Files`, never those of a disk; functions for what it needs from above. No tool
asks for permission, talks to the editor, or knows where it runs. The steps of a call (`loop/calls`) are:

    parse -> describe -> access -> preview -> (permission) -> run

`describe` never fails for valid parameters. `access` may refuse a path. `preview` may read but not change anything; its
findings (a diff, an impossible edit) are known before the user is asked. `run` performs the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, get_args

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, ValidationError

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access, NoAccess, PathAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import ToolKind
from acp_agent.tools.kit.failures import wrong_arguments
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

if TYPE_CHECKING:
    from acp_agent.errors import ToolErrorCategory


class Params(BaseModel):
    """Base of every tool's parameters: unknown ones are rejected, so that the model learns of a wrong name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """Base of the tools. Subclasses set the class variables; instances hold no session state."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    title: ClassVar[str] = ""
    """Title of a call, with `{parameter}`s; a tool without one overrides `describe`."""
    kind: ClassVar[ToolKind]
    verbatim: ClassVar[bool] = False
    """Its results are text as it stands (of files, commands, lists), no Markdown: users get them in a code block."""
    reads_only: ClassVar[bool] = False
    """Offered in modes that must not change anything; read-only calls of one message run concurrently."""
    idempotent: ClassVar[bool] = False
    """Two calls with the same arguments return the same while nothing they read has changed: a result may be cached,
    and a call that failed for a temporary reason is retried."""
    Params: ClassVar[type[Params]]
    """The parameters, as the subclass names them in its base: the single source for the JSON schema, the prompt and
    validation."""

    def __init_subclass__(cls) -> None:
        for base in vars(cls).get("__orig_bases__", ()):
            (given,) = get_args(base) or (None,)
            if isinstance(given, type) and issubclass(given, Params):
                cls.Params = given

    def parse(self, arguments: dict[str, Any]) -> P:
        """The validated parameters. Raises ToolError that names each wrong one."""
        try:
            return self.Params.model_validate(arguments)  # type: ignore[return-value]
        except ValidationError as error:
            raise wrong_arguments(_words(self, error), _category(error)) from error

    def from_text(self, text: str) -> dict[str, Any] | None:
        """The arguments, if a model sent plain text instead of an object; `None` if the tool does not accept that."""
        return None

    def from_other_form(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments that were not understood, with those of another agent's tool of this kind in our form."""
        return arguments

    def describe(self, params: P, roots: Roots) -> Description:
        return Description((self.title or self.name).format_map(dict(params)))

    @abstractmethod
    def access(self, params: P, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        """Everything the call accesses. Raises ToolError for a path that no tool may access."""

    async def preview(self, params: P, ctx: ToolContext) -> Preview:
        """Previews the call without side effects. Raises ToolError for a call that cannot succeed."""
        return Preview()

    @abstractmethod
    async def run(self, params: P, ctx: ToolContext, preview: Preview) -> ToolResult:
        """Performs the call. Raises ToolError with text the model can act on."""


class HarmlessTool(Tool[P]):
    """Base of the tools whose calls touch nothing outside the session and need no permission."""

    def access(self, params: P, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [NoAccess()]


class PathTool(Tool[P]):
    """Base of the tools for one file or folder, the parameter `path`."""

    touches: ClassVar[Literal["read", "write"]] = "read"

    def describe(self, params: Any, roots: Roots) -> Description:
        return replace(super().describe(params, roots), locations=(Location(roots.named(params.path)),))

    def access(self, params: Any, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [PathAccess(self.touches, roots.resolve(params.path))]


def _category(error: ValidationError) -> ToolErrorCategory:
    """`type_mismatch` if nothing but types is wrong."""
    kinds = [problem["type"] for problem in error.errors(include_url=False, include_input=False)]
    only_types = all(kind.endswith(("_type", "_parsing", "_from_float")) for kind in kinds)
    return "type_mismatch" if only_types else "invalid_parameters"


def _words(tool: Tool[Any], error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        lines.append(f"- {where}: {problem['msg'].removeprefix('Value error, ')}")
    names = ", ".join(f"`{name}`" for name in tool.Params.model_fields)
    return f"The arguments of `{tool.name}` are wrong:\n" + "\n".join(lines) + f"\nIts parameters are {names}."
