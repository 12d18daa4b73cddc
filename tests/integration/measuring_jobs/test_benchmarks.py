"""Artifacts are timed in fresh processes, beside the version before them; what goes wrong there is said, and no more."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.artifacts import MEASUREMENT_RUN_TYPE, PROFILE_TYPE, ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.domain.performance.measurements import MeasurementRun
from pt2hub.domain.publishing.spec import Spec
from pt2hub.domain.tokens import Actor
from pt2hub.errors import ArtifactCrashed, ArtifactHung, InternalError, OutputRefused
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_json, read_manifest
from pt2hub_workers.builds.build_verification import Listener
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.children.child import ChildDied, ChildHung
from pt2hub_workers.inside.operations import files
from pt2hub_workers.inside.operations.files import CALL_NAME
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.performance.implementations import BenchmarkPlan, Implementation
from pt2hub_workers.performance.replicates import BenchmarkContext, BenchmarkResult, replicate
from pt2hub_workers.performance.trace_profiles import make_profile
from support.children import ChildWrapper
from support.workbench import VERIFICATION_SECONDS, tiny_spec

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.responses import VersionView
    from pt2hub_workers.builds.aoti_toolchain import AotiToolchain
    from pt2hub_workers.builds.toolchains import ChildHandle, Toolchain
    from pt2hub_workers.performance.traces import Trace
    from support.attempts import AttemptBench
    from support.workbench import Workbench

PROCESSES = {"measure": {"processes": 2}}
CALL = [
    {"ph": "X", "cat": "user_annotation", "name": CALL_NAME, "pid": 1, "tid": 1, "ts": 100, "dur": 50},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 110, "dur": 20},
]
"""Events of a traced call."""
OTHER_CODE = {"compile": {"options": {"epilogue_fusion": False}}}
"""Of a version whose code is not that of the version before."""


@dataclass(frozen=True, slots=True)
class _Faulty(ChildWrapper):
    """Measures as the no-op toolchain does, unless there is something wrong."""

    wrong: Callable[[Mapping[str, Any]], Any]

    def work(self, job: Mapping[str, Any], **given: Any) -> Any:
        """The job."""
        found = self.wrong(job)
        return self.child.work(job, **given) if found is None else found


class _FaultyToolchain(NoopToolchain):
    """The no-op toolchain with processes that measure otherwise."""

    def __init__(self, scratch: Path, wrong: Callable[[Mapping[str, Any]], Any]) -> None:
        super().__init__(scratch)
        self._wrong = wrong

    def take(self, role: str) -> ChildHandle:
        """One for a job."""
        child = super().take(role)
        return _Faulty(child, self._wrong) if role == "measure" else child


def _artifact(attempts: AttemptBench, version: VersionView) -> Digest:
    digest = attempts.services.builds.view(version.builds[0].id).artifact
    assert digest is not None
    return digest


def _runs(attempts: AttemptBench, version: VersionView) -> list[MeasurementRun]:
    """The benchmarks of a version; what the build itself knew is left out."""
    storage = attempts.services.storage
    referrers = attempts.services.resolve.artifact(_artifact(attempts, version)).referrers
    kept = [item.digest for item in referrers if item.artifact_type == MEASUREMENT_RUN_TYPE]
    keys = [StorageKey.blob(read_manifest(storage, digest).layers[0].digest) for digest in kept]
    runs = [decode(MeasurementRun, read_json(storage, key)) for key in keys]
    return [run for run in runs if run.source == "again"]


def _measured(
    attempts: AttemptBench, version: VersionView, toolchain: Toolchain | None = None
) -> MeasurementRun:
    """Publishes a version and does its measuring job; the run."""
    attempts.attempt(version)
    attempts.measure(version, toolchain=toolchain)
    (run,) = _runs(attempts, version)
    return run


def _second(attempts: AttemptBench, toolchain: Toolchain | None = None) -> MeasurementRun:
    """The run of a version after another one, which runs other code."""
    attempts.attempt(attempts.submit(**PROCESSES))
    return _measured(attempts, attempts.submit(**PROCESSES, **OTHER_CODE), toolchain)


def test_a_version_is_timed_beside_the_one_before_it(attempts: AttemptBench) -> None:
    first = attempts.submit(**PROCESSES)
    run = _measured(attempts, first)
    assert (run.baseline, run.pairs, run.baseline_measurements, run.note) == (None, [], [], None)
    assert run.conditions == {"processes": 2, "threads": 1}

    second = attempts.submit(**PROCESSES, **OTHER_CODE)
    run = _measured(attempts, second)

    assert run.baseline == _artifact(attempts, first)
    assert {pair.metric: pair.ratios for pair in run.pairs}["latency_p50"] == [1.0, 1.0]
    assert {item.metric for item in run.baseline_measurements} <= {item.metric for item in run.measurements}
    assert run.environment.isolation == "none"


def test_one_short_run_suffices_where_the_code_is_that_of_the_version_before(attempts: AttemptBench) -> None:
    attempts.attempt(attempts.submit(**PROCESSES))
    retrained = attempts.submit(**PROCESSES, checks={"tolerance": 0.002})
    counting = _Counting(attempts.scratch)

    run = _measured(attempts, retrained, counting)

    assert counting.taken == ["measure"]
    assert run.conditions["processes"] == 1
    assert (run.baseline, run.pairs) == (None, [])
    assert str(run.note).startswith("code unchanged: ")


def test_who_asks_for_a_measurement_gets_the_full_comparison_of_unchanged_code_too(
    attempts: AttemptBench,
) -> None:
    first = attempts.submit(**PROCESSES)
    attempts.attempt(first)
    retrained = attempts.submit(**PROCESSES, checks={"tolerance": 0.002})
    attempts.attempt(retrained)
    attempts.services.measuring_jobs.measure(
        f"{retrained.model}@{retrained.number}", by=Actor("ci")
    )  # joins the queued job
    counting = _Counting(attempts.scratch)

    attempts.measure(retrained, toolchain=counting)

    (run,) = _runs(attempts, retrained)
    assert counting.taken == ["measure", "measure", "baselines"]
    assert (run.conditions["processes"], run.baseline) == (2, _artifact(attempts, first))


class _Counting(NoopToolchain):
    """The no-op toolchain, which remembers what was taken of it."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.taken: list[str] = []

    def take(self, role: str) -> ChildHandle:
        """One for a job."""
        self.taken.append(role)
        return super().take(role)


@pytest.mark.parametrize(
    "end",
    [
        ChildDied(-11, "load the baseline"),
        ChildDied(-9, "load the baseline"),
        ChildHung(10.0, "load the baseline"),
        InternalError("RuntimeError: index out of range"),
    ],
    ids=str,
)
def test_a_baseline_that_fails_is_left_out_and_the_artifact_timed_alone(
    attempts: AttemptBench, end: Exception
) -> None:
    def wrong(job: Mapping[str, Any]) -> None:
        if len(job["implementations"]) > 1:
            raise end

    run = _second(attempts, _FaultyToolchain(attempts.scratch, wrong))

    assert (run.baseline, run.pairs, run.baseline_measurements) == (None, [], [])
    assert str(run.note).startswith("no baseline: a process with the baseline failed")
    (latency,) = (item for item in run.measurements if item.metric == "latency_p50")
    assert len(latency.replicates or []) == 2


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ChildDied(-11, "time at batch 2"), ArtifactCrashed),
        (ChildHung(10.0, "time at batch 2"), ArtifactHung),
        ({"threads": 1, "implementations": []}, OutputRefused),
    ],
    ids=str,
)
def test_an_artifact_that_fails_while_it_is_timed_fails_its_job_and_stays_ready(
    attempts: AttemptBench, end: Any, kind: type[Exception]
) -> None:
    def wrong(_: Mapping[str, Any]) -> Any:
        if isinstance(end, Exception):
            raise end
        return end

    version = attempts.submit(**PROCESSES)
    attempts.attempt(version)
    with pytest.raises(kind):
        attempts.measure(version, toolchain=_FaultyToolchain(attempts.scratch, wrong))

    assert attempts.services.publish.version(version.model, version.number).readiness == "ready"
    assert _runs(attempts, version) == []


@pytest.mark.parametrize(
    "end",
    [ChildDied(-9, "run torch.compile"), ChildHung(9.0, "build the model"), InternalError("no")],
    ids=str,
)
def test_a_process_that_fails_to_time_eager_costs_its_figures_alone(
    attempts: AttemptBench, end: Exception
) -> None:
    class Faulty(NoopToolchain):
        def take(self, role: str) -> ChildHandle:
            child = super().take(role)
            return _Faulty(child, self.end) if role == "baselines" else child

        def end(self, _: Mapping[str, Any]) -> None:
            raise end

    run = _measured(attempts, attempts.submit(**PROCESSES), Faulty(attempts.scratch))

    assert str(run.note).startswith("eager and torch.compile are not measured: ")
    assert {item.implementation for item in run.measurements} == {"artifact"}


class _Profiled(ChildWrapper):
    """Measures as the no-op toolchain does, hands the figures over, and dies or leaves something under the profiler."""

    def work(self, job: Mapping[str, Any], *, on_event: Callable[[dict[str, Any]], Any], **given: Any) -> Any:
        """The job."""
        found = self.child.work(job, on_event=on_event, **given)
        if job["profile"] is None:
            return found
        assert on_event({"event": "ask", "question": "last", "figures": found}) is True
        raise ChildDied(-11, "trace some calls of the artifact")


class _ProfiledToolchain(NoopToolchain):
    """The no-op toolchain with a profiler that ends its process."""

    def take(self, role: str) -> ChildHandle:
        """As the no-op toolchain, but for those who measure."""
        child = super().take(role)
        return _Profiled(child) if role == "measure" else child


def test_what_the_profiler_does_to_its_process_costs_the_trace_and_nothing_else(
    attempts: AttemptBench,
) -> None:
    version = attempts.submit(**PROCESSES)
    attempts.attempt(version)
    job = attempts.measure(version, toolchain=_ProfiledToolchain(attempts.scratch))

    (run,) = _runs(attempts, version)
    assert run.conditions["processes"] == 2
    kinds = {
        item.artifact_type
        for item in attempts.services.resolve.artifact(_artifact(attempts, version)).referrers
    }
    assert PROFILE_TYPE not in kinds
    lines = [line.text for line in attempts.services.logs.lines(job)[1]]
    assert [text for text in lines if text.startswith("No trace was recorded:")]


@dataclass(frozen=True, slots=True)
class _ProfiledBaseline(ChildWrapper):
    """Measures torch.compile too, hands the figures over, and then dies or leaves a trace."""

    left: str | None

    def work(self, job: Mapping[str, Any], *, on_event: Callable[[dict[str, Any]], Any], **given: Any) -> Any:
        """The job."""
        names = [{"name": name} for name in ("artifact", "eager", "torch_compile")]
        found = self.child.work({**job, "implementations": names}, on_event=on_event, **given)
        if not job["profile"]:
            return found
        on_event({"event": "ask", "question": "last", "figures": found})
        if self.left is None:
            raise ChildDied(-11, "trace some calls of torch.compile")
        path = self.child.workspace.host / files.TRACE
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.left)
        return found


@pytest.mark.parametrize(
    ("left", "said", "profiled"),
    [
        (None, "No trace of torch.compile was recorded: their process", False),
        ('{"traceEvents": 3}', "No trace of torch.compile was recorded: invalid profiler trace", False),
        (json.dumps({"traceEvents": CALL}), "", True),
    ],
)
def test_a_profile_of_torch_compile_is_kept_and_a_failing_profiler_costs_that_alone(
    attempts: AttemptBench, left: str | None, said: str, profiled: bool
) -> None:
    class Profiled(NoopToolchain):
        def take(self, role: str) -> ChildHandle:
            child = super().take(role)
            return _ProfiledBaseline(child, left) if role == "baselines" else child

    version = attempts.submit(**PROCESSES)
    attempts.attempt(version)
    job = attempts.measure(version, toolchain=Profiled(attempts.scratch))

    (run,) = _runs(attempts, version)
    assert {item.implementation for item in run.measurements} == {"artifact", "eager", "torch_compile"}
    assert run.note is None
    lines = [line.text for line in attempts.services.logs.lines(job)[1]]
    assert [text for text in lines if text.startswith(said)] or not said
    digest = _artifact(attempts, version)
    found = attempts.services.resolve.artifact(digest).torch_compile_profile
    assert (found is not None) is profiled
    assert ("torch_compile" in attempts.services.measuring_jobs.profiled(digest)) is profiled
    if found is not None:
        assert (found.implementation, [row.name for row in found.rows]) == ("torch_compile", ["aten::mm"])
        assert found.plain_us == pytest.approx(0.1)


def test_a_spec_without_profiles_traces_nothing(attempts: AttemptBench) -> None:
    asked: list[Any] = []

    class Watched(NoopToolchain):
        def take(self, role: str) -> ChildHandle:
            child = super().take(role)
            return _Faulty(child, lambda job: asked.append(job.get("profile")))

    measure = {"measure": {"processes": 1, "profile": False}}
    _measured(attempts, attempts.submit(**measure), Watched(attempts.scratch))
    assert asked == [None, False]


def test_a_version_with_other_inputs_is_timed_alone(attempts: AttemptBench) -> None:
    attempts.attempt(attempts.submit(**PROCESSES))
    inputs = [{"name": "x", "shape": ["batch", 16], "generate": {"normal": {}}}]
    run = _measured(attempts, attempts.submit(**PROCESSES, inputs=inputs))
    assert run.note == "no baseline: the inputs differ: x was ['batch', 8]"
    assert run.pairs == []


def _implementation(name: str, parts: dict[str, Any]) -> Implementation:
    config = decode(ArtifactConfig, parts["config"])
    return Implementation(name, config, Path(parts["code_path"]), Path(parts["weights_path"]))


@pytest.mark.compiles
def test_real_processes_give_replicates_and_a_damaged_baseline_gives_a_note(
    tmp_path: Path, aoti: AotiToolchain, bench: Workbench
) -> None:
    # One process of each: more would depend on how noisy the machine is, and tell nothing else.
    measure = {"torch_compile": False, "processes": 1, "batches": [1, 8], "seconds": 0.05}
    spec = tiny_spec(measure=measure, dims={"batch": {"min": 1, "max": 16, "example": 8}})
    modes: list[str] = []

    def measured(plan: BenchmarkPlan) -> BenchmarkResult:
        heard = Listener(progress=lambda _: None, line=lambda *_: None, output=lambda _: None)
        return replicate(
            plan,
            BenchmarkContext(aoti, "cpu", VERIFICATION_SECONDS, CancellationToken(), heard, modes.append),
        )

    parts = bench.build(spec)
    own, other = _implementation("artifact", parts), _implementation("baseline", parts)
    plan = BenchmarkPlan(Spec.model_validate(spec), {}, own, other, profiled=frozenset({"artifact"}))
    whole = measured(plan)
    damaged = tmp_path / "damaged.zip"
    shutil.copy(plan.artifact.weights, damaged)
    alone = measured(
        BenchmarkPlan(
            plan.spec, {}, plan.artifact, Implementation("baseline", plan.artifact.config, damaged, damaged)
        )
    )

    found = {(item.metric, item.batch): item for item in whole.measurements}
    assert {batch for metric, batch in found if metric == "latency_p50"} == {1, 8}
    assert {metric for metric, _ in found} >= {
        "load_time",
        "first_inference",
        "host_memory_peak",
        "throughput",
    }
    assert len(found["latency_p50", 8].replicates or []) == 1
    assert found["host_memory_peak", None].value > 1 << 16
    (ratios,) = (pair.ratios for pair in whole.pairs if (pair.metric, pair.batch) == ("latency_p50", 8))
    assert len(ratios) == 1
    assert whole.conditions["threads"] >= 1
    # One process; then one that failed beside its baseline, and one alone.
    assert modes == ["exclusive", "shared"] * 3
    assert alone.pairs == []
    assert str(alone.note).startswith("no baseline: a process with the baseline failed")
    assert len({(item.metric, item.batch) for item in alone.measurements}) == len(found)
    assert alone.trace is None  # nobody asked
    assert whole.trace is not None
    _check_trace(whole.trace, tmp_path)


def _check_trace(trace: Trace, place: Path) -> None:
    """It has the calls, what the profiler saw in them, and nothing of the machine."""
    text = gzip.decompress(trace.pack() or b"").decode()
    events = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert sum(event["name"] == CALL_NAME for event in events) == 3
    profile = make_profile(trace)
    assert profile.batch == 8, "that of the example, not the first"
    rows = {row.name: row for row in profile.rows}
    assert all(row.calls % 3 == 0 and row.total_us > 0 for row in rows.values())
    assert sum(row.share for row in rows.values()) <= 1.001
    assert {event["name"] for event in events} == {CALL_NAME, *rows}
    said = (str(place), str(Path.home()), "site-packages", "host_name", "/tmp", "traceName")
    assert [word for word in said if word in text] == []
