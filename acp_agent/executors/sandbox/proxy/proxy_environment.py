"""The variables that make programs use the proxy. Most read `HTTPS_PROXY`; the others have variables of their own."""

from __future__ import annotations

from collections.abc import Mapping

NO_PROXY = "localhost,127.0.0.1,::1"

CONNECT = "ACP_CODER_CONNECT"
TUNNEL = (
    'exec 3<>"/dev/tcp/127.0.0.1/{port}" || exit 1; printf "CONNECT %s:%s HTTP/1.1\\r\\n\\r\\n" "$1" "$2" >&3; '
    "read -r _ code _ <&3; while read -r line <&3 && [ \"$line\" != $'\\r' ]; do :; done; "
    '[ "$code" = 200 ] || {{ cat <&3 >&2; exit 1; }}; exec 4<&0; cat <&4 >&3 & cat <&3; kill $!'
)
"""What `ssh` starts to get a connection, since it knows no proxies: bash alone, by its own sockets."""
SSH = f"-o 'ProxyCommand=bash -c \"${CONNECT}\" connect %h %p'"

JVM = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={{port}}" for scheme in ("http", "https"))
MAVEN = f"{JVM} -Daether.connector.http.useSystemProperties=true"


def variables(port: int, environ: Mapping[str, str], *, own_loopback: bool) -> dict[str, str]:
    """`environ`: the command's own. `own_loopback`: whether its loopback is reached directly, being the session's."""
    http, socks = f"http://127.0.0.1:{port}", f"socks5h://127.0.0.1:{port}"
    found = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), http)
    # Not SOCKS: httpx and others refuse to start where a package for that is missing.
    found |= {"all_proxy": http, "ALL_PROXY": http, "SOCKS_PROXY": socks}
    found |= dict.fromkeys(("no_proxy", "NO_PROXY"), NO_PROXY if own_loopback else "")
    found |= {"YARN_HTTP_PROXY": http, "YARN_HTTPS_PROXY": http, "RSYNC_PROXY": f"127.0.0.1:{port}"}
    found |= {"NODE_USE_ENV_PROXY": "1", "ELECTRON_GET_USE_PROXY": "1"}
    found[CONNECT] = TUNNEL.format(port=port)
    found["GIT_SSH_COMMAND"] = f"{environ.get('GIT_SSH_COMMAND', 'ssh')} {SSH}"
    for name, options in (("MAVEN_OPTS", MAVEN), ("GRADLE_OPTS", JVM)):
        found[name] = " ".join(filter(None, (environ.get(name), options.format(port=port))))
    return found


TRUSTED = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "npm_config_cafile", "DENO_CERT"),
)
"""Variables that name a file of certificates to trust."""

NAMES = (*variables(0, {}, own_loopback=True), *TRUSTED)
