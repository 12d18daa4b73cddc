"""Attempts of the story's workers: claimed, reported and published as real ones, over what the no-op toolchain makes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import MANIFEST_TYPE, Descriptor
from pt2hub.domain.builds import LogLine, MeasureRequest, StepReport
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.performance.measurements import RUN_SCHEMA, MeasurementRun
from pt2hub.domain.workers import Registration
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds.child_answers import Answers
from pt2hub_workers.builds.child_messages import read_result
from pt2hub_workers.builds.job import WorkerContext
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.builds.publication import as_time, compose, compose_run
from pt2hub_workers.inside.operations import files
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.performance.trace_profiles import baseline_referrers, profile_referrers
from support.story import contents
from support.story.failures import FAILURES
from support.story.plot import Model, chance, is_gpu

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.digests import Digest
    from pt2hub.server.container import Container
    from pt2hub_workers.builds.build_verification import VerificationRun
    from pt2hub_workers.operations.machine import Machine
    from support.story.clock import Clock

_SECONDS = {
    "fetch": 1.6,
    "export": 9.0,
    "key": 0.4,
    "compile": 71.0,
    "pack": 1.3,
    "verify": 14.0,
    "upload": 1.1,
    "publish": 0.03,
    "reuse": 0.12,
    "measure": 41.0,
}
"""What steps usually take; those of a build up to `publish` are in order."""


@dataclass(frozen=True, slots=True)
class Job:
    """A build or a measuring job, and whose it is."""

    id: str
    model: Model
    number: int
    arch: str

    @property
    def machine(self) -> Machine:
        """What takes it."""
        return self.model.machine(self.number, self.arch)

    @property
    def program(self) -> int:
        """Which of the model's programs it builds."""
        return self.model.program(self.number)


@dataclass
class Journal:
    """The steps and lines of an attempt, by the story's clock."""

    job: Job
    began: float
    luck: Random
    timings: list[tuple[str, float]] = field(default_factory=list)
    steps: list[StepReport] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)

    def now(self) -> float:
        """Return the end of the last step, in seconds since the epoch."""
        return self.began + sum(seconds for _, seconds in self.timings)

    def line(self, text: str, level: str = "info") -> None:
        """Add a line to the log."""
        step = self.steps[-1].name if self.steps else "fetch"
        self.lines.append(LogLine(len(self.lines) + 1, round(self.now(), 3), step, level, text))

    def step(self, name: str, state: str = "done") -> None:
        """Let a step take its usual time."""
        usual = _SECONDS[name] * (2.1 if name == "compile" and is_gpu(self.job.arch) else 1.0)
        seconds = round(usual * self.luck.lognormvariate(0.0, 0.09), 3)
        self.steps.append(StepReport(name, state, self.now(), seconds if state == "done" else None))
        self.timings.append((name, seconds))
        if name == "export":
            self.line("\x1b[32mINFO\x1b[0m 6 tensors are loaded", "output")
        for kernel in contents.kernels(self.job.model, self.job.program, self.job.arch) * (name == "compile"):
            self.line(f"Compiling \x1b[1m{kernel}\x1b[0m for '{self.job.arch}'", "compiler")
        if state == "done":
            self.line(f"{name} took {seconds:.2f} s")


class _StoryVerification:
    """Says of every artifact that it passed its verification."""

    def run(self, run: VerificationRun) -> dict[str, Any]:
        """Return the report; nothing runs."""
        return contents.verification(run.config["provenance"]["build"])


class Attempts:
    """Makes attempts.

    Args:
        folder: For the no-op toolchain's files.
    """

    def __init__(self, services: Container, clock: Clock, folder: Path) -> None:
        self._services = services
        self._clock = clock
        self._toolchain = NoopToolchain(folder / "scratch")
        self._device = DeviceLock(folder / "device.lock")
        self._workers: set[str] = set()

    def build(self, job: Job, at: float) -> Digest:
        """Build and publish an artifact; return its digest."""
        claim, journal = self._claim(job, at)
        context = WorkerContext(
            self._services, job.machine, self._toolchain, self._device, (), verification_seconds=1.0
        )
        answers = Answers(claim, context, journal, _StoryVerification(), CancellationToken())  # type: ignore[arg-type]  # they are used as these
        child = self._toolchain.take("build")

        def hear(message: dict[str, Any]) -> Any:
            name = message.get("name")
            if message["event"] == "step" and message["state"] == "running" and name != "verify":
                journal.step(str(name))
            if name == "compile":
                zipped = contents.sources(job.model, job.program, claim.target.name, job.arch)
                own = contents.kernels(job.model, job.program, job.arch)
                for path, data in (
                    (files.SOURCES, zipped),
                    (files.FUSION, contents.fusion(own)),
                    *((files.DEBUG_LOGS[kind], log) for kind, log in contents.debug_logs(own).items()),
                ):
                    (child.workspace.host / path).write_bytes(data)
            if message.get("question") == "verify":
                message["parts"]["signature"]["device"] = claim.target.device
                message["parts"]["native"]["cpu_level"] = job.machine.environment.cpu_level
            return answers.answer(message) if message["event"] == "ask" else None

        try:
            told = {
                "spec": claim.spec,
                "request": claim.request,
                "target": encode(claim.target),
                "toolchain": encode(job.machine.toolchain),
                "directory": str(child.workspace.inside),
                **answers.fetch(child.workspace),
            }
            journal.step("fetch")
            value = child.work(
                told, on_event=hear, on_output=journal.line, seconds=3600.0, token=CancellationToken()
            )
            journal.step("verify")
            choices = [] if answers.reused_code else list(contents.autotune(job.program, job.arch))
            result = read_result({**value, "autotune": choices})
            verified, config = answers.verified_output(result)
            publication, pieces = compose(verified, result, config, journal.now())
            self._services.blobs.store(pieces, holder=claim.holder)
        finally:
            child.close()
        journal.step("upload")
        journal.step("publish")
        self._report(claim, journal)
        self._services.builds.publish(claim, publication)
        return publication.manifest.digest

    def measure(self, job: Job, at: float, before: tuple[int, Digest] | None, *, same_code: bool) -> None:
        """Do a measuring job.

        Args:
            before: Number and artifact of the version that it is measured beside.
            same_code: Whether both have the same code: then one short run suffices.
        """
        claim, journal = self._claim(job, at)
        artifact = decode(MeasureRequest, claim.request).artifact
        for name in ("fetch", "measure", "publish"):
            journal.step(name)
        bench = contents.Bench(job.model, job.arch, journal.luck)
        run = MeasurementRun(
            schema=RUN_SCHEMA,
            id=f"{claim.build}:{claim.attempt}:1",
            source="again",
            measured_at=as_time(journal.now()),
            environment=job.machine.environment,
            **bench.measure(job.number, before, brief=same_code),
        )
        trace = bench.trace(job.number)
        size = len(read_manifest(self._services.storage, artifact).as_bytes())
        profiles = (
            *profile_referrers(trace, trace.pack()),
            *baseline_referrers(bench.torch_compile_trace(job.number), "torch_compile"),
        )
        exhibits = () if same_code else profiles
        measured, pieces = compose_run(Descriptor(MANIFEST_TYPE, artifact, size), run, exhibits)
        self._services.blobs.store(pieces, holder=claim.holder)
        self._report(claim, journal)
        self._services.measuring_jobs.record(claim, [measured])

    def fail(self, job: Job, at: float, kind: str) -> float:
        """Make an attempt that ends badly; return when it did."""
        failure, builds = FAILURES[kind], self._services.builds
        claim, journal = self._claim(job, at)
        for name in list(_SECONDS)[: list(_SECONDS).index(failure.step)]:
            journal.step(name)
        journal.step(failure.step, "failed")
        for level, text in failure.printed:
            journal.line(text, level)
        self._report(claim, journal)
        if failure.error is None:
            builds.hand_back(claim)
        elif failure.again:
            builds.retry_later(claim, failure.error)
        else:
            builds.fail(claim, failure.error)
        return journal.now()

    def begin(self, job: Job, at: float) -> None:
        """Make an attempt that compiles."""
        claim, journal = self._claim(job, at)
        for name in ("fetch", "export", "key"):
            journal.step(name)
        journal.step("compile", "running")
        journal.steps[-1] = replace(journal.steps[-1], detail="autotuning: 11 of 20 choices made")
        self._services.builds.report(claim, journal.steps, journal.lines)

    def leave(self, alive: set[str], now: float) -> None:
        """Let workers end whose names are not among these, those of the older torch long ago."""
        for name in sorted(self._workers):
            self._clock.set(
                now if name in alive else now - (100 * 86400 if name.endswith("2.11") else 14_400)
            )
            if name in alive:
                self._services.workers.beat(name, {})
            else:
                self._services.workers.leave(name)

    def _claim(self, job: Job, at: float) -> tuple[Claim, Journal]:
        self._clock.set(at)
        self._register(job.machine)
        claim = self._services.builds.claim(job.id, job.machine.device)
        assert claim is not None, f"{job.model.name}@{job.number} is not queued"
        return claim, Journal(job, at, chance(job.model.name, job.number, job.arch, claim.attempt))

    def _report(self, claim: Claim, journal: Journal) -> None:
        """Report an attempt, and let its time pass."""
        self._services.builds.report(claim, journal.steps, journal.lines)
        self._clock.set(journal.now())

    def _register(self, machine: Machine) -> None:
        if machine.device in self._workers:
            self._services.workers.beat(machine.device, {})  # a server that runs would take it for lost
            return
        self._workers.add(machine.device)
        self._services.workers.register(
            Registration(
                worker_id=machine.device,
                target=machine.target,
                toolchain=machine.toolchain,
                environment=machine.environment,
                packages=machine.packages,
                host=f"{machine.device}.example.com",
                version="0.1.0",
                concurrency=1,
                clock=self._services.maintenance.contact(),
                isolation="sandbox",
                isolation_profile=digest_bytes(b"profile of the story's sandbox"),
            )
        )
