"""What is redacted, what stays, and that ordinary source code and lock files stay byte for byte."""

import base64
import hashlib
import json
import sysconfig
import urllib.parse
import uuid
from pathlib import Path

import pytest

from acp_agent.credentials.line_redactor import MARK
from acp_agent.credentials.redactor import Redactor, holds_mark, own_values
from tests.nightly import times
from tests.tables import packed, table

ROOT = Path(__file__).resolve().parents[2]
STDLIB = Path(sysconfig.get_paths()["stdlib"])
PLAIN = Redactor()

MIX = "A1b2C3d4E5f6G7h8J9k0" * 10
HEX = "0123456789abcdef" * 8
UPPER = "A2B3C4D5E6F7G8H9" * 8

TOKENS = {
    "OpenAI key": ["sk-" + "proj-" + MIX[:60], "sk-" + "svcacct-" + MIX[:40], "sk-" + "admin-" + MIX[:40]],
    "API key": ["sk-" + MIX[:48]], "Anthropic key": ["sk-" + "ant-" + "api03-" + MIX[:93] + "AA"],
    "OpenRouter key": ["sk-" + "or-" + "v1-" + HEX[:64]],
    "AWS access key": ["AK" + "IA" + UPPER[:16], "AS" + "IA" + UPPER[:16]],
    "GitHub token": [f"gh{letter}" + "_" + MIX[:36] for letter in "pousr"] + ["github" + "_pat_" + MIX[:82]],
    "GitLab token": ["glp" + "at-" + MIX[:20], "gl" + "rt-" + MIX[:20], "gl" + "dt-" + MIX[:20]],
    "Slack token": ["xo" + "xb-" + "1234567890-" + MIX[:24], "xa" + "pp-" + "1-A01-" + MIX[:30]],
    "Stripe key": ["sk" + "_live_" + MIX[:24], "rk" + "_live_" + MIX[:24], "sk" + "_test_" + MIX[:24]],
    "webhook secret": ["wh" + "sec_" + MIX[:32]], "Google API key": ["AI" + "za" + MIX[:35]],
    "Google token": ["ya" + "29." + MIX[:60]], "Google client secret": ["GOC" + "SPX-" + MIX[:28]],
    "Hugging Face token": ["h" + "f_" + MIX[:34]], "npm token": ["np" + "m_" + MIX[:36]],
    "PyPI token": ["py" + "pi-AgE" + MIX[:80]], "Docker token": ["dckr" + "_pat_" + MIX[:27]],
    "DigitalOcean token": ["do" + "p_v1_" + HEX[:64]], "SendGrid key": ["S" + "G." + MIX[:22] + "." + MIX[:43]],
    "Groq key": ["gs" + "k_" + MIX[:52]], "Perplexity key": ["pp" + "lx-" + MIX[:48]],
    "Replicate token": ["r" + "8_" + MIX[:37]], "xAI key": ["xa" + "i-" + MIX[:80]],
    "Databricks token": ["da" + "pi" + HEX[:32]], "Vault token": ["hv" + "s." + MIX[:90]],
    "Shopify token": ["shp" + "at_" + HEX[:32]], "Linear key": ["lin" + "_api_" + MIX[:40]],
    "Notion token": ["nt" + "n_" + MIX[:46], "secret" + "_" + MIX[:43]],
    "age key": ["AGE-SECRET" + "-KEY-1" + UPPER[:58]], "Doppler token": ["dp" + ".pt." + MIX[:43]],
    "Supabase token": ["sb" + "p_" + HEX[:40]], "Sentry token": ["sn" + "trys_" + MIX[:60]],
    "New Relic key": ["NR" + "AK-" + UPPER[:27]], "Grafana token": ["gl" + "sa_" + MIX[:32] + "_" + HEX[:8]],
    "Postman key": ["PM" + "AK-" + HEX[:24] + "-" + HEX[:34]], "Atlassian token": ["ATA" + "TT3" + MIX[:180]],
    "Square token": ["sq0" + "atp-" + MIX[:22]], "Mailgun key": ["ke" + "y-" + HEX[:32]],
    "JWT": ["ey" + "J" + MIX[:20] + "." + MIX[:40] + "." + MIX[:43]],
}  # fmt: skip


AROUND = ("{}", "x {} y", "({})", '"{}",', "a={}", "\\n{}\\n", "|{}|", "\x1b[31m{}\x1b[0m", "é{}é", "tok:{}\n")


@table(("kind", "token"), [(kind, token) for kind, tokens in TOKENS.items() for token in tokens])
def test_the_formats_of_providers_are_found_wherever_they_stand(kind: str, token: str):
    mark = f"[redacted: {kind}]"
    for around in AROUND:
        redacted, kinds = PLAIN.redact_counted(around.format(token))
        assert redacted == around.format(mark) and kinds == (kind,)
    assert PLAIN.redact(token[:8]) == token[:8]
    assert PLAIN.redact("abc" + token) == "abc" + token or "secret_" in token


def test_a_colour_within_a_credential_does_not_save_it_and_kinds_are_named_once_in_order():
    token = TOKENS["GitHub token"][0]
    line = f"\x1b[32mremote\x1b[0m {token[:9]}\x1b[1m\x1b[31m{token[9:20]}\x1b[m{token[20:]} end\n"
    assert PLAIN.redact(line) == "remote [redacted: GitHub token] end\n"
    coloured = "\x1b[32mok\x1b[0m nothing \x1b[1mhere\x1b[0m\n"
    assert PLAIN.redact(coloured + line + coloured) == coloured + "remote [redacted: GitHub token] end\n" + coloured
    _, kinds = PLAIN.redact_counted(f"{token} {token}\nDB_PASSWORD=abcdefgh\n")
    assert kinds == ("GitHub token", "password")
    assert all(MARK.search(f"[redacted: {kind}]") and holds_mark(f"x[redacted: {kind}]") for kind in (*kinds, *TOKENS))


FOUND = [
    ("postgres://user:…@db.example.com/x", "s3cr3tpw", "password"), ("redis://:…@cache:6379", "s3cr3tpw", "password"),
    ("mongodb+srv://u:…@h1,h2/db", "p%40ss1", "password"),
    ("git clone https://bob:…@example.com/r.git", "hunter22", "password"),
    ("Authorization: Bearer …", "abcDEF123456ghiJKL", "bearer token"),
    ("Authorization: Bearer …", "abcdefghijklmnopqrstuvw", "bearer token"),
    ("curl -H 'Authorization: Basic …' u", "dXNlcjpwYXNz", "authorization header"),
    ('"Authorization": "token …"', "abc123def", "authorization header"),
    ("Proxy-Authorization: Basic …", "dXNlcjpwYXNz", "authorization header"),
    ("curl -H 'X-Api-Key: …' u", "abc123def", "API key"),
    ("Set-Cookie: sid=…; Path=/; HttpOnly", "abc123def456", "cookie"),
    ("Cookie: a=1; session=…", "abc123def456", "cookie"), ("DB_PASSWORD=…", "supersecretword", "password"),
    ("export API_TOKEN='…'", "abc-123-def", "token"), ("docker run -e MYSQL_PASS=… image", "geheimnis", "password"),
    ('password = "…"', "hunter2", "password"), ('{"clientSecret": "…", "a": 1}', "Xy7-abc", "secret"),
    ("api_key: …", "abc123def", "API key"), ("'secret-key' => '…'", "a8f7s9d6", "API key"),
    ('token := "…"', "a8f7s9d6", "token"), ('password: str = "…"', "hunter2x", "password"),
    ("tool --password … --verbose", "hunter22", "password"), ("tool --db-password=…", "hunter22", "password"),
    ("https://h/?a=1&access_token=…&b=2", "a8f7s9d6", "token"),
    ("aws_secret_access_key = …", "wJalr/" + "XUtn1FEMI/K7MDENG+bPx9fiC0", "API key"),
    ('{\\"password\\": \\"…\\"}', "hunter22x", "password"),
    ("AccountKey=…;EndpointSuffix=x", "aB3/" * 20 + "==", "API key"),
    ("Server=x;User Id=a;Password=…;", "S3cr3tPazz", "password"),
    ("Data Source=db;Initial Catalog=c;Password=…;Timeout=30", "S3cr3tPazz", "password"),
    ("https://hooks.slack.com/services/…", "T01/B02/" + MIX[:24], "Slack webhook"),
    ("bot123456789:…", "AA" + MIX[:33], "Telegram token"),
    ("//registry.npmjs.org/:_authToken=…", "a8f7s9d6e5", "token"),
]  # fmt: skip


@table(("around", "secret", "kind"), FOUND)
def test_assignments_headers_and_connection_strings_are_found(around: str, secret: str, kind: str):
    text, wanted = around.replace("…", secret), around.replace("…", f"[redacted: {kind}]")
    assert PLAIN.redact(text) == wanted and PLAIN.redact(f"before\n  {text}\nafter") == f"before\n  {wanted}\nafter"
    assert PLAIN.redact(wanted) == wanted
    stream = PLAIN.stream()
    assert "".join(stream.feed(char) for char in text) + stream.finish() == wanted


LEFT = [
    "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----",
    'if line == "-----BEGIN PRIVATE KEY-----":\n    pass\n',
    *packed("""
git@github.com:owner/repo.git ¦ https://example.com:8080/a@b ¦ postgres://user:password@host/db
postgres://user:${PW}@host ¦ postgres://{user}:{pw}@host ¦ http://localhost:3000/x
password = changeme ¦ password = "your-password-here1" ¦ token: "<token1>" ¦ API_KEY=${API_KEY} ¦ TOKEN=$TOKEN1
PASSWORD={{ vault_password1 }} ¦ password = "%(password1)s" ¦ password: null ¦ SECRET= ¦ token = "xxxxxxxx1"
"password": "********" ¦ secret = "example-123" ¦ password: string ¦ "token": "string" ¦ token = None
password = os.environ['DB_PASSWORD1'] ¦ token = process.env.TOKEN1 ¦ password=get_password(user1)
api_key: Optional[str] = None ¦ password: str ¦ def login(user, password=None, token=''): ¦ token = tokens[1]
token = self.token1 ¦ secret = config.secret2 ¦ if token == 'a1b2c3d4': ¦ new_token = old_token2
password = "two words 12" ¦ label = "password" ¦ max_tokens: 4096 ¦ token_count=123456 ¦ num_tokens = 128000
PWD=/home/user1/project ¦ Authorization: Bearer <token> ¦ headers["Authorization"] = "Bearer " + token
The password is hunter22 in the docs ¦ secret: /run/secrets/db1 ¦ --token-file /x/y1
token: https://auth.example.com/oauth2 ¦ "token": "v1.2.3" ¦ sk-learn and task-sk-based ¦ task-force
[redacted: password] ¦ password = [redacted: password] ¦ hf_hub_download(x) ¦ dapi ¦ npm_config_registry=x
password = options.password; token = nextToken;
"""),
]


@table("text", LEFT)
def test_placeholders_references_and_words_stay(text: str):
    assert PLAIN.redact(text) == text


def test_hashes_identifiers_and_lock_files_stay_byte_for_byte():
    digests = [hashlib.sha512(str(n).encode()) for n in range(60)]
    lines = [
        *(f'"integrity": "sha512-{base64.b64encode(digest.digest()).decode()}",' for digest in digests),
        *(f'checksum = "{digest.hexdigest()[:64]}"' for digest in digests),
        *(f"commit {digest.hexdigest()[:40]}" for digest in digests),
        *(
            f'"id": "{uuid.UUID(bytes=digest.digest()[:16])}", "sessionId": "{digest.hexdigest()[:32]}"'
            for digest in digests
        ),
        *(f"resolved https://registry.npmjs.org/a/-/a-1.{n}.0.tgz#{d.hexdigest()[:40]}" for n, d in enumerate(digests)),
        "data:image/png;base64," + base64.b64encode(b"".join(digest.digest() for digest in digests)).decode(),
        "!function(t,e){var n=t.token,r=e.password;return n===r&&(t.secret=e.secret)}(a,b);" * 20,
    ]
    text = "\n".join(lines)
    assert PLAIN.redact(text) is text


def replaced_lines(files: list[Path]) -> list[str]:
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        redacted = PLAIN.redact(text)
        if redacted != text:
            lines = zip(text.splitlines(), redacted.splitlines(), strict=False)
            found += [f"{file.name}: {new.strip()}" for old, new in lines if old != new]
    return found


def test_the_source_of_this_program_and_the_standard_library_stay_as_they_are():
    files = [*(ROOT / "acp_agent").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *(ROOT / "acp_agent").rglob("*.md")]
    assert len(files) > 100 and replaced_lines(files) == []
    files = [*STDLIB.glob("*.py"), *(STDLIB / "urllib").glob("*.py"), *(STDLIB / "http").glob("*.py")]
    files += [*(STDLIB / "email").glob("*.py"), *(STDLIB / "asyncio").glob("*.py"), *(STDLIB / "lib2to3").rglob("*.py")]
    assert len(files) > 200
    made_up_in_a_comment = "request.py: passwd="
    assert [line for line in replaced_lines(files) if not line.startswith(made_up_in_a_comment)] == []


BODY = ("MIIEpA" + "aB3/" * 14 + "xy\n") * 5 + "aB3dE5==\n"
FORMS = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"]


def block(form: str, body: str = BODY) -> str:
    return f"-----BEGIN {form}" + f"-----\n{body}-----END {form}" + "-----"


@pytest.mark.parametrize("form", [*FORMS, "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_is_one_mark(form: str):
    mark = "[redacted: private key]"
    assert PLAIN.redact(f"a\n{block(form)}\nb\n") == f"a\n{mark}\nb\n"
    assert PLAIN.redact(json.dumps({"k": block(form)})) == json.dumps({"k": mark})
    assert PLAIN.redact(block(form).replace("\n", "\r\n") + "\r\nb") == mark + "\r\nb"
    indented = "key: |\n" + "".join(f"  {line}\n" for line in block(form).splitlines()) + "next: 1\n"
    assert PLAIN.redact(indented) == f"key: |\n  {mark}\nnext: 1\n"
    assert PLAIN.redact(block(form, "Version: x 1\nProc-Type: 4,ENCRYPTED\n\n" + BODY)) == mark


def test_a_private_key_is_found_without_an_end_and_public_ones_stay():
    whole = block("PRIVATE KEY")
    cut = "".join(whole.splitlines(keepends=True)[:4])
    assert PLAIN.redact(cut + "Build finished.\n") == "[redacted: private key]\nBuild finished.\n"
    assert PLAIN.redact(cut) == "[redacted: private key]\n"
    wanted = "$ tail key\nM[redacted: private key]\nend\n"  # what reads like a word was given before it was known
    tail = "".join(whole.splitlines(keepends=True)[3:])
    assert PLAIN.redact(f"$ tail key\n{tail}\nend\n") == wanted
    for form in ("CERTIFICATE", "PUBLIC KEY", "RSA PUBLIC KEY"):
        assert PLAIN.redact(block(form)) == block(form)


def test_own_values_are_those_worth_hiding_in_every_spelling():
    value = 'x9/K+"geheim" ü'
    redactor = Redactor(values=[value, "short"])
    mark = "[redacted: credential of the agent]"
    assert redactor.redact(f"ab{value}cd short") == f"ab{mark}cd short"
    assert redactor.redact(json.dumps({"a": value})) == json.dumps({"a": mark})
    assert redactor.redact("q=" + urllib.parse.quote(value, safe="")) == f"q={mark}"
    coded = base64.b64encode(value.encode()).decode()
    assert redactor.redact(coded) == mark + "=" * coded.count("=")
    environ = {
        "MY_API_KEY": "abcdef-12345", "GH_TOKEN": "Zz9" * 4, "DATABASE_PASSWORD": "p w 1 2 3 4", "A_KEY": "short",
        "B_TOKEN": "/home/x/token", "C_SECRET": "12345678", "D_KEY": "disabled", "PATH": "Zz9Zz9Zz9",
        "E_KEY": "~/.ssh/id_1", "F_TOKEN": "https://auth.example.com/x1", "G_SECRET": "https://u:pw1@example.com",
    }  # fmt: skip
    assert set(own_values(environ)) == {
        "abcdef-12345", "Zz9" * 4, "p w 1 2 3 4", "https://u:pw1@example.com", "12345678",
    }  # fmt: skip


def test_values_are_redacted_all_the_way_down():
    token = TOKENS["GitHub token"][0]
    same = {"a": [1, None, ("x", {"b": "text"})], "password": "string", "token": 12345678, "PWD": "/srv/a1b2-c3"}
    assert PLAIN.value(same) is same
    assert PLAIN.value({"password": "hunter22x", "n": [{token: token}]}) == {
        "password": "[redacted: password]", "n": [{"[redacted: GitHub token]": "[redacted: GitHub token]"}],
    }  # fmt: skip
    deep: list[object] = [token]
    for _ in range(20_000):
        deep = [deep]
    changed = PLAIN.value(deep)
    while isinstance(changed, list):
        changed = changed[0]
    assert changed == "[redacted: GitHub token]"


def test_patterns_of_ones_own_count_and_bad_ones_are_named():
    redactor = Redactor(extra_patterns=[r"corp-\d{4}", r"(?=x)", "a" * 513, r"(?i)id \w+", "x*"])
    assert (
        redactor.redact("a corp-1234 b ID Xyz c")
        == "a [redacted: configured pattern] b [redacted: configured pattern] c"
    )
    assert len(redactor.trouble) == 3 and all(line.startswith("secrets.extra_patterns: ") for line in redactor.trouble)


def test_redaction_can_be_switched_off_and_lets_odd_characters_through():
    redactor = Redactor(values=["abcdefgh1"], enabled=False)
    text = "abcdefgh1 " + TOKENS["GitHub token"][0]
    assert redactor.redact(text) is text and redactor.value({"password": text})["password"] is text
    assert redactor.stream().feed(text) is text
    token = TOKENS["GitHub token"][0]
    text = f"\ud800 é 語 \udfff {token} \U0001f511"
    assert PLAIN.redact(text) == text.replace(token, "[redacted: GitHub token]")


@pytest.mark.parametrize("unit", [
    "sk-", "password=", 'password="', "password: ", "-----BEGIN ", "://:@", "eyJ", "\x1b[", "token ", "Bearer ",
    "cookie: a=b; ",
])  # fmt: skip
def test_hostile_text_is_worked_off(unit: str):
    text = unit * (times(40_000) // len(unit))
    assert len(PLAIN.redact(text)) <= 4 * len(text)
