"""One attempt at a measuring job: a published artifact is timed in fresh processes, and nothing is built to be published.

The full comparison times it beside the version before it, eager and torch.compile. Where the code is that of the version
before, one short run suffices, since no kernel can differ.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import MANIFEST_TYPE, Descriptor
from pt2hub.domain.builds import MeasureRequest
from pt2hub.domain.codec import decode
from pt2hub.domain.specs import Spec
from pt2hub.errors import BuildTimedOut
from pt2hub.server.services.documents import read_manifest
from pt2hub_workers.baselines import Baselines
from pt2hub_workers.build_inputs import BuildInputs
from pt2hub_workers.figures import BASELINE
from pt2hub_workers.gating import Listener
from pt2hub_workers.holding import Holding
from pt2hub_workers.outages import persisting
from pt2hub_workers.publication import compose_run, exhibits_of
from pt2hub_workers.replicating import Bench, replicate
from pt2hub_workers.runs import compare, make_run
from pt2hub_workers.subjects import Plan, differing_inputs, fetch_subject, with_baseline

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.measurements import Measurement, MeasurementRun
    from pt2hub.domain.publications import MeasuredRun
    from pt2hub.server.services.blobs import Piece
    from pt2hub_workers.attempt import Tools
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.journal import Journal
    from pt2hub_workers.traces import Trace

UNCHANGED = "code unchanged: the artifact runs the code of the version before, so that no kernel can differ"
"""The note of a short run."""


class Benchmark:
    """One attempt at a measuring job."""

    def __init__(self, claim: Claim, tools: Tools, journal: Journal, halt: Halt) -> None:
        """Prepare the attempt.

        Args:
            claim: The job.
            tools: The worker's.
            journal: Where steps and lines go.
            halt: Stops it.
        """
        self._claim = claim
        self._request = decode(MeasureRequest, claim.request)
        self._spec = Spec.from_canonical(claim.spec)
        self._tools = tools
        self._journal = journal
        self._halt = halt
        self._step = "fetch"
        self._trace: Trace | None = None
        self._holding = Holding(tools.device, halt, self._tell, journal.waited, yields=True)

    def run(self) -> None:
        """Run every step; return when the figures are kept.

        Raises:
            Halted: It was told to stop.
            Pt2hubError: A step failed.
        """
        with ExitStack() as rooms, self._holding.shared():
            with self._journal.timed("fetch"):
                room = self._tools.toolchain.open_room()
                rooms.callback(room.close)
                subject = self._subject()
                plan = self._plan(room.host / "held")
            self._step = "measure"
            with self._journal.timed("measure"):
                runs = self._measured(plan)
        with self._journal.timed("publish"):
            self._publish(subject, runs)
        compare(self._tools.container)

    def _tell(self, detail: str) -> None:
        self._journal.step(self._step, "running", detail=detail)

    def _subject(self) -> Descriptor:
        """Return the artifact's manifest, as what refers to it names it."""
        storage, digest = self._tools.container.storage, self._request.artifact
        manifest = persisting(lambda: read_manifest(storage, digest), self._halt)
        return Descriptor(MANIFEST_TYPE, digest, len(manifest.as_bytes()))

    def _plan(self, into: Path) -> Plan:
        container, halt = self._tools.container, self._halt
        artifact = fetch_subject(container, self._request.artifact, name="artifact", into=into, halt=halt)
        examples = BuildInputs.of(self._claim, None).fetch_examples(into, container.storage, halt)
        traced = persisting(lambda: container.measuring.is_profiled(self._request.artifact), halt)
        plan = Plan(self._spec, examples, artifact, profile=not traced)
        if wanted := self._request.beside:  # by name: without it the figures are not what was wanted
            found = fetch_subject(container, wanted, name=BASELINE, into=into, halt=halt)
            plan = replace(plan, baseline=found)
        else:
            plan = with_baseline(plan, container, into=into, halt=halt)
        plan = self._shortened(plan)
        self._journal.line(f"times {self._request.artifact}, {_beside(plan)}")
        return plan

    def _shortened(self, plan: Plan) -> Plan:
        """Return the plan of a short run, where one suffices."""
        other = plan.baseline
        if self._request.brief and other is not None and plan.artifact.runs_the_code_of(other):
            return replace(plan, baseline=None, note=UNCHANGED, brief=True)
        return plan

    def _measured(self, plan: Plan) -> list[MeasurementRun]:
        limit, repeat = self._spec.limits.seconds, self._request.repeat
        began = time.monotonic()
        runs = []
        for number in range(1, repeat + 1):
            if repeat > 1:
                self._tell(f"run {number} of {repeat}")
            runs.append(self._run(plan, number))
            if time.monotonic() - began - self._holding.waited > limit and number < repeat:
                raise BuildTimedOut(
                    f"{number} of {repeat} runs took longer than {limit} s",
                    where="measure",
                    hint="Ask for fewer runs with --repeat; the limit is limits: {seconds: ...} of the spec.",
                )
        return runs

    def _run(self, plan: Plan, number: int) -> MeasurementRun:
        bench = self._bench(number)
        figures = replicate(plan if number == 1 else replace(plan, profile=False), bench)
        others: list[Measurement] = []
        if number == 1:
            self._trace = figures.trace
            others, note = self._baselines(plan, bench)
            figures = replace(figures, note="; ".join(filter(None, (figures.note, note))) or None)
        return make_run(
            figures,
            claim=self._claim,
            at=self._journal.now(),
            environment=self._tools.machine.environment,
            others=others,
            suffix=f":{number}",
        )

    def _baselines(self, plan: Plan, bench: Bench) -> tuple[list[Measurement], str | None]:
        """Time eager and torch.compile once for all runs; not for a short one."""
        if plan.brief:
            return [], None
        return Baselines(self._claim, self._tools, bench).measure(plan.artifact)

    def _bench(self, number: int) -> Bench:
        tools, repeat = self._tools, self._request.repeat
        which = f"run {number} of {repeat}, " if repeat > 1 else ""
        return Bench(
            toolchain=tools.toolchain,
            device=tools.machine.device,
            seconds=tools.gate_seconds,
            halt=self._halt,
            listener=Listener(
                progress=lambda detail: self._tell(which + detail),
                line=self._journal.line,
                printed=self._journal.printed,
            ),
            become=self._holding.become,
        )

    def _publish(self, subject: Descriptor, runs: list[MeasurementRun]) -> None:
        container, claim = self._tools.container, self._claim
        found, pieces = self._composed(subject, runs)
        persisting(lambda: container.blobs.store(pieces, holder=claim.holder), self._halt)
        with self._journal.handing_over() as steps:
            persisting(lambda: container.measuring.record(claim, found, steps), self._halt)

    def _composed(
        self, subject: Descriptor, runs: list[MeasurementRun]
    ) -> tuple[list[MeasuredRun], list[Piece]]:
        """Return the runs as they are kept, the trace beside the first of them, and what is to be stored."""
        trace = self._trace
        if trace and (packed := trace.packed()) is None:
            self._journal.line("the trace of its calls is too large to be kept; its table is", "warning")
        exhibits = exhibits_of(trace, packed) if trace else ()
        found: list[MeasuredRun] = []
        pieces: list[Piece] = []
        for run in runs:
            measured, stored = compose_run(subject, run, () if found else exhibits)
            found.append(measured)
            pieces += stored
        return found, pieces


def _beside(plan: Plan) -> str:
    """Say what an artifact is timed beside, or why it is timed alone."""
    if plan.baseline is None:
        return plan.note or "alone"
    why = differing_inputs(plan)
    other = f"beside {plan.baseline.digest}"
    return f"not {other}: the inputs differ: {why}" if why else other
