"""Amazon Bedrock and Vertex AI. FakeModel plays them; what it is sent, and what it sends, is checked by Amazon's own
client and its own description of the API."""

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import anyio.to_thread
import botocore.session
import pytest
from botocore.config import Config
from botocore.validate import ParamValidator

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ConfigError, ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm.clouds import vertex
from acp_agent.llm.clouds.bedrock import BedrockProvider
from acp_agent.llm.clouds.vertex import VertexProvider
from acp_agent.testing.fake_converse import message
from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel, RawAnswer

from .kit import SETTINGS, TOOL, check_failure, collect, connected, failure, listed, make, turn

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
HISTORY = (
    llm.UserMessage(
        (llm.TextPart("look"), llm.ImagePart("image/png", "iVBORw0="), llm.DocumentPart("JVBERi0=", "a_b/c.pdf"))
    ),
    llm.AssistantMessage(
        "Looking.", (llm.ToolUse("c1", "read", '{"path": "a"}'),),
        opaque=(
            {"type": "thinking", "thinking": "hm", "signature": "sig_1", "after": (0, 0), "_from": CLAUDE},
            {"type": "redacted_thinking", "data": "c2VhbGVk", "after": (0, 0), "_from": CLAUDE},
        ),
    ),
    llm.ToolMessage("c1", "read", (llm.TextPart("content"), llm.ImagePart("image/jpeg", "iVBORw0="))),
)  # fmt: skip
POINT = {"cachePoint": {"type": "default"}}


async def asked(settings: llm.ModelSettings, history: Any = HISTORY) -> tuple[str, dict[str, Any]]:
    async with connected("bedrock", ["ok"]) as (provider, model):
        await collect(provider, history, (TOOL,), settings)
    return model.requests[0].path, model.requests[0].body


def client(base_url: str) -> Any:
    made = botocore.session.Session()
    made.set_credentials("AKIDEXAMPLE", "secret")
    return made.create_client(
        "bedrock-runtime", "us-east-1", endpoint_url=base_url.removesuffix("/v1"),
        config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip


def as_sdk(value: Any) -> Any:
    """The SDK takes bytes where the wire has Base64."""
    if isinstance(value, dict):
        decoded = {"bytes", "redactedContent"}
        return {key: base64.b64decode(each) if key in decoded else as_sdk(each) for key, each in value.items()}
    return [as_sdk(each) for each in value] if isinstance(value, list) else value


async def test_the_whole_request_and_that_amazon_takes_it() -> None:
    path, body = await asked(llm.ModelSettings(CLAUDE, "Be brief.", "low", 9000))
    assert path == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    picture = {"bytes": "iVBORw0="}
    results = [{"text": "content"}, {"image": {"format": "jpeg", "source": picture}}]
    tool = {"name": "read", "description": "Reads a file.", "inputSchema": {"json": TOOL.parameters}}
    assert body == {
        "messages": [
            turn(
                "user", {"text": "look"}, {"image": {"format": "png", "source": picture}},
                {"document": {"format": "pdf", "name": "a b c pdf 2", "source": {"bytes": "JVBERi0="}}}, POINT,
            ),
            turn(
                "assistant", {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig_1"}}},
                {"reasoningContent": {"redactedContent": "c2VhbGVk"}}, {"text": "Looking."},
                {"toolUse": {"toolUseId": "c1", "name": "read", "input": {"path": "a"}}},
            ),
            turn("user", {"toolResult": {"toolUseId": "c1", "content": results}}, POINT),
        ],
        "system": [{"text": "Be brief."}, POINT], "toolConfig": {"tools": [{"toolSpec": tool}, POINT]},
        "inferenceConfig": {"maxTokens": 9000},
        "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 4096}},
    }  # fmt: skip
    shape = client("http://127.0.0.1:1").meta.service_model.operation_model("ConverseStream").input_shape
    report = ParamValidator().validate(as_sdk({"modelId": CLAUDE, **body}), shape)
    assert not report.has_errors(), report.generate_report()


@pytest.mark.parametrize(
    ("model", "points"), [(CLAUDE, 4), ("us.amazon.nova-pro-v1:0", 3), ("meta.llama3-3-70b-instruct-v1:0", 0)]
)
async def test_other_models_get_no_thoughts_and_points_where_they_have_a_cache(model: str, points: int) -> None:
    _, body = await asked(llm.ModelSettings(model, "Be brief.", "low"))
    assert str(body).count("cachePoint") == points
    assert ("reasoningContent" in str(body), "additionalModelRequestFields" in body) == (model == CLAUDE,) * 2
    assert "inferenceConfig" not in body


async def test_amazons_own_client_reads_the_double() -> None:
    """So the double is one: its stream, its events and its errors are what the real server's client expects."""
    answer = Answer(thought="hm", text=("Hel", "lo"), tool_calls=(Call("read", {"path": "a"}, pieces=2),))
    throttled = Failure(429, {"message": "Too many tokens"}, {"x-amzn-ErrorType": "ThrottlingException"})
    async with FakeModel([answer, throttled]) as model:
        sdk = client(model.base_url)

        def read() -> list[Any]:
            return list(
                sdk.converse_stream(modelId=CLAUDE, messages=[{"role": "user", "content": [{"text": "hi"}]}])["stream"]
            )

        events = await anyio.to_thread.run_sync(read)
        with pytest.raises(sdk.exceptions.ThrottlingException, match="Too many tokens"):
            await anyio.to_thread.run_sync(read)
        theirs = model.requests[0]
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert deltas[0] == {"reasoningContent": {"text": "hm"}}
    assert [delta["text"] for delta in deltas if "text" in delta] == ["Hel", "lo"]
    assert "".join(delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta) == '{"path":"a"}'
    assert events[-1]["metadata"]["usage"]["inputTokens"] == 10
    assert theirs.path == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"


async def test_a_request_is_signed_with_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "AKIDEXAMPLE", "SECRET_ACCESS_KEY": "secret", "SESSION_TOKEN": "tok"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    signed: list[Any] = []
    plain = BedrockProvider._signed

    def noted(self: BedrockProvider, *what: Any) -> Any:
        signed.append(what)
        return plain(self, *what)

    monkeypatch.setattr(BedrockProvider, "_signed", noted)
    async with connected("bedrock", ["ok"], api_key=None) as (provider, model):
        await collect(provider, settings=llm.ModelSettings(CLAUDE))
        headers = model.requests[0].headers
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/us-east-1/bedrock/aws4_request" in headers["authorization"] and headers["x-amz-security-token"] == "tok"
    ((method, url, body),) = signed
    assert (method, url.endswith("-v1%3A0/converse-stream"), b'"messages"' in body) == ("POST", True, True)


async def test_without_credentials_the_user_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    provider = make("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com", api_key=None)
    assert "Run `aws configure` or `aws sso login`" in str(await failure(provider))
    monkeypatch.setenv("AWS_PROFILE", "missing")
    again = make("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com", api_key=None)
    assert "missing" in str(await failure(again))
    await provider.aclose()
    await again.aclose()


THROTTLED = message("throttlingException", {"message": "Too many requests"}, exception=True)
TEXT = message("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "a"}})
STOP = message("messageStop", {"stopReason": "end_turn"})


def frame(headers: bytes, payload: bytes = b"{}") -> bytes:
    """A message with these headers, its sums right."""
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    begun = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return begun + struct.pack("!I", zlib.crc32(begun))


def header(name: bytes, value: bytes, kind: int = 7) -> bytes:
    return struct.pack("!B", len(name)) + name + bytes([kind]) + struct.pack("!H", len(value)) + value


FAILED = header(b":message-type", b"error") + header(b":error-code", b"InternalFailure")


@pytest.mark.parametrize(("chunks", "kind", "words"), [
    ([frame(header(b":event-type", b"\xff"))], "server", "malformed"),
    ([frame(header(b":event-type", b"a", kind=99))], "server", "malformed"), ([frame(b"\xff")], "server", "malformed"),
    ([frame(header(b":event-type", b'a":{},"b')), TEXT], "network", "ended early"),
    ([frame(header(b":event-type", b"a"), b'{},"b":{}')], "server", "malformed"),
    ([frame(header(b":event-type", b"a"), b"7")], "server", "malformed"),
    ([frame(header(b":event-type", b"a"), b'{"x":' + b"[" * 10_000)], "server", "nested too deeply"),
    ([frame(FAILED + header(b":error-message", b"It broke.")), STOP], "server", "It broke."),
    ([struct.pack("!IIB", 2**31, 9, 0) * 4], "server", "malformed"), ([THROTTLED], "rate_limit", "Too many requests"),
    ([TEXT], "network", "ended early"), ([b"<html>" + b"x" * 40], "not_found", "web page"),
    ([b'{"message":', b' "Too long."}'], "server", "Too long."), ([b'{"output"'], "server", "malformed"),
    ([b'{"output": {"message": 7}}'], "server", "malformed"),
    ([b'{"error_message": "Input is too long"}'], "context_too_long", "Input"),
    ([TEXT[:-1] + b"?", STOP], "server", "malformed"),
])  # fmt: skip
async def test_streams_that_fail(chunks: list[bytes], kind: str, words: str) -> None:
    await check_failure("bedrock", RawAnswer(tuple(chunks)), kind, words)


@pytest.mark.parametrize(("status", "message", "kind"), [
    (403, "You don't have access to the model with the specified model ID.", "auth"),
    (400, "The provided model identifier is invalid.", "bad_request"),
])  # fmt: skip
async def test_refusals(status: int, message: str, kind: str) -> None:
    await check_failure("bedrock", Failure(status, {"message": message}), kind, message)


async def test_unknown_events_are_passed_over_wherever_a_stream_is_cut_and_profiles_listed() -> None:
    odd = message("somethingNew", {"a": 1}) + message("contentBlockStart", {"contentBlockIndex": 0, "start": {}})
    whole = odd + TEXT + STOP + message("metadata", {"metrics": {"latencyMs": 1}})
    raw = RawAnswer(tuple(whole[place : place + 7] for place in range(0, len(whole), 7)))
    async with connected("bedrock", [raw]) as (provider, _):
        assert await collect(provider) == [llm.TextDelta("a"), llm.Finished("stop")]
    assert await listed("bedrock", [CLAUDE]) == [llm.ModelInfo(CLAUDE)]


async def test_an_answer_that_is_not_streamed_is_read() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}, {"text": "a"},
        {"toolUse": {"toolUseId": "1", "name": "read", "input": {"path": "b"}}},
    ]  # fmt: skip
    usage = {"inputTokens": 3, "outputTokens": 4}
    said = {"output": {"message": {"content": content}}, "stopReason": "tool_use", "usage": usage}
    whole = json.dumps(said, indent=1).encode()
    async with connected("bedrock", [RawAnswer((whole[:30], whole[30:]))]) as (provider, _):
        events = await collect(provider)
    assert all(each in events for each in (llm.TextDelta("a"), llm.ThoughtDelta("hm"), llm.UsageReport(3, 4)))
    (use,) = [event for event in events if isinstance(event, llm.ToolUse)]
    assert (use.name, json.loads(use.arguments)) == ("read", {"path": "b"})
    assert isinstance(events[-1], llm.Finished) and events[-1].reason == "tool_calls"


async def test_events_that_are_text_under_the_type_of_frames_are_read() -> None:
    """As the double `llm-katan` sends them, with and without a call."""
    start = {"contentBlockStart": {"start": {"toolUse": {"toolUseId": "t", "name": "read"}}, "contentBlockIndex": 1}}
    call = {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"path": "a"}'}}, "contentBlockIndex": 1}}
    for calls, reason in ((), "end_turn"), ((start, call), "tool_use"):
        events = [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockStart": {"start": {"text": {}}, "contentBlockIndex": 0}},
            {"contentBlockDelta": {"delta": {"text": "Héllo"}, "contentBlockIndex": 0}},
            {"contentBlockStop": {"contentBlockIndex": 0}}, *calls, {"messageStop": {"stopReason": reason}},
            {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}, "metrics": {}}},
        ]  # fmt: skip
        whole = b": ping\n\n" + b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in events)
        pieces = tuple(whole[place : place + 11] for place in range(0, len(whole), 11))
        raw = RawAnswer(pieces, content_type="application/vnd.amazon.eventstream")
        async with connected("bedrock", [raw]) as (provider, _):
            found = await collect(provider)
        assert "".join(each.text for each in found if isinstance(each, llm.TextDelta)) == "Héllo"
        assert [(each.name, each.arguments) for each in found if isinstance(each, llm.ToolUse)] == (
            [("read", '{"path": "a"}')] if calls else []
        )
        assert [each.input_tokens for each in found if isinstance(each, llm.UsageReport)] == [3]


async def test_no_two_documents_of_a_message_have_one_name() -> None:
    paper = llm.DocumentPart("JVBERi0=", "a.pdf")
    made = llm.AssistantMessage("", (llm.ToolUse("c1", "read", "{}"), llm.ToolUse("c2", "read", "{}")))
    results = [llm.ToolMessage(call, "read", (paper, paper)) for call in ("c1", "c2")]
    _, body = await asked(SETTINGS, (llm.UserMessage((paper,)), made, *results, llm.UserMessage((paper, paper))))
    for said in body["messages"]:
        names = re.findall(r"'name': '(a pdf[^']*)'", str(said))
        assert len(names) == len(set(names)), names


# --- Vertex AI ---------------------------------------------------------------------------------------------------


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def headers(self: Any) -> dict[str, str]:
        return {"Authorization": "Bearer ya29.x"}

    monkeypatch.setattr(vertex.GoogleToken, "headers", headers)


def on_vertex(model: FakeModel, **options: Any) -> VertexProvider:
    base = f"{model.base_url}/projects/p/locations/global"
    return VertexProvider(ProviderOptions(name="vertex", base_url=base, **options))


async def test_claude_and_the_others_have_doors_of_their_own(token: None) -> None:
    async with FakeModel([Answer(thought="hm", text="one"), "two"]) as model:
        provider = on_vertex(model)
        first = await collect(provider, settings=llm.ModelSettings("anthropic/claude-opus-4-1@20250805", "Be brief."))
        second = await collect(provider, settings=llm.ModelSettings("google/gemini-2.5-pro"))
        await provider.aclose()
    assert [event for event in first if isinstance(event, (llm.ThoughtDelta, llm.TextDelta))] == [
        llm.ThoughtDelta("hm"), llm.TextDelta("one"),
    ]  # fmt: skip
    assert llm.TextDelta("two") in second
    claude, gemini = model.requests
    below = "/v1/projects/p/locations/global"
    assert claude.path == f"{below}/publishers/anthropic/models/claude-opus-4-1@20250805:streamRawPredict"
    assert claude.body["anthropic_version"] == "vertex-2023-10-16" and "model" not in claude.body
    assert "cache_control" in str(claude.body["system"])
    assert (gemini.path, gemini.body["model"]) == (
        f"{below}/endpoints/openapi/chat/completions", "google/gemini-2.5-pro",
    )  # fmt: skip
    assert {request.headers["authorization"] for request in model.requests} == {"Bearer ya29.x"}


async def test_the_machines_token_is_kept_until_it_expires(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Credentials:
        token, valid, refreshed = "", False, 0

        def refresh(self, request: Any) -> None:
            self.refreshed += 1
            self.token, self.valid = f"t{self.refreshed}", True

    credentials = Credentials()
    monkeypatch.setattr("google.auth.default", lambda scopes: (credentials, "p"))
    given = vertex.GoogleToken("vertex")
    assert [await given.headers() for _ in range(2)] == [{"Authorization": "Bearer t1"}] * 2
    credentials.valid = False
    assert await given.headers() == {"Authorization": "Bearer t2"}


async def test_without_google_credentials_the_user_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    async with FakeModel() as model:
        provider = on_vertex(model)
        with pytest.raises(ProviderError, match="Run `gcloud auth application-default login`"):
            await collect(provider, settings=SETTINGS)
        with pytest.raises(ProviderError, match="Name one: `vertex/google/"):
            await provider.models()
        await provider.aclose()


def test_the_region_global_has_no_name_in_the_address() -> None:
    base = "https://global-aiplatform.googleapis.com/v1/projects/p/locations/global"
    provider = VertexProvider(ProviderOptions(name="vertex", base_url=base))
    assert provider._claude._base_url == base.replace("global-", "")


@pytest.mark.parametrize("kind", [BedrockProvider, VertexProvider])
def test_an_address_is_needed(kind: Any) -> None:
    with pytest.raises(ConfigError, match="set (AWS_REGION|GOOGLE_CLOUD_PROJECT)"):
        kind(ProviderOptions(name="cloud"))
