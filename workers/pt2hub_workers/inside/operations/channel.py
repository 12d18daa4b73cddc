"""The child's end of the channel to its parent: JSON values, one per line, over a socket."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pt2hub.errors import ModelInterferes
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANNEL_FD = "PT2HUB_CHANNEL_FD"
"""Environment variable with the file descriptor of the inherited socket."""
CHANNEL_LOST = 76
"""Exit code of a child that lost its channel: EX_PROTOCOL of sysexits.h."""


def _channel_broken(how: str) -> ModelInterferes:
    return ModelInterferes(
        f"The model's code {how} the channel between its build's process and the worker",
        where="build",
        hint="A model must not touch the file descriptors of its build: look for os.close, os.dup2 and os.closerange, and "
        "for daemons and pools that close all inherited descriptors.",
    )


class Channel:
    """The channel to the parent: events, requests and their answers."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")

    @classmethod
    def inherit(cls) -> Channel:
        """Return the channel that the parent opened before it started this process."""
        return cls(socket.socket(fileno=int(os.environ.pop(CHANNEL_FD))))

    def send(self, event: str, **values: Any) -> None:
        """Send an event to the parent."""
        self._connection.sendall(json.dumps({"event": event, **values}).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for the parent's next message.

        Raises:
            ModelInterferes: The channel is closed or the message is damaged: only the model's code shares the channel.
                If the parent is gone instead, no process is left to receive the error.
        """
        line = self._reader.readline()
        try:
            message = json.loads(line)
        except ValueError as error:
            raise _channel_broken("closed" if not line else "read from") from error
        if not isinstance(message, dict):
            raise _channel_broken("wrote to")
        return message

    def ask(self, question: str, **values: Any) -> Any:
        """Send a request to the parent and wait for the answer."""
        self.send("ask", question=question, **values)
        answer = self.receive()
        if error := answer.get("error"):
            raise from_dict(error)
        return answer.get("answer")

    def log(self, text: str, level: str = "info") -> None:
        """Send a line for the build's log."""
        self.send("log", level=level, text=text)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce the start of a named step, and its end with its duration in seconds."""
        self.send("step", name=name, state="running")
        started = time.monotonic()
        yield
        self.send("step", name=name, state="done", seconds=time.monotonic() - started)

    def detail(self, name: str, text: str) -> None:
        """Send a short line of progress within a step."""
        self.send("step", name=name, state="running", detail=text)
