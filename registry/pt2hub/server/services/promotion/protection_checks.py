"""Checks of protected aliases: who moves them, and what a version must have shown before."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pt2hub.domain.builds import Readiness, readiness
from pt2hub.domain.principals import Principal, PrincipalKind
from pt2hub.domain.tokens import PERSON_NAME, matches_principal
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.errors import InternalError
from pt2hub.rendering.evaluations import with_unit
from pt2hub.rendering.quantities import format_duration
from pt2hub.server.db.stores.access.tokens import TokenStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.services.not_found import version_state_text
from pt2hub.server.services.promotion.decisions import METRIC, PROMOTER
from pt2hub.server.services.promotion.evaluation_checks import EvaluationChecks
from pt2hub.server.services.promotion.policy_spec import Protection
from pt2hub.wire.performance import PromotionCheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.promotion.policies import ReportedValue
    from pt2hub.server.services.promotion.decisions import AliasMoveRequest
    from pt2hub.server.services.promotion.policy_spec import MetricLimit, MinAge

_MAX_NAMED_TARGETS = 4


def protection_of(document: Mapping[str, Any], alias: str) -> Protection | None:
    """Return what a policy requires of a protected alias; None if it does not protect it.

    Raises:
        InternalError: A newer pt2hub wrote a requirement that this one does not know; it must not be passed over.
    """
    found = document.get("protected", {}).get(alias)
    if found is None:
        return None
    try:
        return Protection.model_validate(found)
    except ValidationError as exc:
        raise InternalError(
            f"The policy protects {alias} by requirements that this server does not know",
            where=f"protected.{alias}",
            hint="A newer pt2hub wrote the policy; upgrade this server.",
        ) from exc


class ProtectionChecks:
    """The checks of one protected alias on one move.

    Args:
        protection: What the policy requires of the alias.
    """

    def __init__(self, session: Session, move: AliasMoveRequest, protection: Protection) -> None:
        self._session = session
        self._move = move
        self._protection = protection
        self._path = f"protected.{move.alias}"

    def results(self) -> tuple[PromotionCheckResult, ...]:
        """Return the results; of a removal only that of who removes the alias."""
        return (*self._promoter(), *(self._version(self._move.after) if self._move.after else ()))

    def _version(self, number: int) -> Iterator[PromotionCheckResult]:
        if self._protection.ready:
            yield self._ready(number)
        if self._protection.verified:
            yield self._verified(number)
        if self._protection.min_age:
            yield self._min_age(number, self._protection.min_age)
        for metric, limit in self._protection.metrics.items():
            yield from self._metric(number, metric, limit)

    def _promoter(self) -> Iterator[PromotionCheckResult]:
        names = self._protection.promoters
        if names is None:
            return
        by, allowed = self._move.by, ", ".join(names)
        passed = by is not None and any(matches_principal(name, by) for name in names)
        who = _describe(by) if by is not None else "nobody who is signed in"
        verb = "may" if passed else "may not"
        yield PromotionCheckResult(
            {"promoters": names},
            f"{self._path}.promoters",
            passed,
            f"{who} {verb} move {self._move.alias}, whose promoters are {allowed}",
            kind=PROMOTER,
            found=who,
            needed=allowed,
        )

    def _ready(self, number: int) -> PromotionCheckResult:
        version = VersionStore(self._session).by_number(self._move.model, number)
        # The move may be of the past, and its version deleted since.
        state = readiness(BuildStore(self._session).first_submitted(version.id)) if version else None
        text = version_state_text(self._session, version) if version else "deleted"
        return PromotionCheckResult(
            {"ready": True},
            f"{self._path}.ready",
            state is Readiness.READY,
            f"version {number} is {text}; every target must have an artifact",
            kind="ready",
            found=text,
            needed="every target ready",
        )

    def _verified(self, number: int) -> PromotionCheckResult:
        found = PolicyStore(self._session).verifications(self._move.model_id, number)
        reports = {target: VerificationReport.of(report) for target, report in found.items()}
        unproven = [
            f"{target}: {report.lack_of_power}" for target, report in reports.items() if report.lack_of_power
        ]
        shown = "; ".join(unproven[:_MAX_NAMED_TARGETS])
        proven = f"{len(reports) - len(unproven)} of {len(reports)} artifacts"
        message = f"{proven} of version {number} passed a verification that could have failed"
        return PromotionCheckResult(
            {"verified": True},
            f"{self._path}.verified",
            bool(reports) and not unproven,
            f"{message} ({shown})" if shown else message,
            missing=not reports,
            kind="verified",
            found=f"{proven} ({shown})" if shown else proven,
            needed="every artifact verified with power",
        )

    def _min_age(self, number: int, rule: MinAge) -> PromotionCheckResult:
        stay = AliasStore(self._session).longest_stay(self._move.model_id, rule.alias, number)
        wanted = timedelta(hours=rule.hours)
        needed = f"{format_duration(wanted.total_seconds())} on {rule.alias}"
        passed = stay is not None and stay.length >= wanted
        if stay is None:
            found = f"never on {rule.alias}"
        else:
            found = f"{format_duration(stay.length.total_seconds())} on {rule.alias}"
            if stay.is_open and not passed:
                found += f", until then from {stamp(stay.began + wanted)[:16]}Z"
        return PromotionCheckResult(
            {"min_age": rule.model_dump()},
            f"{self._path}.min_age",
            passed,
            f"version {number} was {found}; it needs {needed} without a break",
            missing=stay is None,
            kind="min_age",
            found=found,
            needed=needed,
        )

    def _metric(self, number: int, metric: str, limit: MetricLimit) -> Iterator[PromotionCheckResult]:
        evaluations = EvaluationChecks(self._session, self._move, metric, limit)
        if limit.min is not None or limit.max is not None:
            yield from self._bounds(number, metric, limit, evaluations.values(number))
        if limit.is_relative:
            yield from evaluations.results(f"{self._path}.metrics.{metric}")

    def _bounds(
        self, number: int, metric: str, limit: MetricLimit, evaluated: Sequence[ReportedValue]
    ) -> Iterator[PromotionCheckResult]:
        """Yield the results for the newest value of each artifact, and of each data set."""
        of_artifacts = PolicyStore(self._session).reported(self._move.model_id, number, metric)
        newest = [*(() if limit.data_set else self._newest(of_artifacts, limit)), *evaluated]
        check = {"metric": metric, **limit.model_dump(exclude_none=True)}
        path, needed = f"{self._path}.metrics.{metric}", _needed(limit)
        if not newest:
            place = limit.target or limit.data_set
            where = f" on {place}" if place else ""
            yield PromotionCheckResult(
                check,
                path,
                passed=False,
                message=f"{metric} of version {number}{where} was not reported; it must be {needed}",
                target=limit.target,
                missing=True,
                kind=METRIC,
                found="not reported" + (f" by {', '.join(limit.reporters)}" if limit.reporters else ""),
                needed=needed,
            )
        for item in newest:
            shown = with_unit(f"{item.value:.6g}", item.unit)
            yield PromotionCheckResult(
                check,
                path,
                passed=item.unit == limit.unit and _is_within(item.value, limit),
                message=f"{metric} of version {number} on {item.target or item.data} is {shown}, reported by {item.reporter}; it must be "
                f"{needed}",
                target=item.target or None,
                kind=METRIC,
                found=f"{shown}, reported by {item.reporter}",
                needed=needed,
            )

    def _newest(self, values: Sequence[ReportedValue], limit: MetricLimit) -> list[ReportedValue]:
        """Return the newest value of each target that a limit is about, by reporters that count."""
        of_services = TokenStore(self._session).names_of_services({item.reporter for item in values})
        found: dict[str, ReportedValue] = {}
        for item in values:  # newest first
            # Measurements have the reporter's name alone, and a token of a service may be named like a person.
            is_person = PERSON_NAME.fullmatch(item.reporter) and item.reporter not in of_services
            kind = PrincipalKind.PERSON if is_person else PrincipalKind.TOKEN
            if limit.counts(Principal(kind, item.reporter)) and limit.target in (None, item.target):
                found.setdefault(item.target, item)
        return list(found.values())


def _describe(by: Principal) -> str:
    return by.name if by.kind == PrincipalKind.PERSON else f'token "{by.name}"'


def _is_within(value: float, limit: MetricLimit) -> bool:
    return (limit.min is None or value >= limit.min) and (limit.max is None or value <= limit.max)


def _needed(limit: MetricLimit) -> str:
    bounds = [("at least", limit.min), ("at most", limit.max)]
    return " and ".join(
        f"{name} {with_unit(f'{bound:.6g}', limit.unit)}" for name, bound in bounds if bound is not None
    )
