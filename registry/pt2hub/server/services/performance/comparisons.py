"""Comparisons of artifacts, and lists of flagged changes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.analysis.changes import FEWEST, change_points
from pt2hub.domain.names import Reference
from pt2hub.domain.performance.measurements import differing
from pt2hub.domain.performance.metrics import default_threshold
from pt2hub.domain.targets import parse_target
from pt2hub.errors import Ambiguous, InvalidInput, NotFound
from pt2hub.server.db.stores.performance.changes import EventStore
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from pt2hub.server.services import cursors, not_found
from pt2hub.server.services.artifacts import code_comparison
from pt2hub.server.services.performance.change_detection import ChangeDetection
from pt2hub.server.services.performance.evaluations import compare_evaluations
from pt2hub.server.services.performance.metric_comparisons import ArtifactComparison, MetricComparisons
from pt2hub.server.services.publishing.catalog import DEFAULT_LIMIT
from pt2hub.wire.performance import ComparisonView, EventPage, SideView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.performance.measurements import MeasuredArtifact
    from pt2hub.wire.evaluations import EvaluationComparison
    from pt2hub.wire.resolution import ArtifactRef, ResolvedReference

_SERIES_PER_BATCH = 25
"""Series examined in one transaction: they are locked, and new measurements wait for them."""
_MAX_PASS_S = 10.0


class ComparisonService:
    """Compares artifacts, and examines series for changes."""

    def __init__(self, sessions: Sessions, resolve: Callable[[str], ResolvedReference]) -> None:
        self._sessions = sessions
        self._resolve = resolve

    def compare(
        self, before: str, after: str, *, target: str | None = None, with_target: str | None = None
    ) -> ComparisonView:
        """Compare a second artifact with a first.

        Args:
            after: Another reference, or the same for two targets of one version.
            target: Target of both artifacts; where omitted, the only one that both have.
            with_target: Target of the second side, if it differs.

        Raises:
            InvalidInput: A reference is malformed, or both sides are the same artifact.
            NotFound: A version, alias or artifact does not exist, or has no artifact for the target.
            NotReady: A version has no artifact yet.
            Ambiguous: Several targets match.
        """
        for name in (target, with_target):
            if name is not None:
                parse_target(name)
        one, other = _chosen(self._resolve(before), self._resolve(after), target, with_target)
        with self._sessions.begin() as session:
            known = PerformanceStore(session).find_measured((one.artifact, other.artifact))
            return _to_view(session, one, other, known)

    def compare_targets(
        self, before: str, after: str, targets: Sequence[str], metrics: Collection[str] | None = None
    ) -> tuple[ComparisonView, ...]:
        """Compare two versions on targets that both have, without their code and kernels.

        Args:
            metrics: Only these; all where omitted.

        Raises:
            InvalidInput: A reference is malformed.
            NotFound: A version, alias or artifact does not exist, or has no artifact for a target.
            NotReady: A version has no artifact yet.
        """
        one, other = self._resolve(before), self._resolve(after)
        pairs = [
            (_view(one, _of_target(one, name)), _view(other, _of_target(other, name))) for name in targets
        ]
        with self._sessions.begin() as session:
            store = PerformanceStore(session)
            known = store.find_measured([side.artifact for pair in pairs for side in pair])
            evaluations = _evaluations(session, *pairs[0]) if pairs else ()
            found = _compare_metrics(session, pairs, known, metrics)
            return tuple(replace(view, evaluations=evaluations) for view in found)

    def examine(self) -> int:
        """Examine series with new measurements, and record flagged changes as events.

        Several processes may run it at once and share the series. It costs one statement if nothing is new. The ten
        newest versions of a series are compared, and the newest 500 searched for change points.

        Returns:
            The number of examined series.
        """
        with self._sessions.begin() as session:
            some, long = EventStore(session).waiting(FEWEST)
        if not some:
            return 0
        if long:
            # The first call imports for seconds: do it before series are locked.
            change_points([1.0] * FEWEST, default_threshold("latency_p50"))
        until, total = time.monotonic() + _MAX_PASS_S, 0
        while time.monotonic() < until:
            with self._sessions.begin() as session:
                taken = ChangeDetection(session).examine_batch(_SERIES_PER_BATCH)
            total += taken
            if taken < _SERIES_PER_BATCH:
                break
        return total

    def events(
        self,
        *,
        model: str | None = None,
        number: int | None = None,
        target: str | None = None,
        outcome: str | None = None,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> EventPage:
        """List flagged changes, newest first.

        Args:
            model: Only of this model.
            number: Only of the version with this number.
            target: Only for this target.
            outcome: Only `better` or only `worse`.
            after: The previous page's cursor; None for the newest.

        Raises:
            InvalidInput: A filter or the cursor is malformed.
            UnknownTarget: The target's name is malformed.
            NotFound: The model does not exist.
        """
        begin = cursors.decode_numbered(after, "changes") if after is not None else None
        if target is not None:
            parse_target(target)
        if outcome not in (None, "better", "worse"):
            raise InvalidInput(
                f"Unknown outcome {outcome[:80]!a}" if outcome else "outcome is empty",
                where="outcome",
                hint="Use better or worse, or omit it for both.",
            )
        filters = {"model": model, "number": number, "target": target, "outcome": outcome}
        with self._sessions.begin() as session:
            if model is not None:
                not_found.require_model(session, model)
            found = EventStore(session).page(filters, after=begin, limit=limit + 1)
        page = tuple(found[:limit])
        return EventPage(page, next=cursors.encode(page[-1].at, page[-1].id) if len(found) > limit else None)


def _to_view(
    session: Session, before: SideView, after: SideView, known: dict[Digest, MeasuredArtifact]
) -> ComparisonView:
    (view,) = _compare_metrics(session, [(before, after)], known)
    code, kernels = code_comparison.compare_code(session, before.artifact, after.artifact)
    evaluations = _evaluations(session, before, after)
    return replace(view, autotune=kernels, code=code, evaluations=evaluations)


def _compare_metrics(
    session: Session,
    pairs: Sequence[tuple[SideView, SideView]],
    known: dict[Digest, MeasuredArtifact],
    metrics: Collection[str] | None = None,
) -> list[ComparisonView]:
    gone = [side.artifact for pair in pairs for side in pair if side.artifact not in known]
    if gone:
        raise NotFound(f"Artifact {gone[0]} not found", where="artifact")
    measured = [(known[before.artifact], known[after.artifact]) for before, after in pairs]
    found = ArtifactComparison(session).compare_all(measured, metrics)
    return [_comparison_view(*pair, item) for pair, item in zip(pairs, found, strict=True)]


def _comparison_view(before: SideView, after: SideView, found: MetricComparisons) -> ComparisonView:
    differs = differing(found.before, found.after) if found.before and found.after else {}
    return ComparisonView(
        before=replace(before, environment=found.before),
        after=replace(after, environment=found.after),
        metrics=found.metrics,
        differs={name: list(values) for name, values in differs.items()},
        across=before.target != after.target,
    )


def _evaluations(session: Session, before: SideView, after: SideView) -> tuple[EvaluationComparison, ...]:
    one, other = (Reference(side.model, side.number) for side in (before, after))
    return compare_evaluations(session, one, other) if one != other else ()


def _chosen(
    before: ResolvedReference, after: ResolvedReference, target: str | None, with_target: str | None
) -> tuple[SideView, SideView]:
    """Return the two artifacts: without a target, those for the only target that both have."""
    if target is None and with_target is None:
        one, other = _in_common(before, after)
    else:
        later = with_target or target
        other = _of_target(after, later) if later else after.artifacts[0]
        one = _of_target(before, target) if target else _remaining(before, other)
    if one.digest == other.digest:
        raise InvalidInput(
            f"Both sides are the same artifact, {_name(before)} for {one.target}",
            where="after",
            hint=f"Choose another version (pt2hub versions {before.model} lists them), or another target with "
            f"with_target: {_targets(before.artifacts)}.",
        )
    return _view(before, one), _view(after, other)


def _in_common(before: ResolvedReference, after: ResolvedReference) -> tuple[ArtifactRef, ArtifactRef]:
    if len(before.artifacts) == len(after.artifacts) == 1:
        return before.artifacts[0], after.artifacts[0]
    of_after = {item.target: item for item in after.artifacts}
    common = [item for item in before.artifacts if item.target in of_after]
    if len(common) == 1:
        return common[0], of_after[common[0].target]
    if not common:
        hint = (
            f"Choose them with target and with_target: {_targets(before.artifacts)} for the first side, "
            f"{_targets(after.artifacts)} for the second."
        )
        message = f"{_name(before)} and {_name(after)} have no target in common"
        both = {"before_targets": before.artifacts, "after_targets": after.artifacts}
        raise _ambiguous(message, hint, **both)
    if _name(before) == _name(after):
        hint = f"Choose two with target and with_target: {_targets(common)}."
        raise _ambiguous(
            f"Both sides are {_name(before)}, which has artifacts for {len(common)} targets",
            hint,
            targets=common,
        )
    hint = f"Choose one with target: {_targets(common)}."
    raise _ambiguous(
        f"{_name(before)} and {_name(after)} have {len(common)} targets in common", hint, targets=common
    )


def _remaining(before: ResolvedReference, other: ArtifactRef) -> ArtifactRef:
    """Return the first side's only artifact other than the second side's."""
    left = [item for item in before.artifacts if item.digest != other.digest]
    if len(left) == 1:
        return left[0]
    message = (
        f"{_name(before)} has artifacts for {len(left)} other targets"
        if left
        else "Both sides are the same artifact"
    )
    raise _ambiguous(
        message, f"Choose the first side's with target: {_targets(before.artifacts)}.", targets=left
    )


def _of_target(side: ResolvedReference, target: str) -> ArtifactRef:
    found = next((item for item in side.artifacts if item.target == target), None)
    if found is None:
        raise NotFound(
            f"{_name(side)} has no artifact for {target}",
            where="target",
            hint=f"It has: {_targets(side.artifacts)}.",
            context={"targets": [item.target for item in side.artifacts]},
        )
    return found


def _ambiguous(message: str, hint: str, **choices: Sequence[ArtifactRef]) -> Ambiguous:
    context = {name: [item.target for item in artifacts] for name, artifacts in choices.items()}
    return Ambiguous(message, where="target", hint=hint, context=context)


def _view(side: ResolvedReference, chosen: ArtifactRef) -> SideView:
    return SideView(side.reference, side.model, side.number, chosen.target, chosen.digest, chosen.created_at)


def _name(side: ResolvedReference) -> str:
    return f"{side.model}@{side.number}"


def _targets(artifacts: Sequence[ArtifactRef]) -> str:
    return ", ".join(item.target for item in artifacts)
