"""Child processes: started before a job arrives, used once, watched while they work.

Their messages come from processes that run users' code, and are untrusted.
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
from pt2hub_workers.children.mailbox import MAX_LINE, Mailbox, read_message
from pt2hub_workers.inside.operations.channel import CHANNEL_LOST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.sandbox import Exceeded, Launcher
    from pt2hub_workers.sandbox.workspaces import Workspace

MAX_ERROR = 256 << 10
"""Characters of an error that a child reports; one with twenty comparisons has a few thousand."""
MAX_MESSAGE = 8192
"""Maximum length of an error's message."""
MAX_DOING = 300
"""Characters of a child's description of its current work."""
MAX_OUTPUT_LINE = 8192
"""Bytes kept of one line that a child prints."""
POLL_SECONDS = 0.2
"""Interval of checks that a child is alive: another process may hold its channel open."""
LAST_WORDS_SECONDS = 2.0
"""How long to wait for the end of the output: a process that left the child's group may hold it open forever."""
_READY = b'{"event": "ready"}\n'


class ChildDied(Exception):  # attempts turn it into a Pt2hubError, by the step
    """The child ended without an answer.

    Attributes:
        how: How the child ended, as a predicate: "exited with code 1".

    Args:
        exit_code: As subprocess reports it; None if the child left its channel, did not end and was killed.
    """

    def __init__(self, exit_code: int | None, doing: str, *, stopped: bool = False) -> None:
        self.doing = doing
        self.signal_name = None if stopped else _signal_name(exit_code)
        self.lost_channel = not stopped and exit_code in (None, CHANNEL_LOST)
        self.how = "stopped itself and was killed" if stopped else _describe_exit(exit_code, self.signal_name)
        super().__init__(f"{self.how} (step: {doing})")

    @property
    def by_itself(self) -> bool:
        """Whether it ended, stopped or left its channel without a signal, so by code that runs in it."""
        return self.signal_name is None

    @property
    def from_outside(self) -> bool:
        """Whether it was killed from outside, such as by the kernel when memory is short: no fault raises these signals."""
        return self.signal_name in ("SIGKILL", "SIGTERM")


class ChildHung(Exception):  # see ChildDied
    """The child did not answer in time and was killed."""

    def __init__(self, seconds: float, doing: str) -> None:
        self.seconds = seconds
        self.doing = doing
        super().__init__(f"no answer within {seconds:g} s (step: {doing})")


class Child:
    """Child process with its workspace and its channel.

    Args:
        workspace: Its workspace, which `close` removes; without a sandbox it may be set later, by `enter`.
    """

    def __init__(
        self, role: str, launcher: Launcher, *, environ: Mapping[str, str], workspace: Workspace | None = None
    ) -> None:
        self._workspace = workspace
        self._started = launcher.start(role, environ=environ, workspace=workspace)
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
        """Id of the started process and of its process group; in a sandbox that of bubblewrap."""
        return self._started.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._started.process.poll() is None

    @property
    def warm(self) -> bool:
        """Whether the child has finished its imports."""
        return self._warm

    @property
    def workspace(self) -> Workspace:
        """Workspace of the child."""
        if self._workspace is None:
            raise InternalError("the child has no workspace")
        return self._workspace

    def enter(self, workspace: Workspace) -> Child:
        """Set the workspace of a child without a sandbox."""
        self._workspace = workspace
        return self

    def wait_warm(self, seconds: float) -> bool:
        """Wait until the child has finished its imports or ended; return whether it is warm."""
        self._begun.wait(seconds)
        return self._warm

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        token: CancellationToken,
    ) -> Any:
        """Send the child its one job and answer its questions until the result; see `toolchains.ChildHandle`."""
        self._on_output = on_output
        try:
            with token.calling(self._interrupt):
                self._send(job)
                return self._until_result(on_event, seconds, token)
        except (ChildDied, LimitExceeded):
            token.check()  # if set, the cancellation killed it
            raise
        finally:
            self.kill()
            self._output.join(LAST_WORDS_SECONDS)  # its last output precedes its error in the log
            self._on_output = _ignore  # a process that left the group may still print

    def kill(self) -> None:
        """Kill the process and everything it started; its workspace stays."""
        self._started.kill()
        self._mailbox.end()

    def close(self) -> None:
        """Kill the process and remove its workspace."""
        self.kill()
        if self._workspace is not None:
            workspace, self._workspace = self._workspace, None
            workspace.close()

    def _interrupt(self) -> None:
        # Runs in the cancelling thread, while ours may be busy with the storage: kill the group at once.
        self._started.strike()
        self._mailbox.wake()

    def _until_result(
        self, on_event: Callable[[dict[str, Any]], Any], seconds: float, token: CancellationToken
    ) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            message = self._next(deadline, seconds, token)
            if message["event"] == "result":
                return message.get("value")
            if message["event"] == "error":
                raise self._reported_error(message.get("error"))
            waited = self._serve(message, on_event)
            if message.get("question") == "device" and waited > POLL_SECONDS:  # others had it
                deadline += waited

    def _serve(self, message: dict[str, Any], on_event: Callable[[dict[str, Any]], Any]) -> float:
        """Pass on a message and answer a question; return the seconds until the answer was found."""
        began = time.monotonic()
        if message["event"] in ("step", "progress"):
            self._doing = str(message.get("text") or message.get("name"))[:MAX_DOING]
        if message["event"] != "ask":
            on_event(message)
            return 0.0
        try:
            answer = on_event(message)
        except Pt2hubError as error:
            with contextlib.suppress(ChildDied, LimitExceeded):  # then the child needs no answer
                self._send({"error": error.as_dict()})
            raise
        took = time.monotonic() - began
        try:
            self._write({"answer": answer})  # a child that does not read it uses up its own time
        except (BrokenPipeError, ConnectionResetError):
            pass  # it reads no answers any more: its last messages, or its end, follow
        except OSError as error:
            raise self._end_reason() from error
        return took

    def _next(self, deadline: float, seconds: float, token: CancellationToken) -> dict[str, Any]:
        while True:
            token.check()
            if time.monotonic() > deadline:
                raise ChildHung(seconds, self._doing)
            dead = not self.alive  # read before the wait, in which its last message still arrives
            line = self._mailbox.take(POLL_SECONDS)
            if line:
                return self._read(line)
            token.check()
            if line is not None or dead:  # if None, a process that it forked holds the channel open
                raise self._end_reason()

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            return read_message(line)
        except ValueError as error:
            raise OutputRefused(
                f"invalid message on the channel to the worker: {str(error)[:MAX_DOING]}",
                where=self._doing,
                hint="A model must not use the file descriptors of its build.",
            ) from error

    def _reported_error(self, document: Any) -> Pt2hubError:
        """Return the error that the child reports, or the limit that it exceeded, which explains the error."""
        if exceeded := self._started.find_exceeded():
            return _limit_error(exceeded, self._doing)
        reported = from_dict(document if isinstance(document, dict) else {})
        if isinstance(reported, StaleAttempt):  # only the database decides this
            return InternalError(reported.message, where=self._doing)
        if len(json.dumps(reported.as_dict())) > MAX_ERROR:
            return type(reported)(reported.message[:MAX_MESSAGE], where=self._doing)
        return reported

    def _end_reason(self) -> ChildDied | LimitExceeded:
        """Return the reason why the child ended without an answer."""
        code = self._started.exit_code()
        if exceeded := self._started.find_exceeded():
            return _limit_error(exceeded, self._doing)
        return ChildDied(code, self._doing, stopped=self._started.bounds.stopped_itself)

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._write(message)
        except OSError as error:
            raise self._end_reason() from error

    def _write(self, message: Mapping[str, Any]) -> None:
        self._started.channel.sendall(json.dumps(message).encode() + b"\n")

    def _read_channel(self) -> None:
        with self._started.channel.makefile("rb") as reader, contextlib.suppress(OSError):
            # A child that died before it read its messages resets the channel; its exit code says why.
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


def _limit_error(exceeded: Exceeded, doing: str) -> LimitExceeded:
    return LimitExceeded(
        exceeded.text,
        where=doing,
        hint=exceeded.hint,
        context={"what": exceeded.what, "limit": exceeded.limit},
    )


def _ignore(line: str) -> None:
    """Ignore output from before and after the job."""
    del line


def _describe_exit(exit_code: int | None, signal_name: str | None) -> str:
    if exit_code is None:
        return "closed its channel to the worker, did not end and was killed"
    if exit_code == CHANNEL_LOST:
        return "lost its channel to the worker"
    return f"was terminated by {signal_name}" if signal_name else f"exited with code {exit_code}"


def _signal_name(exit_code: int | None) -> str | None:
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
