"""The other parts of `chaos.py`: each step of a real compile is hit, and recovery is measured at default settings."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from common import say
from support.invariants import settled
from support.plane import Plane, until
from support.running import processes_of
from support.workbench import FACTORIES, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.plane import Member

BUILD_SECONDS = 240.0
"""A compile of a tiny model on two busy cores."""
ROUNDS = (
    (3, ("fetch", "export", "key", "compile")),
    (4, ("reuse", "pack", "verify")),
    (5, ("child", "upload", "publish")),
)
"""Seeds of the weights, and the steps whose worker dies, one attempt each: fewer than end a build. Only the first
build compiles, the others reuse its code. `child` is the build's own process, hit during `export`."""


@dataclass
class Steps:
    """A real compile, hit in each step.

    Attributes:
        plane: Its workers compile.
        rows: What came of each hit.
        violations: What should not have happened.
    """

    plane: Plane
    rows: list[dict[str, Any]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Do every round, and tells."""
        for seed, steps in ROUNDS:
            self._build(seed, steps)
        self.violations += settled(self.plane)
        attempts = self.plane.sql("SELECT outcome, count(*) FROM build_attempts GROUP BY 1 ORDER BY 1")
        return {"hits": self.rows, "attempts": dict(attempts), "violations": self.violations}

    def _build(self, seed: int, steps: tuple[str, ...]) -> None:
        worker = self._start(steps[0])
        self.plane.await_worker(worker)
        source = {"factory": f"{FACTORIES}:Mlp", "seed": seed}
        version = self.plane.client.publish(tiny_spec(source=source))
        build = version.builds[0].id
        self.plane.accepted.append(build)
        rows = []
        for attempt, (step, following) in enumerate(zip(steps, (*steps[1:], ""), strict=True), start=1):
            self.plane.await_step(
                build, "export" if step == "child" else step, attempt=attempt, seconds=BUILD_SECONDS
            )
            worker, over = self._hit(worker, step, following)
            self.plane.await_attempt(build, attempt + 1)
            seconds = self.plane.began(build, attempt + 1) - over
            rows.append({"step": step, "attempt": attempt, "recovered_s": round(seconds, 2)})
            say(f"{step:8} hit in attempt {attempt}, running again after {seconds:.1f} s")
        state = self.plane.await_final(build, seconds=BUILD_SECONDS)
        say(f"build {build}: {state}")
        if state != "succeeded":
            self.violations.append(f"build {build} is {state}: {self.plane.build(build).error}")
        self.rows += [{**row, "build": build, "final": state} for row in rows]
        self.plane.end(worker)

    def _hit(self, worker: Member, step: str, following: str) -> tuple[Member, float]:
        """Kill what does a step; who goes on, and when that was. The next worker is ready by then."""
        if step == "child":
            until("the build's process is there", lambda: self._child(worker))
            self.plane.kill_pid(self._child(worker))
            return worker, time.time()
        other = self._start(following)
        self.plane.await_worker(other)
        self.plane.kill(worker)
        return other, time.time()

    def _start(self, step: str) -> Member:
        """Return a worker that will be at a step for long; the one whose child dies goes on to `upload`."""
        slow = {"child": "export=1,upload=600", "": "fetch=0"}.get(step, f"{step}=600")
        return self.plane.start_worker(wait=False, slow=slow)

    def _child(self, worker: Member) -> int:
        found = processes_of(self.plane.folder)
        below = self.plane.below(worker)
        named = (
            pid for pid in sorted(below & set(found)) if found[pid].strip().endswith("inside.child build")
        )
        return next(named, 0)


def at_defaults(plane: Plane) -> dict[str, Any]:
    """Recovery of a running build at default settings, once for each kind of fault."""
    kinds: dict[str, Callable[[Plane, Member], float]] = {
        "kill -9 worker": _kill_worker,
        "SIGSTOP worker": _freeze_worker,
        "SIGTERM worker": _end_worker,
        "kill -9 API": _kill_api,
        "kill -9 PostgreSQL": _kill_database,
        "kill -9 worker and PostgreSQL": _kill_both,
    }
    seconds: dict[str, float] = {}
    for number, (kind, fault) in enumerate(kinds.items()):
        worker = plane.start_worker(PT2HUB_NOOP_PAUSES="compile=600", PT2HUB_DRAIN_SECONDS="0")
        build = plane.submit(
            f"default{number}", source={"factory": "support.tiny_models:Mlp", "seed": number}
        )
        plane.await_step(build, "compile")
        other = plane.start_worker(PT2HUB_NOOP_PAUSES="compile=2")
        over = fault(plane, worker)
        if kind in ("kill -9 API", "kill -9 PostgreSQL"):
            seconds[kind] = round(_alive_again(plane, kind, over) - over, 2)
            plane.client.builds.cancel(build)  # it goes on, and would for ten minutes
        else:
            plane.await_attempt(build, 2)
            seconds[kind] = round(
                max(0.0, plane.began(build, 2) - over), 2
            )  # one that leaves hands back first
        say(f"{kind:30} {seconds[kind]:6.2f} s at default settings")
        if worker.stopped:  # it still has its share of the device
            plane.thaw(worker)
        plane.await_final(build)
        for member in (worker, other):
            if member.alive:
                plane.end(member)
    violations = settled(plane)
    violations += [f"{kind}: {value} s" for kind, value in seconds.items() if value > 30]
    return {"recovery_s": seconds, "violations": violations}


def _kill_worker(plane: Plane, worker: Member) -> float:
    plane.kill(worker)
    return time.time()


def _freeze_worker(plane: Plane, worker: Member) -> float:
    plane.freeze(worker)
    return time.time()


def _end_worker(plane: Plane, worker: Member) -> float:
    plane.end(worker)
    return time.time()


def _kill_api(plane: Plane, worker: Member) -> float:
    del worker
    plane.kill_api()
    over = time.time()
    plane.start_api()
    return over


def _kill_database(plane: Plane, worker: Member) -> float:
    del worker
    plane.kill_database()
    time.sleep(3)
    plane.start_database()
    return time.time()


def _kill_both(plane: Plane, worker: Member) -> float:
    plane.kill_database()
    plane.kill(worker)
    time.sleep(3)
    plane.start_database()
    return time.time()


def _alive_again(plane: Plane, kind: str, over: float) -> float:
    """Return when the running build's worker was heard of again, or the API took a submission."""
    if kind == "kill -9 API":
        plane.submit("taken-again")
        return time.time()
    query = (
        "SELECT extract(epoch FROM max(last_seen)) FROM workers WHERE id IN (SELECT worker_id FROM builds)"
    )
    return until("the worker is heard of", lambda: (at := float(plane.sql(query)[0][0])) > over and at)
