"""Children: started with torch imported before a job comes, used once, watched while they work."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from pt2hub.errors import InternalError, Pt2hubError
from pt2hub.wire.problems import from_dict
from pt2hub_workers import sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.halting import Halt

MAX_LINE = 64 << 20
"""Bytes of one message; the largest are configs with thousands of constants."""
MAX_OUTPUT_LINE = 8192
"""Bytes kept of one line that a child prints."""
POLL_SECONDS = 0.2
"""Between two looks whether a child lives whose channel someone else holds open."""
LAST_WORDS_SECONDS = 2.0
"""A process that left the child's group may hold its output open for ever."""


class ChildDied(Exception):  # the runner turns it into one of our errors, by what the child was at
    """The child ended without an answer.

    Attributes:
        signal_name: The signal that ended it, or None.
        how: How it ended, as the end of a sentence about it.
        doing: The last thing it announced.
    """

    def __init__(self, exit_code: int | None, doing: str) -> None:
        """Describes the end.

        Args:
            exit_code: As subprocess reports it; None for one that neither spoke nor ended, and was killed.
            doing: The last thing it announced.
        """
        self.doing = doing
        self.signal_name = _signal_name(exit_code)
        self.how = _how(exit_code, self.signal_name)
        super().__init__(f"{self.how} during {doing}")

    @property
    def from_outside(self) -> bool:
        """Whether someone killed it, such as the kernel where memory was short: no fault raises these signals."""
        return self.signal_name in ("SIGKILL", "SIGTERM")


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
        self._begun = threading.Event()
        self._warm = False
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

    @property
    def warm(self) -> bool:
        """Whether it has imported what it needs."""
        return self._warm

    def wait_warm(self, seconds: float) -> bool:
        """Waits until it has imported what it needs, or ended; returns whether it is warm."""
        self._begun.wait(seconds)
        return self._warm

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        halt: Halt,
    ) -> Any:  # noqa: ANN401  # the job's JSON result
        """Gives the child its one job and serves it until the result; see `toolchains.Hand`."""
        self._on_output = on_output
        try:
            with halt.calling(self._interrupt):
                self._send(job)
                return self._until_result(on_event, seconds, halt)
        except ChildDied:
            halt.check()  # then it died of us
            raise
        finally:
            self.kill()
            self._output.join(LAST_WORDS_SECONDS)  # what it printed last is in the log before its error
            self._on_output = _ignore  # whatever a process that left the group still says

    def kill(self) -> None:
        """Ends the process and everything it started."""
        self._started.kill()

    def _interrupt(self) -> None:
        # Runs in the thread that halts, while ours may be busy with the storage: the group dies now, in any case.
        self._started.strike()
        self._messages.put(None)

    def _until_result(self, on_event: Callable[[dict[str, Any]], Any], seconds: float, halt: Halt) -> Any:  # noqa: ANN401  # as for `work`
        deadline = time.monotonic() + seconds
        while True:
            message = self._next(deadline, seconds, halt)
            if message["event"] == "result":
                return message["value"]
            if message["event"] == "error":
                raise from_dict(message["error"])
            began = time.monotonic()
            self._serve(message, on_event)
            if message.get("question") == "device":  # others had it: no time of this build
                deadline += time.monotonic() - began

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

    def _next(self, deadline: float, seconds: float, halt: Halt) -> dict[str, Any]:
        while True:
            halt.check()
            if time.monotonic() > deadline:
                raise ChildHung(seconds, self._doing)
            dead = not self.alive  # asked before the wait, in which its last message still arrives
            try:
                message = self._messages.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if dead:  # a process it forked holds the channel open
                    raise ChildDied(self._started.exit_code(), self._doing) from None
                continue
            if message is None:
                halt.check()
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
                        self._warm = True
                        self._begun.set()
                    else:
                        self._messages.put(message)
            except OSError:
                pass  # reset by a child that died before it read what it was sent: its exit code says why
            except (ValueError, KeyError, TypeError) as error:
                text = f"the child broke the channel: {error}"
                self._messages.put({"event": "error", "error": InternalError(text).as_dict()})
        self._begun.set()
        self._messages.put(None)

    def _read_output(self) -> None:
        with self._started.output as output:
            while line := output.readline(MAX_OUTPUT_LINE):
                self._on_output(line.decode(errors="replace").rstrip())


def _ignore(line: str) -> None:
    """What is printed before the job comes, and after it is over, is nobody's."""
    del line


def _how(exit_code: int | None, signal_name: str | None) -> str:
    if exit_code is None:
        return "left its channel to the worker, lived on and was killed"
    return f"was ended by {signal_name}" if signal_name else f"exited with code {exit_code}"


def _signal_name(exit_code: int | None) -> str | None:
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
