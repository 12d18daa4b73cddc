"""Promotion checks: a model's policy decides on an alias move."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services.promotion.decisions import DAMAGE, PROMOTER, AliasMoveRequest, PolicyDecision
from pt2hub.server.services.promotion.performance_checks import PerformanceChecks
from pt2hub.server.services.promotion.policy_spec import PromotionCheck
from pt2hub.server.services.promotion.protection_checks import ProtectionChecks, protection_of
from pt2hub.wire.performance import PromotionCheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.promotion.policies import StoredPolicy

_FIELDS = frozenset(PromotionCheck.model_fields)


class PromotionChecks:
    """Evaluates the checks of a model's policy."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = PolicyStore(session)

    def evaluate(self, move: AliasMoveRequest) -> PolicyDecision:
        """Return the policy's decision on a move.

        A version that the alias was on under this policy before is known to be good, unless it was forced: only who moves the
        alias is checked, so that a rollback is never held up.
        """
        move = self._without_deleted(move)
        policy, damage = self._store.one(move.model_id), self.damage(move)
        if policy is None:
            return PolicyDecision(move, 0, damage)
        protection = protection_of(policy.document, move.alias)
        protected = ProtectionChecks(self._session, move, protection).results() if protection else ()
        timed, notes = self._performance(move, policy)
        results = (*protected, *timed)
        if self._is_known_good(move, policy, results):
            results = tuple(_let_pass(move, item) for item in results)
        return PolicyDecision(
            move, policy.revision, (*damage, *results), notes, protected=protection is not None
        )

    def _without_deleted(self, move: AliasMoveRequest) -> AliasMoveRequest:
        """Return a move without the version before if it was deleted: nothing can be compared with it."""
        if move.before is None or VersionStore(self._session).by_number(move.model, move.before):
            return move
        return replace(move, before=None)

    def damage(self, move: AliasMoveRequest) -> tuple[PromotionCheckResult, ...]:
        """Return a failed check for each artifact of the new version that is damaged: no process could pull it."""
        return tuple(self._damage(move))

    def _damage(self, move: AliasMoveRequest) -> Iterator[PromotionCheckResult]:
        found = self._store.artifacts(move.model_id, move.after) if move.after else {}
        parts = DamageStore(self._session).parts([item.artifact for item in found.values()])
        for target, item in found.items():
            own = (part.part for artifact, part in parts if artifact == item.artifact)
            named = ", ".join(part for part in own if part != "referrer")  # which no pull reads
            if named:
                yield PromotionCheckResult(
                    {},
                    "version",
                    passed=False,
                    message=f"the artifact of version {move.after} for {target} is damaged on the server: {named}",
                    target=target,
                    kind=DAMAGE,
                    found=f"damaged on the server: {named}",
                    needed="an intact artifact",
                )

    def _performance(
        self, move: AliasMoveRequest, policy: StoredPolicy
    ) -> tuple[tuple[PromotionCheckResult, ...], tuple[str, ...]]:
        """Return the results of the performance checks, and a note if there is nothing to compare with."""
        checks = list(_applying(policy.document, move.alias)) if move.after else []
        if not checks or move.before == move.after:
            return (), ()
        if move.before is None:
            return (), (f"{move.alias} was not on a version, so the policy had nothing to compare with",)
        sides = PerformanceChecks(self._session, move, {check.metric for _, check in checks})
        return tuple(result for path, check in checks for result in sides.results(path, check)), ()

    def _is_known_good(
        self, move: AliasMoveRequest, policy: StoredPolicy, results: tuple[PromotionCheckResult, ...]
    ) -> bool:
        """Return whether the alias was on the version under the present policy before, without being forced there."""
        if move.after is None or all(result.passed for result in results):
            return False
        return AliasStore(self._session).was_accepted(move.model_id, move.alias, move.after, since=policy.at)


def _let_pass(move: AliasMoveRequest, result: PromotionCheckResult) -> PromotionCheckResult:
    if result.passed or result.kind == PROMOTER:
        return result
    reason = f"it passes because {move.alias} was on {move.after} under this policy before"
    return replace(
        result,
        passed=True,
        message=f"{result.message}; {reason}",
        found=f"{result.found}, but {move.alias} was on it before",
        jobs=(),
        required=(),
    )


def _applying(document: Mapping[str, Any], alias: str) -> Iterator[tuple[str, PromotionCheck]]:
    """Yield the performance checks that apply to an alias, with their paths; fields of a newer pt2hub are ignored."""
    for index, item in enumerate(document.get("checks", ())):
        check = PromotionCheck.model_validate(
            {name: value for name, value in item.items() if name in _FIELDS}
        )
        if check.alias in (None, alias):
            yield f"checks[{index}]", check
