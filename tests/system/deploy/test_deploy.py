"""What is in deploy/: valid, and of one mind with the server."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from acp_agent.commands.parser import build_parser
from acp_agent.commands.servers import TRACES_SECONDS
from acp_agent.config.load import load_config
from acp_agent.config.model import ProviderConfig, Settings
from acp_agent.config.sources import ENVIRONMENT
from acp_agent.config.xdg import config_file, state_dir
from acp_agent.fronts.server.app import CLOSE_SECONDS, GOODBYE_SECONDS
from tests.fronts.server.documented import operation
from tests.house.imports import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
OLDEST = "1.30"
"""Of Kubernetes."""
PORT = Settings().server.port
OTHERS = {"PGPASSWORD", "XDG_STATE_HOME", "ACP_CODER_CONFIG"}
"""Variables that are not a key of the configuration: of libpq, and of `config.xdg`."""
STOPPING = GOODBYE_SECONDS + 2 * CLOSE_SECONDS + TRACES_SECONDS


def instructions() -> list[tuple[str, str]]:
    """Of the Containerfile's stages `command` and, built on it, the server; lines that go on are one."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    last = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).partition(" AS command\n")[2]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in last.splitlines())]


def said(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def one(kind: str) -> dict[str, Any]:
    (found,) = [each for each in KUBERNETES if each["kind"] == kind]
    return dict(found)


POD = one("Deployment")["spec"]["template"]["spec"]
(AGENT,) = POD["containers"]
SERVICE = COMPOSE["services"]["agent"]


def composed(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (file := folder / "compose.yaml").write_text(text, encoding="utf-8")
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_compose_is_valid(tmp_path: Path) -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert composed(text, tmp_path).returncode == 0
    assert composed(text.replace("cap_drop:", "capdrop:"), tmp_path).returncode == 1
    for service in COMPOSE["services"].values():
        assert {name for name, _ in map(volume, service["volumes"]) if not name.startswith("./")} <= set(
            COMPOSE["volumes"]
        )
        assert set(service["secrets"]) <= set(COMPOSE["secrets"]) and service["healthcheck"]


def volume(text: str) -> tuple[str, str]:
    name, where = text.split(":")[:2]
    return name, where


@pytest.mark.parametrize("manifest", KUBERNETES, ids=lambda each: each["kind"])
def test_manifests_are_valid(manifest: dict[str, Any]) -> None:
    for version in (OLDEST, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(manifest, version, strict=True)
        wrong = deepcopy(manifest)
        wrong["sepc"] = {}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, version, strict=True)


def test_what_manifests_name_is_there() -> None:
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        one("Deployment")["spec"]["selector"]["matchLabels"], one("Service")["spec"]["selector"],
        one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):  # fmt: skip
        assert selector == labels
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert sorted(each["name"] for each in AGENT["volumeMounts"]) == sorted(volumes)
    names = {(each["kind"], each["metadata"]["name"]) for each in KUBERNETES}
    claims = [
        each["persistentVolumeClaim"]["claimName"] for each in volumes.values() if "persistentVolumeClaim" in each
    ]
    assert claims and all(("PersistentVolumeClaim", name) in names for name in claims)
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in names
    assert ("ServiceAccount", POD["serviceAccountName"]) in names
    (backend,) = [path["backend"] for rule in one("Ingress")["spec"]["rules"] for path in rule["http"]["paths"]]
    assert ("Service", backend["service"]["name"]) in names
    made = re.findall(r"create secret \S+ ([\w-]+)", (ROOT / "docs/server.md").read_text(encoding="utf-8"))
    wanted = {volumes["tokens"]["secret"]["secretName"], *(each["secretRef"]["name"] for each in AGENT["envFrom"])}
    assert wanted <= set(made), "docs/server.md says how each secret is made"


def test_port_probes_and_names_are_those_of_the_server() -> None:
    assert [each["containerPort"] for each in AGENT["ports"]] == [PORT]
    (name,) = [each["name"] for each in AGENT["ports"]]
    assert {each["targetPort"] for each in one("Service")["spec"]["ports"]} == {name}
    assert [each["port"] for rule in one("NetworkPolicy")["spec"]["ingress"] for each in rule["ports"]] == [name]
    assert said("EXPOSE") == [str(PORT)]
    assert SERVICE["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert not any("ports" in each for name, each in COMPOSE["services"].items() if name != "agent")
    probes = []
    for kind in ("readinessProbe", "livenessProbe", "startupProbe"):
        asked = AGENT[kind]["httpGet"]
        assert asked["port"] == name
        (host,) = [each["value"] for each in asked["httpHeaders"] if each["name"] == "Host"]
        probes.append((asked["path"], host, settings_of_kubernetes()))
    (address,) = re.findall(r"http://[^\"]+", SERVICE["healthcheck"]["test"][-1])
    assert urlsplit(address).port == PORT
    probes.append((urlsplit(address).path, str(urlsplit(address).hostname), settings_of_compose()))
    for path, host, settings in probes:
        found = operation("GET", path)
        assert found is not None and found["security"] == [], "a probe has no token"
        assert host in settings.server.hosts
    (rule,) = one("Ingress")["spec"]["rules"]
    assert rule["host"] in settings_of_kubernetes().server.hosts


def settings_of_compose() -> Settings:
    """Fails for a key that there is not."""
    return load_config({"ACP_CODER_CONFIG": str(DEPLOY / "config.toml")}).settings


def settings_of_kubernetes() -> Settings:
    text = one("ConfigMap")["data"]["config.toml"]
    flags = {f"{table}.{key}": value for table, keys in tomllib.loads(text).items() for key, value in flat(keys)}
    return load_config({"ACP_CODER_CONFIG": "/nowhere"}, flags=flags).settings


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, list) else json.dumps(value)


def test_every_option_and_every_variable_there_is_exists() -> None:
    parser = build_parser()
    (command,), (entry,) = said("CMD"), said("ENTRYPOINT")
    assert json.loads(entry)[-1] == "acp-coder" == SERVICE["entrypoint"][-1]
    for argv in (json.loads(command), SERVICE["command"], AGENT["args"]):
        options = parser.parse_args(argv)
        assert (options.command, options.without_tls) == ("serve", True)
    keys = {ProviderConfig().api_key_env or "OPENAI_API_KEY"}
    exported = {name for line in re.findall(r"export (.*)", SERVICE["entrypoint"][-2]) for name in line.split()}
    image = dict(part.split("=", 1) for line in said("ENV") for part in shlex.split(line))
    for name in (*SERVICE["environment"], *exported, *image, *(each["name"] for each in AGENT["env"])):
        assert name in {*ENVIRONMENT, *OTHERS, *keys}, name
    mounts = {each["name"]: each["mountPath"] for each in AGENT["volumeMounts"]}
    composed = dict(map(volume, SERVICE["volumes"]))
    for state, config in (
        (mounts["state"], f"{mounts['config']}/config.toml"), (composed["state"], composed["./config.toml"]),
    ):  # fmt: skip
        assert Path(state_dir(image)).parent == Path(state) and config_file(image) == config
    (token_file,) = [each.partition("=")[2] for each in AGENT["args"] if each.startswith("--token-file")]
    assert str(Path(token_file).parent) == mounts["tokens"]


def test_nothing_runs_as_root_or_can_become_it() -> None:
    (user,) = said("USER")
    uid, _, gid = user.partition(":")
    assert uid.isdigit() and int(uid) > 0 and f"--uid {uid}" in " ".join(said("RUN"))
    secured = POD["securityContext"]
    assert (secured["runAsUser"], secured["runAsGroup"], secured["fsGroup"]) == (int(uid), int(gid), int(gid))
    assert secured["runAsNonRoot"] and secured["seccompProfile"] == {"type": "RuntimeDefault"}
    own = AGENT["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not POD["automountServiceAccountToken"] and not one("ServiceAccount")["automountServiceAccountToken"]
    assert (SERVICE["read_only"], SERVICE["cap_drop"]) == (True, ["ALL"])
    assert SERVICE["security_opt"] == ["no-new-privileges:true"]
    assert {"limits", "requests"} == set(AGENT["resources"])
    for settings in (settings_of_compose(), settings_of_kubernetes()):
        assert settings.tools.sandbox.strict and not (settings.agent.trust or settings.mcp.client_programs)


def test_the_server_has_the_time_that_it_needs_to_stop() -> None:
    assert POD["terminationGracePeriodSeconds"] >= int(AGENT["lifecycle"]["preStop"]["exec"]["command"][-1]) + STOPPING
    assert int(SERVICE["stop_grace_period"].removesuffix("s")) >= STOPPING
    probe = AGENT["livenessProbe"]
    assert probe["periodSeconds"] * probe.get("failureThreshold", 3) >= STOPPING, "it says 503 while it stops"


def test_what_the_image_is_made_of_is_there_and_not_ignored() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, build = whole["project"], whole["tool"]["hatch"]["build"]
    assert {"serve", "postgres"} <= set(re.findall(r"--extra (\S+)", text)) <= set(project["optional-dependencies"])
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for name in line.split()]
    assert set(copied) == {"pyproject.toml", "uv.lock", "."} and all((ROOT / name).exists() for name in copied)
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    allowed = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    wanted = [
        *copied, "pyproject.toml", "uv.lock", project["readme"], *project["license-files"], "acp_agent",
        "hatch_build.py", *build["targets"]["wheel"]["force-include"],
    ]  # fmt: skip
    for name in wanted:
        assert name == "." or any(fnmatch(name, rule) or name.startswith(f"{rule}/") for rule in allowed), name
