"""One attempt at a measuring job: an artifact that was published before is timed again, and nothing is built.

It needs nothing of the model's source: inputs come from the spec and from uploaded examples.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import MANIFEST_TYPE, Descriptor
from pt2hub.domain.builds import MeasureRequest
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest
from pt2hub.domain.publications import MeasuredRun
from pt2hub.domain.specs import Spec
from pt2hub.errors import BuildTimedOut
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.documents import read_manifest
from pt2hub_workers.figures import BASELINE
from pt2hub_workers.gating import Listener
from pt2hub_workers.holding import Holding
from pt2hub_workers.outages import persisting
from pt2hub_workers.publication import compose_run
from pt2hub_workers.replicating import Bench, replicate
from pt2hub_workers.runs import compare, make_run
from pt2hub_workers.subjects import Plan, differing_inputs, fetch_subject, with_baseline

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.measurements import MeasurementRun
    from pt2hub_workers.attempt import Tools
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.journal import Journal


class Remeasurement:
    """One attempt at a measuring job."""

    def __init__(self, claim: Claim, tools: Tools, journal: Journal, halt: Halt) -> None:
        """Prepares the attempt.

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
        self._holding = Holding(tools.device, halt, self._tell)

    def run(self) -> None:
        """Runs every step; returns when the figures are kept.

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
        """The artifact's manifest, as what refers to it names it."""
        storage, digest = self._tools.container.storage, self._request.artifact
        manifest = persisting(lambda: read_manifest(storage, digest), self._halt)
        return Descriptor(MANIFEST_TYPE, digest, len(manifest.as_bytes()))

    def _plan(self, into: Path) -> Plan:
        container, halt = self._tools.container, self._halt
        artifact = fetch_subject(container, self._request.artifact, name="artifact", into=into, halt=halt)
        plan = Plan(self._spec, self._examples(into), artifact)
        if (
            wanted := self._request.beside
        ):  # asked for by name: without it the figures are not what was wanted
            found = fetch_subject(container, wanted, name=BASELINE, into=into, halt=halt)
            plan = replace(plan, baseline=found)
        else:
            plan = with_baseline(plan, container, into=into, halt=halt)
        self._journal.line(f"times {self._request.artifact}, {_beside(plan)}")
        return plan

    def _examples(self, into: Path) -> dict[str, Path]:
        """Uploaded example tensors, by input name."""
        return {
            item.name: self._fetched(Digest(item.example), into / f"example-{place}.safetensors")
            for place, item in enumerate(self._spec.inputs)
            if item.example
        }

    def _fetched(self, digest: Digest, path: Path) -> Path:
        storage = self._tools.container.storage
        persisting(lambda: storage.fetch(StorageKey.blob(digest), path), self._halt)
        return path

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
        tools, repeat = self._tools, self._request.repeat
        which = f"run {number} of {repeat}, " if repeat > 1 else ""
        bench = Bench(
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
        figures = replicate(plan, bench)
        return make_run(
            figures,
            claim=self._claim,
            source="again",
            at=self._journal.now(),
            environment=tools.machine.environment,
            suffix=f":{number}",
        )

    def _publish(self, subject: Descriptor, runs: list[MeasurementRun]) -> None:
        container, claim = self._tools.container, self._claim
        found, pieces = [], []
        for run in runs:
            manifest, stored = compose_run(subject, run)
            found.append(MeasuredRun(manifest, run))
            pieces += stored
        persisting(lambda: container.blobs.store(pieces, holder=claim.holder), self._halt)
        with self._journal.handing_over() as steps:
            persisting(lambda: container.measuring.record(claim, found, steps), self._halt)


def _beside(plan: Plan) -> str:
    """What an artifact is timed beside, or why it is timed alone."""
    if plan.baseline is None:
        return plan.note or "alone"
    why = differing_inputs(plan)
    other = f"beside {plan.baseline.digest}"
    return f"not {other}: the inputs differ: {why}" if why else other
