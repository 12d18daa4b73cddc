"""What a model's policy says to the move of an alias: each gate compares two versions.

A gate refuses what is worse by more than it allows and by more than the noise; it refuses too what it cannot tell,
unless it says `"missing": "pass"`. How much worse is told as a ratio in the bad direction: at most 5 % worse is a
latency of at most 1.05 times, and a throughput of at least 1 / 1.05.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.domain.measurements import MeasurementState
from pt2hub.domain.performance import METRICS, OF_JOBS, default_threshold
from pt2hub.errors import Detail, GateRefused
from pt2hub.rendering.quantities import quantity
from pt2hub.server.db.stores.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.policies import PolicyStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.policy_spec import Gate
from pt2hub.server.services.verdicts import Verdicts
from pt2hub.server.services.worsening import Worse, percent_of
from pt2hub.wire.performance import GateCheck

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.performance import Measured
    from pt2hub.wire.performance import MetricComparison
    from pt2hub.wire.shapes import MeasurementStatus

_MOST_KEPT = 20
"""Refusals that are kept and told of one move: a policy of many gates for many targets finds thousands."""
_MOST_SAID = 100
_MOST_COMMANDS = 4
_MEASURABLE = frozenset({"environment_differs", "too_noisy", "too_few", "not_measured"})
"""Why two figures could not be compared, where measuring again may help."""
_OPEN = frozenset({BuildState.QUEUED, BuildState.RUNNING})
_FIELDS = frozenset(Gate.model_fields)


@dataclass(frozen=True, slots=True)
class Move:
    """A move of an alias that a policy may refuse.

    Attributes:
        model: The model's name.
        model_id: Its row.
        alias: The alias's name.
        before: The version it is on, or was on when it was removed: else removing it first would be a way past every
            gate. None where there never was such an alias.
        after: The version it shall be on, None where it is taken away.
        removed: Whether it is on none now.
    """

    model: str
    model_id: int
    alias: str
    before: int | None
    after: int | None
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy says to a move.

    Attributes:
        move: The move.
        revision: The policy's, 0 where there is none.
        checks: What each gate found.
        notes: What else its reader must know.
    """

    move: Move
    revision: int
    checks: tuple[GateCheck, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[GateCheck, ...]:
        """What speaks against the move."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def said(self) -> tuple[str, ...]:
        """Everything in sentences."""
        return (*self.notes, *(check.said for check in self.checks))[:_MOST_SAID]

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The measuring jobs after which nothing may speak against the move; none where something will all the same."""
        if not all(check.jobs for check in self.refused):
            return ()
        return tuple(dict.fromkeys(job for check in self.refused for job in check.jobs))

    def overridden(self) -> dict[str, Any] | None:
        """What is kept of a move that is made all the same; None where nothing speaks against it."""
        if not self.refused:
            return None
        kept: dict[str, Any] = storable({"revision": self.revision, **self._told()})
        return kept

    def error(self) -> GateRefused:
        """The error of a move that is refused."""
        move, refused, jobs = self.move, self.refused, self.waits_for
        details = tuple(Detail(check.path, check.said) for check in refused[:_MOST_KEPT])
        where = f"removed, where it was on {move.before}" if move.removed else f"on {move.before}"
        stays = f"{move.model}@{move.alias} stays {where}"
        return GateRefused(
            f"{stays}: {refused[0].said}"
            if len(refused) == 1
            else f"{stays}: {len(refused)} checks of its policy refuse version {move.after}",
            where="policy",
            hint=_hint(move, refused, jobs),
            details=details if len(refused) > 1 else (),
            context={
                "model": move.model,
                "alias": move.alias,
                "from": move.before,
                "to": move.after,
                "revision": self.revision,
                **({"waits_for": list(jobs)} if jobs else {}),
                **self._told(),
            },
        )

    def _told(self) -> dict[str, Any]:
        return {"count": len(self.refused), "refused": encode(self.refused[:_MOST_KEPT])}


class Gates:
    """Judges moves by the policy of their model."""

    def __init__(self, session: Session) -> None:
        """Works in the transaction of the move, which holds the alias: the policy cannot change meanwhile."""
        self._session = session
        self._store = PolicyStore(session)

    def judge(self, move: Move) -> Ruling:
        """What the policy says to a move."""
        policy = self._store.one(move.model_id)
        gates = list(_applying(policy.document, move.alias)) if policy and move.after else []
        if policy is None or not gates or move.before == move.after:
            return Ruling(move, policy.revision if policy else 0)
        if move.before is None:
            note = f"{move.alias} was on no version, so that its policy had nothing to compare with"
            return Ruling(move, policy.revision, notes=(note,))
        sides = _Sides(self._session, move, {gate.metric for _, gate in gates})
        checks = tuple(check for path, gate in gates for check in sides.checks(path, gate))
        return Ruling(move, policy.revision, checks)


class _Sides:
    """The version that an alias is on, and the one it shall be on."""

    def __init__(self, session: Session, move: Move, metrics: Collection[str]) -> None:
        store = PolicyStore(session)
        self._verdicts, self._metrics = Verdicts(session), metrics
        self._states = MeasurementStateStore(session)
        self._move = move
        self._before = store.artifacts(move.model_id, move.before or 0)
        self._after = store.artifacts(move.model_id, move.after or 0)
        self._thresholds = store.thresholds(move.model_id)
        self._compared: dict[str, tuple[MetricComparison, ...]] = {}

    def checks(self, path: str, gate: Gate) -> Iterator[GateCheck]:
        """What a gate finds, on each of its targets."""
        both = [name for name in self._after if name in self._before]
        for target in [gate.target] if gate.target else both:
            yield from self._on(target, path, gate)
        if not gate.target and not both:
            said = f"{self._move.after} and {self._move.before} have no target in common to compare {gate.metric} on"
            yield _unknown(path, gate, said)

    def _on(self, target: str, path: str, gate: Gate) -> Iterator[GateCheck]:
        if target not in self._after:
            said = f"{gate.metric} on {target} cannot be compared: {self._move.after} has no artifact for that target"
            yield replace(_unknown(path, gate, said), target=target)
        elif target not in self._before:
            said = f"{gate.metric} on {target}: {self._move.before} had no artifact there to compare with"
            yield GateCheck(gate.model_dump(), path, passed=True, said=said, target=target)
        else:
            for found in self._figures(target, gate):
                yield self._check(found, target, path, gate)

    def _figures(self, target: str, gate: Gate) -> list[MetricComparison | None]:
        """The comparisons that a gate is about; None stands for one that there is not."""
        every = self._comparisons(self._before[target], self._after[target])
        found = [item for item in every if item.metric == gate.metric and gate.batch in (None, item.batch)]
        # Whoever reports chooses the batch sizes: beside pt2hub's own a gate must ask for theirs by number.
        found = [item for item in found if not item.reported] or found
        both = [item for item in found if item.ratio or (item.before is not None and item.after is not None)]
        return [*(both or found)] or [None]

    def _comparisons(self, before: Measured, after: Measured) -> tuple[MetricComparison, ...]:
        if after.target not in self._compared:
            self._compared[after.target] = self._verdicts.of(before, after, self._metrics)
        return self._compared[after.target]

    def _check(self, found: MetricComparison | None, target: str, path: str, gate: Gate) -> GateCheck:
        place = _place(gate.metric, target, found.batch if found else gate.batch)
        if found is None:
            said = f"{place} cannot be compared: it was measured of neither {self._move.before} nor {self._move.after}"
            return self._unmeasured(said, target, path, gate)
        worse = Worse.of(found, self._thresholds.get(gate.metric) or default_threshold(gate.metric))
        if (passed := worse.within(gate.max_worse)) is None:
            said = f"{place} cannot be compared: {found.detail or (found.why or 'unknown').replace('_', ' ')}"
            if found.why in _MEASURABLE:
                return replace(self._unmeasured(said, target, path, gate), comparison=found)
            return replace(_unknown(path, gate, said), target=target, comparison=found)
        said = f"{place} is {worse} in {self._move.after} than in {self._move.before} ({_figures(found)})"
        said += f"; at most {percent_of(1 + gate.max_worse)} worse is allowed"
        return GateCheck(gate.model_dump(), path, passed, said, target, comparison=found)

    def _unmeasured(self, said: str, target: str, path: str, gate: Gate) -> GateCheck:
        """A gate that measuring may help, with the jobs that will."""
        wanted = _both(self._move, gate.metric)
        if not wanted:
            return replace(_unknown(path, gate, said), target=target)
        sides = ((self._move.after, self._after), (self._move.before, self._before))
        found = self._states.of(own[target].artifact for _, own in sides)
        states = [
            (number, found[own[target].artifact]) for number, own in sides if own[target].artifact in found
        ]
        jobs = tuple(status.job for _, status in states if status.job and status.job_state in _OPEN)
        told = "; ".join([said, *filter(None, (_standing(number, status) for number, status in states))])
        return replace(_unknown(path, gate, told), target=target, wanted=wanted, jobs=jobs)


def _standing(number: int | None, status: MeasurementStatus) -> str:
    """Return what is said of a version that is not measured, or is measured again; empty of others."""
    reason = f": {status.reason}" if status.reason else ""
    match status.state, status.job_state:
        case MeasurementState.MEASURED, BuildState.QUEUED | BuildState.RUNNING:
            return f"version {number} is measured again by job {status.job}, which is {status.job_state}"
        case MeasurementState.WAITING | MeasurementState.MEASURING, _:
            return (
                f"version {number} is not measured yet: its measuring job {status.job} is {status.job_state}"
            )
        case MeasurementState.FAILED, _:
            return f"measuring version {number} failed in job {status.job}{reason}"
        case MeasurementState.NOT_MEASURED, _:
            return f"version {number} is not measured yet{reason}"
        case _:
            return ""


def _applying(document: Mapping[str, Any], alias: str) -> Iterator[tuple[str, Gate]]:
    """The gates that a move of an alias must pass, each with its place; what a later pt2hub added is left out."""
    for index, item in enumerate(document.get("gates", ())):
        gate = Gate.model_validate({name: value for name, value in item.items() if name in _FIELDS})
        if gate.alias in (None, alias):
            yield f"gates[{index}]", gate


def _unknown(path: str, gate: Gate, said: str) -> GateCheck:
    """A gate that cannot be checked."""
    passed = gate.missing == "pass"
    return GateCheck(
        gate.model_dump(), path, passed, f"{said}; the gate lets it pass" if passed else said, missing=True
    )


def _both(move: Move, metric: str) -> tuple[str, ...]:
    """The version to move to and the one to measure it beside, where measuring gives a metric."""
    return (
        tuple(f"{move.model}@{number}" for number in (move.after, move.before)) if metric in OF_JOBS else ()
    )


def _hint(move: Move, refused: tuple[GateCheck, ...], jobs: tuple[str, ...]) -> str:
    command = f'pt2hub alias {move.model}@{move.after} {move.alias} --reason "..."'
    forced = f"{command} --force"
    waiting = f"`{command} --wait` moves it as soon as it is measured and passes." if jobs else ""
    advice = [waiting or _measuring(refused) or _doubting(move, refused), _reporting(refused)]
    return " ".join([*filter(None, advice), f"An admin's token may force it: {forced}."])


def _measuring(refused: tuple[GateCheck, ...]) -> str:
    """The commands that measure both versions beside each other."""
    commands = _commands([(item.wanted, item.target) for item in refused if item.wanted])
    return f"Measure: {commands}." if commands else ""


def _doubting(move: Move, refused: tuple[GateCheck, ...]) -> str:
    """The command that measures both versions again, where that may say something else."""
    of_jobs = [item for item in refused if not item.missing and item.gate["metric"] in OF_JOBS]
    commands = _commands([(_both(move, item.gate["metric"]), item.target) for item in of_jobs])
    return f"Who doubts it measures again: {commands}." if commands else ""


def _reporting(refused: tuple[GateCheck, ...]) -> str:
    """What to do about metrics that pt2hub does not measure."""
    metrics = [item.gate["metric"] for item in refused if item.missing and item.gate["metric"] not in METRICS]
    return f"`pt2hub report` takes {' and '.join(dict.fromkeys(metrics))} of both." if metrics else ""


def _commands(wanted: list[tuple[tuple[str, ...], str | None]]) -> str:
    commands = [
        f"`pt2hub measure {both[0]} --target {target} --beside {both[1]}`"
        for both, target in dict.fromkeys(wanted)
    ]
    return ", ".join(commands[:_MOST_COMMANDS])


def _place(metric: str, target: str, batch: int | None) -> str:
    return f"{metric} on {target}" + (f" at batch {batch}" if batch else "")


def _figures(found: MetricComparison) -> str:
    now, before = (
        "-" if value is None else quantity(value, found.unit) for value in (found.after, found.before)
    )
    return f"{now}, was {before}"
