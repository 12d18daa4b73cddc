"""Benchmark in fresh processes: each process is one replicate, however many calls it makes.

The processes import their packages while the device is shared. Then they run one after another, each with the device
locked exclusively; in between, other attempts get the device. Each process times the artifact and its baseline in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pt2hub.analysis.comparison import compare_paired
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.measurements import Measurement, Pair
from pt2hub.domain.performance.metrics import default_threshold
from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactHung,
    InternalError,
    OutputRefused,
    Pt2hubError,
)
from pt2hub_workers.builds.build_verification import Listener, worker_lost
from pt2hub_workers.builds.toolchains import Toolchain
from pt2hub_workers.children.child import ChildDied, ChildHung
from pt2hub_workers.children.pool import SPARE_BYTES, SPARE_SHARE
from pt2hub_workers.inside.operations import files
from pt2hub_workers.operations import conditions
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.operations.device_lock import Mode
from pt2hub_workers.performance.implementations import (
    MAX_NOTE,
    BenchmarkPlan,
    Implementation,
    differing_inputs,
)
from pt2hub_workers.performance.measurements import (
    ARTIFACT,
    BASELINE,
    Times,
    combine_measurements,
    combine_pairs,
    read_times,
)
from pt2hub_workers.performance.traces import Trace, read_trace

if TYPE_CHECKING:
    from pt2hub.domain.publishing.spec import Spec
    from pt2hub_workers.builds.toolchains import ChildHandle
    from pt2hub_workers.sandbox.workspaces import Workspace

MIN_DECIDING_PROCESSES = 3
"""With fewer requested processes no further ones are added: two never decide a comparison."""
MAX_WAVES = 3
"""Largest multiple of the requested processes that are run, as `compare_paired` was tested with."""
MAX_REPEATED_SECONDS = 300.0
"""A benchmark that took longer is not extended for a clearer comparison."""
DECIDING = "latency_p50"
"""Metric whose undecided comparison is worth more processes."""
WARM_SECONDS = 120.0
POLL_SECONDS = 0.2
NOTHING = "noop"
"""Device of a toolchain that runs nothing, without conditions to record."""
_WAITING_BYTES = SPARE_BYTES // 2
"""Memory of a waiting process, rounded up; `SPARE_BYTES` counts a pair of them."""


@dataclass(frozen=True, slots=True)
class BenchmarkContext:
    """Environment of a benchmark.

    Attributes:
        device: Device that is locked while the processes run (`Machine.device`) and whose clocks are read.
        become: Changes the mode of the device lock, and waits for it. It is shared before and after `replicate`.
    """

    toolchain: Toolchain
    device: str
    seconds: float
    token: CancellationToken
    listener: Listener
    become: Callable[[Mode], object]


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Result of a benchmark.

    Attributes:
        pairs: Ratios of artifact to baseline, one per process.
        note: Why there is no baseline, or anything else a reader must know.
        trace: Some calls under a profiler, after the last timing; None if not requested or not available.
    """

    measurements: list[Measurement]
    baseline_measurements: list[Measurement] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    conditions: dict[str, Any] = field(default_factory=dict)
    baseline: Digest | None = None
    note: str | None = None
    trace: Trace | None = None


def replicate(plan: BenchmarkPlan, benchmark: BenchmarkContext) -> BenchmarkResult:
    """Time an artifact in fresh processes, adding processes while the comparison with its baseline is undecided.

    A process that fails with a baseline is repeated without it, and the baseline is dropped from then on.
    """
    run = _BenchmarkRun(plan, benchmark)
    for _ in range(MAX_WAVES):
        run.run_wave()
        if run.is_over():
            break
    return run.result()


class _BenchmarkRun:
    """Benchmark of an artifact in progress."""

    def __init__(self, plan: BenchmarkPlan, benchmark: BenchmarkContext) -> None:
        self._plan = plan
        self._benchmark = benchmark
        self._baseline = plan.baseline
        self._notes = [plan.note] if plan.note else []
        self._trace: Trace | None = None
        self._times: list[Times] = []
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = {}
        self._busy: list[float] = []
        self._spent = 0.0
        self._wanted = 0
        if plan.baseline and (why := differing_inputs(plan)):
            self._drop_baseline(f"the inputs differ: {why}")

    def run_wave(self) -> None:
        """Run the requested number of processes."""
        self._wanted += self._plan.wanted
        while len(self._times) < self._wanted and not self._is_late():
            self._run(min(self._wanted - len(self._times), self._at_once()))

    def is_over(self) -> bool:
        """Return whether more processes would add nothing or take too long."""
        if self._plan.wanted < MIN_DECIDING_PROCESSES:
            return True
        return (
            self._is_late()
            or self._spent > MAX_REPEATED_SECONDS
            or not is_undecided(combine_pairs(self._times))
        )

    def result(self) -> BenchmarkResult:
        """Return the measurements so far."""
        ran = self._baseline is not None
        done, asked = len(self._times), self._plan.wanted
        late = (
            [f"measured in {done} of {asked} processes: the time limit was reached"] if done < asked else []
        )
        return BenchmarkResult(
            measurements=combine_measurements(self._times, ARTIFACT),
            baseline_measurements=combine_measurements(self._times, BASELINE) if ran else [],
            pairs=combine_pairs(self._times) if ran else [],
            conditions=self._conditions(),
            baseline=self._baseline.digest if self._baseline else None,
            note="; ".join([*self._notes, *late]) or None,
            trace=self._trace,
        )

    def _conditions(self) -> dict[str, Any]:
        known = {
            "processes": len(self._times),
            "threads": self._times[0].threads,
            "others_busy": max(self._busy) if self._busy else None,
            "before": self._before,
            "after": self._after,
        }
        return {name: value for name, value in known.items() if value not in (None, {})}

    def _is_late(self) -> bool:
        """Return whether the time limit of the build is used up; one process always runs."""
        return bool(self._times) and self._spent > self._plan.spec.limits.seconds

    def _at_once(self) -> int:
        """Return how many processes with torch imported may wait at a time."""
        memory = self._benchmark.toolchain.machine().environment.memory_bytes or 0
        return max(1, memory // SPARE_SHARE // _WAITING_BYTES)

    def _run(self, count: int) -> None:
        """Start processes together while the device is shared, then run them one by one with the device exclusively."""
        with ExitStack() as stack:
            children = [self._take_child(stack) for _ in range(count)]
            self._wait_all_warm(children)
            for child in children:
                if not self._is_late():
                    self._measure(child, stack)

    @contextmanager
    def _exclusive_device(self) -> Iterator[None]:
        """Lock the device exclusively for one process."""
        self._benchmark.become("exclusive")
        try:
            self._record_conditions()
            yield
            self._after = self._read_conditions()
        finally:
            if (
                not self._benchmark.token.is_set()
            ):  # else nothing is timed any more, and the attempt gives it up as a whole
                self._benchmark.become("shared")

    def _wait_all_warm(self, children: Sequence[ChildHandle]) -> None:
        deadline = time.monotonic() + WARM_SECONDS
        for child in children:
            self._wait_warm(child, deadline)

    def _take_child(self, stack: ExitStack) -> ChildHandle:
        child = self._benchmark.toolchain.take("measure")
        stack.callback(child.close)
        return child

    def _wait_warm(self, child: ChildHandle, deadline: float) -> None:
        while child.alive and not child.wait_warm(POLL_SECONDS) and time.monotonic() < deadline:
            self._benchmark.token.check()

    def _record_conditions(self) -> None:
        self._before = self._before or self._read_conditions()
        if (
            self._benchmark.device != NOTHING
            and (busy := conditions.others_busy(self._benchmark.token.wait)) is not None
        ):
            self._busy.append(busy)

    def _read_conditions(self) -> dict[str, Any]:
        return {} if self._benchmark.device == NOTHING else conditions.look(self._benchmark.device)

    def _measure(self, child: ChildHandle, stack: ExitStack) -> None:
        """Run one process; if it fails with the baseline, another one without it."""
        number, of = len(self._times) + 1, self._wanted
        self._benchmark.listener.progress(f"process {number} of {of}")
        if self._baseline is not None:
            try:
                with self._exclusive_device():
                    self._time(child, self._implementations(number))
            except Pt2hubError as error:
                self._benchmark.token.check()
                self._drop_baseline(f"a process with the baseline failed: {error.message[:MAX_NOTE]}")
                self._benchmark.listener.line(
                    f"Measuring without the baseline from now on: {error}", "warning"
                )
            else:
                return
            child = self._take_child(stack)
            self._wait_all_warm([child])
        with self._exclusive_device():
            self._time(child, [self._plan.artifact])

    def _drop_baseline(self, why: str) -> None:
        self._baseline = None
        self._notes.append(f"no baseline: {why}")

    def _implementations(self, number: int) -> list[Implementation]:
        """Return artifact and baseline, in alternating order: the first one gets the fresh process."""
        both = [self._plan.artifact, *([self._baseline] if self._baseline else [])]
        return both if number % 2 else both[::-1]

    def _time(self, child: ChildHandle, implementations: Sequence[Implementation]) -> None:
        """Have a process time implementations; the last process also records a trace, after its measurements arrived."""
        measure = self._plan.spec.measure
        batches: list[int | None] = [*measure.batches] or [None]
        calls = 3 * measure.seconds * len(batches) * len(implementations)
        names = [item.name for item in implementations]
        began, before = time.monotonic(), len(self._times)

        def keep(value: Any) -> bool:
            """Keep the measurements; return whether this was the last process."""
            if len(self._times) > before:
                raise OutputRefused("the process sent its measurements twice", where="measure")
            seconds = time.monotonic() - began
            self._times.append(read_times(value, names=names, batches=batches, seconds=seconds))
            return self._is_last()

        try:
            value = _do_work(
                child, self._job(child.workspace, implementations, batches), self._benchmark, calls, keep
            )
            if len(self._times) == before:
                keep(value)
        except Pt2hubError as error:
            self._benchmark.token.check()
            if len(self._times) == before:
                raise
            self._log_missing_trace(error)
        finally:
            self._spent += time.monotonic() - began
        if self._traces() and self._is_last():
            self._take_trace(child)

    def _is_last(self) -> bool:
        """Return whether the measurements so far end the benchmark."""
        most = MAX_WAVES * self._plan.wanted
        return len(self._times) >= self._wanted and (self._wanted >= most or self.is_over())

    def _take_trace(self, child: ChildHandle) -> None:
        """Read the trace of the process; log and drop an invalid one."""
        if not child.workspace.has(files.TRACE):
            return
        try:
            device = self._plan.artifact.config.signature.device
            index, batch = _traced_batch(self._plan.spec)
            trace = read_trace(child.workspace.take(files.TRACE), device)
            self._trace = replace(trace, batch=batch, plain_us=self._plain_us(index))
        except (OutputRefused, OSError) as error:
            self._log_missing_trace(error)

    def _plain_us(self, index: int) -> float | None:
        """Return the median microseconds of a call without the profiler, in the traced process."""
        own = next((item for item in self._times[-1].implementations if item.name == "artifact"), None)
        return round(own.batches[index].p50 * 1000, 3) if own else None

    def _log_missing_trace(self, error: Pt2hubError | OSError) -> None:
        """Log that there is no trace, without the error's hint, which is for errors that end a build."""
        why = error.message if isinstance(error, Pt2hubError) else str(error)
        self._benchmark.listener.line(f"No trace was recorded: {why}"[:MAX_NOTE], "warning")

    def _traces(self) -> bool:
        return ARTIFACT in self._plan.profiled

    def _job(
        self, workspace: Workspace, implementations: Sequence[Implementation], batches: Sequence[int | None]
    ) -> dict[str, Any]:
        given = enumerate(self._plan.examples.items())
        index, _ = _traced_batch(self._plan.spec)
        return {
            "directory": str(workspace.inside),
            "spec": self._plan.spec.canonical(),
            "examples": {
                name: workspace.seen(workspace.give(path, f"example-{index}.safetensors"))
                for index, (name, path) in given
            },
            "batches": list(batches),
            "seconds": self._plan.spec.measure.seconds,
            "profile": index if self._traces() and len(self._times) + 1 >= self._wanted else None,
            "implementations": [
                {
                    "name": item.name,
                    "config": encode(item.config),
                    "code": workspace.seen(workspace.give(item.code, f"{item.name}-code.zip")),
                    "weights": workspace.seen(
                        workspace.give(item.weights, f"{item.name}-weights.safetensors")
                    ),
                }
                for item in implementations
            ],
        }


def _traced_batch(spec: Spec) -> tuple[int, int | None]:
    """Return the index and the batch size to trace: the example's if it is timed, else the first."""
    sizes: list[int | None] = [*spec.measure.batches] or [spec.example_batch]
    index = sizes.index(spec.example_batch) if spec.example_batch in sizes else 0
    return index, sizes[index]


def _do_work(
    child: ChildHandle,
    job: dict[str, Any],
    benchmark: BenchmarkContext,
    calls: float,
    keep: Callable[[Any], bool],
) -> Any:
    def on_event(message: dict[str, Any]) -> bool | None:
        """Answer the only question: whether this was the last process."""
        if message["event"] == "ask" and job["profile"] is not None and message.get("question") == "last":
            return keep(message.get("figures"))
        if message["event"] != "progress":  # equal for every process, and in the error
            benchmark.listener.hear(message, "measure")
        return None

    limit = benchmark.seconds + calls
    try:
        return child.work(
            job, on_event=on_event, on_output=benchmark.listener.output, seconds=limit, token=benchmark.token
        )
    except ChildHung as hung:
        raise ArtifactHung(
            f"the benchmark of the artifact did not answer within {hung.seconds:g} s (step: {hung.doing})",
            where="measure",
            hint="If the model is slow, use smaller batches in measure. The build's log has its last output.",
        ) from hung
    except ChildDied as died:
        raise _death_error(died) from died


def _death_error(died: ChildDied) -> Pt2hubError:
    if died.from_outside:
        return worker_lost(died, "the benchmark process")
    if died.doing == "start":
        return InternalError(f"the benchmark process {died.how} before it began", where="measure")
    return ArtifactCrashed(
        f"the benchmark process of the artifact {died.how} (step: {died.doing})",
        where="measure",
        hint="The artifact passed verification. Its last output is in the build's log.",
        context={"signal": died.signal_name, "doing": died.doing},
    )


def is_undecided(pairs: Sequence[Pair]) -> bool:
    """Return whether the comparison of the median latencies is still too noisy."""
    threshold = default_threshold(DECIDING)
    results = [compare_paired(pair.ratios, threshold) for pair in pairs if pair.metric == DECIDING]
    return any(result.reason == "too_noisy" for result in results)
