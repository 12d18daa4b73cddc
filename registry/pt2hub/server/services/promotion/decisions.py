"""Decisions of policies on alias moves, and the errors of refused ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.performance.metrics import METRICS, OF_JOBS
from pt2hub.domain.principals import Principal
from pt2hub.errors import Detail, Forbidden, PromotionCheckFailed
from pt2hub.server.db.stores.values import storable
from pt2hub.wire.performance import PromotionCheckResult

if TYPE_CHECKING:
    from pt2hub.errors import Pt2hubError

PROMOTER = "promoter"
"""Kind of the check on who moves the alias."""
PERFORMANCE = "performance"
METRIC = "metric"
DAMAGE = "damage"
"""Kind of the check that holds without a policy: what is damaged cannot be pulled."""
_MAX_FAILURES = 20
"""Failed checks that are stored and reported per move: many checks on many targets produce thousands."""
_MAX_MESSAGES = 100
_MAX_COMMANDS = 4


@dataclass(frozen=True, slots=True)
class AliasMoveRequest:
    """A requested move of an alias, to be checked by the policy.

    Attributes:
        before: The current version, or the last one of a removed alias (otherwise removing it first would bypass the
            checks). None if the alias never existed.
        after: The version to move to, None to remove the alias.
        removed: Whether the alias is currently removed.
        by: Who moves it; None for nobody, in a preview.
    """

    model: str
    model_id: int
    alias: str
    before: int | None
    after: int | None
    removed: bool = False
    by: Principal | None = None

    @property
    def both(self) -> tuple[str, ...]:
        """References of both versions, the new one first."""
        return tuple(f"{self.model}@{number}" for number in (self.after, self.before))


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A policy's decision on a move.

    Attributes:
        revision: The policy's, 0 where there is none.
        notes: Messages that belong to no check.
        protected: Whether the policy protects the alias.
    """

    move: AliasMoveRequest
    revision: int
    checks: tuple[PromotionCheckResult, ...] = ()
    notes: tuple[str, ...] = ()
    protected: bool = False

    @property
    def failed_checks(self) -> tuple[PromotionCheckResult, ...]:
        """The checks that refuse the move."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def messages(self) -> tuple[str, ...]:
        """Notes and the messages of all checks."""
        return (*self.notes, *(check.message for check in self.checks))[:_MAX_MESSAGES]

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The measuring jobs after which all checks may pass; empty if some check would still fail."""
        if not all(check.jobs for check in self.failed_checks):
            return ()
        return tuple(dict.fromkeys(job for check in self.failed_checks for job in check.jobs))

    def overridden(self) -> dict[str, Any] | None:
        """Return the record of a forced move, None where no check failed."""
        if not self.failed_checks:
            return None
        kept: dict[str, Any] = storable({"revision": self.revision, **self._to_document()})
        return kept

    def error(self) -> Pt2hubError:
        """Return the error of a refused move: `Forbidden` where the caller may not move the alias at all."""
        move, refused, jobs = self.move, self.failed_checks, self.waits_for
        context = {
            "model": move.model,
            "alias": move.alias,
            "from": move.before,
            "to": move.after,
            "revision": self.revision,
            **({"waits_for": list(jobs)} if jobs else {}),
            **self._to_document(),
        }
        if denied := next((check for check in refused if check.kind == PROMOTER), None):
            return Forbidden(
                f"{_stays(move)}: {denied.message}",
                where="policy",
                hint=f"Ask one of them, or an admin, who can force it. `pt2hub policy {move.model}` shows the policy.",
                context=context,
            )
        details = tuple(Detail(check.path, check.message) for check in refused[:_MAX_FAILURES])
        return PromotionCheckFailed(
            f"{_stays(move)}: {refused[0].message}"
            if len(refused) == 1
            else f"{_stays(move)}: {len(refused)} checks refuse version {move.after}",
            where="policy",
            hint=_hint(move, refused, jobs),
            details=details if len(refused) > 1 else (),
            context=context,
        )

    def _to_document(self) -> dict[str, Any]:
        return {"count": len(self.failed_checks), "refused": encode(self.failed_checks[:_MAX_FAILURES])}


def _stays(move: AliasMoveRequest) -> str:
    name = f"{move.model}@{move.alias}"
    if move.before is None:
        return f"{name} is not created"
    return f"{name} stays " + (
        f"removed, where it was on {move.before}" if move.removed else f"on {move.before}"
    )


def _hint(move: AliasMoveRequest, refused: tuple[PromotionCheckResult, ...], jobs: tuple[str, ...]) -> str:
    command = f'pt2hub alias set {move.model}@{move.after} {move.alias} --reason "..."'
    forced = f"{command} --force"
    waiting = f"`{command} --wait` moves it as soon as it is measured and passes." if jobs else ""
    timed = [item for item in refused if item.kind == PERFORMANCE]
    damaged = any(item.kind == DAMAGE for item in refused)
    advice = [
        "The server's operator mends it: pt2hub admin heal." if damaged else "",
        waiting or _measure_hint(timed) or _verify_hint(move, timed),
        _report_hint(timed),
        _limit_hint(move, refused),
    ]
    return " ".join([*filter(None, advice), f"An admin token can force it: {forced}."])


def _measure_hint(refused: list[PromotionCheckResult]) -> str:
    """Return the commands that measure both versions alongside each other."""
    commands = _commands([(item.required, item.target) for item in refused if item.required])
    return f"Measure: {commands}." if commands else ""


def _verify_hint(move: AliasMoveRequest, refused: list[PromotionCheckResult]) -> str:
    """Return the commands that measure both versions again, to double-check a failed check."""
    of_jobs = [item for item in refused if not item.missing and item.check["metric"] in OF_JOBS]
    commands = _commands([(move.both, item.target) for item in of_jobs])
    return f"To double-check, run {commands}." if commands else ""


def _report_hint(refused: list[PromotionCheckResult]) -> str:
    """Return how to provide metrics that pt2hub does not measure."""
    metrics = [
        item.check["metric"] for item in refused if item.missing and item.check["metric"] not in METRICS
    ]
    return f"Report {' and '.join(dict.fromkeys(metrics))} of both with `pt2hub report`." if metrics else ""


def _limit_hint(move: AliasMoveRequest, refused: tuple[PromotionCheckResult, ...]) -> str:
    """Return how to provide reported metrics that have limits."""
    metrics = [item.check["metric"] for item in refused if item.kind == METRIC and item.missing]
    names = " and ".join(dict.fromkeys(metrics))
    return f"Report {names} of {move.model}@{move.after} with `pt2hub report`." if names else ""


def _commands(required: list[tuple[tuple[str, ...], str | None]]) -> str:
    commands = [
        f"`pt2hub measure {both[0]} --target {target} --baseline {both[1]}`"
        for both, target in dict.fromkeys(required)
    ]
    return ", ".join(commands[:_MAX_COMMANDS])
