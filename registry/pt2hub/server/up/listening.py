"""The API's socket, and asking the API how it is."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import socket
from http import HTTPStatus
from typing import Any

from pt2hub.errors import BadConfiguration, PortTaken

_BACKLOG = 512
_ANSWER_SECONDS = 10.0
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared with, not listened on
_OTHER_PORT = "Set PT2HUB_PORT or pass --port; 0 takes any free one."


def listen(host: str, port: int) -> socket.socket:
    """Opens the API's socket.

    Args:
        host: Address to listen on.
        port: Port, 0 for any free one.

    Raises:
        PortTaken: Another program listens there.
        BadConfiguration: The address is not ours, or the port is reserved.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Another program listens on port {port}.", where=f"{host}:{port}", hint=_OTHER_PORT
            ) from exc
        raise BadConfiguration(
            f"Cannot listen there: {exc.strerror}.",
            where=f"{host}:{port}",
            hint="Set PT2HUB_HOST to an address of this machine and PT2HUB_PORT to a port above 1023.",
        ) from exc


class Probe:
    """Asks the API over its own socket's address, past any proxy the environment names.

    Attributes:
        url: Where clients on this machine reach the API.
    """

    def __init__(self, listener: socket.socket) -> None:
        host, self._port = listener.getsockname()[:2]
        self._host = _ANYWHERE.get(host, host)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{shown}:{self._port}"

    def ready(self) -> bool:
        """Whether the API, its database and its storage answer."""
        return self._get("/readyz") is not None

    def live_targets(self) -> tuple[str, ...]:
        """Names of the targets with a live worker."""
        answer = self._get("/api/v1/targets") or {"targets": []}
        return tuple(item["name"] for item in answer["targets"] if item["live_workers"])

    def _get(self, path: str) -> Any:  # noqa: ANN401  # a JSON value
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_SECONDS)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException, ValueError),
        ):
            connection.request("GET", path)
            response = connection.getresponse()
            return json.load(response) if response.status == HTTPStatus.OK else None
        return None
