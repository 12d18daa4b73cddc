"""Children: started with torch imported before a job comes, used once, watched while they work."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from pt2hub.errors import InternalError, Pt2hubError, WorkerLost
from pt2hub.wire.problems import from_dict
from pt2hub_workers import sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_LINE = 64 << 20
"""Bytes of one message; the largest are configs with thousands of constants."""
MAX_OUTPUT_LINE = 8192
"""Bytes kept of one line that a child prints."""
STOP_POLL_SECONDS = 0.2
LAST_WORDS_SECONDS = 2.0
"""A process that left the child's group may hold its output open for ever."""


class ChildDied(Exception):  # the runner turns it into one of our errors, by what the child was at
    """The child ended without an answer.

    Attributes:
        signal_name: The signal that ended it, or None for an exit.
        exit_code: As subprocess reports it.
        doing: The last thing it announced.
    """

    def __init__(self, exit_code: int, doing: str) -> None:
        self.exit_code = exit_code
        self.doing = doing
        self.signal_name = _signal_name(exit_code)
        super().__init__(f"{self.signal_name or f'exit code {exit_code}'} during {doing}")


class ChildHung(Exception):  # as ChildDied
    """The child did not answer in time; it has been killed.

    Attributes:
        seconds: The limit.
        doing: The last thing it announced.
    """

    def __init__(self, seconds: float, doing: str) -> None:
        self.seconds = seconds
        self.doing = doing
        super().__init__(f"no answer within {seconds:g} s during {doing}")


class Child:
    """One child process and the dialogue with it."""

    def __init__(self, role: str, environ: Mapping[str, str]) -> None:
        """Starts the process; it begins to import at once.

        Args:
            role: `build` or `gate`.
            environ: Its environment.
        """
        self._started = sandbox.start(role, environ=environ)
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._on_output: Callable[[str], None] = _ignore
        self._doing = "start"
        self._warm = threading.Event()
        name = f"{role}-{self._started.process.pid}"
        self._output = threading.Thread(target=self._read_output, daemon=True, name=name)
        self._output.start()
        threading.Thread(target=self._read_channel, daemon=True, name=name).start()

    @property
    def pid(self) -> int:
        """Process id, and id of its process group."""
        return self._started.process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._started.process.poll() is None

    def wait_warm(self, seconds: float) -> bool:
        """Waits until it has imported what it needs; returns whether it has."""
        return self._warm.wait(seconds)

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        stop: threading.Event,
    ) -> Any:  # noqa: ANN401  # the job's JSON result
        """Gives the child its one job and serves it until the result.

        Args:
            job: JSON values.
            on_event: Called with each event; what it returns answers a question.
            on_output: Called with each line that the child prints.
            seconds: Time limit.
            stop: Set when the worker stops.

        Raises:
            ChildDied: It ended without an answer.
            ChildHung: It did not end in time.
            WorkerLost: The worker stops.
            Pt2hubError: The error it reported.
        """
        self._on_output = on_output
        deadline = time.monotonic() + seconds
        try:
            self._send(job)
            while True:
                message = self._next(deadline, seconds, stop)
                if message["event"] == "result":
                    return message["value"]
                if message["event"] == "error":
                    raise from_dict(message["error"])
                self._serve(message, on_event)
        finally:
            self.kill()
            self._output.join(LAST_WORDS_SECONDS)  # what it printed last is in the log before its error

    def kill(self) -> None:
        """Ends the process and everything it started."""
        self._started.kill()

    def _serve(self, message: dict[str, Any], on_event: Callable[[dict[str, Any]], Any]) -> None:
        if message["event"] in ("step", "progress"):
            self._doing = str(message.get("text") or message.get("name"))
        if message["event"] != "ask":
            on_event(message)
            return
        try:
            self._send({"answer": on_event(message)})
        except Pt2hubError as error:
            self._send({"error": error.as_dict()})
            raise

    def _next(self, deadline: float, seconds: float, stop: threading.Event) -> dict[str, Any]:
        while True:
            if stop.is_set():
                raise WorkerLost("the worker is stopping")
            if time.monotonic() > deadline:
                raise ChildHung(seconds, self._doing)
            dead = not self.alive  # asked before the wait, in which its last message still arrives
            try:
                message = self._messages.get(timeout=STOP_POLL_SECONDS)
            except queue.Empty:
                if dead:  # a process it forked holds the channel open
                    raise ChildDied(self._started.exit_code(), self._doing) from None
                continue
            if message is None:
                raise ChildDied(self._started.exit_code(), self._doing)
            return message

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._started.channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ChildDied(self._started.exit_code(), self._doing) from error

    def _read_channel(self) -> None:
        with self._started.channel.makefile("rb") as reader:
            try:
                while line := reader.readline(MAX_LINE):
                    message = json.loads(line)
                    if message["event"] == "ready":
                        self._warm.set()
                    else:
                        self._messages.put(message)
            except OSError:
                pass  # reset by a child that died before it read what it was sent: its exit code says why
            except (ValueError, KeyError, TypeError) as error:
                text = f"the child broke the channel: {error}"
                self._messages.put({"event": "error", "error": InternalError(text).as_dict()})
        self._messages.put(None)

    def _read_output(self) -> None:
        with self._started.output as output:
            while line := output.readline(MAX_OUTPUT_LINE):
                self._on_output(line.decode(errors="replace").rstrip())


class Pool:
    """Keeps one child of each role warm."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Creates the pool; `refill` starts the children.

        Args:
            environ: Their environment.
        """
        self._environ = dict(environ)
        self._ready: dict[str, Child] = {}
        self._lock = threading.Lock()
        self._closed = False

    def refill(self) -> None:
        """Starts what is missing; called when no build runs, so that imports disturb no timing."""
        with self._lock:
            for role in ("build", "gate"):
                child = self._ready.get(role)
                if not self._closed and (child is None or not child.alive):
                    self._ready[role] = Child(role, self._environ)

    def wait_warm(self, seconds: float) -> bool:
        """Waits until every child has imported what it needs; returns whether all have."""
        with self._lock:
            children = list(self._ready.values())
        deadline = time.monotonic() + seconds
        return all(child.wait_warm(max(0.0, deadline - time.monotonic())) for child in children)

    def take(self, role: str) -> Child:
        """A child of a role, warm if one is there; it belongs to the caller."""
        with self._lock:
            child = self._ready.pop(role, None)
        return child if child and child.alive else Child(role, self._environ)

    def close(self) -> None:
        """Ends every waiting child."""
        with self._lock:
            self._closed = True
            children, self._ready = list(self._ready.values()), {}
        for child in children:
            child.kill()


def _ignore(line: str) -> None:
    """What a child prints before its job comes is nobody's."""
    del line


def _signal_name(exit_code: int) -> str | None:
    if exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
