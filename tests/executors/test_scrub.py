"""The command line that removes variables, in a real bash."""

import subprocess

from acp_agent.executors.scrub import scrubbing


def names(line: str, environ: dict[str, str]) -> tuple[set[str], str]:
    done = subprocess.run(
        ["/bin/bash", "-c", f"{line} compgen -e; compgen -v | grep ACP_CODER; true"], env=environ,
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    return set(done.stdout.split()) - {"PWD", "OLDPWD", "SHLVL", "_"}, done.stderr


def test_only_what_is_listed_stays_and_with_an_empty_list_the_commands_own() -> None:
    environ = {
        "PATH": "/usr/bin:/bin", "LC_ALL": "C", "STRANGE": "1", "GITHUB_TOKEN": "x", "CARGO_REGISTRY_TOKEN": "x",
        "CARGO_HOME": "/c", "PAGER": "cat", "MY_TOKEN": "kept by name", "SPACED": "a b\nc",
    }  # fmt: skip
    line = scrubbing(["PATH", "LC_*", "CARGO_*", "rm -rf /; *"], ["*TOKEN*"], ["PAGER", "MY_TOKEN"])
    found, said = names(line, environ)
    assert found == {"PATH", "LC_ALL", "CARGO_HOME", "PAGER", "MY_TOKEN"} and said == ""
    found, said = names(scrubbing([], [], ["A"]), {"A": "1", "B": "2", "SHELLOPTS": "braceexpand"})
    assert found == {"A"} | (found & {"SHELLOPTS"}) and said == ""
