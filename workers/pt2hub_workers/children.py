"""Children: started before a job comes, used once, watched while they work.

What they send comes from a process in which users' code runs: it is read as such.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from pt2hub.errors import InternalError, LimitExceeded, OutputRefused, Pt2hubError, StaleAttempt
from pt2hub.wire.problems import from_dict
from pt2hub_workers.inside.channel import CHANNEL_LOST
from pt2hub_workers.mailbox import MAX_LINE, Mailbox, read_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.halting import Halt
    from pt2hub_workers.rooms import Room
    from pt2hub_workers.sandbox import Exceeded, Launcher

MAX_ERROR = 256 << 10
"""Characters of an error that a child reports; one with twenty comparisons has some thousands."""
MAX_MESSAGE = 8192
"""Characters that are left of a longer one."""
MAX_DOING = 300
"""Characters of what a child says it is at."""
MAX_OUTPUT_LINE = 8192
"""Bytes kept of one line that a child prints."""
POLL_SECONDS = 0.2
"""Between two looks whether a child lives whose channel someone else holds open."""
LAST_WORDS_SECONDS = 2.0
"""A process that left the child's group may hold its output open for ever."""
_READY = b'{"event": "ready"}\n'


class ChildDied(Exception):  # the runner turns it into one of our errors, by what the child was at
    """The child ended without an answer.

    Attributes:
        signal_name: The signal that ended it, or None.
        how: How it ended, as the end of a sentence about it.
        lost_channel: Whether code that ran there closed its channel to the worker.
        doing: The last thing it announced.
    """

    def __init__(self, exit_code: int | None, doing: str, *, stopped: bool = False) -> None:
        """Describes the end.

        Args:
            exit_code: As subprocess reports it; None for one that neither spoke nor ended, and was killed.
            doing: The last thing it announced.
            stopped: Whether it was killed because it had stopped itself.
        """
        self.doing = doing
        self.signal_name = None if stopped else _signal_name(exit_code)
        self.lost_channel = not stopped and exit_code in (None, CHANNEL_LOST)
        self.how = "stopped itself and was killed" if stopped else _how(exit_code, self.signal_name)
        super().__init__(f"{self.how} during {doing}")

    @property
    def by_itself(self) -> bool:
        """Whether it ended, stopped or fell silent without a signal: code that runs there wanted it so."""
        return self.signal_name is None

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
    """One child process, its room and the dialogue with it."""

    def __init__(
        self, role: str, launcher: Launcher, *, environ: Mapping[str, str], room: Room | None = None
    ) -> None:
        """Starts the process; it begins to import at once.

        Args:
            role: `build`, `gate` or `judge`.
            launcher: Starts it.
            environ: Its environment.
            room: Its room, which the child closes; without a sandbox it may be given later, by `enter`.

        Raises:
            SandboxUnavailable: It cannot be confined.
        """
        self._room = room
        self._started = launcher.start(role, environ=environ, room=room)
        self._mailbox = Mailbox()
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
        """Process id of what was started, and id of its process group; in a sandbox the sandbox's own."""
        return self._started.process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._started.process.poll() is None

    @property
    def warm(self) -> bool:
        """Whether it has imported what it needs."""
        return self._warm

    @property
    def room(self) -> Room:
        """Where it works."""
        if self._room is None:
            raise InternalError("a child was given no room")
        return self._room

    def enter(self, room: Room) -> Child:
        """Gives a child without a sandbox its room."""
        self._room = room
        return self

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
        except (ChildDied, LimitExceeded):
            halt.check()  # then it died of us
            raise
        finally:
            self.kill()
            self._output.join(LAST_WORDS_SECONDS)  # what it printed last is in the log before its error
            self._on_output = _ignore  # whatever a process that left the group still says

    def kill(self) -> None:
        """Ends the process and everything it started; its room stays."""
        self._started.kill()
        self._mailbox.end()

    def close(self) -> None:
        """Ends the process and removes its room."""
        self.kill()
        if self._room is not None:
            room, self._room = self._room, None
            room.close()

    def _interrupt(self) -> None:
        # Runs in the thread that halts, while ours may be busy with the storage: the group dies now, in any case.
        self._started.strike()
        self._mailbox.wake()

    def _until_result(self, on_event: Callable[[dict[str, Any]], Any], seconds: float, halt: Halt) -> Any:  # noqa: ANN401  # as for `work`
        deadline = time.monotonic() + seconds
        while True:
            message = self._next(deadline, seconds, halt)
            if message["event"] == "result":
                return message.get("value")
            if message["event"] == "error":
                raise self._told(message.get("error"))
            waited = self._serve(message, on_event)
            if (
                message.get("question") == "device" and waited > POLL_SECONDS
            ):  # others had it: no time of this build
                deadline += waited

    def _serve(self, message: dict[str, Any], on_event: Callable[[dict[str, Any]], Any]) -> float:
        """Passes a message on, and answers a question; returns the seconds that finding the answer took."""
        began = time.monotonic()
        if message["event"] in ("step", "progress"):
            self._doing = str(message.get("text") or message.get("name"))[:MAX_DOING]
        if message["event"] != "ask":
            on_event(message)
            return 0.0
        try:
            answer = on_event(message)
        except Pt2hubError as error:
            with contextlib.suppress(ChildDied, LimitExceeded):  # then nobody needs to be told
                self._send({"error": error.as_dict()})
            raise
        took = time.monotonic() - began
        try:
            self._write({"answer": answer})  # one that does not read it has all its time to do so
        except (BrokenPipeError, ConnectionResetError):
            pass  # it hears no answers any more: its last words, or its end, are read next
        except OSError as error:
            raise self._ended() from error
        return took

    def _next(self, deadline: float, seconds: float, halt: Halt) -> dict[str, Any]:
        while True:
            halt.check()
            if time.monotonic() > deadline:
                raise ChildHung(seconds, self._doing)
            dead = not self.alive  # asked before the wait, in which its last message still arrives
            line = self._mailbox.take(POLL_SECONDS)
            if line:
                return self._read(line)
            halt.check()
            if line is not None or dead:  # where it is None, a process that it forked holds the channel open
                raise self._ended()

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            return read_message(line)
        except ValueError as error:
            raise OutputRefused(
                f"the process broke the channel to its worker: {str(error)[:MAX_DOING]}",
                where=self._doing,
                hint="A model must leave the file descriptors of its build alone.",
            ) from error

    def _told(self, document: Any) -> Pt2hubError:  # noqa: ANN401  # whatever it sent
        """The error that it reports, unless it passed a bound: then that is the reason."""
        if exceeded := self._started.exceeded():
            return _over(exceeded, self._doing)
        told = from_dict(document if isinstance(document, dict) else {})
        if isinstance(told, StaleAttempt):  # only the database says who is overtaken
            return InternalError(told.message, where=self._doing)
        if len(json.dumps(told.as_dict())) > MAX_ERROR:
            return type(told)(told.message[:MAX_MESSAGE], where=self._doing)
        return told

    def _ended(self) -> ChildDied | LimitExceeded:
        """Why it ended without an answer."""
        code = self._started.exit_code()
        if exceeded := self._started.exceeded():
            return _over(exceeded, self._doing)
        return ChildDied(code, self._doing, stopped=self._started.bounds.stopped_itself)

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._write(message)
        except OSError as error:
            raise self._ended() from error

    def _write(self, message: Mapping[str, Any]) -> None:
        self._started.channel.sendall(json.dumps(message).encode() + b"\n")

    def _read_channel(self) -> None:
        with self._started.channel.makefile("rb") as reader, contextlib.suppress(OSError):
            # It is reset by a child that died before it read what it was sent: its exit code says why.
            while line := reader.readline(MAX_LINE):
                if not self._warm and line == _READY:
                    self._warm = True
                    self._begun.set()
                elif not self._mailbox.put(line):
                    break
        self._begun.set()
        self._mailbox.end()

    def _read_output(self) -> None:
        with self._started.output as output:
            while line := output.readline(MAX_OUTPUT_LINE):
                self._on_output(line.decode(errors="replace").rstrip())


def _over(exceeded: Exceeded, doing: str) -> LimitExceeded:
    return LimitExceeded(
        exceeded.text,
        where=doing,
        hint=exceeded.hint,
        context={"what": exceeded.what, "limit": exceeded.limit},
    )


def _ignore(line: str) -> None:
    """What is printed before the job comes, and after it is over, is nobody's."""
    del line


def _how(exit_code: int | None, signal_name: str | None) -> str:
    if exit_code is None:
        return "left its channel to the worker, lived on and was killed"
    if exit_code == CHANNEL_LOST:
        return "lost its channel to the worker and ended"
    return f"was ended by {signal_name}" if signal_name else f"exited with code {exit_code}"


def _signal_name(exit_code: int | None) -> str | None:
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
