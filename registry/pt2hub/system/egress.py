"""The only way from the server to addresses that users give.

A name is resolved once. If any of its addresses is not public, nothing is sent; otherwise the connection goes to one of these
addresses and to no other. TLS verifies the name. Redirects are not followed, no proxy is used, and time and answer are bounded.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from pt2hub.errors import AddressRefused, InvalidInput, ReceiverUnreachable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_ADDRESS_CHARS = 2000
MAX_ANSWER_BYTES = 1024
_CONNECT_TIMEOUT_S = 5.0
_TOTAL_TIMEOUT_S = 10.0
"""From the connection to the last byte that is read of the answer, however slowly it arrives."""
_MAX_TRIED = 3
"""Addresses of a name that are tried, if the first ones cannot be connected to."""
_URL = re.compile(r"https?://[!-\[\]-~]+")
"""Visible ASCII without backslashes, which some parsers of URLs take for slashes."""
_UNICAST_V6 = ipaddress.ip_network("2000::/3")
"""All other addresses of IPv6 are reserved, or stand for addresses of IPv4, which a gateway may pass on to private ones."""
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        (
            # What the registries of special-purpose addresses list, whatever release of Python this is.
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
            "168.63.129.16/32",  # Azure's own services, for its virtual machines
        ),
    )
)
_HINT = "Use the https address of a receiver on the internet. For one in your own network, the server's operator lists it in "
_SETTING = "PT2HUB_WEBHOOK_ALLOW"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver answered.

    Attributes:
        body: Its first bytes, at most `MAX_ANSWER_BYTES`.
    """

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class _Receiver:
    """A receiver's address in parts."""

    is_tls: bool
    host: str
    port: int
    target: str
    netloc: str
    is_allowed: bool


class Egress:
    """Requests to addresses that users give.

    Args:
        allowed: Host and port of receivers that may have private addresses and speak plain HTTP: the operator vouches for them.
    """

    def __init__(self, allowed: Collection[tuple[str, int]] = ()) -> None:
        self._allowed = frozenset(allowed)

    def check(self, url: str) -> None:
        """Check that an address could be sent to now.

        Raises:
            InvalidInput: It is malformed.
            AddressRefused: It may not be sent to.
            ReceiverUnreachable: Its name cannot be resolved.
        """
        self._resolve(_parse(url, self._allowed))

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a body; every answer counts, whatever its status.

        Raises:
            InvalidInput: The address is malformed.
            AddressRefused: It may not be sent to.
            ReceiverUnreachable: There was no answer in time.
        """
        receiver = _parse(url, self._allowed)
        addresses = self._resolve(receiver)
        with _Deadline(_TOTAL_TIMEOUT_S) as deadline:
            for number, address in enumerate(addresses, 1):
                try:
                    return _send(receiver, address, body, headers, deadline)
                except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                    cannot_connect = isinstance(
                        error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError
                    )
                    if number == len(addresses) or not cannot_connect or deadline.has_passed:
                        raise _unreachable(receiver, error, deadline) from error
        raise AssertionError("a name resolves to at least one address")

    def _resolve(self, receiver: _Receiver) -> list[str]:
        """Return the addresses of a receiver's host; all of them must be public, unless the receiver is allowed."""
        found = _look_up(receiver.host, receiver.port)
        if not receiver.is_allowed and not all(map(is_public, found)):
            # The addresses are not named: who may add a webhook need not learn them.
            raise AddressRefused(
                f"{receiver.host} is not, or not only, at a public address", where="address", hint=_hint()
            )
        return found[:_MAX_TRIED]


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the internet: neither private, loopback, link-local, multicast nor reserved."""
    if "%" in address:  # the zone of a link-local address
        return False
    found = ipaddress.ip_address(address)
    if not found.is_global or any(
        found.version == network.version and found in network for network in _REFUSED
    ):
        return False
    return isinstance(found, ipaddress.IPv4Address) or found in _UNICAST_V6


def _parse(url: str, allowed: Collection[tuple[str, int]]) -> _Receiver:
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:  # such as a port that is no number, or an unbalanced bracket
        parts, host, port = urlsplit(""), "", None
    is_plain = len(url) <= MAX_ADDRESS_CHARS and _URL.fullmatch(url) is not None
    if not (is_plain and host) or "%" in host or "@" in parts.netloc or parts.fragment or port == 0:
        raise InvalidInput(
            "Invalid address of a receiver",
            where="address",
            hint="Use an address such as https://ci.example.org/hooks/pt2hub, in ASCII, without a user, password or fragment.",
        )
    is_tls = parts.scheme == "https"
    port = port or (443 if is_tls else 80)
    is_allowed = (host, port) in allowed
    if not (is_tls or is_allowed):
        raise AddressRefused(
            "The address of a receiver must begin with https://", where="address", hint=_hint()
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Receiver(is_tls, host, port, target, parts.netloc, is_allowed)


def _look_up(host: str, port: int) -> list[str]:
    """Return the numeric addresses of a host, in the resolver's order; in a thread, as a resolver has no time-out of ours."""
    answer: Future[list[Any]] = Future()

    def resolve() -> None:
        try:
            answer.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.set_exception(error)

    threading.Thread(target=resolve, daemon=True, name="resolver").start()
    try:
        found = answer.result(_CONNECT_TIMEOUT_S)
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
        raise ReceiverUnreachable(
            f"The name {host[:200]} cannot be resolved",
            where="address",
            hint="Check the name in the address; the server's resolver must know it.",
        ) from error
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _send(
    receiver: _Receiver, address: str, body: bytes, headers: Mapping[str, str], deadline: _Deadline
) -> Answer:
    pool = _pool(receiver, address, deadline)
    try:
        response = pool.urlopen(
            "POST",
            receiver.target,
            body=body,
            headers={**headers, "Host": receiver.netloc},
            redirect=False,
            retries=False,
            preload_content=False,
        )
        # Not decoded: a small compressed answer may be a huge one.
        return Answer(response.status, response.read(MAX_ANSWER_BYTES, decode_content=False))
    finally:
        pool.close()


def _pool(receiver: _Receiver, address: str, deadline: _Deadline) -> urllib3.HTTPConnectionPool:
    """Return the connection to a numeric address; TLS is for the receiver's name."""
    options: dict[str, Any] = {
        "timeout": urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_TOTAL_TIMEOUT_S),
        "deadline": deadline,
    }
    if not receiver.is_tls:
        return _PlainPool(address, receiver.port, **options)
    return _TlsPool(
        address, receiver.port, server_hostname=receiver.host, assert_hostname=receiver.host, **options
    )


class _Deadline:
    """Cuts the guarded connections after some seconds: time-outs of sockets begin anew with each byte."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._guarded: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self._until

    def guard(self, connection: socket.socket) -> None:
        self._guarded.append(connection.dup())  # TLS takes over the original

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for connection in self._guarded:
            connection.close()

    def _cut(self) -> None:
        for connection in self._guarded:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _PlainConnection(HTTPConnection):
    """A connection that a deadline cuts."""

    def __init__(self, *args: Any, deadline: _Deadline, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline = deadline

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        self._deadline.guard(made)
        return made


class _TlsConnection(_PlainConnection, HTTPSConnection):
    """The same over TLS."""


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _unreachable(receiver: _Receiver, error: Exception, deadline: _Deadline) -> ReceiverUnreachable:
    reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
    if isinstance(reason, urllib3.exceptions.NewConnectionError):  # also a TimeoutError
        what = "refused the connection"
    elif deadline.has_passed or isinstance(reason, urllib3.exceptions.TimeoutError):
        what = f"did not answer within {_TOTAL_TIMEOUT_S:g} s"
    elif isinstance(reason, urllib3.exceptions.SSLError):
        what = "has no valid certificate for its name, or does not speak TLS"
    else:
        what = "broke the connection off, or does not speak HTTP"
    return ReceiverUnreachable(
        f"{receiver.host}:{receiver.port} {what}",
        where="address",
        hint="Check that the receiver runs, and that this server can reach it.",
    )


def _hint() -> str:
    return f"{_HINT}{_SETTING}."
