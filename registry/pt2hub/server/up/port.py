"""Listening sockets of the API, and a probe of its health."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import socket
import struct
from http import HTTPStatus
from typing import Any

from pt2hub.errors import BadConfiguration, PortTaken

_BACKLOG = 512
_STALLED_SECONDS = 30
"""How long a client may stall within a request, and take for its head."""
_ANSWER_SECONDS = 10.0
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared with, not listened on
_OTHER_PORT = "Set PT2HUB_PORT or pass --port; 0 takes any free one."


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Open a listening socket for the API.

    Args:
        port: Port, 0 for any free one.

    Raises:
        PortTaken: Another program listens there.
        BadConfiguration: The address is not ours, or the port is reserved.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return _patient(
            socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=shared)
        )
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Port {port} is already in use.", where=f"{host}:{port}", hint=_OTHER_PORT
            ) from exc
        raise BadConfiguration(
            f"Cannot listen on this address: {exc.strerror}.",
            where=f"{host}:{port}",
            hint="Set PT2HUB_HOST to an address of this machine and PT2HUB_PORT to a port above 1023.",
        ) from exc


def listen_for_each(host: str, port: int, *, processes: int) -> list[socket.socket]:
    """Open one socket for each process; the kernel spreads connections over them.

    Where several processes wait on one socket the kernel wakes the same one each time: it took all of 32
    connections, and two processes answered half as often as they can.

    Raises:
        PortTaken, BadConfiguration: As for `listen`.
    """
    if processes == 1:
        return [listen(host, port)]
    # One that shares nothing comes first: a port that another server shares would be shared with it.
    with listen(host, port) as alone:
        port = alone.getsockname()[1]
    return [listen(host, port, shared=True) for _ in range(processes)]


def _patient(listener: socket.socket) -> socket.socket:
    """Limit how long connections may stall; they inherit the socket's limit, and gunicorn has no setting for it."""
    seconds = struct.pack("@ll", _STALLED_SECONDS, 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        listener.setsockopt(socket.SOL_SOCKET, option, seconds)
    return listener


class Probe:
    """Health probe of the API at its own address, ignoring proxy settings.

    Attributes:
        url: Where clients on this machine reach the API.
    """

    def __init__(self, listener: socket.socket) -> None:
        host, self._port = listener.getsockname()[:2]
        self._host = _ANYWHERE.get(host, host)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{shown}:{self._port}"
        self._headers: dict[str, str] = {}

    def sign_in(self, token: object) -> None:
        """Send a token from now on: only the health of a server may be public."""
        if isinstance(token, str):
            self._headers = {"Authorization": f"Bearer {token}"}

    def ready(self) -> bool:
        """Return whether the API, its database and its storage respond."""
        # A full disk does not prevent a start: artifacts can be read, and the pages say what is wrong.
        return self._get("/readyz?reads_only=true") is not None

    def alive(self) -> bool:
        """Return whether the API itself responds."""
        return self._get("/healthz") is not None

    def live_targets(self) -> tuple[str, ...]:
        """Return the names of the targets with a live worker."""
        answer = self._get("/api/v1/targets") or {"targets": []}
        return tuple(item["name"] for item in answer["targets"] if item["live_workers"])

    def isolation_of(self, process: int) -> str | None:
        """Return the isolation of this machine's worker with this process id; None until it has registered.

        Its name tells which process it is.
        """
        answer = self._get("/api/v1/workers") or {"workers": []}
        name = f"{os.uname().nodename}-{process}"
        found = (item["isolation"] for item in answer["workers"] if item["id"].rpartition("-")[0] == name)
        return next(found, None)

    def _get(self, path: str) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_SECONDS)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException, ValueError),
        ):
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            return json.load(response) if response.status == HTTPStatus.OK else None
        return None
