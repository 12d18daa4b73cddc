"""One attempt at a build: its steps, and the ends that its process may come to."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.codec import encode
from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactHung,
    ArtifactWrong,
    BuildTimedOut,
    CompileFailed,
    ExportFailed,
    InternalError,
    ModelInterferes,
    Pt2hubError,
)
from pt2hub.server.container import Container
from pt2hub.server.redaction import Redactor
from pt2hub_workers.answering import Answers
from pt2hub_workers.children import ChildDied, ChildHung
from pt2hub_workers.device import Device
from pt2hub_workers.gating import Gate, Listener, lost
from pt2hub_workers.holding import Holding
from pt2hub_workers.machine import Machine
from pt2hub_workers.messages import read_log, read_result, read_step, refused
from pt2hub_workers.outages import persisting
from pt2hub_workers.publication import compose
from pt2hub_workers.runs import compare
from pt2hub_workers.toolchains import Toolchain

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.publications import Publication
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.journal import Journal
    from pt2hub_workers.messages import Result
    from pt2hub_workers.rooms import Room

DEFAULT_SECONDS = 3600
MAX_REPORTS = 1000
"""Of steps and their progress; a build makes some twenty, and each is kept or stands in the worker's own log."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Tools:
    """What every attempt of a worker uses.

    Attributes:
        container: The server's services.
        machine: What this worker is.
        toolchain: Does the work, and knows how it is confined.
        device: What timings hold alone.
        factories: Modules whose factories a spec may name.
        gate_seconds: The gate's time limit.
        redactor: Takes secrets out of logs.
        image: The container image that the worker runs in, where it was told.
    """

    container: Container
    machine: Machine
    toolchain: Toolchain
    device: Device
    factories: tuple[str, ...]
    gate_seconds: float
    redactor: Redactor = field(default_factory=Redactor)
    image: str | None = None


class Attempt:
    """One attempt at a build."""

    def __init__(self, claim: Claim, tools: Tools, journal: Journal, halt: Halt) -> None:
        """Prepares the attempt.

        Args:
            claim: The build.
            tools: The worker's.
            journal: Where steps and lines go.
            halt: Stops it.
        """
        self._claim = claim
        self._tools = tools
        self._journal = journal
        self._halt = halt
        self._step = "fetch"
        self._reports = 0
        self._holding = Holding(tools.device, halt, self._tell, journal.waited)
        gate = Gate(tools.toolchain, seconds=tools.gate_seconds, halt=halt, listener=self._listener("verify"))
        self._answers = Answers(claim, tools, journal, gate, halt)

    def run(self) -> None:
        """Runs every step; returns when the artifact is published.

        Raises:
            Halted: It was told to stop.
            Pt2hubError: A step failed.
        """
        # The whole attempt shares the device, for hashing a large file disturbs timings as well.
        with ExitStack() as rooms:
            with self._holding.shared():
                result = self._prove(rooms)
                with self._journal.timed("upload"):
                    publication = self._upload(result)
            with self._journal.timed("publish"), self._journal.handing_over() as steps:
                builds = self._tools.container.builds
                persisting(lambda: builds.publish(self._claim, publication, steps), self._halt)
        compare(self._tools.container)

    def _listener(self, step: str) -> Listener:
        """Hears processes other than the build's own, whose progress belongs to a step."""
        journal = self._journal
        return Listener(
            progress=lambda text: journal.step(step, "running", detail=text),
            line=journal.line,
            printed=journal.printed,
        )

    def _tell(self, detail: str) -> None:
        self._journal.step(self._step, "running", detail=detail)

    def _prove(self, rooms: ExitStack) -> Result:
        """Runs the build up to its proof; reused code that fails the gate is not tried again, or every retry would fail with it."""
        try:
            return self._work(rooms)
        except (ArtifactWrong, ArtifactCrashed, ArtifactHung) as error:
            code = self._answers.reused
            if code is None:
                raise
            self._journal.line(f"reused code {code} failed, compiling instead: {error}", "error")
            _log.error("reused code failed", build=self._claim.build, code=code, error=error.code)
        self._answers.forbid_reuse()
        rooms.close()  # nothing of the first try is there for the second
        self._holding.become("shared")
        return self._work(rooms)

    def _work(self, rooms: ExitStack) -> Result:
        with self._journal.timed("fetch"):
            hand = self._tools.toolchain.take("build")
            rooms.callback(hand.close)
            job = self._job(hand.room)
        try:
            value = hand.work(
                job,
                on_event=self._on_event,
                on_output=self._journal.printed,
                seconds=float(self._claim.spec.get("limits", {}).get("seconds", DEFAULT_SECONDS)),
                halt=self._halt,
            )
        except ChildHung as hung:
            raise BuildTimedOut(
                f"the build took longer than {hung.seconds:g} s; it was at {hung.doing}",
                where=hung.doing,
                hint="Raise limits: {seconds: ...} in the spec, or lower the autotuning options.",
            ) from hung
        except ChildDied as died:
            raise self._died(died) from died
        return read_result(value)

    def _job(self, room: Room) -> dict[str, Any]:
        claim = self._claim
        return {
            "spec": claim.spec,
            "request": claim.request,
            "target": encode(claim.target),
            "toolchain": encode(self._tools.machine.toolchain),
            "directory": str(room.inside),
            **self._answers.fetch(room),
            "host_flags": list(self._tools.machine.cpu_flags),
            "factories": list(self._tools.factories),
        }

    def _died(self, died: ChildDied) -> Pt2hubError:
        if died.from_outside:
            return lost(died, "the build's process")
        step = self._step
        if died.by_itself and step not in ("fetch", "compile"):
            kind = ModelInterferes if died.lost_channel else ExportFailed
            return kind(
                f"the build's process {died.how} during {step}",
                where=step,
                hint="A model must leave the process alone: it may neither end nor stop it, nor close its files.",
            )
        context = {"signal": died.signal_name}
        if step not in ("fetch", "compile"):  # the model's code has been imported in that process
            return ExportFailed(
                f"the build's process {died.how} during {died.doing}: the model's code, or a library that it calls, "
                "crashed",
                where=step,
                hint="The build's log has its last output. Import the code and call the model at the spec's sizes in a "
                "fresh Python process: `python -X faulthandler` names the line.",
                context=context,
            )
        error = CompileFailed if step == "compile" else InternalError
        return error(
            f"the build's process {died.how} during {died.doing}",
            where=died.doing,
            hint="The build's log has its last output.",
            context=context,
        )

    def _on_event(self, message: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON values
        match message["event"]:
            case "ask" if message.get("question") == "device":
                self._holding.become("exclusive" if message.get("mode") == "exclusive" else "shared")
                return None
            case "ask":
                return self._answers.answer(message)
            case "step":
                self._reports += 1
                if self._reports > MAX_REPORTS:
                    raise refused("it reports of its steps without end")
                step = read_step(message)
                self._step = step.name
                seconds = (
                    None if step.seconds is None else self._journal.without_waits(step.name, step.seconds)
                )
                self._journal.step(step.name, step.state, seconds=seconds, detail=step.detail)
            case "log":
                level, lines = read_log(message)
                for line in lines:
                    self._journal.line(line, level)
            case other:
                raise refused(f"{other[:40]!r} is no event of a build")
        return None

    def _upload(self, result: Result) -> Publication:
        files, config = self._answers.proven(result)
        composed = compose(files, result, config, self._journal.now())
        blobs = self._tools.container.blobs
        persisting(lambda: blobs.store(composed.pieces, holder=self._claim.holder), self._halt)
        return composed.publication
