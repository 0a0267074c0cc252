"""What of the agent's own configuration, and of a client's servers, is redacted wherever it occurs."""

from pathlib import Path

from acp_agent.build.own_credentials import own_credentials
from acp_agent.config.load import load_config
from tests.tables import table

SECRET = "Abc123SecretValue9876"


def found(tmp_path: Path, *urls: str, **env: str) -> tuple[str, ...]:
    return own_credentials(load_config({"HOME": str(tmp_path)}).settings, {}, [env], urls)


@table(
    "query", [f"sig={SECRET}", "sig=Zz98765x", f"x=1&token={SECRET}", f"se=2026&signature={SECRET}#part", f"k={SECRET}"]
)
def test_the_query_of_a_servers_address_lets_in(query: str, tmp_path: Path) -> None:
    assert found(tmp_path, f"https://x.example/mcp?{query}")


def test_a_variable_of_a_server_is_one_whatever_it_is_called_and_what_is_none_is_left_alone(tmp_path: Path) -> None:
    assert found(tmp_path, DB=SECRET) == (SECRET,)
    urls = ("https://x.example/mcp", "https://x.example/mcp?lang=en&verbose=true", "http://[::1", "?", "")
    env = {"MODE": "production", "PATH": "/usr/bin:/bin", "URL": "https://a.example/b2", "PORT": "123456789012345678"}
    assert found(tmp_path, *urls, **env, NAME="some-long-name-here") == ()
