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
from pt2hub.domain.measurements import MeasurementRun
from pt2hub.domain.specs import Spec
from pt2hub.errors import ArtifactCrashed, ArtifactHung, InternalError, OutputRefused
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.documents import read_json, read_manifest
from pt2hub_workers.children import ChildDied, ChildHung
from pt2hub_workers.gating import Listener
from pt2hub_workers.halting import Halt
from pt2hub_workers.inside.files import CALL
from pt2hub_workers.noop import NoopToolchain
from pt2hub_workers.replicating import Bench, Figures, replicate
from pt2hub_workers.subjects import Plan, Subject
from support.hands import Beside
from support.workbench import GATE_SECONDS, tiny_spec, toolchain_in, workbench

if TYPE_CHECKING:
    from pt2hub.wire.shapes import VersionView
    from pt2hub_workers.toolchains import Hand, Toolchain
    from pt2hub_workers.traces import Trace
    from support.attempts import AttemptBench

PROCESSES = {"measure": {"processes": 2}}


@dataclass(frozen=True, slots=True)
class _Faulty(Beside):
    """Measures as the no-op toolchain does, unless there is something wrong."""

    wrong: Callable[[Mapping[str, Any]], Any]

    def work(self, job: Mapping[str, Any], **given: Any) -> Any:
        """The job."""
        found = self.wrong(job)
        return self.hand.work(job, **given) if found is None else found


class _FaultyToolchain(NoopToolchain):
    """The no-op toolchain with processes that measure otherwise."""

    def __init__(self, scratch: Path, wrong: Callable[[Mapping[str, Any]], Any]) -> None:
        super().__init__(scratch)
        self._wrong = wrong

    def take(self, role: str) -> Hand:
        """One for a job."""
        hand = super().take(role)
        return _Faulty(hand, self._wrong) if role == "measure" else hand


def _run(attempts: AttemptBench, version: VersionView) -> MeasurementRun:
    """The run that a build published."""
    digest = attempts.services.builds.view(version.builds[0].id).artifact
    assert digest is not None
    referrers = attempts.services.resolve.artifact(digest).referrers
    (found,) = (item for item in referrers if item.artifact_type == MEASUREMENT_RUN_TYPE)
    storage = attempts.services.storage
    layer = read_manifest(storage, found.digest).layers[0]
    return decode(MeasurementRun, read_json(storage, StorageKey.blob(layer.digest)))


def _second(attempts: AttemptBench, toolchain: Toolchain | None = None) -> MeasurementRun:
    """The run of a version after another one."""
    attempts.attempt(attempts.submit(**PROCESSES))
    version = attempts.submit(**PROCESSES, checks={"tolerance": 0.002})
    attempts.attempt(version, toolchain=toolchain)
    return _run(attempts, version)


def test_a_version_is_timed_beside_the_one_before_it(attempts: AttemptBench) -> None:
    first = attempts.submit(**PROCESSES)
    attempts.attempt(first)
    run = _run(attempts, first)
    assert (run.baseline, run.pairs, run.beside, run.note) == (None, [], [], None)
    assert run.conditions == {"processes": 2, "threads": 1}

    second = attempts.submit(**PROCESSES, checks={"tolerance": 0.002})
    attempts.attempt(second)

    run = _run(attempts, second)
    assert run.baseline == attempts.services.builds.view(first.builds[0].id).artifact
    assert {pair.metric: pair.ratios for pair in run.pairs}["latency_p50"] == [1.0, 1.0]
    assert {item.metric for item in run.beside} <= {item.metric for item in run.measurements}
    assert run.environment.isolation == "none"
    build = attempts.services.builds.view(second.builds[0].id)
    assert run.id == f"{build.id}:1"
    assert [step.state for step in build.steps if step.name == "measure"] == ["done"]


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
def test_a_baseline_that_fails_is_left_out_and_the_version_published(
    attempts: AttemptBench, end: Exception
) -> None:
    def wrong(job: Mapping[str, Any]) -> None:
        if len(job["subjects"]) > 1:
            raise end

    run = _second(attempts, _FaultyToolchain(attempts.scratch, wrong))

    assert (run.baseline, run.pairs, run.beside) == (None, [], [])
    assert str(run.note).startswith("no baseline: beside the baseline a process failed")
    (latency,) = (item for item in run.measurements if item.metric == "latency_p50")
    assert len(latency.replicates or []) == 2


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ChildDied(-11, "time at batch 2"), ArtifactCrashed),
        (ChildHung(10.0, "time at batch 2"), ArtifactHung),
        ({"threads": 1, "subjects": []}, OutputRefused),
    ],
    ids=str,
)
def test_an_artifact_that_fails_by_itself_is_not_published(
    attempts: AttemptBench, end: Any, kind: type[Exception]
) -> None:
    def wrong(_: Mapping[str, Any]) -> Any:
        if isinstance(end, Exception):
            raise end
        return end

    version = attempts.submit(**PROCESSES)
    with pytest.raises(kind):
        attempts.attempt(version, toolchain=_FaultyToolchain(attempts.scratch, wrong))

    assert attempts.services.builds.view(version.builds[0].id).artifact is None


class _Profiled(Beside):
    """Measures as the no-op toolchain does, hands the figures over, and dies or leaves something under the profiler."""

    def work(self, job: Mapping[str, Any], *, on_event: Callable[[dict[str, Any]], Any], **given: Any) -> Any:
        """The job."""
        found = self.hand.work(job, on_event=on_event, **given)
        if job["profile"] is None:
            return found
        assert on_event({"event": "ask", "question": "last", "figures": found}) is True
        raise ChildDied(-11, "watch some calls of the artifact")


class _ProfiledToolchain(NoopToolchain):
    """The no-op toolchain with a profiler that ends its process."""

    def take(self, role: str) -> Hand:
        """As the no-op toolchain, but for those who measure."""
        hand = super().take(role)
        return _Profiled(hand) if role == "measure" else hand


def test_what_the_profiler_does_to_its_process_costs_the_trace_and_nothing_else(
    attempts: AttemptBench,
) -> None:
    version = attempts.submit(**PROCESSES)
    attempts.attempt(version, toolchain=_ProfiledToolchain(attempts.scratch))

    run = _run(attempts, version)
    assert run.conditions["processes"] == 2
    build = attempts.services.builds.view(version.builds[0].id)
    assert build.artifact is not None
    kinds = {item.artifact_type for item in attempts.services.resolve.artifact(build.artifact).referrers}
    assert MEASUREMENT_RUN_TYPE in kinds
    assert PROFILE_TYPE not in kinds
    lines = [line.text for line in attempts.services.logs.lines(build.id)[1]]
    (told,) = [text for text in lines if text.startswith("there is no trace of its calls:")]
    assert "not published" not in told


def test_a_version_with_other_inputs_is_timed_alone(attempts: AttemptBench) -> None:
    attempts.attempt(attempts.submit(**PROCESSES))
    inputs = [{"name": "x", "shape": ["batch", 16], "generate": {"normal": {}}}]
    version = attempts.submit(**PROCESSES, inputs=inputs)
    attempts.attempt(version)

    run = _run(attempts, version)
    assert run.note == "no baseline: the inputs differ: x was ['batch', 8]"
    assert run.pairs == []


def _subject(name: str, parts: dict[str, Any]) -> Subject:
    config = decode(ArtifactConfig, parts["config"])
    return Subject(name, config, Path(parts["code_path"]), Path(parts["weights_path"]))


@pytest.mark.compiles
def test_real_processes_give_replicates_and_a_damaged_baseline_gives_a_note(tmp_path: Path) -> None:
    # One process of each: more would depend on how noisy the machine is, and tell nothing else.
    measure = {"torch_compile": False, "processes": 1, "batches": [1, 8], "seconds": 0.05}
    spec = tiny_spec(measure=measure, dims={"batch": {"min": 1, "max": 16, "example": 8}})
    modes: list[str] = []

    def measured(plan: Plan) -> Figures:
        heard = Listener(progress=lambda _: None, line=lambda *_: None, printed=lambda _: None)
        return replicate(plan, Bench(toolchain, "cpu", GATE_SECONDS, Halt(), heard, modes.append))

    with workbench(tmp_path) as bench:
        parts = bench.build(spec)
    toolchain = toolchain_in(tmp_path / "rooms")
    try:
        own, other = _subject("artifact", parts), _subject("baseline", parts)
        plan = Plan(Spec.model_validate(spec), {}, own, other, profile=True)
        whole = measured(plan)
        damaged = tmp_path / "damaged.zip"
        shutil.copy(plan.artifact.weights, damaged)
        alone = measured(
            Plan(plan.spec, {}, plan.artifact, Subject("baseline", plan.artifact.config, damaged, damaged))
        )
    finally:
        toolchain.close()

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
    assert modes == ["exclusive", "shared"] * 2
    assert alone.pairs == []
    assert str(alone.note).startswith("no baseline: beside the baseline a process failed")
    assert len({(item.metric, item.batch) for item in alone.measurements}) == len(found)
    assert alone.trace is None  # nobody asked
    assert whole.trace is not None
    _check_trace(whole.trace, tmp_path)


def _check_trace(trace: Trace, place: Path) -> None:
    """It has the calls, what the compiler generated, what it calls of the library, and nothing of the machine."""
    text = gzip.decompress(trace.packed() or b"").decode()
    events = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert sum(event["name"] == CALL for event in events) == 3
    profile = trace.profile()
    assert profile.batch == 8, "that of the example, not the first"
    rows = {row.name: row for row in profile.rows}
    kernels = [row for name, row in rows.items() if name.startswith("cpp_fused")]
    assert kernels
    assert all(row.calls % 3 == 0 and row.total_us > 0 for row in rows.values())
    assert any(name.startswith("aoti_torch_cpu_") for name in rows)
    assert sum(row.share for row in rows.values()) <= 1.001
    assert {event["name"] for event in events} == {CALL, *rows}
    said = (str(place), str(Path.home()), "site-packages", "host_name", "/tmp", "traceName")
    assert [word for word in said if word in text] == []
