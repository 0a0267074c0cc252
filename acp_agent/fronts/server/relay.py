"""A client's session that another process runs: its messages go there and back by a link.

There, the client is one of the connections to the session, so all is as if it were connected to that process. Once the
link ends, `lost` is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from acp_agent.errors import ConnectionClosed, InternalError, MethodNotFound, PeerError, RequestCancelled, RpcError
from acp_agent.fronts.server.identities import Identity
from acp_agent.fronts.server.process_links import ANSWER_SECONDS, Link
from acp_agent.protocol.codec import encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer

GONE = (
    "the link to the process that runs this session was lost, and the answer with it; unless that process has died, "
    "the turn may go on there, or wait for you: what it did is in the session, prompt again to go on"
)
LEFT, MOVED = "_session/left", "_session/moved"
"""Between processes: how far a client has been sent a session when it left; this process does not run it any more."""
GIVE_UP = "_session/give_up"
"""Between processes: to close a session if nobody uses it."""
BETWEEN = (LEFT, MOVED, GIVE_UP)
LOAD_AGAIN = "the link to the process that runs this session was lost: load it again"
INITIALIZE = {"protocolVersion": 1}


class Moved(RpcError):
    """Nothing was done: another process runs the session. Between processes."""

    code = -32098


class Gone(InternalError):
    """It may have been done, or not."""


class Posted(msgspec.Struct):
    """A request of ACP's HTTP form, about a connection of another process."""

    method: str
    connection: str
    session: str = ""
    body: str = ""


class Introduction(msgspec.Struct):
    """What a link begins with: who the client is, and what it asks for if not a connection."""

    identity: Identity
    posted: Posted | None = None


def introduction(identity: Identity, posted: Posted | None = None) -> bytes:
    """The line."""
    return msgspec.json.encode(Introduction(msgspec.structs.replace(identity, digest=""), posted)) + b"\n"


class Relay:
    """`client`: whose session it is, which it asked for with `asked`. `lost`: called if the link ends before `close`,
    or the process does not run the session any more."""

    def __init__(
        self, link: Link, client: Connection, session_id: str, asked: dict[str, Any], lost: Callable[[Relay], None]
    ) -> None:
        self.session_id = session_id
        self.asked = asked
        self.joined = False
        """Whether the client has got the session."""
        self.place = self.shown = 0
        """Of the last update that the client was sent; how many it was sent."""
        self._client = client
        self._link = link
        self._lost = lost
        self._closing = False
        self._prompts = self._asking = 0
        self._quiet = asyncio.Event()
        self._far = _Far(_Paced(link, client), self, peer=Peer(encode=encode))
        self._far.client = client
        self._task = asyncio.create_task(self._run())

    async def begin(self, identity: Identity, initialize: object) -> None:
        """Raises ConnectionClosed, PeerError."""
        await self._link.write(introduction(identity))
        await self._far.request("initialize", initialize)

    async def _run(self) -> None:
        await self._far.serve()
        if not self._closing:
            self._lost(self)

    async def ask(self, method: str, params: object) -> Any:
        """Raises RpcError: Moved if it is to be asked of another process, Gone if there is no answer."""
        self._prompts += method == "session/prompt"
        self._asking += 1
        try:
            answered = await self._far.request(method, params)
        except PeerError as error:
            if error.code == Moved.code:
                raise Moved(error.message) from error
            if error.code == RequestCancelled.code:  # Not by the client: it is about to go.
                raise Gone(GONE) from error
            raise _as_ours(error) from error
        except ConnectionClosed as error:
            raise Gone(GONE) from error
        finally:
            self._prompts -= method == "session/prompt" and not self._client.closed
            self._asking -= 1
            self._quiet.set()
        self._sent_until(answered)
        return answered

    def tell(self, method: str, params: object) -> None:
        self._far.notify(method, params)

    def cancel_prompt(self) -> bool:
        """Whether the client's prompt, if it is the only one, ends with an answer."""
        if self._prompts == 1:
            self.cancel()
        return self._prompts == 1

    def cancel(self) -> None:
        """As the client."""
        if self._prompts:
            self.tell("session/cancel", {"sessionId": self.session_id})

    async def close(self) -> int:
        """The client leaves; the session stays. What was asked before gets its answer, if it comes soon. Returns the
        place of the last update that the client was sent."""
        self._closing = True
        with anyio.move_on_after(ANSWER_SECONDS):
            while self._asking and not self._client.closed:
                self._quiet.clear()
                await self._quiet.wait()
        if not self._far.closed:
            self.tell(LEFT, {"sessionId": self.session_id, "seq": self.place})
        self._far.close()
        await asyncio.wait((self._task,))
        return self.place

    # --- what the session says and asks: the handler of the connection to it ------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        try:
            return await self._client.request(method, params)
        except PeerError as error:
            raise _as_ours(error) from error
        except ConnectionClosed:
            self._far.close()
            raise asyncio.CancelledError from None  # Nobody has answered.

    async def handle_notification(self, method: str, params: Any) -> None:
        if method == MOVED:
            self._lost(self)
            return
        if not self._client.closed:
            self._client.notify(method, params)
            self.shown += 1
            self._sent_until(params)

    def cancel_request(self, method: str, params: Any) -> bool:
        return False

    def _sent_until(self, told: Any) -> None:
        meta = told.get("_meta") if isinstance(told, dict) else None
        place = meta.get("seq") if isinstance(meta, dict) else None
        if isinstance(place, int):
            self.place = place


class _Far(Connection):
    """To the process that runs the session. What a client has asked for goes on there if its link is lost."""

    client: Connection

    def notify(self, method: str, params: Any) -> None:
        if method != "$/cancel_request" or not self.client.closed:
            super().notify(method, params)


class _Nobody:
    """Who asks only one thing."""

    async def handle_request(self, method: str, params: Any) -> Any:
        raise MethodNotFound(f"Method not found: {method}")

    async def handle_notification(self, method: str, params: Any) -> None:
        pass

    def cancel_request(self, method: str, params: Any) -> bool:
        return False


async def ask_once(link: Link, identity: Identity, method: str, params: object) -> Any:
    """Of another process. Raises ConnectionClosed, PeerError."""
    far = Connection(link, _Nobody(), peer=Peer(encode=encode))
    task = asyncio.create_task(far.serve())
    try:
        await link.write(introduction(identity))
        await far.request("initialize", INITIALIZE)
        return await far.request(method, params)
    finally:
        far.close()
        await asyncio.wait((task,))


def _as_ours(error: PeerError) -> RpcError:
    """What is passed on."""
    ours = RpcError(error.message, error.data)
    ours.code = error.code
    return ours


class _Paced:
    """Nothing is read while the client has not read what came before."""

    def __init__(self, link: Link, client: Connection) -> None:
        self._link = link
        self._client = client
        self.write = link.write
        self.close = link.close

    async def read(self) -> bytes:
        await self._client.drain()
        return await self._link.read()
