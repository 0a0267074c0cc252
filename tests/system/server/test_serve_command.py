"""`acp-coder serve` and `acp-coder token` as processes: starts, tokens, TLS, a kill."""

import json
import os
import signal
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.sync.client import connect

from acp_agent.errors import PeerError
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, FakeModel
from tests.e2e.kit import environ
from tests.e2e.test_chat import terminal
from tests.forked import COMMAND
from tests.fronts.server.test_server import BOUND, INITIALIZE, ran, served
from tests.websockets_client import connected


async def test_sessions_of_a_server_that_was_killed_are_there_at_once(tmp_path: Path) -> None:
    """With a store in a file: nobody else can have them."""
    async with served(tmp_path, [Answer(text="It is first."), Answer(text="It is second.")]) as place:
        environ = {**place.environ, "XDG_STATE_HOME": str(tmp_path / "other")}
        argv = [COMMAND, "serve", "--port", "0", "--token-file", str(tmp_path / "tokens.json")]
        session = ""
        for words in ("first", "second"):
            with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as run:
                assert run.stdout is not None
                url = run.stdout.readline().split()[-1]
                async with connected(url, place.token) as transport, FakeEditor(transport) as made:
                    await made.start()
                    if session:
                        await made.load_session(session, place.project)
                    else:
                        session = (await made.new_session(place.project)).session_id
                    assert (await made.prompt("go")).stop_reason == "end_turn" and f"It is {words}." in made.text()
                    run.kill()


ANSWERS = ("From the page.", "From the terminal.", "From the page again.", "At last.")


async def test_a_session_that_is_open_on_the_page_is_continued_in_the_terminal_and_on_the_page_again(tmp_path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with FakeModel([*ANSWERS, Answer(text="Slow.", hang_before=True), "After it."]) as model:
        argv = [COMMAND, "serve", "--port", "0"]
        with subprocess.Popen(argv, env=environ(tmp_path, model.base_url), stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            token, url = (run.stdout.readline().split()[-1] for _ in range(2))
            async with connected(url, token) as transport, FakeEditor(transport) as page:
                await page.start()
                session = (await page.new_session(project)).session_id
                await page.prompt("one")
                slow: list[Any] = []

                async def on_the_page() -> None:
                    with pytest.raises(PeerError, match="continued in a terminal or an editor"):
                        await page.prompt("two")
                    await page.wait_for(lambda update: "From the terminal." in str(getattr(update, "content", "")))
                    await page.prompt("three")

                async def begins() -> None:
                    with pytest.raises(PeerError, match="continued in a terminal or an editor"):
                        await page.prompt("not yet")
                    slow.append(page.begin("four"))
                    await model.wait_for_request(5)

                async def ends() -> None:
                    model.release()
                    await slow[0].response()

                def walk() -> None:
                    with terminal(tmp_path, model.base_url, "--session", session) as tty:
                        tty.until("From the page.", "That was the conversation so far.")
                        tty.type("go on here\r", "From the terminal.", " tokens · ")
                        anyio.from_thread.run(on_the_page)
                        tty.type("and here\r")
                        tty.until(
                            "From the page again.", "It was continued elsewhere, as shown above.", "❯ and here\ncode"
                        )
                        tty.type("\r", "At last.", lambda text: text.rstrip().split("\n")[-2] == "❯")
                        anyio.from_thread.run(begins)
                        tty.type("meanwhile\r", f"works in it now (process {run.pid}): try again", "❯ meanwhile\ncode")
                        anyio.from_thread.run(ends)
                        tty.type("\r", "Slow.", "It was continued elsewhere, as shown above.", "❯ meanwhile\ncode")
                        tty.type("\r", "After it.")
                        tty.type("\x04")
                        assert tty.ended() == 0

                with anyio.fail_after(120):
                    await anyio.to_thread.run_sync(walk)
            run.terminate()
    users = [each["content"] for each in model.requests[5].body["messages"] if each["role"] == "user"]
    said = [words.rpartition("\n\n")[2] for words in users]
    assert said == ["one", "go on here", "three", "and here", "four", "meanwhile"]


def test_tokens_are_added_listed_and_revoked_and_kept_by_their_hash(tmp_path: Path) -> None:
    token = ran(tmp_path, "token", "add", "phone", "--folder", str(tmp_path)).stdout.strip()
    file = tmp_path / ".local/state/acp-coder/tokens.json"
    assert token.startswith("acp_") and token not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert f"phone  may prompt  {tmp_path}  since 20" in ran(tmp_path, "token", "list").stdout
    assert ran(tmp_path, "token", "add", "tablet", "--mine").stdout.startswith("acp_")
    assert "tablet for you  may prompt  any folder  since 20" in ran(tmp_path, "token", "list").stdout
    ran(tmp_path, "token", "revoke", "tablet")
    assert "there is a token 'phone' already" in ran(tmp_path, "token", "add", "phone").stderr
    assert "there is no token 'x'; there are: phone" in ran(tmp_path, "token", "revoke", "x").stderr
    assert ran(tmp_path, "token", "revoke", "phone").returncode == 0 and ran(tmp_path, "token", "list").stdout == ""
    for wrong, words in (
        (("token", "add", "../up"), "is no name for a token"),
        (("token", "add", "a", "--mine", "--owner", "b"), "--mine and --owner exclude each other"),
        (("token", "add"), "whose? `acp-coder serve token add NAME`"),
        (("token", "add", "a", "--folder", "/nowhere"), "/nowhere is not a folder"),
        (("--host", "0.0.0.0"), "without TLS anybody in between can read the token"),
        (("--cert", "x"), "--cert and --key belong together"), (("--port", "99999999"), "cannot be listened on"),
        (("--host", "nowhere.invalid", "--without-tls"), "cannot be listened on"),
    ):  # fmt: skip
        done = ran(tmp_path, *wrong)
        assert words in done.stderr and done.returncode == 2, wrong
        assert "Traceback" not in done.stderr
    file.chmod(0o644)
    assert "others may read the tokens' file" in ran(tmp_path, "token", "list").stderr
    file.chmod(0o600)
    file.write_text("{")
    assert "is no file of tokens" in ran(tmp_path, "token", "list").stderr


async def test_the_first_start_makes_a_token_and_the_next_ones_do_not(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    said = []
    for _ in range(2):
        with subprocess.Popen([COMMAND, "serve", "--port", "0"], env=environ, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            lines = [await anyio.to_thread.run_sync(run.stdout.readline)]
            if "Token" in lines[0]:
                lines.append(await anyio.to_thread.run_sync(run.stdout.readline))
            said.append(lines)
            url = lines[-1].split()[-1]
            async with connected(url, said[0][0].split(": ")[-1].strip()) as transport, FakeEditor(transport) as made:
                await made.start()
                assert (await made.request("session/list", {}))["sessions"] == []
            run.terminate()
            assert await anyio.to_thread.run_sync(run.wait) == 0
    assert "first for you  may prompt  any folder" in ran(tmp_path, "token", "list").stdout
    assert [len(lines) for lines in said] == [2, 1] and "Token 'first', shown only now: acp_" in said[0][0]


def test_with_a_certificate_it_is_tls(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")]), datetime.now(UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    pem = made.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    (tmp_path / "cert.pem").write_bytes(pem.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (tmp_path / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    argv = [COMMAND, "serve", "--port", "0", "--cert", f"{tmp_path}/cert.pem", "--key", f"{tmp_path}/key.pem"]
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        token = run.stdout.readline().split(": ")[-1].strip()
        url = run.stdout.readline().split()[-1]
        assert url.startswith("wss://")
        trusts = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        headers = {"Authorization": f"Bearer {token}"}
        try:
            with connect(url, additional_headers=headers, ssl=trusts, open_timeout=BOUND) as client:
                client.send(json.dumps(INITIALIZE))
                assert json.loads(client.recv(BOUND))["result"]["protocolVersion"] == 1
        finally:
            run.terminate()
    assert "cannot be used for TLS" in ran(tmp_path, *argv[2:-1], str(tmp_path / "cert.pem")).stderr


async def test_a_server_under_nohup_survives_a_hang_up(tmp_path: Path) -> None:
    async with served(tmp_path, ["still here"]) as place:
        environ = {**place.environ, "XDG_STATE_HOME": str(tmp_path / "other")}
        argv = ["nohup", COMMAND, "serve", "--port", "0", "--token-file", str(tmp_path / "tokens.json")]
        with subprocess.Popen(argv, env=environ, stdin=-3, stdout=-1, stderr=-1, text=True) as server:
            try:
                assert server.stdout is not None
                with anyio.fail_after(BOUND):
                    url = (await anyio.to_thread.run_sync(server.stdout.readline)).split()[-1]
                    server.send_signal(signal.SIGHUP)
                    async with connected(url, place.token) as transport, FakeEditor(transport) as made:
                        await made.start()
                        await made.new_session(place.project)
                        assert (await made.prompt("go")).stop_reason == "end_turn"
            finally:
                server.terminate()
            assert server.wait(BOUND) == 0
