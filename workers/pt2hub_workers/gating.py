"""The publish gate: one process runs the artifact, another one judges what it computed; what the end of each means.

The first runs code that nobody has proven, the second runs none of it and never loads torch, so that no message or
file that the artifact forges is more than a wrong output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactHung,
    ArtifactWrong,
    InternalError,
    OutputRefused,
    Pt2hubError,
    WorkerLost,
)
from pt2hub_workers.children import ChildDied, ChildHung
from pt2hub_workers.inside.files import FOUND
from pt2hub_workers.messages import MAX_DETAIL, read_log

if TYPE_CHECKING:
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.rooms import Room
    from pt2hub_workers.toolchains import Hand, Toolchain


@dataclass(frozen=True, slots=True)
class Trial:
    """What is to be proven. The files were taken out of the build's room.

    Attributes:
        config: The artifact's config.
        code: Its code layer.
        weights: Its weights layer.
        trial: Inputs and perturbations.
        expected: What only the judge may know.
        accept: Verdicts that the spec accepts.
    """

    config: dict[str, Any]
    code: Path
    weights: Path
    trial: Path
    expected: Path
    accept: list[str]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears how it goes.

    Attributes:
        progress: Told what is done next.
        line: Told a line of the log and its level.
        printed: Told what a process printed.
    """

    progress: Callable[[str], object]
    line: Callable[[str, str], object]
    printed: Callable[[str], None]


class Gate:
    """Proves artifacts."""

    def __init__(self, toolchain: Toolchain, *, seconds: float, halt: Halt, listener: Listener) -> None:
        """Prepares.

        Args:
            toolchain: Gives the processes.
            seconds: Time limit of each of them.
            halt: Stops them.
            listener: Hears how it goes.
        """
        self._toolchain = toolchain
        self._seconds = seconds
        self._halt = halt
        self._listener = listener

    def prove(self, trial: Trial) -> dict[str, Any]:
        """Runs the artifact in a fresh process and has its outputs judged in another one.

        Args:
            trial: The artifact.

        Returns:
            The report.

        Raises:
            ArtifactCrashed: The process ended by itself, as by a signal that a fault raises.
            ArtifactHung: It did not answer in time.
            ArtifactWrong: It did not do what it was asked, or computed something else.
            LimitExceeded: It used more of the machine than it may.
            WorkerLost: It was killed from outside.
            Halted: It was told to stop.
            Pt2hubError: What the judge found.
        """
        with closing(self._toolchain.take("gate")) as hand:
            runs = self._run(hand, trial)
            found = _found(hand.room)
            return self._judge(trial, runs, found)

    def _run(self, hand: Hand, trial: Trial) -> Any:  # noqa: ANN401  # whatever its process answers
        room = hand.room
        files = {name: getattr(trial, name) for name in ("code", "weights", "trial")}
        names = {"code": "code.zip", "weights": "weights.safetensors", "trial": "trial.safetensors"}
        job = {
            "directory": str(room.inside),
            "config": trial.config,
            "found": room.seen(room.host / FOUND),
            **{name: room.seen(room.give(path, names[name])) for name, path in files.items()},
        }
        try:
            return self._work(hand, job)
        except ChildHung as hung:
            raise ArtifactHung(
                f"the artifact did not answer within {hung.seconds:g} s during: {hung.doing}",
                where="verify",
                hint="It was not published. The build's log has its last output.",
            ) from hung
        except ChildDied as died:
            raise _gate_died(died) from died
        except OutputRefused as error:
            raise _wrong(error) from error

    def _judge(self, trial: Trial, runs: Any, found: Path) -> dict[str, Any]:  # noqa: ANN401  # what the gate's process answered
        with closing(self._toolchain.take("judge")) as hand:
            room = hand.room
            job = {
                "expected": room.seen(room.give(trial.expected, "expected.safetensors")),
                "found": room.seen(room.give(found, "found.safetensors")),
                "runs": runs,
                "device": trial.config["target"]["device"],
                "accept": trial.accept,
            }
            try:
                report: dict[str, Any] = self._work(hand, job)
            except (ChildHung, ChildDied) as ended:
                raise _judge_ended(ended) from ended
            return report

    def _work(self, hand: Hand, job: dict[str, Any]) -> Any:  # noqa: ANN401  # as for `_run`
        return hand.work(
            job,
            on_event=self._on_event,
            on_output=self._listener.printed,
            seconds=self._seconds,
            halt=self._halt,
        )

    def _on_event(self, message: dict[str, Any]) -> None:
        """Tells of progress. Nothing is answered: whatever runs there has nothing to ask."""
        text = message.get("text")
        if message["event"] == "progress" and isinstance(text, str):
            self._listener.progress(text[:MAX_DETAIL] or "at work")
        elif message["event"] == "log":
            level, lines = read_log(message)
            for line in lines:
                self._listener.line(line, level)
        else:
            raise OutputRefused(f"it sent {message['event'][:40]!r}, which has no place here", where="verify")


def _found(room: Room) -> Path:
    try:
        return room.take(FOUND)
    except OutputRefused as error:
        raise _wrong(error) from error


def _wrong(error: OutputRefused) -> ArtifactWrong:
    return ArtifactWrong(
        f"the artifact's process did not do what it was asked: {error.message}",
        where="verify",
        hint="It was not published. The build's log has its last output.",
    )


def _gate_died(died: ChildDied) -> Pt2hubError:
    if died.from_outside:
        return lost(died, "the gate's process")
    return ArtifactCrashed(
        f"the artifact's process {died.how} during: {died.doing}",
        where="verify",
        hint="It was not published. A compiler that links libstdc++ statically is one known cause: "
        "set CXX to the system's g++.",
        context={"signal": died.signal_name, "doing": died.doing},
    )


def _judge_ended(ended: ChildDied | ChildHung) -> Pt2hubError:
    if isinstance(ended, ChildDied) and ended.from_outside:
        return lost(ended, "the judge's process")
    return InternalError(
        f"the judge of the artifact came to no end: {ended}",
        where="verify",
        hint="Nothing of the artifact runs in its process: please report this with the build's log.",
    )


def lost(died: ChildDied, what: str) -> WorkerLost:
    """The error of a child that someone killed.

    Args:
        died: How it ended.
        what: What it was, as the subject of the sentence.
    """
    return WorkerLost(
        f"{what} was killed from outside by {died.signal_name} during {died.doing}",
        where=died.doing,
        hint="Out of memory looks like this: see the kernel's log, or run fewer builds at a time there.",
        context={"signal": died.signal_name},
    )
