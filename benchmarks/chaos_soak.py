"""The soak of `chaos.py`: random faults of every kind while cheap builds are submitted without end."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from common import say
from pt2hub.errors import Pt2hubError
from support.invariants import settled
from support.plane import PATIENCE, Plane, noop_spec, until

if TYPE_CHECKING:
    from support.plane import Member

WORKERS = 3
WAITING = 4
"""Builds that wait for a worker, about: enough to keep all busy, few enough that a lost one's turn comes soon."""
RECOVERY = 30.0
TOGETHER = 0.25
"""How often a fault comes before the one before it is over."""
QUIET_SECONDS = 180.0
_STEPS = ("export", "compile", "verify", "measure")
_WEIGHTS = {
    "kill -9 worker": 6,
    "SIGSTOP worker": 3,
    "SIGTERM worker": 3,
    "kill -9 API": 2,
    "kill -9 PostgreSQL": 2,
    "cancel": 3,
    "retry": 3,
}


@dataclass
class Fault:
    """What was done, and when all was well again.

    Attributes:
        kind: One of `_WEIGHTS`.
        what: The build it hit, or nothing.
        over: When it was done: processes killed or frozen; for PostgreSQL, when it answers again.
        recovered: Says when what it hit ran again, None before that, and 0 where it hit nothing that had to.
        seconds: From `over` to then, or from the end of the round's last fault where it came after that.
    """

    kind: str
    what: str
    over: float
    recovered: Callable[[], float | None]
    seconds: float | None = None


@dataclass
class Soak:
    """A plane under fire.

    Attributes:
        plane: It runs.
        dice: Decides everything.
        faults: What was done so far.
        violations: What should not have happened.
    """

    plane: Plane
    dice: random.Random
    faults: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def run(self, count: int) -> dict[str, Any]:
        """Do so many faults, waits for quiet and tells what became of everything."""
        for _ in range(WORKERS):
            self._start_worker()
        submitter = Submitter(self.plane, random.Random(self.dice.random()))
        submitter.start()
        until("builds run", self._running)
        began = time.monotonic()
        while len(self.faults) < count:
            self._round(count)
        lasted = time.monotonic() - began
        submitter.stop()
        self._await_quiet()
        self.violations += settled(self.plane)
        return self._tally(lasted, submitter)

    def _round(self, count: int) -> None:
        """Cause one fault or several, and wait until everything they hit runs again."""
        new = [self._fault()]
        while self.dice.random() < TOGETHER and len(self.faults) + len(new) < count:
            new.append(self._fault())
        end = time.time()
        for fault in new:
            self._await(fault, end)
        self.faults += new
        said = ", ".join(f"{f.kind}{'' if f.seconds is None else f' {f.seconds:.1f} s'}" for f in new)
        say(f"{len(self.faults):4} {said}")
        time.sleep(self.dice.random() * 0.5)

    def _await(self, fault: Fault, end: float) -> None:
        while (at := fault.recovered()) is None:
            if time.time() > end + RECOVERY:
                self.violations.append(f"{fault.kind} of {fault.what}: not recovered within {RECOVERY:g} s")
                return
            time.sleep(0.02)
        if at:
            fault.seconds = max(0.0, at - (end if at > end else fault.over))

    def _fault(self) -> Fault:
        kinds = {
            "kill -9 worker": self._kill_worker,
            "SIGSTOP worker": self._freeze_worker,
            "SIGTERM worker": self._end_worker,
            "kill -9 API": self._kill_api,
            "kill -9 PostgreSQL": self._kill_database,
            "cancel": self._cancel,
            "retry": self._retry,
        }
        while True:
            kind = self.dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            if fault := kinds[kind](kind):
                return fault

    def _kill_worker(self, kind: str) -> Fault:
        member, held = self._victim()
        self.plane.kill(member)
        over = time.time()
        self._start_worker()
        return self._rerun(kind, held, over)

    def _freeze_worker(self, kind: str) -> Fault:
        """Frozen for more than the silence that makes it lost, then awake.

        What it holds of the machine's device it holds until then, so that others may have to wait for it.
        """
        member, held = self._victim()
        self.plane.freeze(member)
        over = time.time()
        time.sleep(float(self.plane.settings["PT2HUB_LOST_WORKER_SECONDS"]) * (1.5 + self.dice.random()))
        self.plane.thaw(member)
        return self._rerun(kind, held, over)

    def _end_worker(self, kind: str) -> Fault:
        member, held = self._victim()
        code = self.plane.end(member)
        over = time.time()
        if code:
            self.violations.append(f"{member.name} ended with {code} after SIGTERM: {member.log[-500:]}")
        self._start_worker()
        return self._rerun(kind, held, over)

    def _kill_api(self, kind: str) -> Fault:
        self.plane.kill_api()
        time.sleep(self.dice.random() * 2)
        over = time.time()
        self.plane.start_api()
        back = time.time()
        return Fault(kind, "the API", over, lambda: back)

    def _kill_database(self, kind: str) -> Fault:
        self.plane.kill_database()
        time.sleep(self.dice.random() * 3)
        self.plane.start_database()
        over = time.time()
        return Fault(kind, "the builds", over, lambda: self._moved_after(over))

    def _cancel(self, kind: str) -> Fault | None:
        found = self._running()
        if not found:
            return None
        build, _ = self.dice.choice(found)
        try:
            member = self.plane.holder(build)
            over = time.time()
            self.plane.client.builds.cancel(build)
        except (Pt2hubError, StopIteration):  # it ended, or the API is on its way back
            return None
        return Fault(kind, build, over, lambda: self._halted_at(member, build))

    def _retry(self, kind: str) -> Fault | None:
        rows = self.plane.sql("SELECT id, attempt FROM builds WHERE state = 'failed' ORDER BY id")
        if not rows:
            return None
        build, attempt = self.dice.choice(rows)
        over = time.time()
        try:
            self.plane.client.builds.retry(build, priority=100)
        except Pt2hubError:  # the API is on its way back
            return None
        return self._rerun(kind, (build, attempt), over)

    def _halted_at(self, member: Member, build: str) -> float | None:
        """Return when a worker let a cancelled build go, by its own log; 0 where it was dead before that.

        One that was about to record a failure of its own is not halted, but refused.
        """
        for line in member.log.splitlines():
            if build in line and ('"build cancelled"' in line or '"another attempt has taken over"' in line):
                return dt.datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
        return None if member.alive else 0.0

    def _rerun(self, kind: str, held: tuple[str, int] | None, over: float) -> Fault:
        if held is None:
            return Fault(kind, "", over, lambda: 0.0)
        return Fault(kind, held[0], over, lambda: self._ran_again(*held))

    def _ran_again(self, build: str, attempt: int) -> float | None:
        state, latest, _ = self.plane.standing(build)
        if latest > attempt:
            return self.plane.began(build, attempt + 1)
        return None if state in ("queued", "running") else 0.0  # it was at its end already

    def _moved_after(self, moment: float) -> float | None:
        rows = self.plane.sql(
            """SELECT extract(epoch FROM min(at)) FROM (
            SELECT started_at AS at FROM build_attempts UNION ALL SELECT started_at FROM build_steps
            UNION ALL SELECT finished_at FROM builds) AS moves WHERE at > to_timestamp(%s)""",
            moment,
        )
        return None if rows[0][0] is None else float(rows[0][0])

    def _victim(self) -> tuple[Member, tuple[str, int] | None]:
        """Return a worker, rather one that builds, and what it builds."""
        living = [member for member in self.plane.workers if member.alive]
        held = {build: attempt for build, attempt in self._running()}  # noqa: C416  # typed as rows
        for build in self.dice.sample(sorted(held), len(held)):
            with contextlib.suppress(StopIteration):
                member = self.plane.holder(build)
                if member.alive:
                    return member, (build, held[build])
        return self.dice.choice(living), None

    def _running(self) -> list[tuple[str, int]]:
        rows = self.plane.sql("SELECT id, attempt FROM builds WHERE state = 'running' ORDER BY id")
        return [(str(build), int(attempt)) for build, attempt in rows]

    def _start_worker(self) -> None:
        pauses = {step: self.dice.random() * 0.4 for step in _STEPS}
        noop = ",".join(f"{step}={seconds:.3f}" for step, seconds in pauses.items())
        slow = f"upload={self.dice.random() * 0.2:.3f},publish={self.dice.random() * 0.2:.3f}"
        self.plane.start_worker(
            wait=False, slow=slow, PT2HUB_NOOP_PAUSES=noop, PT2HUB_DRAIN_SECONDS=f"{self.dice.random():.2f}"
        )

    def _await_quiet(self) -> None:
        say("waiting for quiet")
        until("the last worker started is there", lambda: self.plane.id_of(self.plane.workers[-1]))
        open_builds = "SELECT id, state FROM builds WHERE state IN ('queued', 'running')"
        deadline = time.monotonic() + QUIET_SECONDS
        while left := self.plane.sql(open_builds):
            if time.monotonic() > deadline:
                self.violations.append(f"not over after {QUIET_SECONDS:g} s: {left}")
                return
            time.sleep(0.2)

    def _tally(self, lasted: float, submitter: Submitter) -> dict[str, Any]:
        plane = self.plane
        return {
            "seconds": round(lasted, 1),
            "faults": {kind: self._figures(kind) for kind in _WEIGHTS},
            "faults_in_all": len(self.faults),
            "submissions": {"accepted": len(plane.accepted), "sent_again": submitter.again},
            "builds": dict(plane.sql("SELECT state, count(*) FROM builds GROUP BY 1 ORDER BY 1")),
            "attempts": dict(plane.sql("SELECT outcome, count(*) FROM build_attempts GROUP BY 1 ORDER BY 1")),
            "most_attempts": plane.sql("SELECT coalesce(max(attempt), 0) FROM builds")[0][0],
            "artifacts": plane.sql("SELECT count(*) FROM artifacts")[0][0],
            "workers_started": len(plane.workers),
            "violations": self.violations,
        }

    def _figures(self, kind: str) -> dict[str, Any]:
        done = [fault for fault in self.faults if fault.kind == kind]
        times = sorted(fault.seconds for fault in done if fault.seconds is not None)
        if not times:
            return {"n": len(done)}
        return {
            "n": len(done),
            "recovered": len(times),
            "p50_s": round(times[len(times) // 2], 2),
            "max_s": round(times[-1], 2),
        }


class Submitter:
    """Submits cheap builds without end, so that some always wait; what fails is sent again until it is taken.

    Attributes:
        again: Submissions that were sent again.
    """

    def __init__(self, plane: Plane, dice: random.Random) -> None:
        """Start nothing before `start`."""
        self.again = 0
        self._plane = plane
        self._dice = dice
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="submitter")

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """End, once the last submission was taken."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if self._enough():
                time.sleep(0.1)
                continue
            number += 1
            name = f"broken{number}" if self._dice.random() < 0.12 else f"model{number}"
            self._submit(noop_spec(name, source={"factory": "support.tiny_models:Mlp", "seed": number % 7}))

    def _submit(self, spec: dict[str, Any]) -> None:
        priority = self._dice.choice((0, 0, 0, 10))
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                version = self._plane.client.publish(spec, priority=priority)
            except Pt2hubError:
                self.again += 1
                time.sleep(0.2)
            else:
                self._plane.accepted += [build.id for build in version.builds]
                return

    def _enough(self) -> bool:
        try:
            waiting = self._plane.sql("SELECT count(*) FROM builds WHERE state = 'queued'")[0][0]
        except psycopg.Error:  # it has just been killed
            return True
        return bool(waiting >= WAITING)
