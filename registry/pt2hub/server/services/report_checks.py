"""Whether reported figures can be what they say: their artifact, machine, time and key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.names import Reference
from pt2hub.domain.targets import CPU_LEVELS, parse_target
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services import missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.targets import Target
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.db.stores.reports import Candidate, ReportStore
    from pt2hub.server.services.report_form import Report, ReportedEnvironment, ReportedFigure
    from pt2hub.server.services.report_problems import Problems

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the clock of a reporter, or of the worker that dated an artifact, may be off."""
_MOST_NAMES = 20
_DIGEST_LENGTH = len("sha256:") + 64


@dataclass(frozen=True, slots=True)
class Wrong:
    """What does not fit.

    Attributes:
        field: The field, below the place that is looked at.
        message: What is wrong with it.
        given: What was given.
        allowed: What would be right.
    """

    field: str
    message: str
    given: str | None = None
    allowed: str | None = None


class Artifacts:
    """The artifacts that a report's figures name, looked up all at once."""

    def __init__(self, session: Session, store: ReportStore, items: Sequence[ReportedFigure]) -> None:
        """Looks them up.

        Args:
            session: Reads what is there instead of what is missing.
            store: Reads artifacts.
            items: The figures.
        """
        self._session = session
        names = {item.artifact for item in items}
        versions = {(ref.model, ref.number) for name in names if (ref := _reference(name)) and ref.number}
        self._digests = store.by_digest({digest for name in names if (digest := _digest(name))})
        self._versions = store.by_version({(model, number) for model, number in versions if number})
        self._found: dict[tuple[str, str | None], Candidate | Wrong] = {}

    def of(self, item: ReportedFigure) -> Candidate | Wrong:
        """The artifact of a figure, or why it is none."""
        asked = (item.artifact, item.target)
        if asked not in self._found:
            self._found[asked] = self._one(*asked)
        return self._found[asked]

    def _one(self, name: str, target: str | None) -> Candidate | Wrong:
        wanted = _reference(name)
        if wanted and wanted.number:
            return self._of_version(wanted.model, wanted.number, target)
        found = self._digests.get(_digest(name) or "")
        if found is None:
            return Wrong("artifact", "there is no such artifact here", name)
        if wanted and found.model != wanted.model:
            return Wrong("artifact", f"it is of another model than {wanted.model}", name, found.model)
        if target not in {None, found.of.target}:
            return Wrong("target", "the artifact is for another target", target, found.of.target)
        return found

    def _of_version(self, model: str, number: int, target: str | None) -> Candidate | Wrong:
        there = self._versions.get((model, number), [])
        fit = [one for one in there if target in {None, one.of.target}]
        if len(fit) == 1:
            return fit[0]
        targets = ", ".join(one.of.target for one in there)
        if fit:
            return Wrong("target", f"{model}@{number} has several artifacts; say whose it is", None, targets)
        if there:
            return Wrong("target", f"{model}@{number} has no artifact for this target", target, targets)
        error = self._absent(model, number)
        return Wrong("artifact", error.message, f"{model}@{number}", error.hint)

    def _absent(self, model: str, number: int) -> Pt2hubError:
        version = VersionStore(self._session).by_number(model, number)
        if version:
            return missing.not_ready(self._session, version)
        return missing.no_version(self._session, model, number)


class Machines:
    """The machines that a report names, and whether artifacts can have run there."""

    def __init__(self, report: Report, targets_of: Callable[[set[str]], dict[str, set[str]]]) -> None:
        """Looks up what is known of their GPUs.

        Args:
            report: Names machines, once for many figures or with a figure.
            targets_of: The targets that workers offer whose GPUs have these names, by name.
        """
        self._named = report.environments
        given = [item.environment for item in report.measurements if not isinstance(item.environment, str)]
        machines = {*given, *self._named.values()}
        self._targets_of = targets_of({machine.gpu for machine in machines if machine.gpu})
        self._fingerprints = {machine: machine.fingerprint() for machine in machines}
        self._judged: dict[tuple[ReportedEnvironment, str], tuple[Wrong, ...]] = {}

    def of(self, item: ReportedFigure) -> ReportedEnvironment | Wrong:
        """The machine of a figure."""
        said = item.environment
        if not isinstance(said, str):
            return said
        allowed = ", ".join(sorted(self._named)[:_MOST_NAMES]) or "an object: the report has no environments"
        return self._named.get(said) or Wrong("environment", "environments has no such name", said, allowed)

    def fingerprint(self, machine: ReportedEnvironment) -> Environment:
        """A machine as it is kept."""
        return self._fingerprints[machine]

    def misfits(self, machine: ReportedEnvironment, target: str) -> tuple[Wrong, ...]:
        """Why an artifact for a target cannot have run on a machine; empty where it can."""
        if (machine, target) not in self._judged:
            wrong = tuple(_misfits(machine, parse_target(target), self._targets_of))
            self._judged[machine, target] = wrong
        return self._judged[machine, target]


def _misfits(
    machine: ReportedEnvironment, target: Target, targets_of: dict[str, set[str]]
) -> Iterator[Wrong]:
    if target.exists and ".".join(machine.torch.split(".")[:2]) != target.torch:
        yield Wrong("torch", f"the artifact is for {target.name}", machine.torch, f"{target.torch}.*")
    if target.device == "cuda":
        yield from _gpu_misfits(machine, target, targets_of)
    elif machine.cpu_level and _rank(machine.cpu_level) < _rank(target.arch):
        above = f"{target.arch} or above"
        yield Wrong("cpu_level", f"code for {target.name} does not run there", machine.cpu_level, above)


def _gpu_misfits(
    machine: ReportedEnvironment, target: Target, targets_of: dict[str, set[str]]
) -> Iterator[Wrong]:
    for name in ("gpu", "driver"):
        if getattr(machine, name) is None:
            yield Wrong(name, f"an artifact for {target.name} runs on a GPU; the field is missing")
    if machine.cuda and machine.cuda.replace(".", "") != target.cuda:
        yield Wrong("cuda", f"the artifact is for {target.name}", machine.cuda, target.cuda)
    known = {parse_target(name).arch for name in targets_of.get(machine.gpu or "", ())}
    if known and target.arch not in known:
        found = ", ".join(sorted(known))
        yield Wrong("gpu", f"the artifact is for {target.arch}, this GPU is {found}", machine.gpu)


def _rank(level: str) -> int:
    return list(CPU_LEVELS).index(level)


@dataclass(slots=True)
class Clock:
    """Judges when figures are said to be taken.

    Attributes:
        now: The database's clock.
        early: How long before their artifacts figures were said to be taken, of those that are taken anyway.
    """

    now: datetime
    early: list[timedelta] = field(default_factory=list)

    def judge(self, said: datetime | None, built: datetime) -> datetime | Wrong:
        """When a figure was taken.

        Args:
            said: What its reporter says.
            built: When its artifact was.
        """
        if said is None:
            return max(self.now, built)
        ahead, before = said - self.now, built - said
        if ahead > CLOCK_TOLERANCE:
            message = f"it is {_span(ahead)} ahead of the database's clock; is the clock there right?"
            return Wrong("measured_at", message, said.isoformat(), f"until {stamp(self.now)}")
        if before > CLOCK_TOLERANCE:
            message = f"it is {_span(before)} before the artifact was built; is the clock there right?"
            return Wrong("measured_at", message, said.isoformat(), f"from {stamp(built)}")
        if before > timedelta(0):
            self.early.append(before)
            return built
        return said.astimezone(UTC)


def check_keys(items: Sequence[ReportedFigure], problems: Problems) -> None:
    """Refuses a key that two different figures of one report have."""
    first: dict[str, int] = {}
    for place, item in enumerate(items):
        before = first.setdefault(item.key, place)
        if before != place and item != items[before]:
            said = f"measurements[{before}] has the same key and says something else"
            problems.add(f"measurements[{place}].key", said, given=item.key)


def _span(span: timedelta) -> str:
    """A time in words, whole where it is long."""
    seconds = int(span.total_seconds())
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} seconds"


def _reference(name: str) -> Reference | None:
    """What a name says beside a digest; None for a digest alone."""
    return Reference.parse(name) if "@" in name else None


def _digest(name: str) -> str | None:
    tail = name[-_DIGEST_LENGTH:]
    return tail if tail.startswith("sha256:") else None
