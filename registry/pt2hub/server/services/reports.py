"""Figures that others took: deployment pipelines, and production."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.measurements import environment_class
from pt2hub.domain.performance import METRICS
from pt2hub.domain.targets import parse_target
from pt2hub.errors import Conflict, Detail
from pt2hub.server.db.stores.reports import Candidate, KeyedFigure, Place, ReportStore
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.services import report_notes
from pt2hub.server.services.report_checks import Artifacts, Clock, Machines, Wrong, check_keys
from pt2hub.server.services.report_form import MOST_ENVIRONMENTS, ReportedFigure, parse_report
from pt2hub.server.services.report_problems import MOST_DETAILS, Problems
from pt2hub.wire.performance import Reported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.report_form import Report, ReportedEnvironment

_SHOWN_KEYS = 5
_MOST_KEYS = 1000
_OF_GPU = ("gpu", "driver", "cuda", "gpu_power_limit_w", "gpu_max_mhz")


class ReportService:
    """Takes reported figures."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def report(self, document: Mapping[str, Any], *, by: str) -> Reported:
        """Keeps figures, all of a report or none.

        A figure is known by its reporter and key: the same one again changes nothing.

        Args:
            document: A report (`report_form.Report`) as JSON values.
            by: Name of the token that it came with.

        Raises:
            InvalidInput: Something is wrong; at most 20 places are named, and the others counted.
            UnknownMetric: Nothing but metrics' names and units is wrong.
            Conflict: A key was delivered before with another content.
        """
        report = parse_report(document)
        with self._sessions.begin() as session:
            return _Reception(session, report, by).take()


@dataclass(frozen=True, slots=True)
class _Told:
    """A figure whose artifact, machine and time are found.

    Attributes:
        item: As it was reported.
        candidate: Its artifact.
        machine: Where it was taken.
        measured_at: When.
    """

    item: ReportedFigure
    candidate: Candidate
    machine: Environment
    measured_at: datetime

    def keyed(self, place: Place) -> KeyedFigure:
        """The figure as it is kept."""
        return KeyedFigure(
            self.item.key,
            self.candidate.of,
            place,
            self.item.measurement(),
            self.measured_at,
            dated=self.item.measured_at is not None,
        )


class _Reception:
    """One report, in one transaction."""

    def __init__(self, session: Session, report: Report, by: str) -> None:
        self._session = session
        self._store = ReportStore(session)
        self._items = report.measurements
        self._by = by
        self._problems = Problems()
        self._clock = Clock(self._store.now())
        self._artifacts = Artifacts(session, self._store, self._items)
        self._machines = Machines(report, self._store.targets_of)
        self._left_out: set[str] = set()
        self._confined: set[str] = set()

    def take(self) -> Reported:
        check_keys(self._items, self._problems)
        told = [found for place, item in enumerate(self._items) if (found := self._told(place, item))]
        machines = {one.machine for one in told}
        if len(machines) > MOST_ENVIRONMENTS:
            most = f"{MOST_ENVIRONMENTS} at most; send several reports"
            self._problems.add(
                "measurements", "too many different machines", given=len(machines), allowed=most
            )
        self._problems.check()
        places = self._places(machines)
        figures = [one.keyed(places[one.machine]) for one in told]
        new = self._new({figure.key: figure for figure in figures})
        notes = self._notes(figures, machines) if new else ()
        added = self._store.add(self._by, list(new.values())) if new else set()
        # What another delivery added meanwhile is seen by now; it must say the same.
        self._new({key: figure for key, figure in new.items() if key not in added})
        return Reported(len(added), len(self._items) - len(added), notes)

    def _told(self, place: int, item: ReportedFigure) -> _Told | None:
        """A figure with all that it names; None where something is wrong, which is noted."""
        candidate, machine = self._artifacts.of(item), self._machines.of(item)
        wrong = [found for found in (candidate, machine) if isinstance(found, Wrong)]
        for found in wrong:
            self._problems.add_at(f"measurements[{place}]", found)
        if isinstance(candidate, Wrong) or isinstance(machine, Wrong):
            return None
        named = isinstance(item.environment, str)
        where = f"environments.{item.environment}" if named else f"measurements[{place}].environment"
        for found in self._machines.misfits(machine, candidate.of.target):
            self._problems.add_at(where, found)
        measured_at = self._clock.judge(item.measured_at, candidate.created_at)
        if isinstance(measured_at, Wrong):
            self._problems.add_at(f"measurements[{place}]", measured_at)
            return None
        return _Told(item, candidate, self._fingerprint(machine, candidate), measured_at)

    def _fingerprint(self, machine: ReportedEnvironment, candidate: Candidate) -> Environment:
        """The machine, without its GPU where the artifact has no use of one: a worker leaves it out too.

        Only workers confine what they measure. A report that says otherwise would stand in their series, and move the
        points and the noise that their figures are judged by.
        """
        whole = self._machines.fingerprint(machine)
        if whole.isolation not in (None, "none"):
            self._confined.add(whole.isolation)
            whole = replace(whole, isolation="none")
        said = any(getattr(whole, name) is not None for name in _OF_GPU)
        if not said or parse_target(candidate.of.target).device == "cuda":
            return whole
        self._left_out.add(candidate.of.target)
        return replace(whole, **dict.fromkeys(_OF_GPU))

    def _places(self, machines: Iterable[Environment]) -> dict[Environment, Place]:
        """Where figures were taken, made known in an order that two deliveries share."""
        store = WorkerStore(self._session)
        return {
            machine: Place(store.add_environment(machine), environment_class(machine))
            for machine in sorted(machines, key=repr)
        }

    def _new(self, figures: Mapping[str, KeyedFigure]) -> dict[str, KeyedFigure]:
        """Those that did not come before.

        Raises:
            Conflict: One came before and said something else.
        """
        before = self._store.delivered(self._by, figures.keys()) if figures else {}
        others = {key for key, found in before.items() if not found.same(figures[key])}
        if others:
            raise self._conflict(others)
        return {key: figure for key, figure in figures.items() if key not in before}

    def _conflict(self, keys: set[str]) -> Conflict:
        places = [(place, item.key) for place, item in enumerate(self._items) if item.key in keys]
        shown = ", ".join(key for _, key in places[:_SHOWN_KEYS])
        more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
        message = "it was delivered before and said something else"
        return Conflict(
            f"{len(keys)} of the keys came before with other content, and nothing of the report was kept: {shown}{more}",
            where="measurements",
            hint="A figure that was delivered stays as it is; give another one a key of its own.",
            details=tuple(
                Detail(f"measurements[{place}].key", message, given=key)
                for place, key in places[:MOST_DETAILS]
            ),
            context={"keys": sorted(keys)[:_MOST_KEYS]},
        )

    def _notes(self, figures: Sequence[KeyedFigure], machines: Iterable[Environment]) -> tuple[str, ...]:
        own = {figure.what.metric for figure in figures} - METRICS.keys()
        models = {figure.of.model_id for figure in figures}
        return report_notes.notes(
            report_notes.of_clocks(self._clock.early),
            report_notes.of_names(own, self._store.metrics(models) if own else ()),
            report_notes.of_subjects({figure.what.subject for figure in figures}),
            report_notes.of_units(figures, self._store.units(own, models)),
            report_notes.of_gpus(self._left_out),
            report_notes.of_isolation(self._confined),
            report_notes.of_machines(machines, self._store.classes(models)),
        )
