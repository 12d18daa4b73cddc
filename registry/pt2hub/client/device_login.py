"""Login from a machine without a browser: a person approves it in a browser elsewhere (RFC 8628)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from pt2hub.client.resources import Resource
from pt2hub.errors import AuthorizationPending, DeviceCodeExpired, SlowDown
from pt2hub.wire.identities import DeviceAuthorization, MintedToken

if TYPE_CHECKING:
    from collections.abc import Callable

_SLOWER_BY_S = 5
_SHORTEST_S, _LONGEST_S = 1, 60
"""Bounds of the interval, which another machine names."""


class Devices(Resource):
    """Requests of this machine for a token."""

    def request(self, client: str) -> DeviceAuthorization:
        """Begin a request.

        Args:
            client: What this machine says of itself, for the page.

        Raises:
            SignInUnavailable: The server has no provider to sign in with.
        """
        body = json.dumps({"client": client[:100]}).encode()
        return self._transport.ask(DeviceAuthorization, "POST", "/api/v1/device/code", body)

    def wait(
        self, asked: DeviceAuthorization, *, sleep: Callable[[float], object] = time.sleep
    ) -> MintedToken:
        """Return the token once a person approved the request.

        Raises:
            AccessDenied: They denied it.
            DeviceCodeExpired: Nobody decided in time.
        """
        until = time.monotonic() + asked.expires_in
        interval = asked.interval
        while time.monotonic() < until:
            sleep(min(max(interval, _SHORTEST_S), _LONGEST_S))
            try:
                return self._poll(asked.device_code)
            except SlowDown:
                interval += _SLOWER_BY_S
            except AuthorizationPending:
                continue
        raise DeviceCodeExpired("Nobody approved the login in time", hint="Begin again: pt2hub login")

    def _poll(self, device_code: str) -> MintedToken:
        body = json.dumps({"device_code": device_code}).encode()
        return self._transport.ask(MintedToken, "POST", "/api/v1/device/token", body)
