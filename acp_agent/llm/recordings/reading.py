"""A recording, read from its file: references between requests are resolved, what is damaged is named by its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from acp_agent.errors import ConfigError, ProviderError
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm import base as llm
from acp_agent.llm.recordings.form import VERSION, Form, event_of

DONE = ("session", "prompt", "set_mode", "permission")
"""Lines about the user."""


class Call(msgspec.Struct):
    """A request and its answer."""

    number: int
    provider: str
    form: Form
    events: list[tuple[float, llm.ModelEvent]] = []
    error: ProviderError | None = None
    answered: bool = False
    used: bool = False
    """Whether the answer was given again."""
    cut: bool = False
    """Whether nobody waited for the end."""


class Recording(msgspec.Struct):
    path: Path
    about: Form
    """The first header."""
    calls: list[Call] = []
    done: list[Form] = []
    """What the user did, in order."""
    wire: list[Form] = []
    models: dict[str, list[llm.ModelInfo]] = {}
    """What each provider said about its models."""


def read_recording(path: Path) -> Recording:
    """Raises ConfigError for a file that is none, or is damaged. A last line that was not written to its end is left
    out: the agent may have been killed."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the recording {str(path)!r} cannot be read: {error.strerror}") from error
    *lines, torn = data.split(b"\n")
    if not data:
        raise ConfigError(f"{path} is empty: nothing was recorded")
    found: Recording | None = None
    open_: dict[int, Call] = {}
    for number, line in enumerate(lines or [torn], 1):
        try:
            form = read_loose_json(line)
            if not isinstance(form, dict) or (found is None and "recording" not in form):
                raise ValueError("the first line is not a header")
            if "recording" in form:
                if form["recording"] != VERSION:
                    raise ConfigError(f"{path}: the recording was made by a newer version, {form.get('agent')}")
                found, open_ = found or Recording(path, form), {}
            elif found is not None:
                _take(form, found, open_)
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            if found is None:
                raise ConfigError(f"{path} is not a recording of acp-coder (`acp-coder prompt --record`)") from error
            raise ConfigError(f"{path}:{number}: the recording is damaged here: {error!r}") from error
    assert found is not None
    return found


def _take(form: Form, found: Recording, open_: dict[int, Call]) -> None:
    if "request" in form:
        number = int(form["request"])
        open_[number] = call = Call(number, str(form["provider"]), _resolved(form, open_))
        found.calls.append(call)
    elif "answer" in form:
        call = open_[form["answer"]]
        call.events = [(float(event["t"]), event_of(event)) for event in form["events"]]
        call.answered, call.cut = True, form.get("cut") is True
        if error := form.get("error"):
            kind, more = error["kind"], {"status": error.get("status"), "retry_after": error.get("retry_after")}
            call.error = ProviderError(kind, str(error["message"]), **more)
    elif "models" in form:
        found.models[str(form["provider"])] = msgspec.convert(form["models"], list[llm.ModelInfo])
    elif "wire" in form:
        if form["wire"] not in ("in", "out") or not isinstance(form["message"], dict | str):
            raise ValueError("no message")
        found.wire.append(form)
    elif any(name in form for name in DONE):
        found.done.append(form)


def _resolved(form: Form, open_: dict[int, Call]) -> Form:
    new: dict[str, Any] = {name: form[name] for name in ("model", "settings", "system", "tools", "messages")}
    for name in ("system", "tools"):
        if isinstance(new[name], int):
            new[name] = open_[new[name]].form[name]
    if isinstance(said := new["messages"], dict):
        new["messages"] = [*open_[said["after"]].form["messages"][: said["kept"]], *said["messages"]]
    if not all(isinstance(message, dict) for message in new["messages"]):
        raise ValueError("a message is no object")
    return new


def strings(value: Any) -> Iterator[str]:
    """All strings in JSON data, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from strings(value[name])
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
