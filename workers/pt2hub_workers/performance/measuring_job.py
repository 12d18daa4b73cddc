"""One attempt at a measuring job, which benchmarks a published artifact in fresh processes and compiles nothing to publish.

The full benchmark times the artifact next to the previous version's, eager and torch.compile. If the code equals the
previous version's, one short run suffices, because no kernel can differ.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import MANIFEST_TYPE, Descriptor
from pt2hub.domain.builds import MeasureRequest
from pt2hub.domain.codec import decode
from pt2hub.domain.performance.measurements import RUN_SCHEMA, MeasurementRun
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import BuildTimedOut
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds.build_inputs import BuildInputs
from pt2hub_workers.builds.job import Job, compare_measurements
from pt2hub_workers.builds.publication import as_time, compose_run
from pt2hub_workers.operations.retries import retry_outage
from pt2hub_workers.performance.baselines import BaselineResult, Baselines
from pt2hub_workers.performance.implementations import (
    BenchmarkPlan,
    differing_inputs,
    fetch_implementation,
    with_baseline,
)
from pt2hub_workers.performance.measurements import ARTIFACT, BASELINE, TORCH_COMPILE, compare_first_calls
from pt2hub_workers.performance.replicates import BenchmarkContext, replicate
from pt2hub_workers.performance.trace_profiles import baseline_referrers, profile_referrers

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.performance.measurements import Measurement
    from pt2hub.domain.publications import MeasuredRun
    from pt2hub.server.services.blobs.blob_writes import BlobChunk
    from pt2hub_workers.builds.job import WorkerContext
    from pt2hub_workers.builds.journal import Journal
    from pt2hub_workers.builds.publication import ReferrerContent
    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.performance.traces import Trace

PROFILED = frozenset({ARTIFACT, TORCH_COMPILE})
"""Implementations whose calls are profiled."""
UNCHANGED = "code unchanged: the artifact runs the previous version's code, so no kernel can differ"
"""Note of a short run."""


class Benchmark(Job):
    """One attempt at a measuring job."""

    yields = True

    def __init__(
        self, claim: Claim, context: WorkerContext, journal: Journal, token: CancellationToken
    ) -> None:
        super().__init__(claim, context, journal, token)
        self._request = decode(MeasureRequest, claim.request)
        self._spec = Spec.from_canonical(claim.spec)
        self._traces: tuple[Trace | None, Trace | None] = (
            None,
            None,
        )  # of the artifact, and of torch.compile

    def run(self) -> None:
        """Run every step; return when the measurements are published."""
        with ExitStack() as stack, self._device_hold.shared():
            with self._journal.time_step("fetch"):
                workspace = self._context.toolchain.open_workspace()
                stack.callback(workspace.close)
                artifact = self._artifact()
                plan = self._plan(workspace.host / "held")
            self._step = "measure"
            with self._journal.time_step("measure"):
                runs = self._measure(plan)
        with self._journal.time_step("publish"):
            self._publish(artifact, runs)
        compare_measurements(self._context.container)

    def _artifact(self) -> Descriptor:
        """Return the descriptor of the artifact's manifest, for its referrers."""
        storage, digest = self._context.container.storage, self._request.artifact
        manifest = retry_outage(lambda: read_manifest(storage, digest), self._token)
        return Descriptor(MANIFEST_TYPE, digest, len(manifest.as_bytes()))

    def _plan(self, into: Path) -> BenchmarkPlan:
        container, token = self._context.container, self._token
        artifact = fetch_implementation(
            container, self._request.artifact, name="artifact", into=into, token=token
        )
        examples = BuildInputs.of(self._claim, None).fetch_examples(into, container.storage, token)
        plan = BenchmarkPlan(self._spec, examples, artifact, profiled=self._unprofiled())
        if wanted := self._request.baseline:  # requested by name, so a missing one is an error
            found = fetch_implementation(container, wanted, name=BASELINE, into=into, token=token)
            plan = replace(plan, baseline=found)
        else:
            plan = with_baseline(plan, container, into=into, token=token)
        plan = self._shorten(plan)
        self._journal.line(f"Benchmark of {self._request.artifact}, {_describe_baseline(plan)}")
        return plan

    def _unprofiled(self) -> frozenset[str]:
        """Return the implementations that have no profile yet; none if the spec wants no profiles."""
        if not self._spec.measure.profile:
            return frozenset()
        jobs, digest = self._context.container.measuring_jobs, self._request.artifact
        return PROFILED - retry_outage(lambda: jobs.profiled(digest), self._token)

    def _shorten(self, plan: BenchmarkPlan) -> BenchmarkPlan:
        """Return the plan of a short run if one suffices, else the plan itself."""
        other = plan.baseline
        if self._request.single_process and other is not None and plan.artifact.runs_the_code_of(other):
            return replace(plan, baseline=None, note=UNCHANGED, single_process=True)
        return plan

    def _measure(self, plan: BenchmarkPlan) -> list[MeasurementRun]:
        limit, repeat = self._spec.limits.seconds, self._request.repeat
        began = time.monotonic()
        runs = []
        for number in range(1, repeat + 1):
            if repeat > 1:
                self._report_detail(f"run {number} of {repeat}")
            runs.append(self._run(plan, number))
            if time.monotonic() - began - self._device_hold.waited > limit and number < repeat:
                raise BuildTimedOut(
                    f"{number} of {repeat} runs took longer than {limit} s",
                    where="measure",
                    hint="Request fewer runs with --repeat, or raise limits.seconds in the spec.",
                )
        return runs

    def _run(self, plan: BenchmarkPlan, number: int) -> MeasurementRun:
        benchmark = self._benchmark(number)
        result = replicate(plan if number == 1 else replace(plan, profiled=frozenset()), benchmark)
        others: list[Measurement] = []
        if number == 1:
            baselines = self._baselines(plan, benchmark)
            self._traces = (result.trace, baselines.trace)
            others = [
                *baselines.measurements,
                *compare_first_calls(result.measurements, baselines.measurements),
            ]
            result = replace(result, note="; ".join(filter(None, (result.note, baselines.note))) or None)
        return MeasurementRun(
            schema=RUN_SCHEMA,
            id=f"{self._claim.build}:{self._claim.attempt}:{number}",
            source="again",
            measured_at=as_time(self._journal.now()),
            environment=self._context.machine.environment,
            conditions=result.conditions,
            measurements=[*result.measurements, *others],
            baseline=result.baseline,
            baseline_measurements=result.baseline_measurements,
            pairs=result.pairs,
            note=result.note,
        )

    def _baselines(self, plan: BenchmarkPlan, benchmark: BenchmarkContext) -> BaselineResult:
        """Time eager and torch.compile once for all runs; never in a short run."""
        if plan.single_process:
            return BaselineResult()
        baselines = Baselines(self._claim, self._context, benchmark)
        return baselines.measure(plan.artifact, profiled=TORCH_COMPILE in plan.profiled)

    def _benchmark(self, number: int) -> BenchmarkContext:
        context, repeat = self._context, self._request.repeat
        which = f"run {number} of {repeat}, " if repeat > 1 else ""
        return BenchmarkContext(
            toolchain=context.toolchain,
            device=context.machine.device,
            seconds=context.verification_seconds,
            token=self._token,
            listener=self.listener(lambda detail: self._report_detail(which + detail)),
            become=self._device_hold.become,
        )

    def _publish(self, artifact: Descriptor, runs: list[MeasurementRun]) -> None:
        container, claim = self._context.container, self._claim
        found, chunks = self._compose(artifact, runs)
        retry_outage(lambda: container.blobs.store(chunks, holder=claim.holder), self._token)
        with self._journal.unsent_steps() as steps:
            retry_outage(lambda: container.measuring_jobs.record(claim, found, steps), self._token)

    def _compose(
        self, artifact: Descriptor, runs: list[MeasurementRun]
    ) -> tuple[list[MeasuredRun], list[BlobChunk]]:
        """Return the composed runs, the first one with the profiles, and the chunks to store."""
        referrers = self._profiles()
        found: list[MeasuredRun] = []
        chunks: list[BlobChunk] = []
        for run in runs:
            measured, stored = compose_run(artifact, run, () if found else referrers)
            found.append(measured)
            chunks += stored
        return found, chunks

    def _profiles(self) -> tuple[ReferrerContent, ...]:
        """Return the contents to keep of the traces."""
        own, other = self._traces
        found: tuple[ReferrerContent, ...] = ()
        if own:
            packed = own.pack()
            if packed is None:
                self._journal.line(
                    "The trace is too large to be stored; only its profile table is kept.", "warning"
                )
            found = profile_referrers(own, packed)
        return (*found, *baseline_referrers(other, TORCH_COMPILE)) if other else found


def _describe_baseline(plan: BenchmarkPlan) -> str:
    """Return the baseline of an artifact as text, or the reason why it has none."""
    if plan.baseline is None:
        return plan.note or "without a baseline"
    why = differing_inputs(plan)
    digest = plan.baseline.digest
    return f"without baseline {digest}: the inputs differ: {why}" if why else f"baseline {digest}"
