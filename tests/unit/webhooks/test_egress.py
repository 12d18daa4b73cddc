"""Where the server sends to, and where it does not."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pt2hub.errors import AddressRefused, InvalidInput, ReceiverUnreachable
from pt2hub.system.egress import Egress, is_public

PUBLIC = ["1.1.1.1", "192.0.32.10", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"]
NOT_PUBLIC = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"],
    "shared by carriers": ["100.64.0.1", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1"],
    "benchmarks": ["198.18.0.1"],
    "IPv4 in IPv6": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:7f00:1"],
    "translated": ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::"],
}


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("kind", "address"), [(kind, address) for kind, found in NOT_PUBLIC.items() for address in found]
)
def test_all_other_addresses_are_refused(kind: str, address: str) -> None:
    assert not is_public(address), kind


REFUSED = [
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://0/",
    "https://localhost/",
    "https://LOCALHOST./",
    "https://169.254.169.254/latest/meta-data/",
    "https://10.1.2.3:8443/",
    "http://1.1.1.1/",
    "http://127.0.0.1:9000/",
]
MALFORMED = [
    "",
    "1.1.1.1",
    "//1.1.1.1/",
    "ftp://1.1.1.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "https://",
    "https:///path",
    "https://user@1.1.1.1/",
    "https://user:password@1.1.1.1/",
    "https://1.1.1.1:0/",
    "https://1.1.1.1:99999/",
    "https://1.1.1.1:port/",
    "https://1.1.1.1/#fragment",
    "https://1.1.1.1\\@127.0.0.1/",
    "https://1.1.1.1/a b",
    "https://1.1.1.1/\r\nHost: x",
    "https://1.1.1.1/\x00",
    "https://[::1/",
    "https://[fe80::1%25eth0]/",
    "https://b\u00fccher.example/",
    "https://1.1.1.1/" + "x" * 2000,
]


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_that_is_not_public_is_refused_however_it_is_written(url: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        Egress().check(url)
    assert "PT2HUB_WEBHOOK_ALLOW" in (caught.value.hint or "")


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Egress().check(url)
    assert "password" not in caught.value.message


def resolving_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Lets names resolve to addresses, one answer after another; returns the names that were asked for."""
    asked: list[str] = []

    def answer(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return asked


def test_a_name_with_a_public_and_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving_to(monkeypatch, ["1.1.1.1", "10.0.0.1"])
    with pytest.raises(AddressRefused) as caught:
        Egress().check("https://mixed.example/")
    assert "10.0.0.1" not in str(caught.value), "the network's addresses are not told"


def test_a_name_is_resolved_at_each_request_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolving_to(monkeypatch, ["1.1.1.1"], ["127.0.0.1"])
    sender = Egress()
    sender.check("https://rebound.example/")
    with pytest.raises(AddressRefused):
        sender.post("https://rebound.example/", b"", {})
    assert asked == ["rebound.example"] * 2


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        real = socket.getaddrinfo
        names: list[str] = []

        def answer(host: str, *arguments: Any, **options: Any) -> Any:
            names.append(host)
            return real("127.0.0.1" if host == "hooks.internal" else host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", answer)
        monkeypatch.setattr("pt2hub.system.egress._TOTAL_TIMEOUT_S", 0.2)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        with pytest.raises(ReceiverUnreachable, match="did not answer"):
            Egress([("hooks.internal", port)]).post(f"http://hooks.internal:{port}/x", b"{}", {})
        connection, _ = listening.accept()
        with connection:
            sent = connection.recv(1000)
    assert names.count("hooks.internal") == 1, "connecting resolves numeric addresses only"
    assert sent.startswith(b"POST /x HTTP/1.1\r\n")
    assert f"Host: hooks.internal:{port}".encode() in sent


def test_an_exception_is_for_one_host_and_port() -> None:
    sender = Egress([("127.0.0.1", 9000), ("::1", 9000)])
    sender.check("http://127.0.0.1:9000/hook")
    sender.check("https://127.0.0.1:9000/hook")
    sender.check("http://[::1]:9000/hook")
    for url in (
        "http://127.0.0.1:9001/",
        "https://127.0.0.1/",
        "https://localhost:9000/",
        "https://10.0.0.1/",
    ):
        with pytest.raises(AddressRefused):
            sender.check(url)


def test_a_refused_connection_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ReceiverUnreachable, match="refused the connection"):
        Egress([("127.0.0.1", port)]).post(f"http://127.0.0.1:{port}/", b"", {})
