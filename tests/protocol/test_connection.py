"""`Connection`: order, concurrency, cancellation in both directions, back-pressure, the end."""

import asyncio
import logging
from typing import Any

import anyio
import pytest

from acp_agent.client.tasks import Background
from acp_agent.errors import ConnectionClosed, InvalidParams, PeerError, ResourceNotFound
from acp_agent.protocol.connection import HIGH_WATER, Connection, Reply
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import memory_pair
from acp_agent.schema.acp import AgentMessageChunk, SessionNotification, TextContent, ToolCall
from tests.protocol.kit import Table, Wire, echo, fails, forever, gives, paired, served


def chunk(text: str, *, session: str = "s") -> SessionNotification:
    return SessionNotification(session_id=session, update=AgentMessageChunk(content=TextContent(text=text)))


# --- requests of theirs ------------------------------------------------------------------------------------------


async def test_request_is_answered_with_its_id_and_malformed_input_in_order() -> None:
    """[RPC-2] [RPC-3]"""
    async with served(Table(echo=echo)) as (_, wire):
        await wire.request("x", "echo", {"a": 1})
        assert await wire.receive() == {"jsonrpc": "2.0", "id": "x", "result": {"a": 1}}
        await wire.transport.write(b'nonsense\n[]\n{"jsonrpc":"2.0","id":1,"method":"echo"}\n')
        assert (await wire.receive())["error"]["code"] == -32700
        assert (await wire.receive())["error"]["code"] == -32600
        assert (await wire.receive())["id"] == 1


@pytest.mark.parametrize("id_", [0, -5, 2**63, 10**30, "", None])
async def test_every_id_is_answered_with_the_full_encoder_too(id_: object) -> None:
    """[RPC-6]"""
    async with served(Table(echo=echo)) as (_, wire):
        await wire.request(id_, "echo", chunk("a").update.content.text)  # type: ignore[union-attr]
        assert (await wire.receive())["id"] == id_
        await wire.request(id_, "unknown")
        message = await wire.receive()
        assert (message["id"], message["error"]["code"]) == (id_, -32603)


@pytest.mark.parametrize(("value", "sent"), [
    (10**30, 10**30), ("a\ud83db", "a?b"), ({"\ud83d": [10**30]}, {"?": [10**30]}),
], ids=["huge integer", "lone surrogate", "both"])  # fmt: skip
async def test_results_the_fast_encoder_refuses_are_sent_all_the_same(value: Any, sent: Any) -> None:
    """[TR-5] [TR-7]"""
    async with served(Table(odd=gives([value, chunk("x")]))) as (_, wire):
        await wire.request(1, "odd")
        (first, second) = (await wire.receive())["result"]
        assert ascii(first) == ascii(sent)
        assert second["sessionId"] == "s"


@pytest.mark.parametrize(("raised", "error"), [
    (
        ResourceNotFound("no such file", {"uri": "/x"}),
        {"code": -32002, "message": "no such file", "data": {"uri": "/x"}},
    ),
    (InvalidParams("no", {"why": object()}), {"code": -32602, "message": "no"}),
], ids=["one of the protocol", "data that is no JSON is left out"])  # fmt: skip
async def test_rpc_error_becomes_its_error_answer(raised: Exception, error: dict[str, Any]) -> None:
    async with served(Table(odd=fails(raised))) as (_, wire):
        await wire.request(1, "odd")
        assert await wire.receive() == {"jsonrpc": "2.0", "id": 1, "error": error}


@pytest.mark.parametrize(("answer", "words"), [
    (gives(object()), ""), (gives({1, 2, object()}), ""), (gives({"a": {"b": object()}}), ""),
    (fails(ZeroDivisionError("a sentence")), "a sentence"),
], ids=["no JSON", "a set", "no JSON inside", "an exception"])  # fmt: skip
async def test_what_fails_in_a_handler_is_an_internal_error(answer: Any, words: str, caplog: pytest.LogCaptureFixture):
    """[RPC-10] [RPC-11]"""
    async with served(Table(odd=answer, echo=echo)) as (_, wire):
        await wire.request(1, "odd")
        error = (await wire.receive())["error"]
        assert error["code"] == -32603
        await wire.request(2, "echo", "still here")
        assert (await wire.receive())["result"] == "still here"
    assert words in error["message"]
    assert not words or "request odd failed" in caplog.text


async def test_failing_notification_handler_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """[RPC-7] [RPC-10]"""
    handler = Table(echo=echo)

    def fail(method: str, params: Any) -> None:
        raise ValueError("no")

    handler.on_notification = fail
    async with served(handler) as (_, wire):
        await wire.notify("anything")
        await wire.request(1, "echo", 1)
        assert await wire.receive() == {"jsonrpc": "2.0", "id": 1, "result": 1}


async def test_requests_beyond_the_most_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acp_agent.protocol.connection.MOST_REQUESTS", 2)
    async with served(Table(wait=forever, echo=echo)) as (_, wire):
        for number in range(3):
            await wire.request(number, "wait")
        answer = await wire.receive()
        assert (answer["id"], answer["error"]["code"]) == (2, -32603)
        assert "2 requests of this connection are not answered yet" in answer["error"]["message"]
        await wire.notify("$/cancel_request", {"requestId": 0})
        assert (await wire.receive())["id"] == 0
        await wire.request(3, "echo", {})
        assert (await wire.receive())["result"] == {}


async def test_requests_and_notifications_start_in_the_order_they_came() -> None:
    """[RPC-14]"""
    started: list[Any] = []

    async def note(params: Any) -> Any:
        started.append(params)
        await anyio.lowlevel.checkpoint()

    handler = Table(note=note)
    handler.on_notification = lambda method, params: started.append(params)
    async with served(handler) as (_, wire):
        calls = [{"jsonrpc": "2.0", "method": "note", "params": n} | ({"id": n} if n % 3 else {}) for n in range(50)]
        await wire.send(*calls)
        for _ in range(33):
            await wire.receive()
    assert started == list(range(50))


# --- order out ---------------------------------------------------------------------------------------------------


async def test_answer_follows_the_updates_queued_before_it() -> None:
    """[PR-6]"""

    async def turn(params: Any) -> Any:
        for number in range(3):
            connection.notify("session/update", {"n": number})
        return {"stopReason": "end_turn"}

    async with served(Table(turn=turn)) as (connection, wire):
        await wire.request(1, "turn")
        messages = [await wire.receive() for _ in range(4)]
    assert [message.get("params", {}).get("n") for message in messages] == [0, 1, 2, None]


async def test_reply_then_runs_right_after_the_answer_is_queued() -> None:
    """[NEW-10]"""

    async def new(params: Any) -> Any:
        return Reply({"sessionId": "s"}, lambda: connection.notify("session/update", {"early": True}))

    async with served(Table(new=new)) as (connection, wire):
        await wire.request(1, "new")
        assert (await wire.receive())["result"] == {"sessionId": "s"}
        assert (await wire.receive())["params"] == {"early": True}


async def test_what_is_no_json_is_left_out_and_the_stream_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []
    async with served(Table(new=gives(Reply(object(), lambda: ran.append(1))))) as (_, wire):
        await wire.request(1, "new")
        assert (await wire.receive())["error"]["code"] == -32603
    assert ran == []
    async with served(Table()) as (connection, wire):
        connection.notify("a", object())
        connection.notify("b", 10**30)
        assert (await wire.receive())["params"] == 10**30
    assert "could not be encoded" in caplog.text


# --- $/cancel_request --------------------------------------------------------------------------------------------


async def test_cancelled_request_is_answered_whether_it_has_started_or_not() -> None:
    """[CAN-9]"""
    cleaned: list[str] = []

    async def slow(params: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("up")

    async with served(Table(slow=slow)) as (_, wire):
        await wire.request("r", "slow")
        await wire.notify("$/cancel_request", {"requestId": "r"})
        message = await wire.receive()
        assert (message["id"], message["error"]["code"]) == ("r", -32800)
    assert cleaned == ["up"]
    # Both lines arrive in one piece.
    async with served(Table(slow=forever)) as (_, wire):
        cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
        await wire.send({"jsonrpc": "2.0", "id": 1, "method": "slow"}, cancel)
        assert (await wire.receive())["error"]["code"] == -32800


async def test_handler_may_end_a_cancelled_request_with_a_valid_answer() -> None:
    """[CAN-9]"""
    stop = anyio.Event()

    async def turn(params: Any) -> Any:
        await stop.wait()
        return {"stopReason": "cancelled"}

    def cancel(method: str, params: Any) -> bool:
        assert (method, params) == ("turn", {"sessionId": "s"})
        stop.set()
        return True

    handler = Table(turn=turn)
    handler.cancels_itself = cancel
    async with served(handler) as (_, wire):
        await wire.request(1, "turn", {"sessionId": "s"})
        await wire.notify("$/cancel_request", {"requestId": 1})
        assert (await wire.receive())["result"] == {"stopReason": "cancelled"}


@pytest.mark.parametrize(
    "params", [None, [], "x", {}, {"requestId": None}, {"requestId": 99}, {"requestId": "1"}, {"requestId": [1]}]
)
async def test_a_running_request_does_not_hold_up_others_nor_is_it_ended_by_a_cancel_of_another(params: Any) -> None:
    """[RPC-14] [CAN-10] The id's type counts: "1" is not 1."""
    release = anyio.Event()

    async def slow(_: Any) -> Any:
        await release.wait()
        return "done"

    async with served(Table(slow=slow, echo=echo)) as (_, wire):
        await wire.request(1, "slow")
        await wire.notify("$/cancel_request", params)
        await wire.request(2, "echo", "after")
        assert await wire.receive() == {"jsonrpc": "2.0", "id": 2, "result": "after"}
        release.set()
        assert await wire.receive() == {"jsonrpc": "2.0", "id": 1, "result": "done"}


async def test_cancelling_our_call_tells_the_other_side_and_drops_its_answer() -> None:
    """[CAN-4] [RPC-8]"""
    async with served(Table(echo=echo)) as (connection, wire):
        async with anyio.create_task_group() as group:
            group.start_soon(connection.request, "ask", {})
            asked = await wire.receive()
            group.cancel_scope.cancel()
        cancel = await wire.receive()
        assert cancel == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked["id"]}}
        await wire.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32800, "message": "ok"}})
        await wire.request(1, "echo", "goes on")
        assert (await wire.receive())["result"] == "goes on"


async def test_cancel_runs_through_both_connections() -> None:
    ended = anyio.Event()

    async def slow(params: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with paired(Table(), Table(slow=slow)) as (one, _):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(one.request, "slow", {})
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        await ended.wait()


# --- requests of ours --------------------------------------------------------------------------------------------


async def test_error_answer_is_a_peer_error() -> None:
    async with paired(Table(), Table(missing=fails(ResourceNotFound("gone", [1])))) as (one, _):
        with pytest.raises(PeerError) as caught:
            await one.request("missing", {})
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32002, "gone", [1])


async def test_both_sides_ask_at_the_same_time() -> None:
    """[RPC-6] Their ids and ours are the same numbers."""

    async def ask_back(params: Any) -> Any:
        return await two.request("echo", params)

    async with paired(Table(echo=echo), Table(ask=ask_back)) as (one, two):
        assert [await one.request("ask", n) for n in range(5)] == list(range(5))


async def test_malformed_answer_fails_only_its_request() -> None:
    """[RPC-9]"""
    async with served(Table()) as (connection, wire):
        results: list[Any] = []

        async def ask() -> None:
            try:
                results.append(await connection.request("ask", None))
            except PeerError as error:
                results.append(error.code)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            first = await wire.receive()
            group.start_soon(ask)
            second = await wire.receive()
            await wire.send({"jsonrpc": "2.0", "id": first["id"], "error": "oops"})
            await wire.send({"jsonrpc": "2.0", "id": second["id"], "result": "fine"})
    assert results == [-32603, "fine"]


# --- the end -----------------------------------------------------------------------------------------------------


async def test_requests_of_ours_fail_when_the_other_side_goes() -> None:
    async with served(Table()) as (connection, wire):
        with pytest.raises(ConnectionClosed):
            async with Background() as background:

                async def leave() -> None:
                    await wire.receive()
                    wire.transport.close()

                background.start(leave)
                await connection.request("ask", None)
        with pytest.raises(ConnectionClosed):
            await connection.request("again", None)
        connection.notify("goes", "nowhere")


async def test_running_requests_are_cancelled_and_answered_when_we_close() -> None:
    """[CAN-11]"""
    started = anyio.Event()
    cleaned: list[str] = []

    async def slow(params: Any) -> Any:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("up")

    async with served(Table(slow=slow)) as (connection, wire):
        await wire.request(1, "slow")
        await started.wait()
        connection.close()
        assert (await wire.receive())["error"]["code"] == -32800
        assert await wire.receive() is None
    assert cleaned == ["up"]


async def test_what_is_queued_is_written_before_the_end() -> None:
    async with served(Table()) as (connection, wire):
        for number in range(20):
            connection.notify("n", number)
        connection.close()
        assert [(await wire.receive())["params"] for _ in range(20)] == list(range(20))
        assert await wire.receive() is None


async def test_a_last_line_without_its_end_and_events_before_the_loop_are_answered() -> None:
    ours, theirs = memory_pair()
    connection = Connection(ours, Table(echo=echo))
    wire = Wire(theirs)
    await theirs.write(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}')
    ours._incoming.end()  # the end of our stdin alone
    await connection.serve()
    assert (await wire.receive())["result"] == [1]
    peer = Peer()
    events = peer.receive(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":"early"}\n')
    ours, theirs = memory_pair()
    connection = Connection(ours, Table(echo=echo), peer=peer)
    wire = Wire(theirs)
    async with Background() as background:
        background.start(connection.serve, events)
        await wire.request(2, "echo", "late")
        assert (await wire.receive())["result"] == "early"
        assert (await wire.receive())["result"] == "late"
        theirs.close()


async def test_handler_that_refuses_to_end_does_not_hold_up_the_end() -> None:
    """[END-1]"""
    started, release = anyio.Event(), anyio.Event()

    async def stubborn(params: Any) -> Any:
        with anyio.CancelScope(shield=True):
            started.set()
            await release.wait()

    ours, theirs = memory_pair()
    connection = Connection(ours, Table(stubborn=stubborn))
    async with Background() as background:

        async def serve() -> None:
            await connection.serve()
            release.set()

        background.start(serve)
        await Wire(theirs).request(1, "stubborn")
        await started.wait()
        theirs.close()
        await release.wait()


async def test_the_end_is_noticed_by_the_writer_and_the_transport_closed(caplog: pytest.LogCaptureFixture) -> None:
    """[END-4]"""
    ours, theirs = memory_pair()
    connection = Connection(ours, Table())
    async with anyio.create_task_group() as group:
        group.start_soon(connection.serve)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert await theirs.read() == b""
    assert connection.closed
    caplog.set_level(logging.INFO)
    ours, theirs = memory_pair()
    connection = Connection(ours, Table())
    theirs._incoming.end()  # they stop reading and keep their side open
    async with Background() as background:
        background.start(connection.serve)
        connection.notify("n", "x")
        await connection.flush()
    assert connection.write_failed
    assert "Traceback" not in caplog.text


async def test_drain_and_flush_return_after_the_end() -> None:
    async with served(Table()) as (connection, wire):
        wire.transport.close()
        while not connection.closed:
            await anyio.lowlevel.checkpoint()
        await connection.flush()
        for number in range(HIGH_WATER * 3):
            connection.notify("n", number)
        await connection.drain()
        await connection.flush()


# --- back-pressure -----------------------------------------------------------------------------------------------


async def test_text_for_a_reader_that_has_stopped_is_merged_and_nothing_is_lost() -> None:
    async with served(Table(), capacity=64) as (connection, wire):
        words = [f"word{number} " for number in range(2000)]
        for word in words:
            connection.notify("session/update", chunk(word))
            await anyio.lowlevel.checkpoint()
        assert len(connection._queue) < 10, "adjacent chunks were not merged"
        connection.notify("end", None)
        read: list[str] = []
        while (message := await wire.receive())["method"] != "end":
            read.append(message["params"]["update"]["content"]["text"])
    assert "".join(read) == "".join(words)


async def test_merging_keeps_the_order_of_everything_else() -> None:
    async with served(Table(), capacity=64) as (connection, wire):
        plan: list[Any] = []
        for number in range(30):
            plan += [chunk("a"), chunk("b"), chunk("c", session="other")]
            call = ToolCall(tool_call_id=f"t{number}", title="t")
            plan += [SessionNotification(session_id="s", update=call), chunk("d")]
        for notification in plan:
            connection.notify("session/update", notification)
        connection.notify("end", None)
        read: list[tuple[str, str]] = []
        while (message := await wire.receive())["method"] != "end":
            update = message["params"]["update"]
            shown = update["content"]["text"] if "content" in update else update["toolCallId"]
            read.append((message["params"]["sessionId"], shown))
    assert [shown for _, shown in read if shown.startswith("t")] == [f"t{number}" for number in range(30)]
    assert "".join(shown for session, shown in read if session == "s" and not shown.startswith("t")) == "abd" * 30
    assert "".join(shown for session, shown in read if session == "other") == "c" * 30
    assert read[:5] == [("s", "ab"), ("other", "c"), ("s", "t0"), ("s", "dab"), ("other", "c")]


async def test_what_is_pushed_is_written_at_once_and_the_rest_follows_in_order() -> None:
    taken = bytearray()

    def write_now(data: bytes) -> int:
        room = min(len(data), 20 - len(taken) % 20)  # ends in the middle of a message, and then of another
        taken.extend(data[:room])
        return room

    async with served(Table(), coalesce=None, write_now=write_now) as (connection, wire):
        await anyio.lowlevel.checkpoint()
        connection.notify("n", 0)
        connection.push()
        assert len(taken) == 20, "nothing was written before the loop went on"
        for number in range(1, HIGH_WATER * 2):
            connection.notify("n", number)
        await connection.flush()
        await connection.drain()
        wire._rest = bytes(taken)
        assert [(await wire.receive())["params"] for _ in range(HIGH_WATER * 2)] == list(range(HIGH_WATER * 2))


async def test_pushing_everything_lets_a_producer_go_on() -> None:
    written = bytearray()

    def write_now(data: bytes) -> int:
        written.extend(data)
        return len(data)

    async with served(Table(), coalesce=None, write_now=write_now) as (connection, _):
        for number in range(HIGH_WATER * 2):
            connection.notify("n", number)
        connection.push()
        assert written.count(b"\n") == HIGH_WATER * 2
        await connection.drain()
        await connection.flush()


async def test_drain_holds_back_a_fast_producer_until_the_reader_goes_on() -> None:
    """[TR-12] The queue stays short whatever the producer does."""
    longest = 0
    async with served(Table(), capacity=1024, coalesce=None) as (connection, wire):
        produced = 0

        async def produce() -> None:
            nonlocal longest, produced
            for number in range(1000):
                connection.notify("n", {"number": number, "filling": "x" * 1000})
                produced += 1
                longest = max(longest, len(connection._queue))
                await connection.drain()

        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            await anyio.wait_all_tasks_blocked()
            assert produced < 1000
            numbers = [(await wire.receive())["params"]["number"] for _ in range(1000)]
    assert numbers == list(range(1000))
    assert longest <= HIGH_WATER + 1


async def test_update_queued_while_the_writer_is_blocked_goes_out_after_it() -> None:
    async with served(Table(), capacity=16) as (connection, wire):
        connection.notify("big", "x" * 10_000)
        await anyio.wait_all_tasks_blocked()
        connection.notify("session/update", chunk("one"))
        await anyio.wait_all_tasks_blocked()
        connection.notify("session/update", chunk("two"))
        assert (await wire.receive())["method"] == "big"
        assert (await wire.receive())["params"]["update"]["content"]["text"] == "onetwo"


async def test_input_is_read_while_output_is_blocked() -> None:
    """[CAN-1] A cancel must come through while the client reads nothing."""
    async with served(Table(), capacity=4096) as (connection, wire):
        handler = connection._handler
        assert isinstance(handler, Table)
        got = anyio.Event()
        handler.on_notification = lambda method, params: got.set()
        connection.notify("big", "x" * 100_000)
        await anyio.wait_all_tasks_blocked()
        await wire.notify("session/cancel", {"sessionId": "s"})
        await got.wait()


async def test_concurrent_writers_never_mix_their_lines() -> None:
    """[TR-12]"""

    async def work(params: Any) -> Any:
        for step in range(20):
            connection.notify("step", [params, step, "y" * 500])
            await asyncio.sleep(0)
        return params

    async with served(Table(work=work), capacity=300) as (connection, wire):
        await wire.send(*({"jsonrpc": "2.0", "id": n, "method": "work", "params": n} for n in range(2)))
        messages = [await wire.receive() for _ in range(2 * 21)]
    for worker in range(2):
        assert [m["params"][1] for m in messages if "params" in m and m["params"][0] == worker] == list(range(20))
