"""The child's end of the channel to its parent: JSON values, one a line, over a socket."""

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
"""Environment variable that names the inherited socket."""
CHANNEL_LOST = 76
"""Exit code of a child that cannot tell its worker anything any more: EX_PROTOCOL of sysexits.h."""


def _broken(how: str) -> ModelInterferes:
    return ModelInterferes(
        f"The model's code {how} the channel between its build's process and the worker",
        where="build",
        hint="A model must leave the file descriptors of its build alone: look for os.close, os.dup2 and os.closerange, "
        "and for daemons and pools that close everything they inherit.",
    )


class Channel:
    """Sends events to the parent and asks it questions."""

    def __init__(self, connection: socket.socket) -> None:
        """Takes ownership of the socket."""
        self._connection = connection
        self._reader = connection.makefile("rb")

    @classmethod
    def inherited(cls) -> Channel:
        """The channel that the parent opened before it started this process."""
        return cls(socket.socket(fileno=int(os.environ.pop(CHANNEL_FD))))

    def send(self, event: str, **values: Any) -> None:  # noqa: ANN401  # JSON values
        """Tells the parent something."""
        self._connection.sendall(json.dumps({"event": event, **values}).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Waits for the parent's next message.

        Raises:
            ModelInterferes: There is none, or it is damaged: nobody but the model's code shares the channel. Where the
                parent is gone instead, there is nobody left to be told.
        """
        line = self._reader.readline()
        try:
            message = json.loads(line)
        except ValueError as error:
            raise _broken("closed" if not line else "read from") from error
        if not isinstance(message, dict):
            raise _broken("wrote to")
        return message

    def ask(self, question: str, **values: Any) -> Any:  # noqa: ANN401  # JSON values
        """Asks the parent and waits for the answer.

        Raises:
            Pt2hubError: The parent's answer is an error, as the class it was raised with.
        """
        self.send("ask", question=question, **values)
        answer = self.receive()
        if error := answer.get("error"):
            raise from_dict(error)
        return answer.get("answer")

    def log(self, text: str, level: str = "info") -> None:
        """A line for the build's log."""
        self.send("log", level=level, text=text)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announces a named step, and its end with the seconds it took."""
        self.send("step", name=name, state="running")
        started = time.monotonic()
        yield
        self.send("step", name=name, state="done", seconds=time.monotonic() - started)

    def detail(self, name: str, text: str) -> None:
        """A short line of progress within a step."""
        self.send("step", name=name, state="running", detail=text)
