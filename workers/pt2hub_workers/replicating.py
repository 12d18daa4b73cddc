"""Timing in several fresh processes: what one process measures of itself is one observation, however many calls it made.

The processes import what they need beside everybody else; then they run one after another, each while the device is held
alone. In between everybody gets the device who waits for it. Each times the artifact and its baseline, which take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.measurements import Measurement, Pair
from pt2hub.domain.performance import default_threshold
from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactHung,
    InternalError,
    OutputRefused,
    Pt2hubError,
)
from pt2hub.server.analysis.judging import judge_paired
from pt2hub_workers import conditions
from pt2hub_workers.children import ChildDied, ChildHung
from pt2hub_workers.device import Mode
from pt2hub_workers.figures import ARTIFACT, BASELINE, Times, measurements_of, pairs_of, read_times
from pt2hub_workers.gating import Listener, lost
from pt2hub_workers.halting import Halt
from pt2hub_workers.inside import files
from pt2hub_workers.messages import read_log
from pt2hub_workers.subjects import (
    MAX_NOTE,
    Plan,
    Subject,
    differing_inputs,
)
from pt2hub_workers.toolchains import SPARE_BYTES, SPARE_SHARE, Toolchain
from pt2hub_workers.traces import Trace, read_trace

if TYPE_CHECKING:
    from pt2hub.domain.specs import Spec
    from pt2hub_workers.rooms import Room
    from pt2hub_workers.toolchains import Hand

FEWEST_DECIDING = 3
"""Who asks for fewer processes wants figures soon: two never make a verdict, and no further ones are added."""
WAVES = 3
"""So many times as many processes as the spec asks for are run at most: what `judge_paired` was tried with."""
MORE_SECONDS = 300.0
"""What took longer in all is not repeated for a clearer verdict."""
DECIDING = "latency_p50"
"""The metric whose comparison is worth more processes."""
WARM_SECONDS = 120.0
POLL_SECONDS = 0.2
NOTHING = "noop"
"""The device of a toolchain that runs nothing: there are no conditions to look at."""
_WAITING_BYTES = SPARE_BYTES // 2
"""Memory of a process that waits, rounded up: a pair of them is what `SPARE_BYTES` counts."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where it is timed.

    Attributes:
        toolchain: Gives the processes.
        device: What is held alone while they run (`Machine.device`): its clocks are read.
        seconds: Time limit of one process (as the gate's).
        halt: Stops them.
        listener: Hears how it goes.
        become: Has the device held in a mode; waits until it is. It is shared before `replicate`, and after it.
    """

    toolchain: Toolchain
    device: str
    seconds: float
    halt: Halt
    listener: Listener
    become: Callable[[Mode], object]


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured.

    Attributes:
        measurements: Of the artifact, with a replicate of each process.
        beside: The same of the baseline.
        pairs: The artifact against it, a ratio of each process.
        conditions: Processes, threads, clocks, load.
        baseline: The baseline's manifest digest, where there is one and it ran.
        note: Why there is no baseline, or what else a reader must know.
        trace: Some calls under a profiler, made after the last timing; None where none was asked for, or could be had.
    """

    measurements: list[Measurement]
    beside: list[Measurement] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    conditions: dict[str, Any] = field(default_factory=dict)
    baseline: Digest | None = None
    note: str | None = None
    trace: Trace | None = None


def replicate(plan: Plan, bench: Bench) -> Figures:
    """Times an artifact in fresh processes, and more of them while the comparison with its baseline is undecided.

    A process that fails beside a baseline is repeated without it, and the baseline is left out from then on.

    Args:
        plan: What.
        bench: Where.

    Raises:
        ArtifactCrashed: The artifact ended a process that ran nothing else.
        ArtifactHung: Likewise, it did not answer in time.
        OutputRefused: Its figures are none.
        LimitExceeded: It used more of the machine than it may.
        WorkerLost: A process was killed from outside.
        Halted: It was told to stop.
    """
    session = _Session(plan, bench)
    for _ in range(WAVES):
        session.run_wave()
        if session.is_over():
            break
    return session.figures()


class _Session:
    """An artifact on its way through the processes."""

    def __init__(self, plan: Plan, bench: Bench) -> None:
        self._plan = plan
        self._bench = bench
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
            self._leave_out(f"the inputs differ: {why}")

    def run_wave(self) -> None:
        """As many processes as the spec asks for."""
        self._wanted += self._plan.wanted
        while len(self._times) < self._wanted and not self._is_late():
            self._run(min(self._wanted - len(self._times), self._at_once()))

    def is_over(self) -> bool:
        """Whether more processes would tell nothing more, or take too long."""
        if self._plan.wanted < FEWEST_DECIDING:
            return True
        return self._is_late() or self._spent > MORE_SECONDS or not undecided(pairs_of(self._times))

    def figures(self) -> Figures:
        """What was measured."""
        ran = self._baseline is not None
        done, asked = len(self._times), self._plan.wanted
        late = [f"measured in {done} of {asked} processes: the time was over"] if done < asked else []
        return Figures(
            measurements=measurements_of(self._times, ARTIFACT),
            beside=measurements_of(self._times, BASELINE) if ran else [],
            pairs=pairs_of(self._times) if ran else [],
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
        """Measuring may take as long again as the build; one process is always run."""
        return bool(self._times) and self._spent > self._plan.spec.limits.seconds

    def _at_once(self) -> int:
        """How many processes may wait at a time, each with torch imported."""
        memory = self._bench.toolchain.machine().environment.memory_bytes or 0
        return max(1, memory // SPARE_SHARE // _WAITING_BYTES)

    def _run(self, count: int) -> None:
        """Starts processes together beside everybody else, and runs them one by one, alone."""
        with ExitStack() as stack:
            hands = [self._taken(stack) for _ in range(count)]
            self._wait_all_warm(hands)
            for hand in hands:
                if not self._is_late():
                    self._measure(hand, stack)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the device alone for one process."""
        self._bench.become("exclusive")
        try:
            self._look()
            yield
            self._after = self._seen()
        finally:
            if (
                not self._bench.halt.is_set()
            ):  # else nothing is timed any more, and the attempt gives it up as a whole
                self._bench.become("shared")

    def _wait_all_warm(self, hands: Sequence[Hand]) -> None:
        deadline = time.monotonic() + WARM_SECONDS
        for hand in hands:
            self._wait_warm(hand, deadline)

    def _taken(self, stack: ExitStack) -> Hand:
        hand = self._bench.toolchain.take("measure")
        stack.callback(hand.close)
        return hand

    def _wait_warm(self, hand: Hand, deadline: float) -> None:
        while hand.alive and not hand.wait_warm(POLL_SECONDS) and time.monotonic() < deadline:
            self._bench.halt.check()

    def _look(self) -> None:
        self._before = self._before or self._seen()
        if (
            self._bench.device != NOTHING
            and (busy := conditions.others_busy(self._bench.halt.wait)) is not None
        ):
            self._busy.append(busy)

    def _seen(self) -> dict[str, Any]:
        return {} if self._bench.device == NOTHING else conditions.look(self._bench.device)

    def _measure(self, hand: Hand, stack: ExitStack) -> None:
        """One process; where it fails beside the baseline, another one without."""
        number, of = len(self._times) + 1, self._wanted
        self._bench.listener.progress(f"process {number} of {of}")
        if self._baseline is not None:
            try:
                with self._alone():
                    self._time(hand, self._subjects(number))
            except Pt2hubError as error:
                self._bench.halt.check()
                self._leave_out(f"beside the baseline a process failed: {error.message[:MAX_NOTE]}")
                self._bench.listener.line(f"measured without a baseline from now on: {error}", "warning")
            else:
                return
            hand = self._taken(stack)
            self._wait_all_warm([hand])
        with self._alone():
            self._time(hand, [self._plan.artifact])

    def _leave_out(self, why: str) -> None:
        self._baseline = None
        self._notes.append(f"no baseline: {why}")

    def _subjects(self, number: int) -> list[Subject]:
        """Both, each of them first in every other process: whoever comes first has the fresh one."""
        both = [self._plan.artifact, *([self._baseline] if self._baseline else [])]
        return both if number % 2 else both[::-1]

    def _time(self, hand: Hand, subjects: Sequence[Subject]) -> None:
        """Has a process time its subjects; the last one is asked for a trace as well, when its figures are here."""
        measure = self._plan.spec.measure
        batches: list[int | None] = [*measure.batches] or [None]
        calls = 3 * measure.seconds * len(batches) * len(subjects)
        names = [item.name for item in subjects]
        began, before = time.monotonic(), len(self._times)

        def keep(value: Any) -> bool:  # noqa: ANN401  # whatever the process answers
            """Keeps its figures; returns whether nothing is timed any more."""
            if len(self._times) > before:
                raise OutputRefused("it sent its figures twice", where="measure")
            seconds = time.monotonic() - began
            self._times.append(read_times(value, names=names, batches=batches, seconds=seconds))
            return self._is_last()

        try:
            value = _worked(hand, self._job(hand.room, subjects, batches), self._bench, calls, keep)
            if len(self._times) == before:
                keep(value)
        except Pt2hubError as error:
            self._bench.halt.check()
            if len(self._times) == before:
                raise
            self._tell_no_trace(error)
        finally:
            self._spent += time.monotonic() - began
        if self._traces() and self._is_last():
            self._take_trace(hand)

    def _is_last(self) -> bool:
        """Whether nothing is timed any more, as far as the figures tell."""
        most = WAVES * self._plan.wanted
        return len(self._times) >= self._wanted and (self._wanted >= most or self.is_over())

    def _take_trace(self, hand: Hand) -> None:
        """What the process left of a trace; one that cannot be read is none, and says so in the log."""
        if not hand.room.has(files.TRACE):
            return
        try:
            device = self._plan.artifact.config.signature.device
            place, batch = _traced(self._plan.spec)
            trace = read_trace(hand.room.take(files.TRACE), device)
            self._trace = replace(trace, batch=batch, plain_us=self._plain_us(place))
        except (OutputRefused, OSError) as error:
            self._tell_no_trace(error)

    def _plain_us(self, place: int) -> float | None:
        """Median microseconds of a call without the profiler, in the process that was traced."""
        own = next((item for item in self._times[-1].subjects if item.name == "artifact"), None)
        return round(own.batches[place].p50 * 1000, 3) if own else None

    def _tell_no_trace(self, error: Pt2hubError | OSError) -> None:
        """Says so in the log, without an error's hint: that is for one that keeps the version from being published."""
        why = error.message if isinstance(error, Pt2hubError) else str(error)
        self._bench.listener.line(f"there is no trace of its calls: {why}"[:MAX_NOTE], "warning")

    def _traces(self) -> bool:
        return self._plan.profile and self._plan.spec.measure.profile

    def _job(self, room: Room, subjects: Sequence[Subject], batches: Sequence[int | None]) -> dict[str, Any]:
        given = enumerate(self._plan.examples.items())
        place, _ = _traced(self._plan.spec)
        return {
            "directory": str(room.inside),
            "spec": self._plan.spec.canonical(),
            "examples": {
                name: room.seen(room.give(path, f"example-{place}.safetensors"))
                for place, (name, path) in given
            },
            "batches": list(batches),
            "seconds": self._plan.spec.measure.seconds,
            "profile": place if self._traces() and len(self._times) + 1 >= self._wanted else None,
            "subjects": [
                {
                    "name": item.name,
                    "config": encode(item.config),
                    "code": room.seen(room.give(item.code, f"{item.name}-code.zip")),
                    "weights": room.seen(room.give(item.weights, f"{item.name}-weights.safetensors")),
                }
                for item in subjects
            ],
        }


def _traced(spec: Spec) -> tuple[int, int | None]:
    """The batch size whose calls are traced, the example's where that is timed: its place among those, and itself."""
    sizes: list[int | None] = [*spec.measure.batches] or [spec.example_batch]
    place = sizes.index(spec.example_batch) if spec.example_batch in sizes else 0
    return place, sizes[place]


def _worked(hand: Hand, job: dict[str, Any], bench: Bench, calls: float, keep: Callable[[Any], bool]) -> Any:  # noqa: ANN401  # whatever its process answers
    def on_event(message: dict[str, Any]) -> bool | None:
        """Answers the one question there is: whether it was the last process."""
        if message["event"] == "ask" and job["profile"] is not None and message.get("question") == "last":
            return keep(message.get("figures"))
        if message["event"] == "log":
            level, lines = read_log(message)
            for line in lines:
                bench.listener.line(line, level)
        elif (
            message["event"] != "progress"
        ):  # every process says the same, and the error names the last of it
            raise OutputRefused(
                f"it sent {message['event'][:40]!r}, which has no place here", where="measure"
            )
        return None

    limit = bench.seconds + calls
    try:
        return hand.work(
            job, on_event=on_event, on_output=bench.listener.printed, seconds=limit, halt=bench.halt
        )
    except ChildHung as hung:
        raise ArtifactHung(
            f"the artifact did not answer within {hung.seconds:g} s while it was timed, during: {hung.doing}",
            where="measure",
            hint="A slow model: ask for smaller batches in measure. The build's log has its last output.",
        ) from hung
    except ChildDied as died:
        raise _died(died) from died


def _died(died: ChildDied) -> Pt2hubError:
    if died.from_outside:
        return lost(died, "a process that measures")
    if died.doing == "start":
        return InternalError(f"a process that measures {died.how} before it began", where="measure")
    return ArtifactCrashed(
        f"the process in which the artifact was timed {died.how} during: {died.doing}",
        where="measure",
        hint="It passed the gate, and was not published all the same. The build's log has its last output.",
        context={"signal": died.signal_name, "doing": died.doing},
    )


def undecided(pairs: Sequence[Pair]) -> bool:
    """Whether the comparison of the median latencies is too noisy to say anything yet."""
    threshold = default_threshold(DECIDING)
    verdicts = [judge_paired(pair.ratios, threshold) for pair in pairs if pair.metric == DECIDING]
    return any(verdict.why == "too_noisy" for verdict in verdicts)
