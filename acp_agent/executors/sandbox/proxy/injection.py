"""Puts a credential into a command's requests to a host, so that the command itself never has it.

The proxy ends the command's TLS with a certificate of its own authority, which only the session's commands trust, and
speaks TLS with the real host. HTTP/1.1 in between is read and written by h11, so each request gets the header, whatever
came before it on the connection.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import anyio
import h11
from anyio.abc import ByteStream, ObjectReceiveStream, SocketAttribute, UNIXSocketStream
from anyio.streams.tls import TLSStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from acp_agent.proxying import ENDED, HEAD_TIMEOUT, HTTPS, Traffic, relay, reply

DAYS = 30
"""How long certificates are valid; the authority ends with the session."""
READ = 65_536
MOST_HEAD = 65_536
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
HOP = frozenset((b"connection", b"keep-alive", b"upgrade", b"proxy-connection", b"expect", b"http2-settings"))
"""Headers about the command's own connection."""
LEADING_ELSEWHERE = frozenset(
    b"forwarded destination x-host x-original-url x-original-uri x-original-host x-rewrite-url x-override-url "
    b"x-forwarded-host x-forwarded-server x-forwarded-uri x-forwarded-path x-forwarded-prefix x-http-host-override "
    b"x-script-name x-waws-unencoded-url x-envoy-original-path".split()
)
"""Headers from which some servers take another host or path than the request's; WebDAV copies to `Destination`."""
ECHOED = (b"TRACE", b"TRACK", b"CONNECT")
"""Methods whose answer is the request itself, or that lead to another host."""
NOT_WITH_CREDENTIAL = (
    "acp-coder: the proxy puts a credential into requests to this host, so it passes on none like this."
)
HANDSHAKE = b"\x16"
"""What TLS begins with."""
FRAMINGS = frozenset((b"content-length", b"transfer-encoding"))
"""Where a request has both, servers differ about where its body ends."""
TWO_READINGS = re.compile(rb"%(?:00|25|2e|2f|5c|c0|c1|u)|[\\;#]|//|/\.\.?(?:/|$)", re.IGNORECASE)
"""In a path: what may lead elsewhere than it seems to."""


class Header(Struct, frozen=True):
    """What is put into each request; what the command sent under this name is left out."""

    name: str
    value: str
    paths: tuple[str, ...] = ()
    """The paths below which requests get it; empty: all."""

    def is_for(self, target: bytes) -> bool:
        path = target.partition(b"?")[0]
        below = (path + b"/").startswith(tuple(f"{each.rstrip('/')}/".encode() for each in self.paths))
        return not self.paths or (below and TWO_READINGS.search(path) is None)


def header_of(value: str, user: str, name: str, paths: Sequence[str]) -> Header:
    """`user`: for `Basic`; without one `Bearer`. `name`: a header that gets the value as it is."""
    pair = f"Basic {b64encode(f'{user}:{value}'.encode()).decode()}" if user else f"Bearer {value}"
    return Header(name or "Authorization", value if name else pair, tuple(paths))


class Authority:
    """Signs certificates for hosts, in the memory of this process; `bundle` is what commands trust."""

    def __init__(self, folder: Path, bundle: Path) -> None:
        """`folder`: private to this process. `bundle`: written with the system's certificates and this one."""
        self.bundle = bundle
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"acp-coder {uuid4()}")])
        self._own = (
            self._begun(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._contexts: dict[str, ssl.SSLContext] = {}
        system = next(
            (Path(place) for place in (os.environ.get("SSL_CERT_FILE", ""), *BUNDLES) if os.path.isfile(place)), None
        )
        known = system.read_bytes() if system is not None else b""
        bundle.write_bytes(known + b"\n" + self._own.public_bytes(serialization.Encoding.PEM))

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=DAYS))
        )

    def context(self, host: str) -> ssl.SSLContext:
        """Of a server that is `host` for those who trust `bundle`."""
        if host not in self._contexts:
            key = ec.generate_private_key(ec.SECP256R1())
            try:
                name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
            except ValueError:
                name = x509.DNSName(host)
            signed = (
                self._begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])]), key.public_key())
                .add_extension(x509.SubjectAlternativeName([name]), critical=False)
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
                .sign(self._key, hashes.SHA256())
            )
            file = self._folder / "certificate.pem"
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as pem:
                pem.write(
                    key.private_bytes(
                        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                    )
                )
                pem.write(signed.public_bytes(serialization.Encoding.PEM))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                context.load_cert_chain(file)
            finally:
                file.unlink()
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[host] = context
        return self._contexts[host]


async def inject(
    client: UNIXSocketStream, server: ByteStream, host: str, port: int, headers: Sequence[Header], authority: Authority
) -> None:
    """Serves a command's TLS connection to `host` over `client`; `server` is connected to the real one. Closes both.
    What is not TLS (SSH) is passed on as it is. Who says nothing, or has left, is not waited for."""
    async with client, server, anyio.create_task_group() as tasks:
        try:
            raw = client.extra(SocketAttribute.raw_socket)
            with anyio.fail_after(HEAD_TIMEOUT):
                await anyio.wait_readable(raw)
                if encrypted := raw.recv(1, socket.MSG_PEEK) == HANDSHAKE:
                    inner = await TLSStream.wrap(
                        client, server_side=True, ssl_context=authority.context(host), standard_compatible=False
                    )
                    trusted = ssl.create_default_context()
                    trusted.set_alpn_protocols(["http/1.1"])
                    outer = await TLSStream.wrap(server, hostname=host, ssl_context=trusted, standard_compatible=False)
            if not encrypted:
                await relay(client, server, Traffic())
                return
            place = f"[{host}]" if ":" in host else host
            exchange = _Exchange(inner, outer, headers, place if port == HTTPS else f"{place}:{port}")
            tasks.start_soon(exchange.listen, tasks.cancel_scope)
            await exchange.run()
        except (*ENDED, ssl.SSLError, h11.ProtocolError):
            return
        finally:
            tasks.cancel_scope.cancel()


class _Exchange:
    """Requests and their answers, one after the other."""

    def __init__(self, client: ByteStream, server: ByteStream, headers: Sequence[Header], place: str) -> None:
        self._client, self._server = client, server
        self._place = place.encode()
        self._headers = headers
        self._hears, self._said = anyio.create_memory_object_stream[bytes](1)
        self._theirs = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        self._ours = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)

    async def listen(self, scope: anyio.CancelScope) -> None:
        """Reads what the command sends; ends all once it has left, also while its host thinks about an answer."""
        try:
            with self._hears, self._said:
                while True:
                    await self._hears.send(await self._client.receive(READ))
        except (*ENDED, ssl.SSLError):
            scope.cancel()

    async def run(self) -> None:
        while True:
            event = await self._next(self._theirs, self._said)
            if not isinstance(event, h11.Request):
                return
            if event.method.upper() in ECHOED or event.target[:1] not in (b"/", b"*") or _is_ambiguous(event):
                await self._client.send(reply(403, NOT_WITH_CREDENTIAL))
                return
            await self._pass_on(self._ours, self._server, self._with_credential(event))
            if self._theirs.they_are_waiting_for_100_continue:
                await self._pass_on(self._theirs, self._client, h11.InformationalResponse(status_code=100, headers=[]))
            while not isinstance(event, h11.EndOfMessage):
                event = await self._next(self._theirs, self._said)
                if isinstance(event, h11.EndOfMessage):
                    event = h11.EndOfMessage()  # Without more headers, which some servers add to the first ones.
                await self._pass_on(self._ours, self._server, event)
            answer = await self._next(self._ours, self._server)
            while not isinstance(answer, h11.EndOfMessage):
                if isinstance(answer, h11.ConnectionClosed):
                    return
                await self._pass_on(self._theirs, self._client, answer)
                answer = await self._next(self._ours, self._server)
            await self._pass_on(self._theirs, self._client, answer)
            if h11.MUST_CLOSE in (self._theirs.our_state, self._ours.our_state):
                return
            self._theirs.start_next_cycle()
            self._ours.start_next_cycle()

    def _with_credential(self, request: h11.Request) -> h11.Request:
        put = {each.name.encode(): each.value.encode() for each in self._headers if each.is_for(request.target)}
        # `Host` is what was judged: behind one address there may be many servers, which must not get the credential.
        ours = {_name(name) for name in (b"host", *put)}
        kept = [pair for pair in request.headers if pair[0] not in HOP and _name(pair[0]) not in ours]
        headers = [(b"Host", self._place), *kept, *put.items()]
        return h11.Request(method=request.method, target=request.target, headers=headers)

    async def _next(self, connection: h11.Connection, stream: ByteStream | ObjectReceiveStream[bytes]) -> h11.Event:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                try:
                    connection.receive_data(await stream.receive())
                except anyio.EndOfStream:
                    connection.receive_data(b"")
            elif isinstance(event, type):
                raise anyio.EndOfStream  # It wants to speak another protocol.
            else:
                return event

    async def _pass_on(self, connection: h11.Connection, stream: ByteStream, event: h11.Event) -> None:
        if data := connection.send(event):
            await stream.send(data)


def _is_ambiguous(request: h11.Request) -> bool:
    """Whether servers may read it in another way than we do."""
    names = {_name(name) for name, _ in request.headers}
    return b"%00" in request.target or names >= FRAMINGS or not names.isdisjoint(LEADING_ELSEWHERE)


def _name(header: bytes) -> bytes:
    """As servers know it that make variables of headers."""
    return header.lower().replace(b"_", b"-")
