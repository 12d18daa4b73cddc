"""The address from which a request comes, for limits per address."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from flask import request

from pt2hub.server.api.context import context

if TYPE_CHECKING:
    from collections.abc import Iterable

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PREFIX_V6 = 64
"""Bits of an IPv6 address that name one network: a subscriber has all addresses in it."""


def client_address() -> str:
    """Return the sender's address, behind trusted proxies the last one that they did not add themselves."""
    forwarded = request.headers.get("X-Forwarded-For", "").split(",")
    return find_client(request.remote_addr or "", forwarded, context().config.trusted_proxies)


def find_client(peer: str, forwarded: Iterable[str], trusted: Iterable[str]) -> str:
    """Return the address of a client; for IPv6 its network.

    Args:
        peer: The other end of the connection.
        forwarded: `X-Forwarded-For`, in its order; what clients write into it comes before what proxies add.
        trusted: Addresses and networks of proxies.
    """
    networks = [ipaddress.ip_network(each) for each in trusted]
    found = _parse(peer)
    for text in reversed([each.strip() for each in forwarded]):
        if found is None or not any(found in network for network in networks):
            break
        if (before := _parse(text)) is None:
            break
        found = before
    return _network(found) if found else peer


def _parse(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _network(address: Address) -> str:
    if address.version == 4:  # noqa: PLR2004
        return str(address)
    return str(ipaddress.ip_network((address, _PREFIX_V6), strict=False))
