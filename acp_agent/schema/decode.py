"""Reads parsed JSON into the Structs of `acp_agent.schema.acp`, and says in plain words what is wrong where.

Strict, with the schema's own exceptions: a wrong value of a field in `lenient.json` gives way to the field's default, a
list there loses its wrong items. That is done only after a first strict reading has failed, so correct messages pay
nothing.

Types do not convert: a number is not a string, `true` and `1.0` are not integers. Unknown fields are ignored.

Some unions have no tag on every variant. For those msgspec asks `_read_untagged`, which looks at the keys.
A path in an error (`$.mcpServers[1].command`) is one in the document that was received.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

from msgspec import Struct, ValidationError, convert, json
from msgspec.structs import fields

from acp_agent.errors import AgentError, InvalidParams, LocalProtocolError, MethodNotFound
from acp_agent.schema import acp

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")
Side: TypeAlias = Literal["agent", "client"]
"""Who serves a method."""

MESSAGE_LIMIT = 400
"""Characters of an error message: a wrong value may be megabytes long."""

LENIENT = Path(__file__).with_name("lenient.json")

METHODS: dict[str, dict[str, acp.Method]] = {"agent": acp.AGENT_METHODS, "client": acp.CLIENT_METHODS}


class MalformedResult(AgentError):
    """The other side answered our request with something the protocol does not allow."""

    def __init__(self, method: str, problem: str) -> None:
        super().__init__(f"Malformed result of {method}: {problem}")
        self.method = method
        self.problem = problem


def decode_params(method: str, params: object, side: Side) -> Any:
    """The params of a request or notification which `side` serves, as the Struct that `acp.Method.params` names.

    Absent params (None) are read as an empty object. Raises `InvalidParams`, whose message names the place, and
    `MethodNotFound`.
    """
    known = METHODS[side].get(method) or acp.PROTOCOL_METHODS.get(method)
    if known is None:
        raise MethodNotFound(f"Method not found: {method}")
    return read_params({} if params is None else params, known.params)


def read_params(params: object, kind: type[T]) -> T:
    """Raises `InvalidParams`, whose message names the place."""
    try:
        return cast("T", _read(params, kind))
    except ValidationError as error:
        raise InvalidParams(f"Invalid params: {_in_words(error)}") from error


def decode_result(method: str, result: object, side: Side) -> Any:
    """The result of a request which `side` served, as the Struct that `acp.Method.result` names.

    `null` is read as an empty object: that is how many clients say "done". Raises `MalformedResult`.
    """
    known = METHODS[side].get(method)
    if known is None or known.result is None:
        raise LocalProtocolError(f"No result is defined for {method}")
    try:
        return _read({} if result is None else result, known.result)
    except ValidationError as error:
        raise MalformedResult(method, _in_words(error)) from error


def _read(value: object, kind: Any) -> Any:
    try:
        return convert(value, kind, dec_hook=_read_untagged)
    except ValidationError:
        return convert(_repaired(value, kind), kind, dec_hook=_read_untagged)


# --- unions without a tag


def _mcp_server(server: dict[str, Any]) -> Any:
    kind = server.get("type")
    if kind == "http":
        return acp.McpServerHttp
    if kind == "sse":
        return acp.McpServerSse
    if kind is None or kind == "stdio" or "command" in server:
        return acp.McpServerStdio
    raise ValueError(f"Invalid value {kind!r} - at `$.type`")


def _auth_method(method: dict[str, Any]) -> Any:
    return acp.AuthMethodTerminal if method.get("type") == "terminal" else acp.AuthMethodAgent


def _resource(resource: dict[str, Any]) -> Any:
    if "blob" in resource and not isinstance(resource.get("text"), str):
        return acp.BlobResourceContents
    if "text" in resource:
        return acp.TextResourceContents
    raise ValueError("Object missing required field `text` or `blob`")


def _select_options(options: list[Any]) -> Any:
    grouped = any(isinstance(option, dict) and "group" in option for option in options)
    return list[acp.SessionConfigSelectGroup] if grouped else list[acp.SessionConfigSelectOption]


def _property_schema(schema: dict[str, Any]) -> Any:
    kinds: dict[object, Any] = {
        "string": acp.StringPropertySchema,
        "number": acp.NumberPropertySchema,
        "integer": acp.IntegerPropertySchema,
        "boolean": acp.BooleanPropertySchema,
        "array": acp.MultiSelectPropertySchema,
    }
    return kinds.get(_tag(schema), dict[str, Any])


def _multi_select_items(items: dict[str, Any]) -> Any:
    if "anyOf" in items and "enum" not in items:
        return acp.TitledMultiSelectItems
    return acp.StringMultiSelectItems if _tag(items) == "string" else dict[str, Any]


def _tag(value: dict[str, Any]) -> str:
    tag = value.get("type")
    if "type" not in value:
        raise ValueError("Object missing required field `type`")
    if not isinstance(tag, str):
        raise ValueError("Expected `str` - at `$.type`")
    return tag


_VARIANTS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "McpServer": (dict, _mcp_server),
    "AuthMethod": (dict, _auth_method),
    "EmbeddedResourceResource": (dict, _resource),
    "SessionConfigSelectOptions": (list, _select_options),
    "ElicitationPropertySchema": (dict, _property_schema),
    "MultiSelectItems": (dict, _multi_select_items),
}
"""For each union in `acp` that has variants without a tag: its shape in JSON, and the choice among its variants."""


def _variant(kind: Any, value: object) -> Any:
    """The type to read `value` as. Raises ValueError when there is none."""
    shape, choose = _VARIANTS[kind.__name__]
    if not isinstance(value, shape):
        raise ValueError(f"Expected `{'array' if shape is list else 'object'}`, got `{_json_name(value)}`")
    return choose(value)


def _read_untagged(kind: Any, value: object) -> Any:
    try:
        return convert(value, _variant(kind, value), dec_hook=_read_untagged)
    except ValidationError as error:
        raise ValueError(str(error)) from error  # msgspec adds where this value stands


# --- leniency


@cache
def _lenient() -> dict[str, dict[str, str]]:
    """Struct -> fields (by their name on the wire) whose default is in for a wrong value: `error` for any wrong value,
    `skip` likewise but a list only loses its wrong items, `null` for null only. Every `_meta` is `error` too."""
    table: dict[str, dict[str, str]] = json.decode(LENIENT.read_bytes())
    return table


def _repaired(value: object, kind: Any) -> Any:
    """A copy of `value` without the wrong values that the schema tells readers to overlook."""
    kinds = get_args(kind) if _is_union(kind) else (kind,)
    if isinstance(value, list):
        item = _item_kind(value, kinds)
        return value if item is None else [_repaired(part, item) for part in value]
    if not isinstance(value, dict):
        return value
    struct = _struct_of(value, kinds)
    if struct is not None:
        return _repaired_object(value, struct)
    for each in kinds:
        if get_origin(each) is dict:
            return {key: _repaired(part, get_args(each)[1]) for key, part in value.items()}
    return value


def _repaired_object(value: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
    lenient = {"_meta": "error"}
    for base in reversed(struct.__mro__):
        lenient.update(_lenient().get(base.__name__, {}))
    repaired = dict(value)
    config = struct.__struct_config__
    if config.tag_field is not None and repaired.get(config.tag_field) != config.tag:
        repaired.pop(config.tag_field, None)
    for entry in fields(struct):
        name = entry.encode_name
        if name not in value:
            continue
        given = _repaired(value[name], entry.type)
        rule = lenient.get(name)
        if rule == "skip" and isinstance(given, list):
            item = _item_kind(given, get_args(entry.type) if _is_union(entry.type) else (entry.type,))
            given = [part for part in given if _is_right(part, item)]
        repaired[name] = given
        if rule is None or (rule == "null" and given is not None) or _is_right(given, entry.type):
            continue
        if entry.required:  # such fields are all lists
            repaired[name] = []
        else:
            del repaired[name]
    return repaired


def _is_right(value: object, kind: Any) -> bool:
    try:
        convert(value, kind, dec_hook=_read_untagged)
    except ValidationError:
        return False
    return True


def _is_union(kind: Any) -> bool:
    return bool(get_args(kind)) and get_origin(kind) not in (list, dict)


def _item_kind(value: list[Any], kinds: tuple[Any, ...]) -> Any:
    """Returns the type of the items, if `kinds` has a list."""
    for kind in kinds:
        if getattr(kind, "__name__", None) == "SessionConfigSelectOptions":
            return get_args(_select_options(value))[0]
        if get_origin(kind) is list:
            return get_args(kind)[0]
    return None


def _struct_of(value: dict[str, Any], kinds: tuple[Any, ...]) -> type[Struct] | None:
    """The Struct that `value` is to be, if it can be told."""
    if len(kinds) == 1 and getattr(kinds[0], "__name__", None) in _VARIANTS:
        try:
            kinds = (_variant(kinds[0], value),)
        except ValueError:
            return None
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)]
    if len(structs) == 1:
        return structs[0]
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field is not None and value.get(config.tag_field) == config.tag:
            return struct
    return None


# --- words


def _json_name(value: object) -> str:
    names: dict[type, str] = {type(None): "null", dict: "object", list: "array"}
    return names.get(type(value), type(value).__name__)


def _in_words(error: ValidationError) -> str:
    """`$.prompt[0].text: expected str, got int`, from msgspec's message with the places from inside to outside."""
    problem, *places = str(error).split(" - at `$")
    path = "$" + "".join(place.removesuffix("`") for place in reversed(places))
    if problem.startswith("Object missing required field"):
        text = f"{problem.removeprefix('Object ')} at `{path}`"
    elif problem.startswith(("Invalid value", "Invalid enum value")):
        text = f"{path}: unknown value {problem.partition('value ')[2]}"
    elif problem.startswith("Expected"):
        text = f"{path}: {problem.replace('`', '').replace('Expected', 'expected', 1)}"
    else:
        text = f"{path}: {problem}"
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"
