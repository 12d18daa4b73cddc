"""Evaluations: the quality of versions on data of their users, reported, listed and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.audit import Action
from pt2hub.domain.names import Reference
from pt2hub.domain.performance.data_sets import DataSet, parse_data_set
from pt2hub.errors import Conflict, Detail, InvalidInput, NotFound
from pt2hub.server.db.stores.performance.evaluations import EvaluationStore, NewEvaluation, newest_by_data
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.performance.evaluation_form import FORM, parse_evaluations
from pt2hub.server.services.performance.reports import CLOCK_TOLERANCE
from pt2hub.server.services.publishing.catalog import DEFAULT_LIMIT
from pt2hub.server.services.publishing.spec_errors import MAX_DETAILS, refusal
from pt2hub.wire.evaluations import EvaluationComparison, EvaluationPage
from pt2hub.wire.performance import Reported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.performance.evaluation_form import Evaluation
    from pt2hub.wire.evaluations import EvaluationView

_MAX_RECORDED = 20
"""Versions of a report that its audit entry names."""
_MAX_NOTES = 10
_ROUNDING = 1e-9
"""Relative rounding error of differences of floats."""


class EvaluationService:
    """Accepts and lists evaluations."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def report(
        self, document: Mapping[str, Any], *, by: Actor, check: Callable[[str], object] = lambda _: None
    ) -> Reported:
        """Store a report's evaluations, all or none.

        An evaluation is identified by its reporter and key: sending it again changes nothing.

        Args:
            check: Called with each evaluated model; raises where `by` may not report for it.

        Raises:
            InvalidInput: Fields are invalid.
            Conflict: A key was reported before with different content.
        """
        items = parse_evaluations(document)
        with self._sessions.begin() as session:
            store = EvaluationStore(session)
            now = store.now()
            new = _stored(session, items, now)
            models = sorted({Reference.parse(item.version).model for item in items})
            for model in models:
                check(model)
            known = _delivered(store, by.name, new)
            missing = [item for item in new if item.key not in known]
            added = store.add(missing, by=by.principal, now=now) if missing else set()
            # Those that another delivery added meanwhile are visible now; they must have the same content.
            _delivered(store, by.name, [item for item in missing if item.key not in added])
            if added:
                versions = sorted({item.version for item in items if item.key in added})
                audit_log.record(
                    session,
                    by,
                    Action.EVALUATION_REPORT,
                    versions[0] if len(versions) == 1 else f"{len(versions)} versions",
                    models=models,
                    count=len(added),
                    versions=versions[:_MAX_RECORDED],
                )
            again = [item.key for item in items if item.key not in added]
            notes = tuple(map(_note_overtaken, store.overtaken(by.name, again, limit=_MAX_NOTES)))
        return Reported(len(added), len(items) - len(added), notes)

    def evaluations(
        self,
        model: str,
        *,
        metric: str | None = None,
        data_set: str | None = None,
        before: int | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> EvaluationPage:
        """Return the evaluations of a model's versions, newest report first.

        Args:
            metric: Only by this metric.
            data_set: Only on this data set, as it is reported.
            before: The previous page's cursor; None for the newest.

        Raises:
            InvalidInput: The data set has no digest.
            NotFound: The model does not exist, or no version was evaluated by this metric.
        """
        data = parse_data_set(data_set) if data_set is not None else None
        if data_set is not None and data is None:
            raise InvalidInput(
                f"Invalid data set {data_set[:80]!a}",
                where="data_set",
                hint="Name it by its digest: sha256:<64 hex digits>.",
            )
        with self._sessions.begin() as session:
            model_id, store = not_found.require_model(session, model), EvaluationStore(session)
            if metric is not None and metric not in (known := store.units(model_id)):
                raise NotFound(
                    f"No version of {model} was evaluated by {metric[:80]!a}",
                    where="metric",
                    hint=f"Reported are {', '.join(sorted(known))}."
                    if known
                    else "Report one: pt2hub report.",
                )
            found = store.page(
                model_id,
                metric=metric,
                data_digest=data.digest if data else None,
                before=before,
                limit=limit + 1,
            )
        page = found[:limit]
        return EvaluationPage(
            tuple(view for _, view in page), next=page[-1][0] if len(found) > limit else None
        )

    def newest(self, model: str, versions: int, *, also: int | None = None) -> list[EvaluationView]:
        """Return the newest evaluation by each metric, on each data set, of a model's newest versions, oldest version first.

        Args:
            versions: How many of the newest versions count.
            also: A version that counts however old it is, such as the one in production.
        """
        with self._sessions.begin() as session:
            return EvaluationStore(session).of_newest_versions(model, versions, also=also)


def compare_evaluations(
    session: Session, before: Reference, after: Reference
) -> tuple[EvaluationComparison, ...]:
    """Compare the newest evaluations of two versions, by metric and data set; the policy is that of the second's model."""
    one, other = (_newest(session, side) for side in (before, after))
    if not one and not other:
        return ()
    model_id = VersionStore(session).model_id(after.model)
    policy = PolicyStore(session).one(model_id) if model_id is not None else None
    rules = policy.document.get("metrics", {}) if policy else {}
    return tuple(
        compare_pair(one.get(key), other.get(key), rules, _find_absence(key, one, other))
        for key in sorted(one.keys() | other.keys())
    )


def _note_overtaken(item: EvaluationView) -> str:
    """Return the note on an evaluation that was sent again, which does not make it the newest one."""
    return (
        f"{item.metric} {item.value:.6g} of {item.model}@{item.number} on {DataSet(item.data_digest, item.data_set)} was "
        "stored before, and another result since, which counts: if it was measured again, give it a key of its own"
    )


def _find_absence(
    key: tuple[str, Digest],
    one: Mapping[tuple[str, Digest], EvaluationView],
    other: Mapping[tuple[str, Digest], EvaluationView],
) -> str:
    """Return why a version has no evaluation to compare another one's with; empty if both have one."""
    if key in one and key in other:
        return ""
    present, lacking = (one, other) if key in one else (other, one)
    word = "second" if present is one else "first"
    sets = [
        DataSet(item.data_digest, item.data_set) for (metric, _), item in lacking.items() if metric == key[0]
    ]
    if not sets:
        return f"not comparable: the {word} version was not evaluated by {key[0]}"
    return (
        f"not comparable: the {word} version was evaluated on another data set: {', '.join(map(str, sets))}"
    )


def _newest(session: Session, side: Reference) -> dict[tuple[str, Digest], EvaluationView]:
    return newest_by_data(EvaluationStore(session).of_number(side.model, side.number or 0))


def find_obstacle(before: EvaluationView | None, after: EvaluationView | None) -> str:
    """Return why two evaluations cannot be compared; empty if they can."""
    if before is None or after is None:
        return "only one of the versions was evaluated on this data set"
    if before.unit != after.unit:
        return f"the units differ: {before.unit} and {after.unit}"
    if before.count != after.count:
        return f"the counts differ: {before.count:,} and {after.count:,} examples of the data set"
    return ""


def _not_comparable(before: EvaluationView | None, after: EvaluationView | None) -> str:
    obstacle = find_obstacle(before, after)
    return f"not comparable: {obstacle}" if obstacle else ""


def is_at_most(difference: float, limit: float, *values: float) -> bool:
    """Return whether a difference of values is within a limit, apart from rounding."""
    return difference <= limit + _ROUNDING * max(map(abs, (limit, *values)))


def compare_pair(
    before: EvaluationView | None, after: EvaluationView | None, rules: Mapping[str, Any], absence: str = ""
) -> EvaluationComparison:
    """Compare the evaluations of two versions by one metric on one data set.

    Args:
        rules: What the policy says of each metric.
        absence: Why one of them is missing; empty if none is.
    """
    known = after or before
    assert known is not None, "one side has the key"
    reason, difference, outcome = absence or _not_comparable(before, after), None, "inconclusive"
    if not reason and before and after:
        difference = after.value - before.value
        rule = rules.get(known.metric, {})
        better = rule.get("better")
        least = (rule.get("min_effect") or 0) * abs(before.value)
        if is_at_most(abs(difference), least, before.value, after.value):
            outcome = "same"
        elif better is None:
            reason = f"the policy does not say whether lower or higher {known.metric} is better"
        else:
            outcome = "better" if (difference > 0) == (better == "higher") else "worse"
    return EvaluationComparison(
        known.metric, known.data_digest, known.data_set, outcome, reason, before, after, difference
    )


def _stored(session: Session, items: Sequence[Evaluation], now: datetime) -> list[NewEvaluation]:
    """Return the evaluations with the ids of their versions.

    Raises:
        InvalidInput: Versions do not exist, or times are in the future.
    """
    wrong: list[Detail] = []
    found: list[NewEvaluation] = []
    ids: dict[str, int | NotFound] = {}
    for index, item in enumerate(items):
        if item.version not in ids:
            ids[item.version] = _version_id(session, Reference.parse(item.version))
        version = ids[item.version]
        if isinstance(version, NotFound):
            wrong.append(Detail(f"evaluations[{index}].version", version.message, item.version, version.hint))
        elif item.measured_at and item.measured_at - now > CLOCK_TOLERANCE:
            message = "the time is ahead of the database's clock; check the reporter's clock"
            allowed = f"until {stamp(now)}"
            wrong.append(Detail(f"evaluations[{index}].measured_at", message, str(item.measured_at), allowed))
        else:
            found.append(
                NewEvaluation(
                    item.key,
                    version,
                    item.metric,
                    item.value,
                    item.unit,
                    item.data,
                    item.count,
                    item.measured_at,
                )
            )
    if wrong:
        raise refusal(
            InvalidInput, tuple(wrong[:MAX_DETAILS]), FORM, FORM.hint, more=len(wrong) > MAX_DETAILS
        )
    return found


def _version_id(session: Session, reference: Reference) -> int | NotFound:
    """Return the id of a version; what may not be read does not exist."""
    model, number = reference.model, reference.number or 0
    if error := not_found.unreadable(model):
        return error
    found = VersionStore(session).by_number(model, number)
    return found.id if found else not_found.no_version(session, model, number)


def _delivered(store: EvaluationStore, by: str, items: Sequence[NewEvaluation]) -> set[str]:
    """Return the keys that were reported before.

    Raises:
        Conflict: One was reported before with different content.
    """
    before = store.find_delivered(by, [item.key for item in items]) if items else {}
    if others := [item.key for item in items if item.key in before and not item.is_same(before[item.key])]:
        raise Conflict(
            f"{len(others)} of the keys were reported before with different content, and nothing of the report was "
            f"stored: {others[0]}{' and others' if len(others) > 1 else ''}",
            where="evaluations",
            hint="A reported evaluation cannot be changed; give each new one its own key.",
            context={"keys": sorted(others)},
        )
    return set(before)
