"""The network guard: every spelling of an address, every disguise of a name, every block of the tables."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.model import WebConfig
from acp_agent.errors import ToolError
from acp_agent.safety.deciding.network import NetworkPolicy, check_addresses, check_url, why_not_public
from tests.tables import table

NOTHING_MORE = NetworkPolicy()

ALLOWED = {
    "https://example.com": "https://example.com/", "https://example.com/": "https://example.com/",
    "HTTPS://EXAMPLE.com/A?B=c": "https://example.com/A?B=c", "https://example.com.": "https://example.com/",
    "https://example.com:": "https://example.com/", "https://example.com:443/": "https://example.com/",
    "https://example.com:8443/x": "https://example.com:8443/x",
    "https://example.com:65535": "https://example.com:65535/", "https://example.com?q=1": "https://example.com/?q=1",
    "https://example.com/a#part": "https://example.com/a",
    "https://example.com/%20a%2Fb": "https://example.com/%20a%2Fb",
    "https://example.com/ä?ö=ü": "https://example.com/%C3%A4?%C3%B6=%C3%BC",
    'https://example.com/<a>"b"|{c}': "https://example.com/%3Ca%3E%22b%22%7C%7Bc%7D",
    "https://example.com/a@b:c": "https://example.com/a@b:c", "https://exa%6Dple.com/": "https://example.com/",
    "https://ｅｘａｍｐｌｅ.com/": "https://example.com/", "https://example。com/": "https://example.com/",
    "https://bücher.example/": "https://xn--bcher-kva.example/", "https://faß.de/": "https://xn--fa-hia.de/",
    "https://a_b.example.com/": "https://a_b.example.com/", "https://8.8.8.8/": "https://8.8.8.8/",
    "https://134744072/": "https://8.8.8.8/", "https://0x08.010.8.8/": "https://8.8.8.8/",
    "https://[2606:4700:4700::1111]/": "https://[2606:4700:4700::1111]/",
    "https://[2606:4700:4700:0:0:0:0:1111]:444/": "https://[2606:4700:4700::1111]:444/",
    "https://127.example.com/": "https://127.example.com/",
    "https://localhost.example.com/": "https://localhost.example.com/",
    "https://notlocalhost.com/": "https://notlocalhost.com/",
}  # fmt: skip

LOOPBACK = """
    127.0.0.1 127.1 127.0.1 127.0.0.1. 2130706433 0x7f000001 0x7F.0.0.1 0x7f.1 0177.0.0.1 0177.1 017700000001
    0x7f.0x0.0x0.0x1 127.255.255.255 00000177.0.0.1 １２７.0.0.1 127。0。0。1 127．0．0．1 ①②⑦.0.0.1 𝟙𝟚𝟟.0.0.1
    %31%32%37.0.0.1 127%2e0%2e0%2e1 0X7F.1 %30x7f.1 ０ｘ７ｆ.1
""".split()

PRIVATE_HOSTS = [
    *LOOPBACK, *"0 0.0.0.0 0x0 10.0.0.1 167772161 172.16.0.1 192.168.1.1 0xc0a80101 169.254.169.254 2852039166".split(),
    *"0xA9FEA9FE 0251.0376.0251.0376 100.64.0.1 100.100.100.200 192.0.0.1 198.18.0.1 240.0.0.1".split(),
    *"255.255.255.255 4294967295 224.0.0.1 168.63.129.16".split(),
    *"[::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [::ffff:8.8.8.8] [fe80::1]".split(),
    *"[fc00::1] [fd00:ec2::254] [fec0::1] [ff02::1] [64:ff9b::8.8.8.8] [64:ff9b:1::1] [2002:7f00:1::]".split(),
    *"[2001:0:4136:e378::1] [2001:db8::1] [3fff::1] [2001:2::1] [2001:20::1] [100::1] [4000::1] [5f00::1]".split(),
    *"[fe80::1%25eth0] [fe80::1%eth0] [2606:4700::1%251]".split(),
    *"localhost LOCALHOST localhost. a.localhost lo%63alhost ｌｏｃａｌｈｏｓｔ ⓛⓞⓒⓐⓛⓗⓞⓢⓣ".split(),
    *"localhost.localdomain printer.local db.internal metadata.google.internal router.lan x.home.arpa".split(),
    *"x.intranet intranet metadata".split(),
]  # fmt: skip

NO_URLS = [
    "", "example.com", "//example.com", "/path", "https:", "https:/example.com", "https:example.com", "https://",
    "https:///path", "https://?q", "https://#x", "https://.", "https://:443", "https://example.com:0",
    "https://example.com:65536", "https://example.com:-1", "https://example.com:44３", "https://example.com:x",
    "https://example.com:1:2", "https://2606:4700::1111/", "https://[2606:4700::1111", "https://[2606:4700::1111]x/",
    "https://[]/", "https://[1.2.3.4]/", "https://[v1.x]/", "https://[::g]/", "https://256.1.1.1/",
    "https://1.2.3.256/", "https://1.2.3.4.5/", "https://08.1.1.1/", "https://1..1/", "https://example.1/",
    "https://example.0x1/", "https://4294967296/", "https://0x100000000/", "https://a..example.com/",
    "https://-a.example.com/", "https://a-.example.com/", "https://" + "a" * 64 + ".com/",
    "https://" + "a." * 130 + "com/", "https://exa mple.com/", "https://exa%20mple.com/", "https://exa%00mple.com/",
    "https://exa%2Fmple.com/", "https://exa%40mple.com/", "https://exa%ff.com/", "https://exa%mple.com/",
    "https://a℀b.com/", "https://exam\u00adple.com/", "https://exam\u200bple.com/", "https://example.com/a b",
    "https://example.com/\u2028", " https://example.com/", "https://example.com/\n", "https://exam\tple.com/",
    "https://exam\r\nple.com/", "https://example.com/\0", "https://example.com/\x7f", "https://example.com\\@evil.com/",
    "https:\\\\example.com/", "https://example.com/\ud800", "https://example.com/" + "a" * 9000,
]  # fmt: skip

FORBIDDEN = [
    "http://example.com/", "HTTP://example.com/", "ftp://example.com/", "file:///etc/passwd", "ws://example.com/",
    "gopher://example.com/", "https://user@example.com/", "https://user:geheim@example.com/", "https://@example.com/",
    "https://example.com@evil.com/", "https://example.com:443@evil.com/",
]  # fmt: skip


@table("url", ALLOWED)
def test_an_url_of_a_public_host_is_given_in_its_one_spelling_which_stays_as_it_is(url: str) -> None:
    once = check_url(url, NOTHING_MORE)
    assert once.url == ALLOWED[url]
    assert check_url(once.url, NOTHING_MORE) == once


@table(("url", "category"), [
    *((f"https://{host}{rest}", "policy_blocked") for host in PRIVATE_HOSTS for rest in ("", ":8443/x?y")),
    *((url, "policy_blocked") for url in FORBIDDEN), *((url, "invalid_parameters") for url in NO_URLS),
])  # fmt: skip
def test_a_private_host_is_policy_in_every_spelling_what_is_no_url_a_mistake_and_no_password_is_repeated(url, category):
    with pytest.raises(ToolError) as refused:
        check_url(url, NOTHING_MORE)
    assert refused.value.category == category and "geheim" not in str(refused.value)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 1000


@given(number=st.integers(0, 2**32 - 1), form=st.integers(0, 4))
def test_an_ipv4_address_is_judged_alike_in_every_form(number: int, form: int) -> None:
    address = ipaddress.IPv4Address(number)
    high, low = divmod(number, 2**24)
    host = [str(address), str(number), hex(number), f"0{number:o}", f"{high:#x}.{low}"][form]
    if why_not_public(address) is None:
        assert check_url(f"https://{host}/", NOTHING_MORE).address == address
    else:
        with pytest.raises(ToolError):
            check_url(f"https://{host}/", NOTHING_MORE)


@given(text=st.text(max_size=60), head=st.sampled_from(["", "https://", "https://[", "https://127.", "https://a.com"]))
def test_any_text_is_a_target_or_a_tool_error(text: str, head: str) -> None:
    try:
        target = check_url(head + text, NOTHING_MORE)
    except ToolError as error:
        assert error.category in ("policy_blocked", "invalid_parameters")
    else:
        assert target.scheme == "https" and target.url.isascii()
        assert check_url(target.url, NOTHING_MORE) == target


@given(number=st.integers(0, 2**128 - 1))
def test_of_ipv6_only_2000_to_3fff_can_be_public(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    if number >> 125 != 1 or not address.is_global:
        assert why_not_public(address) is not None


@given(number=st.integers(0, 2**32 - 1))
def test_what_the_standard_library_calls_private_is_never_public(number: int) -> None:
    address = ipaddress.IPv4Address(number)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_link_local:
        assert why_not_public(address) is not None


BESIDE_ANOTHER_BLOCK = "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"


@table(("first", "last"), [
    ("0.0.0.0", "0.255.255.255"), ("10.0.0.0", "10.255.255.255"), ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"), ("169.254.0.0", "169.254.255.255"), ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"), ("192.0.2.0", "192.0.2.255"), ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"), ("198.18.0.0", "198.19.255.255"), ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"), ("224.0.0.0", "255.255.255.255"),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"), ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
])  # fmt: skip
def test_a_block_ends_where_it_ends(first: str, last: str) -> None:
    low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
    assert why_not_public(low) is not None and why_not_public(high) is not None
    around = [low - 1] if int(low) else []
    around += [high + 1] if int(high) < 2**32 - 1 or high.version == 6 else []
    for address in around:
        if str(address) != BESIDE_ANOTHER_BLOCK:
            assert why_not_public(address) is None, address


def test_every_record_of_a_name_must_be_public() -> None:
    good = ["93.184.216.34", "2606:2800:220:1::1"]
    assert check_addresses("example.com", [*good, good[0]], NOTHING_MORE) == tuple(good)
    for bad in ("10.0.0.1", "::1", "::ffff:93.184.216.34", "fe80::1%eth0", "64:ff9b::5db8:d822", "nonsense"):
        with pytest.raises(ToolError) as refused:
            check_addresses("example.com", [*good, bad], NOTHING_MORE)
        assert refused.value.category == "policy_blocked"
        assert "example.com" in str(refused.value)
    with pytest.raises(ToolError) as refused:
        check_addresses("example.com", [], NOTHING_MORE)
    assert refused.value.category == "network_error"


def test_the_configuration_may_open_named_hosts_and_no_others() -> None:
    config = WebConfig(
        http_hosts=["Plain.Example.org."],
        private_hosts=["Docs.Local", "127.0.0.1", "[::1]", "bücher.lan", "no host", ""],
    )
    policy = NetworkPolicy.from_config(config)
    assert check_url("http://plain.example.org/x", policy).url == "http://plain.example.org/x"
    assert check_url("http://plain.example.org:443/", policy).url == "http://plain.example.org:443/"
    assert check_url("https://docs.local./", policy).host == "docs.local"
    assert check_url("https://0x7f.1:8000/", policy).host == "127.0.0.1"
    assert check_url("https://[0::1]/", policy).host == "::1"
    assert check_url("https://BÜCHER.lan/", policy).host == "xn--bcher-kva.lan"
    assert check_addresses("docs.local", ["10.0.0.5"], policy) == ("10.0.0.5",)
    for url in ("http://docs.local/", "https://127.0.0.2/", "http://a.plain.example.org/", "https://a.docs.local/"):
        with pytest.raises(ToolError):
            check_url(url, policy)
    with pytest.raises(ToolError):
        check_addresses("plain.example.org", ["10.0.0.5"], policy)
