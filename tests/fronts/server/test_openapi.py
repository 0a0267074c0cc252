"""`/openapi.json`: valid, complete, and true."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from starlette.routing import Route

from acp_agent.fronts.server.stored_sessions import OPERATIONS
from tests.fronts.server.documented import check, checking, document, server
from tests.fronts.server.test_server import served

ID = str(uuid.uuid4())


async def test_it_is_valid_and_who_has_any_token_gets_it(tmp_path: Path) -> None:
    async with served(tmp_path, scope="watch") as place, checking() as client:
        assert (await client.get(f"{place.http}/openapi.json")).status_code == 401
        answer = await client.get(f"{place.http}/openapi.json", headers={"Authorization": f"Bearer {place.token}"})
    assert answer.json() == document()
    validate(answer.json(), cls=OpenAPIV31SpecValidator)


def test_every_route_of_the_server_is_in_it_and_nothing_else() -> None:
    told = {(path, method) for path, methods in document()["paths"].items() for method in methods}
    routed = {
        (route.path, method.lower())
        for route in server().routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert told == routed
    assert all(each["summary"] for methods in document()["paths"].values() for each in methods.values())
    ids = [each["operationId"] for methods in document()["paths"].values() for each in methods.values()]
    assert len(ids) == len(set(ids))


def bounds() -> Iterator[tuple[str, str, str, bool]]:
    """Method, address, what is asked for, and whether that is within the bounds."""
    for each in OPERATIONS:
        told = document()["paths"][each.path][each.method.lower()]
        needed = {"q": "x"} if each.path == "/search" else {}
        for parameter in told["parameters"]:
            name, schema = parameter["name"], parameter["schema"]
            for value, right in values(schema):
                path = each.path.replace("{id}", value if parameter["in"] == "path" else ID)
                asked = needed | ({name: value} if parameter["in"] == "query" else {})
                yield each.method, f"{path}?{'&'.join(f'{key}={text}' for key, text in asked.items())}", name, right
            if parameter["required"] and parameter["in"] == "query":
                yield each.method, each.path.replace("{id}", ID), name, False


def values(schema: dict[str, Any]) -> list[tuple[str, bool]]:
    if schema.get("format") == "uuid":
        return [(ID, True), ("x", False)]
    if "enum" in schema:
        return [*((value, True) for value in schema["enum"]), ("pdf", False)]
    if schema["type"] == "integer":
        least, most = schema["minimum"], schema["maximum"]
        return [(str(least), True), (str(most), True), (str(least - 1), False), (str(most + 1), False), ("x", False)]
    return [("x", True), ("%20", False)] if "pattern" in schema else []


async def test_each_bound_that_it_tells_is_the_one_that_holds(tmp_path: Path) -> None:
    seen = 0
    async with served(tmp_path) as place, checking(headers={"Authorization": f"Bearer {place.token}"}) as client:
        for method, address, name, right in bounds():
            answer = await client.request(method, place.http + address)
            words = answer.json().get("error", "") if answer.status_code >= 400 else ""
            assert (answer.status_code == 400, f"`{name}`" in words) == (not right, not right), (address, answer.text)
            seen += 1
    assert seen > 30


async def test_what_a_scope_does_not_include_is_refused_as_it_tells(tmp_path: Path) -> None:
    async with (
        served(tmp_path, scope="approve") as place,
        checking(headers={"Authorization": f"Bearer {place.token}"}) as client,
    ):
        for each in OPERATIONS:
            told = document()["paths"][each.path][each.method.lower()]["security"]
            answer = await client.request(each.method, place.http + each.path.replace("{id}", ID), params={"q": "x"})
            assert (answer.status_code == 403) == (told == [{"token": ["prompt"]}]), each.path


@pytest.mark.parametrize(
    ("status", "body"), [(200, b'[{"id": "x"}]'), (200, b"{}"), (418, b"[]"), (400, b"[]")], ids=str
)
def test_an_answer_that_is_not_as_it_tells_is_found(status: int, body: bytes) -> None:
    with pytest.raises((AssertionError, jsonschema_rs.ValidationError)):
        check("GET", "/sessions", status, "application/json", body)
