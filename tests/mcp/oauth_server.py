"""An MCP server with OAuth, in this process: registration, PKCE, refresh tokens that are used once."""

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen


class OAuthServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.base = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.base}/mcp"
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.access: set[str] = set()
        self.refresh: set[str] = set()
        self.grants: list[str] = []
        self.told: list[str] = []
        """Who asked for tokens: the id of a client, with its secret if it has one."""
        self.expires = 3600
        self.registers = True
        self.needs = ""
        """A scope that calls need, beside the one that is given without being asked for."""
        self.scopes: dict[str, str] = {}
        """By access token."""
        self.answer: dict[str, str] = {}
        """Replaces parts of what the browser is sent back with."""

    def revoke(self) -> None:
        """The access tokens; they can be refreshed."""
        self.access.clear()

    def tokens(self, scope: str = "") -> dict[str, Any]:
        access, refresh = secrets.token_hex(), secrets.token_hex()
        self.access.add(access)
        self.scopes[access] = scope
        self.refresh.add(refresh)
        return {"access_token": access, "token_type": "Bearer", "expires_in": self.expires, "refresh_token": refresh}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OAuthServer

    def log_message(self, *_: Any) -> None: ...

    def say(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        server, base = self.server, self.server.base
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        match url.path:
            case "/.well-known/oauth-protected-resource/mcp":
                self.say(200, {"resource": server.url, "authorization_servers": [base]})
            case "/.well-known/oauth-authorization-server":
                ends = {f"{name}_endpoint": f"{base}/{name}" for name in ("token",)}
                ends |= {"authorization_endpoint": f"{base}/authorize", "registration_endpoint": f"{base}/register"}
                more = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
                self.say(200, {"issuer": base, **ends, **more})
            case "/authorize":
                client = server.clients[asked["client_id"]]
                assert asked["redirect_uri"] in client["redirect_uris"] and asked["code_challenge_method"] == "S256"
                code = secrets.token_hex()
                server.codes[code] = asked
                back = {"code": code, "state": asked["state"], **server.answer}
                back = {name: value for name, value in back.items() if value}
                self.say(302, Location=f"{asked['redirect_uri']}?{urlencode(back)}")
            case _:
                self.say(405 if url.path == "/mcp" else 404)

    def do_POST(self) -> None:
        server = self.server
        data = self.rfile.read(int(self.headers["Content-Length"]))
        match self.path:
            case "/register" if server.registers:
                made = {"client_id": secrets.token_hex(), **json.loads(data)}
                server.clients[made["client_id"]] = made
                self.say(201, made)
            case "/token":
                self.token({name: values[0] for name, values in parse_qs(data.decode()).items()})
            case "/mcp" if (token := self.headers.get("Authorization", "").removeprefix("Bearer ")) in server.access:
                asked = json.loads(data)
                if asked["method"] == "tools/call" and server.needs not in server.scopes.get(token, server.needs):
                    challenge = f'Bearer error="insufficient_scope", scope="{server.needs}"'
                    self.say(403, WWW_Authenticate=challenge)
                else:
                    self.mcp(asked)
            case "/register":
                self.say(404)
            case _:
                where = f"{server.base}/.well-known/oauth-protected-resource/mcp"
                self.say(401, WWW_Authenticate=f'Bearer resource_metadata="{where}"')

    def token(self, asked: dict[str, str]) -> None:
        server, grant = self.server, asked["grant_type"]
        server.grants.append(grant)
        if grant == "authorization_code":
            known = server.codes.pop(asked["code"], None)
            digest = base64.urlsafe_b64encode(hashlib.sha256(asked["code_verifier"].encode()).digest())
            fits = known is not None and digest.decode().rstrip("=") == known["code_challenge"]
        else:
            fits = asked["refresh_token"] in server.refresh
            server.refresh.discard(asked["refresh_token"])
        scope = known.get("scope", "") if grant == "authorization_code" and known is not None else ""
        client = self.headers.get("Authorization", "").removeprefix("Basic ")
        server.told.append(base64.b64decode(client).decode() or asked.get("client_id", ""))
        self.say(200, server.tokens(scope)) if fits else self.say(400, {"error": "invalid_grant"})

    def mcp(self, asked: dict[str, Any]) -> None:
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "locked", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "open", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "It is open."}]},
        }  # fmt: skip
        if "id" not in asked:
            self.say(202)
        else:
            self.say(200, {"jsonrpc": "2.0", "id": asked["id"], "result": results.get(asked["method"], {})})


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    server = OAuthServer()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def browse(url: str) -> bool:
    """What the user does in the browser: opens the URL, and follows where it leads."""
    with urlopen(url, timeout=20) as page:
        return bool(page.read())
