"""A whole server in a home of its own, for the demo and the benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.errors import InternalError, ServerUnreachable
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CHILD_SECONDS = 600.0
STOP_SECONDS = 60.0
_KEPT = ("PT2HUB_SCRATCH", "PT2HUB_HEADERS")
"""Settings of the caller that a trial keeps; all others belong to the caller's own server."""


class Trial:
    """A home that `pt2hub up` runs on, and fresh client processes beside it.

    Attributes:
        environ: The environment of everything it starts.
        home: The server's home.
    """

    def __init__(self, folder: Path, **environ: str) -> None:
        """Prepares the environment.

        Args:
            folder: An empty folder that the caller removes.
            **environ: Further variables.
        """
        self.home = folder / "home"
        self._log = folder / "up.log"
        folder.mkdir(parents=True, exist_ok=True)
        own = {k: v for k, v in os.environ.items() if not k.startswith("PT2HUB_") or k in _KEPT}
        self.environ = own | {"PT2HUB_HOME": str(self.home), "PT2HUB_PORT": "0"} | environ

    @contextmanager
    def server(self, environ: Mapping[str, str] | None = None) -> Iterator[Client]:
        """Runs `pt2hub up` while the block runs; what is published stays for the next server.

        Args:
            environ: Further variables of this server alone.

        Raises:
            ServerUnreachable: It did not start.
        """
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pt2hub", "up", "--json"],
                env=self.environ | dict(environ or {}),
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches this process, which then stops the server in order
            )
        try:
            self._await(process)
            with Client(ClientConfig.from_environ(self.environ)) as client:
                yield client
        finally:
            _stop(process)

    def child(self, what: str, *arguments: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Runs `pt2hub_workers.demonstration` in a fresh process and returns its JSON.

        Args:
            what: Which demonstration.
            *arguments: Its arguments.
            environ: Further variables.

        Raises:
            InternalError: It failed.
        """
        done = subprocess.run(
            [sys.executable, "-m", "pt2hub_workers.demonstration", what, *arguments],
            env=self.environ | dict(environ or {}),
            capture_output=True,
            timeout=CHILD_SECONDS,
            check=False,
            text=True,
        )
        if done.returncode:
            text = done.stderr.strip()[-800:]
            raise InternalError(
                f"it ended with code {done.returncode}: {text}", where=f"demonstration {what}"
            )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the one JSON line that `pt2hub up --json` prints when everything runs."""
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            text = self._log.read_text(errors="replace").strip()[-800:]
            raise ServerUnreachable(
                f"pt2hub up ended with code {process.wait()}: {text}",
                where="pt2hub up",
                hint="Run `pt2hub up` by itself to see the whole message.",
            )
        if error := json.loads(line).get("error"):
            raise from_dict(error)


def _stop(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes the pipe and waits
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return
        process.kill()
