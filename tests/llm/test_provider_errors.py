import json
from typing import Any

import pytest

from acp_agent.llm import provider_errors as errors
from tests.tables import table


def openai(message: str, code: str | None = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def said(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


KINDS: dict[str, list[tuple[int, Any]]] = {
    "auth": [
        (401, openai("Incorrect API key provided: sk-…", "invalid_api_key")), (403, said("You don't have access")),
        (401, ""),
    ],
    "rate_limit": [
        (429, openai("Rate limit reached for gpt-4o", "rate_limit_exceeded", "requests")), (429, "Too many requests"),
    ],
    "quota": [
        (429, openai("You exceeded your current quota, please check your plan", "insufficient_quota")),
        (402, said("Insufficient credits", code=402)), (402, ""),
    ],
    # The conversation is too long, in every dialect.
    "context_too_long": [
        (400, openai("anything", "context_length_exceeded")),
        (400, openai("This model's maximum context length is 8192 tokens. However, ...")),
        (400, openai("Your input exceeds the context window of this model.")),
        (
            400,
            {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model length"},
        ),
        (400, said("too big", code=400, type="exceed_context_size_error", n_ctx=4096)),
        (500, said("the request exceeds the available context size. try increasing it", code=500)),
        (400, {"error": "the input length exceeds the context length"}),
        (400, {"error": "prompt too long; exceeded max context length by 12 tokens"}),
        (400, said("This endpoint's maximum context length is 128000 tokens.", code=400)),
        (
            400,
            said(
                "Provider returned error", code=400,
                metadata={"raw": "prompt is too long: 210000 tokens > 200000 maximum"},
            ),
        ),
        (429, openai("Request too large for gpt-4o on TPM", "rate_limit_exceeded")),
    ],
    "refusal": [
        (400, openai("The response was filtered due to Azure OpenAI's content management policy")),
        (400, openai("Filtered", "content_filter")), (403, said("Your input was flagged", code=403)),
    ],
    "not_found": [
        (404, openai("The model `gpt-9` does not exist", "model_not_found")),
        (404, said('model "llama9" not found, try pulling it first')), (404, "<html>404</html>"),
        (400, said("gpt-9 is not a valid model ID", code=400)),
    ],
    "server": [
        (500, openai("The server had an error", None, "server_error")), (502, "<html>Bad Gateway</html>"),
        (529, said("Overloaded", type="overloaded_error")), (408, ""),
    ],
    "loading": [(503, said("Loading model", code=503, type="unavailable_error"))],
    "bad_request": [
        (400, openai("Unknown parameter: 'foo'.")),
        (400, openai("max_tokens is too large: 100000. This model supports at most 16384")),
        (400, openai("This model does not support tools")),
        (422, {"detail": [{"loc": ["body", "tools"], "msg": "field required"}]}),
    ],
}  # fmt: skip


@table(("kind", "status", "body"), [(kind, *row) for kind, rows in KINDS.items() for row in rows])
def test_kinds(kind: str, status: int, body: Any) -> None:
    error = errors.error_from_status("acme", status, body if isinstance(body, str) else json.dumps(body).encode(), {})
    assert error.kind == kind and error.status == status and str(error).startswith("acme ")
    assert str(status) in str(error)


@pytest.mark.parametrize(("body", "kind"), [
    (said("Upstream error", code=502), "server"), (said("Slow down", code=429), "rate_limit"),
    (said("Slow down", code="rate_limit_exceeded"), "rate_limit"), (said("oops"), "server"),
    ({"error": "oops"}, "server"), (said("bad tools", type="invalid_request_error"), "bad_request"),
    (said("Too long", code="context_length_exceeded"), "context_too_long"), ("not json at all", "server"),
])  # fmt: skip
def test_kinds_of_errors_inside_a_stream(body: Any, kind: str) -> None:
    assert errors.error_from_object("acme", body).kind == kind


@pytest.mark.parametrize(("body", "vendor"), [
    (b'{"error": {"message": "m", "code": "C", "type": "T"}}', errors.VendorError("m", "c", "t")),
    (b'{"error": {"message": "m", "code": 503}}', errors.VendorError("m", status=503)),
    (b'{"error": "m"}', errors.VendorError("m")), (b'{"message": "m"}', errors.VendorError("m")),
    (b'{"error": null, "message": "m"}', errors.VendorError("m")), (b'{"detail": "m"}', errors.VendorError("m")),
    (b'[{"error": {"message": "m"}}]', errors.VendorError("m")), (b"  two\n lines ", errors.VendorError("two lines")),
    (b"<html></html>", errors.VendorError()), (b"{not json", errors.VendorError("{not json")),
    (b"\xff", errors.VendorError("�")), (b"", errors.VendorError()), (None, errors.VendorError()),
    ([], errors.VendorError()),
])  # fmt: skip
def test_vendors_words_are_found_in_any_shape(body: object, vendor: errors.VendorError) -> None:
    assert errors.read_vendor_error(body) == vendor


@pytest.mark.parametrize(("words", "headers", "seconds"), [
    ("Please try again in 20s.", {}, 20.0), ("Please try again in 6m0s. Visit", {}, 360.0),
    ("retry in 250ms", {}, 0.25),
    ("Slow down.", {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"}, 90.0),
    ("Slow down.", {"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "1m30s"}, None),
    ("try again in 20s", {"retry-after": "3"}, 3.0), ("Limit 30000, used 29999", {}, None),
])  # fmt: skip
def test_the_wait_that_a_server_asks_for_is_read_from_headers_and_words(words, headers, seconds):
    assert errors.error_from_status("acme", 429, openai(words), headers).retry_after == seconds


def test_a_server_is_named_as_the_user_knows_it():
    at = errors.server_label("default", "http://127.0.0.1:18999/v1")
    assert (at, errors.server_label("default", ""), errors.server_label("mine", "http://x")) == (
        "The server at 127.0.0.1:18999", "OpenAI", "mine",
    )  # fmt: skip
    assert str(errors.error_from_status(at, 401, openai("no"), {})).startswith(f"{at} refused the API key (HTTP 401)")
    assert "`acp-coder login` stores" in str(errors.error_from_status(at, 401, openai("no"), {}))
    assert str(errors.nobody_listens_error(at, "http://127.0.0.1:18999/v1")).startswith(
        "No server listens at http://127"
    )
    assert "The limit ends at " in str(errors.error_from_status("acme", 429, openai("no"), {"retry-after": "7200"}))


def test_a_sentence_names_provider_vendor_model_address_and_what_to_do() -> None:
    error = errors.error_from_status("acme", 429, openai("Slow down."), {"retry-after": "20"})
    assert str(error) == 'acme is receiving too many requests (HTTP 429): "Slow down." It asks to wait 20 seconds.'
    assert error.retry_after == 20.0
    error = errors.error_from_status("acme", 404, openai("model 'x' not found"), {}, model="x")
    assert "does not know the model 'x'" in str(error)
    assert "base URL" in str(errors.error_from_status("acme", 404, "<html></html>", {}))
    assert len(str(errors.error_from_status("acme", 500, "x" * 10_000, {}))) < 1000
    assert str(errors.network_error("acme", "http://a/v1", "refused")).startswith(
        "acme: the connection to http://a/v1 failed (refused)."
    )
    assert "for 300 seconds" in str(errors.idle_timeout_error("acme", "http://a/v1", 300.0))


KEY = "Check the key and its permissions; `acp-coder login --provider acme` stores another one."
MODEL = "Choose another model, or make it available on the server."
CREDIT = "Add credit or raise the limit at the provider, or choose another model."
PLACE = "Choose another provider, or a server of this one in a country that it serves."


def anthropic(message: str, kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google(status: int, message: str, name: str) -> list[dict[str, Any]]:
    return [{"error": {"code": status, "message": message, "status": name}}]


CREDIT_OF_ANTHROPIC = (
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase "
    "credits."
)
COUNTRY = "Country, region, or territory not supported"

ADVICE: dict[str, list[tuple[int, Any]]] = {
    KEY: [
        (401, openai("Incorrect API key provided: sk-x. You can find it at ...", "invalid_api_key")),
        (401, anthropic("invalid x-api-key", "authentication_error")),
        (400, google(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT")),
        (400, {"code": "invalid", "error": "Incorrect API key provided: sk***YA. You can obtain an API key from ..."}),
        (401, said("Authentication Fails, Your api key: ****x is invalid", code="invalid_request_error")),
        (403, anthropic("Your API key does not have permission to use the specified resource.", "permission_error")),
    ],
    MODEL: [
        (404, openai("The model `gpt-9` does not exist or you do not have access to it.", "model_not_found")),
        (404, anthropic("model: claude-9", "not_found_error")),
        (404, google(404, "models/gemini-9 is not found for API version v1main", "NOT_FOUND")),
        (400, said("Model Not Exist", type="invalid_request_error")),
        (400, openai("The model `x` has been decommissioned and is no longer supported.", "model_decommissioned")),
        (404, said("Not found the model k9 or Permission denied", type="resource_not_found_error")),
        (400, said("Unknown model: x", code="unknown_model")),
        (400, said("Unknown Model, please check the model code.", code="1211")),
    ],
    CREDIT: [
        (
            429,
            openai(
                "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota"
            ),
        ),
        (400, anthropic(CREDIT_OF_ANTHROPIC, "invalid_request_error")),
        (402, said("Insufficient Balance", type="unknown_error", code="invalid_request_error")),
        (429, {"code": "x", "error": "Your team has either used all available credits or reached its limit."}),
        (403, {"code": "x", "error": "Your newly created team doesn't have any credits or licenses yet."}),
        (429, said("Your account is suspended due to insufficient balance", type="exceeded_current_quota_error")),
        (429, said("Insufficient balance or no resource package. Please recharge.", code="1113")),
        (429, said("余额不足或无可用资源包,请充值。", code="1113")),
        (400, said("Access denied, please make sure your account is in good standing.", code="Arrearage")),
    ],
    PLACE: [
        (403, openai(COUNTRY, "unsupported_country_region_territory", "request_forbidden")),
        (403, said("Request not allowed", type="forbidden")),
        (400, google(400, "User location is not supported for the API use.", "FAILED_PRECONDITION")),
        (400, {"message": "Access to Anthropic models is not allowed from unsupported countries, regions, ..."}),
    ],
}


@table(("advice", "status", "body"), [(advice, *row) for advice, rows in ADVICE.items() for row in rows])
def test_the_vendors_own_words_lead_to_what_to_do(advice: str, status: int, body: Any) -> None:
    words = str(errors.error_from_status("acme", status, json.dumps(body).encode(), {}, model="x"))
    assert words.endswith(advice) and words.startswith("acme ")
