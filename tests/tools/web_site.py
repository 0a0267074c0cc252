"""A real web on this machine: an HTTPS server with an authority of its own, a resolver, and a way from public addresses
to local ports. Nothing leaves the machine."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpcore2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from acp_agent.config.model import WebConfig
from acp_agent.tools.net.web_client import GuardedClient

PUBLIC = "93.184.216.34"
OTHER = "8.8.4.4"
PUBLIC_6 = "2606:2800:220:1::1"

NAMES = (
    "docs.example.com", "other.example.com", "example.com", "html.duckduckgo.com", "api.search.brave.com",
    "search.example.net", "search.lan",
)  # fmt: skip
"""What the certificate is for."""


@dataclass(frozen=True)
class Asked:
    """A request as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def host(self) -> str:
        return self.headers["host"]


@dataclass
class Reply:
    body: bytes | str = ""
    content_type: str | None = "text/plain; charset=utf-8"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    """Half of the answer is sent, then nothing until the client is gone."""


def redirect(location: str, status: int = 302) -> Reply:
    return Reply("", None, status, {"Location": location})


class Site:
    """What the servers answer, by path (without the query), and what they were asked."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.asked: list[Asked] = []
        self.hanging = threading.Event()
        self.left = threading.Event()
        """The client of a hanging answer is gone."""

    def clear(self) -> None:
        self.replies.clear()
        self.asked.clear()
        self.hanging.clear()
        self.left.clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.site.asked.append(Asked(self.command, self.path, headers, self.rfile.read(length)))
        reply = self.site.replies.get(self.path.partition("?")[0], Reply("nothing here", status=404))
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        self.send_response(reply.status)
        if reply.content_type is not None:
            self.send_header("Content-Type", reply.content_type)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) + (10 if reply.hangs else 0)))
        self.end_headers()
        try:
            if self.command != "HEAD":
                self.wfile.write(body)
                self.wfile.flush()
            if reply.hangs:
                self.site.hanging.set()
                self.rfile.read(1)
        except OSError:
            pass
        finally:
            if reply.hangs:
                self.site.left.set()
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Refused certificates are part of the tests."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serves until the end of the block; returns the port."""
    server = _Server(("127.0.0.1", 0), handler)
    if context is not None:
        # The handshake belongs to the connection's thread, not to the one that accepts.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@dataclass
class Authority:
    """A certificate authority and the certificate of one server."""

    server: ssl.SSLContext
    client: Callable[[], ssl.SSLContext]


def make_authority(folder: Path, names: Sequence[str] = NAMES) -> Authority:
    now = datetime.datetime.now(datetime.UTC)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])

    def begin(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(root_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    root = (
        begin(root_name, root_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    others = [*map(x509.DNSName, names), x509.IPAddress(ipaddress.ip_address(OTHER))]
    leaf = (
        begin(subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    chain, private = folder / "server.pem", folder / "server.key"
    chain.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, private)
    trusted = root.public_bytes(serialization.Encoding.PEM).decode()
    return Authority(server, lambda: ssl.create_default_context(cadata=trusted))


class Wire(httpcore2.AnyIOBackend):
    """Opens connections to public addresses at local ports, and knows them all."""

    def __init__(self, ports: dict[int, int], dead: set[str]) -> None:
        self.connected: list[tuple[str, int]] = []
        self._ports = ports
        self._dead = dead

    async def connect_tcp(self, host: str, port: int, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        ipaddress.ip_address(host)  # Never a name: that would be resolved a second time.
        self.connected.append((host, port))
        if host in self._dead:
            raise httpcore2.ConnectError("Connection refused")
        local = port if host == "127.0.0.1" else self._ports[port]
        return await super().connect_tcp("127.0.0.1", local, *args, **kwargs)


@dataclass
class Web:
    """The site, the names that lead to it, and what was looked up and connected to."""

    site: Site
    authority: Authority
    ports: dict[int, int]
    records: dict[str, list[list[str]]] = field(default_factory=lambda: {name: [[PUBLIC]] for name in NAMES})
    """Name -> what it resolves to: first, second, … and then always the last."""
    lookups: list[str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    """Addresses that refuse connections."""

    def __post_init__(self) -> None:
        self.wire = Wire(self.ports, self.dead)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        answers = self.records.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def client(self, **config: Any) -> GuardedClient:
        return GuardedClient(
            WebConfig(**config), resolve=self.resolve, ssl_context=self.authority.client, backend=self.wire
        )

    def serve(self, path: str, *args: Any, **kwargs: Any) -> str:
        """Answers `path`; returns its URL."""
        self.site.replies[path] = args[0] if args and isinstance(args[0], Reply) else Reply(*args, **kwargs)
        return f"https://docs.example.com{path}"


@contextmanager
def serving_site(folder: Path) -> Iterator[tuple[Site, Authority, dict[int, int]]]:
    site = Site()
    authority = make_authority(folder)
    handler = type("Handler", (_Handler,), {"site": site})
    with serving(handler, authority.server) as https, serving(handler) as http:
        yield site, authority, {443: https, 8443: https, 80: http}


class Proxy(BaseHTTPRequestHandler):
    """A proxy that tunnels every CONNECT to one local port."""

    asked: list[tuple[str, str]]
    port: int

    def do_CONNECT(self) -> None:
        self.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pump, args=(server, self.connection), daemon=True)
            back.start()
            _pump(self.connection, server)
            back.join(10)

    def log_message(self, *_: Any) -> None:
        pass


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
