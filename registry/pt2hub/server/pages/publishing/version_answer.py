"""The sentence that answers whether a version may be promoted, or why not, and how its speed compares with production."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildState, Readiness
from pt2hub.rendering.alias_answers import answer_alias, shorten_reason
from pt2hub.rendering.changes import format_change
from pt2hub.rendering.comparison_answers import Answer, SpeedFinding
from pt2hub.rendering.comparison_words import explain_reason
from pt2hub.rendering.lists import all_targets, join_words
from pt2hub.rendering.quantities import format_count
from pt2hub.rendering.targets import short_target
from pt2hub.wire.performance import PromotionPreview
from pt2hub.wire.responses import AliasView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.wire.performance import PromotionCheckResult
    from pt2hub.wire.responses import BuildView, VersionView

DEFAULT_ALIAS = "prod"
"""The alias to promote to where none is in production."""
_PROMOTER = "promoter"
_MAX_NAMED = 2
"""Targets that the sentence names; of more it says how many."""
_OUTCOMES = {"worse": "bad", "mixed": "bad", "better": "good", "same": "good"}


@dataclass(frozen=True, slots=True)
class PromotionState:
    """What is known of a promotion of a version.

    Attributes:
        production: The alias in production; None where there is none.
        is_open: Whether an alias could move to it, if the policy lets it.
        preview: What the policy says of a move; None if it was not asked.
        speed: How the speed compares with that of the version in production; None if it was not compared.
        has_reader: Whether the preview is for a signed-in reader; others are no promoters.
    """

    production: AliasView | None = None
    is_open: bool = False
    preview: PromotionPreview | None = None
    speed: SpeedFinding | None = None
    has_reader: bool = False

    @property
    def alias(self) -> str:
        """The alias to promote to."""
        return self.production.name if self.production else DEFAULT_ALIAS

    @property
    def before(self) -> int | None:
        """The version in production."""
        return self.production.number if self.production else None

    @property
    def checks(self) -> tuple[PromotionCheckResult, ...]:
        """The checks that say something of the version."""
        found = self.preview.checks if self.preview else ()
        return tuple(check for check in found if self.has_reader or check.kind != _PROMOTER)

    @property
    def refused(self) -> int:
        """Number of checks that refuse the version."""
        return sum(not check.passed for check in self.checks)


def answer_version(view: VersionView, state: PromotionState) -> Answer:
    """Answer whether a version may be promoted: `Ready to promote to prod: all 3 checks pass.`."""
    if view.yanked:
        return Answer("bad", f"Yanked by {view.yanked.by}: {shorten_reason(view.yanked.reason)}.")
    states = [BuildState(build.state) for build in view.builds]
    if not states:
        return Answer("warn", "It has no target yet.")
    built = sum(state is BuildState.SUCCEEDED for state in states)
    failure = _failure(view.builds)
    if not all(state.final for state in states):
        done = f"Building: {built} of {format_count(len(states), 'target')} {'is' if built == 1 else 'are'} done."
        return Answer("busy", f"{done}{f' {failure}.' if failure else ''}")
    if not built:
        return Answer("bad", f"{failure}.") if failure else Answer("warn", "All its builds were cancelled.")
    if view.readiness == Readiness.READY:
        return _promotion(view, state)
    return _partly(view, built, failure, _promotion(view, state))


def describe_speed_beside(finding: SpeedFinding, production: str) -> str:
    """Return how the speed compares with that in production, as a clause without a subject.

    Args:
        production: What is in production: `prod (version 16)`.
    """
    where, item = short_target(finding.target), finding.item
    if finding.state in ("worse", "better") and item:
        return f"{format_change(item.ratio or 1.0, item.metric, item.unit)} than {production} on {where}"
    if finding.state == "mixed":
        return f"faster or slower than {production} on {where}, by batch size"
    if finding.state == "same":
        return f"as fast as {production} on {where}"
    if finding.state == "inconclusive" and item:
        return f"whether it is as fast as {production} on {where} is inconclusive: {explain_reason(item)}"
    if finding.state == "not comparable" and item:
        return f"its speed is not comparable with that of {production} on {where}: {explain_reason(item)}"
    return f"its speed on {where} is not compared with {production}: one of them is not measured"


def _partly(view: VersionView, built: int, failure: str, promotion: Answer) -> Answer:
    head = failure or "A build was cancelled"
    return Answer(
        "bad" if promotion.tone == "bad" else "warn",
        f"{head}; built for {built} of {format_count(len(view.builds), 'target')}. {promotion.text}",
    )


def _promotion(view: VersionView, state: PromotionState) -> Answer:
    production = state.production
    if production and production.number == view.number:
        found = answer_alias(production)
        return Answer(found.tone, f"In production: {found.text}")
    checks = _checks(state)
    if production is None:
        text = f"{checks}; no version is in production yet."
        return Answer("bad" if state.refused else "good", text)
    speed = describe_speed_beside(state.speed, _name(state)) if state.speed else ""
    if view.number < (production.number or 0):
        return _older(state, checks, speed)
    if state.speed and state.speed.state in ("worse", "mixed"):
        return Answer("bad", f"{speed[:1].upper()}{speed[1:]}. {checks}.")
    if state.refused:
        return Answer("bad", f"{checks}{f'; {speed}' if speed else ''}.")
    tone = _OUTCOMES.get(state.speed.state, "calm") if state.speed else "calm"
    return Answer(tone, f"{checks}; {speed or f'its speed is not compared with {_name(state)}'}.")


def _older(state: PromotionState, checks: str, speed: str) -> Answer:
    head = f"{state.alias} is on version {state.before}, which is newer"
    refusal = f". {checks}" if state.refused else ""
    return Answer(
        "bad" if state.refused else "calm",
        f"{head}{f'; this one is {speed}' if _is_clause(state) else ''}{refusal}.",
    )


def _is_clause(state: PromotionState) -> bool:
    """Return whether the speed can be said of a version."""
    return state.speed is not None and state.speed.state in _OUTCOMES


def _name(state: PromotionState) -> str:
    return f"{state.alias} (version {state.before})"


def _checks(state: PromotionState) -> str:
    count, refused = len(state.checks), state.refused
    if refused:
        verb = "refuses" if refused == 1 else "refuse"
        return f"Not ready to promote to {state.alias}: {refused} of {format_count(count, 'check')} {verb} it"
    if state.preview is None:
        return "Ready"
    if not count:
        return f"Ready to promote to {state.alias}, which has no checks"
    passed = "its check passes" if count == 1 else f"all {count} checks pass"
    return f"Ready to promote to {state.alias}: {passed}"


def _failure(builds: Sequence[BuildView]) -> str:
    """Return where builds failed and why, as a sentence without its period; empty where none failed."""
    failed = [build for build in builds if build.state == BuildState.FAILED]
    if not failed:
        return ""
    codes = sorted({_code(build) for build in failed})
    why = f": {codes[0]}" if len(codes) == 1 else ""
    if len(failed) == len(builds) > 1:
        return f"Failed on {all_targets(len(failed))}{why}"
    if len(failed) > _MAX_NAMED:
        return f"Failed on {len(failed)} of {format_count(len(builds), 'target')}{why}"
    names = [build.target for build in builds]
    where = (f"{short_target(build.target, names)}{'' if why else f' ({_code(build)})'}" for build in failed)
    return f"Failed on {join_words(where)}{why}"


def _code(build: BuildView) -> str:
    return str((build.error or {}).get("code") or "unknown error")
