"""Reports: measurements taken outside pt2hub, by deployment pipelines and in production."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.audit import Action
from pt2hub.domain.names import Reference
from pt2hub.domain.performance.measurements import environment_class
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.domain.targets import CPU_LEVELS, parse_target
from pt2hub.errors import Conflict, Detail, InvalidInput
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.performance.reports import Candidate, KeyedMeasurement, ReportStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.performance.report_form import FORM, parse_report
from pt2hub.server.services.publishing.spec_errors import MAX_DETAILS, refusal
from pt2hub.server.services.suggestions import suggest_words
from pt2hub.wire.performance import Reported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.targets import Target
    from pt2hub.domain.tokens import Actor
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.performance.report_form import (
        Report,
        ReportedEnvironment,
        ReportedMeasurement,
    )

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the clock of a reporter, or of the worker that built an artifact, may be off."""
_MAX_NOTES = 10
_MAX_KEYS = 1000
_MAX_RECORDED = 20
"""Artifacts of a report that its audit entry names."""
_OF_GPU = ("gpu", "driver", "cuda", "gpu_power_limit_w", "gpu_max_mhz")
_IMPLEMENTATIONS = ("artifact", "eager", "torch_compile")


class ReportService:
    """Accepts reported measurements."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def report(
        self, document: Mapping[str, Any], *, by: Actor, check: Callable[[str], object] | None = None
    ) -> Reported:
        """Store a report's measurements, all or none.

        A measurement is identified by its reporter and key: sending it again changes nothing.

        Args:
            document: A report (`report_form.Report`) as JSON values.
            check: Called with each measured model; raises where `by` may not report for it.

        Raises:
            InvalidInput: Fields are invalid; at most 100 are listed.
            UnknownMetric: Only units of metrics are wrong.
            Conflict: A key was reported before with different content.
        """
        report = parse_report(document)
        with self._sessions.begin() as session:
            return _Delivery(session, report, by, check).keep()


class _Delivery:
    """Storage of one report in one transaction."""

    def __init__(
        self, session: Session, report: Report, by: Actor, check: Callable[[str], object] | None
    ) -> None:
        self._session = session
        self._check = check or (lambda _: None)
        self._store = ReportStore(session)
        self._report = report
        self._by = by
        self._models: dict[str, str] = {}
        self._now = self._store.now()
        self._wrong: dict[tuple[str, str], Detail] = {}
        self._notes: dict[str, None] = {}
        machines = {report.machine(item) for item in report.measurements}
        gpus = sorted({machine.gpu for machine in machines if machine.gpu})
        self._gpu_targets = WorkerStore(session).gpu_targets(gpus)

    def keep(self) -> Reported:
        items = self._report.measurements
        keyed = self._by_key()
        new = self._new(keyed)
        added = self._store.add(self._by.name, list(new.values())) if new else set()
        # Measurements that another delivery added meanwhile are visible now; they must have the same content.
        self._new({key: item for key, item in new.items() if key not in added})
        if added:
            self._record(added)
        notes = tuple(self._notes)[:_MAX_NOTES] if new else ()
        return Reported(len(added), len(items) - len(added), notes)

    def _record(self, added: set[str]) -> None:
        models = sorted({self._models[key] for key in added})
        artifacts = sorted({item.artifact for item in self._report.measurements if item.key in added})
        audit_log.record(
            self._session,
            self._by,
            Action.MEASUREMENT_REPORT,
            models[0] if len(models) == 1 else f"{len(models)} models",
            models=models,
            count=len(added),
            artifacts=artifacts[:_MAX_RECORDED],
        )

    def _by_key(self) -> dict[str, KeyedMeasurement]:
        """Return the measurements by key, each with its artifact, environment and time."""
        artifacts = _Artifacts(self._session, self._store, self._report.measurements)
        found: list[tuple[ReportedMeasurement, Candidate, Environment, datetime]] = []
        for number, item in enumerate(self._report.measurements):
            path = f"measurements[{number}]"
            candidate = artifacts.of(item)
            if isinstance(candidate, Detail):
                self._refuse(path, candidate)
            elif (at := self._time(path, item.measured_at, candidate.created_at)) is not None:
                found.append((item, candidate, self._environment(path, item, candidate), at))
            if len(self._wrong) >= MAX_DETAILS:
                break
        if self._wrong:
            details = tuple(self._wrong.values())
            raise refusal(InvalidInput, details, FORM, FORM.hint, more=len(details) >= MAX_DETAILS)
        self._models = {item.key: candidate.model for item, candidate, _, _ in found}
        for model in sorted({*self._models.values()}):
            self._check(model)
        for item, *_ in found:
            self._note_names(item)
        # In a fixed order, so that concurrent deliveries do not deadlock.
        machines = sorted({machine for _, _, machine, _ in found}, key=repr)
        digests = {machine: WorkerStore(self._session).add_environment(machine) for machine in machines}
        classes = {machine: environment_class(machine) for machine in machines}
        return {
            item.key: KeyedMeasurement(
                key=item.key,
                of=candidate.of,
                environment=digests[machine],
                class_digest=classes[machine],
                measurement=item.measurement(),
                measured_at=at,
                dated=item.measured_at is not None,
            )
            for item, candidate, machine, at in found
        }

    def _refuse(self, parent: str, wrong: Detail) -> None:
        """Record an invalid field, once if many measurements share it."""
        path = f"{parent}.{wrong.path}"
        self._wrong.setdefault((path, wrong.message), replace(wrong, path=path))

    def _time(self, path: str, given: datetime | None, built: datetime) -> datetime | None:
        """Return when a measurement was taken; None where the given time is invalid.

        Args:
            built: When its artifact was built.
        """
        if given is None:
            return max(self._now, built)
        if given - self._now > CLOCK_TOLERANCE:
            ahead = timedelta(seconds=int((given - self._now).total_seconds()))
            message = f"the time is {ahead} ahead of the database's clock; check the reporter's clock"
            wrong = Detail("measured_at", message, given.isoformat(), f"until {stamp(self._now)}")
        elif built - given > CLOCK_TOLERANCE:
            message = "the time is before the artifact was built; check the reporter's clock"
            wrong = Detail("measured_at", message, given.isoformat(), f"from {stamp(built)}")
        elif built > given:
            self._note(
                "measured_at is minutes before the artifact was built; the build time was stored instead: "
                "check the clock."
            )
            return built
        else:
            return given.astimezone(UTC)
        self._refuse(path, wrong)
        return None

    def _environment(self, path: str, item: ReportedMeasurement, candidate: Candidate) -> Environment:
        """Return the environment, without its GPU if the artifact does not use one, as workers do.

        Only workers measure in isolation. A report that claims isolation would enter their series, and affect the points
        and the noise that their measurements are compared by.
        """
        machine, target = self._report.machine(item), parse_target(candidate.of.target)
        named = (
            f"environments.{item.environment}" if isinstance(item.environment, str) else f"{path}.environment"
        )
        for wrong in _misfits(machine, target, self._gpu_targets.get(machine.gpu or "", ())):
            self._refuse(named, wrong)
        whole = machine.environment()
        if whole.isolation not in (None, "none"):
            self._note(
                f"The isolation {whole.isolation} was stored as none: only workers measure in isolation."
            )
            whole = replace(whole, isolation="none")
        if target.device == "cuda" or all(getattr(whole, name) is None for name in _OF_GPU):
            return whole
        self._note(
            f"The GPU was removed from environments of artifacts for {target.name}: they do not use it."
        )
        return replace(whole, **dict.fromkeys(_OF_GPU))

    def _note_names(self, item: ReportedMeasurement) -> None:
        """Add notes for names that resemble known ones."""
        for kind, name, known in (
            ("metric", item.metric, METRICS),
            ("implementation", item.implementation, _IMPLEMENTATIONS),
        ):
            suggestions = (
                []
                if name in known
                else [other for other in suggest_words(name, known) if not name.startswith(other)]
            )
            if suggestions:
                self._note(f"{name} was stored as your own {kind}. Did you mean {suggestions[0]}?")

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def _new(self, items: Mapping[str, KeyedMeasurement]) -> dict[str, KeyedMeasurement]:
        """Return the measurements that were not reported before.

        Raises:
            Conflict: One was reported before with different content.
        """
        before = self._store.find_delivered(self._by.name, items.keys()) if items else {}
        others = {key for key, found in before.items() if not items[key].is_same(*found)}
        if others:
            raise self._conflict(others)
        return {key: item for key, item in items.items() if key not in before}

    def _conflict(self, keys: set[str]) -> Pt2hubError:
        message = "this key was reported before with different content"
        details = tuple(
            Detail(f"measurements[{number}].key", message, given=item.key)
            for number, item in enumerate(self._report.measurements)
            if item.key in keys
        )[:MAX_DETAILS]
        return Conflict(
            f"{len(keys)} of the keys were reported before with different content, and nothing of the report was stored: "
            f"{details[0].given}{' and others' if len(keys) > 1 else ''}",
            where="measurements",
            hint="A reported measurement cannot be changed; give each new one its own key.",
            details=details,
            context={"keys": sorted(keys)[:_MAX_KEYS]},
        )


class _Artifacts:
    """The artifacts that a report names, looked up in bulk."""

    def __init__(self, session: Session, store: ReportStore, items: Sequence[ReportedMeasurement]) -> None:
        self._session = session
        names = [_parse(name) for name in {item.artifact for item in items}]
        self._digests = store.by_digest({digest for _, _, digest in names if digest})
        self._versions = store.by_version({(model, number) for model, number, _ in names if model and number})
        self._known: dict[tuple[str, str | None], Candidate | Detail] = {}

    def of(self, item: ReportedMeasurement) -> Candidate | Detail:
        """Return the artifact of a measurement, or the error in its name or target."""
        name = (item.artifact, item.target)
        if name not in self._known:
            self._known[name] = self._find(*name)
        return self._known[name]

    def _find(self, name: str, target: str | None) -> Candidate | Detail:
        model, number, digest = _parse(name)
        if model and number:
            return self._of_version(model, number, target)
        found = self._digests.get(digest or "")
        if found is None or not readable().covers(found.model):
            return Detail("artifact", "artifact not found", name)
        if model not in {None, found.model}:
            return Detail("artifact", "the artifact belongs to another model", name, found.model)
        if target not in {None, found.of.target}:
            return Detail("target", "the artifact is for another target", target, found.of.target)
        return found

    def _of_version(self, model: str, number: int, target: str | None) -> Candidate | Detail:
        if hidden := not_found.unreadable(model):
            return Detail("artifact", hidden.message, f"{model}@{number}", hidden.hint)
        there = self._versions.get((model, number), [])
        fit = [one for one in there if target in {None, one.of.target}]
        if len(fit) == 1:
            return fit[0]
        targets = ", ".join(one.of.target for one in there)
        if fit:
            return Detail(
                "target", f"{model}@{number} has several artifacts: target is required", None, targets
            )
        if there:
            return Detail("target", f"{model}@{number} has no artifact for this target", target, targets)
        version = VersionStore(self._session).by_number(model, number)
        error = (
            not_found.not_ready(self._session, version)
            if version
            else not_found.no_version(self._session, model, number)
        )
        return Detail("artifact", error.message, f"{model}@{number}", error.hint)


def _parse(name: str) -> tuple[str | None, int | None, str | None]:
    """Return the model, number and digest in an artifact's name, None where absent."""
    if "@" not in name:
        return None, None, name
    reference = Reference.parse(name)
    return reference.model, reference.number, reference.digest


def _misfits(machine: ReportedEnvironment, target: Target, offered: Collection[str]) -> Iterator[Detail]:
    """Yield the reasons why an artifact for a target cannot have run in an environment.

    Args:
        offered: The targets that workers with such a GPU offered; empty where no worker had one.
    """
    if target.exists and ".".join(machine.torch.split(".")[:2]) != target.torch:
        yield Detail("torch", f"the artifact is for {target.name}", machine.torch, f"{target.torch}.*")
    if target.device == "cuda":
        for name in ("gpu", "driver"):
            if getattr(machine, name) is None:
                yield Detail(name, f"required field is missing: artifacts for {target.name} run on a GPU")
        if machine.cuda and machine.cuda.replace(".", "") != target.cuda:
            yield Detail("cuda", f"the artifact is for {target.name}", machine.cuda, target.cuda)
        architectures = sorted({parse_target(name).arch for name in offered})
        if architectures and not any(_runs(target.arch, arch) for arch in architectures):
            yield Detail(
                "gpu", f"the artifact is for {target.arch}", machine.gpu, f"this GPU is {architectures[0]}"
            )
    elif machine.cpu_level and _rank(machine.cpu_level) < _rank(target.arch):
        message = f"code for {target.name} does not run on this CPU"
        yield Detail("cpu_level", message, machine.cpu_level, f"{target.arch} or above")


def _runs(code: str, gpu: str) -> bool:
    """Return whether a GPU runs another architecture's code: that of its major capability, up to its minor one.

    Source: CUDA C++ Programming Guide, "Binary Compatibility".
    """
    return code[:-1] == gpu[:-1] and code[-1] <= gpu[-1]


def _rank(level: str) -> int:
    return list(CPU_LEVELS).index(level)
