"""The sentence that answers whether a version may be promoted, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import UNFINISHED, BuildState
from pt2hub.rendering.alias_answers import describe_damage, name_targets
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.rendering.metric_subjects import name_metric
from pt2hub.rendering.promotions import check_name
from pt2hub.rendering.times import format_ago
from pt2hub.server.pages.template_filters import plain
from pt2hub.wire.performance import PromotionPreview
from pt2hub.wire.responses import AliasView, VersionView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.wire.performance import PromotionCheckResult
    from pt2hub.wire.responses import BuildView

_MAX_NAMED = 3
"""Failed checks that are named."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides whether a version may be promoted.

    Attributes:
        production: The model's production alias, None if it has none.
        preview: What the promotion checks say of a move of that alias to the version; None if it cannot move.
        speed: The comparison with the version in production; None if they cannot be compared.
        damaged: Targets whose artifacts are damaged on the server.
    """

    view: VersionView
    production: AliasView | None = None
    preview: PromotionPreview | None = None
    speed: Answer | None = None
    damaged: tuple[str, ...] = ()

    @property
    def is_in_production(self) -> bool:
        """Whether the production alias is on the version."""
        return self.production is not None and self.production.number == self.view.number

    @property
    def can_be_promoted(self) -> bool:
        """Whether a move of the production alias to the version can be asked for."""
        return self.preview is not None and not self.is_in_production


def answer_version(standing: Standing) -> Answer:
    """Answer whether a version may be promoted: its state first, then its speed against production."""
    view = standing.view
    if view.yanked:
        return Answer("bad", f"Yanked by {plain(view.yanked.by)}: {plain(view.yanked.reason)}")
    if standing.damaged:
        targets = name_targets(standing.damaged) if len(view.builds) > 1 else ""
        return Answer("bad", describe_damage("Damaged", targets))
    if standing.is_in_production:
        return _of_production(standing)
    return _of_builds(view) or _of_promotion(standing)


def _of_production(standing: Standing) -> Answer:
    alias = standing.production
    assert alias is not None
    said = f"{alias.name} is on this version, moved {format_ago(alias.last.at)} by {plain(alias.last.by)}: "
    builds = _of_builds(standing.view)
    text = said + plain(alias.last.reason)
    return Answer(builds.tone, f"{text.rstrip('.')}. {builds.text}") if builds else Answer("good", text)


def _of_builds(view: VersionView) -> Answer | None:
    """Return what is wrong with the builds, or that they go on; None if all have an artifact."""
    builds = [build for build in view.builds if build.kind == "build"]
    if not builds:
        return Answer("warn", "The version has no builds: publish its spec again with targets.")
    failed = [build for build in builds if build.state == BuildState.FAILED]
    if failed:
        return Answer("bad", _failed_text(failed, len(builds)))
    waiting = [build for build in builds if build.state in UNFINISHED]
    done = sum(build.state == BuildState.SUCCEEDED for build in builds)
    if waiting:
        running = any(build.state == BuildState.RUNNING for build in waiting)
        return Answer(
            "busy", f"{'Building' if running else 'Queued'}: {done} of {len(builds)} targets are done."
        )
    cancelled = [build for build in builds if build.state == BuildState.CANCELLED]
    if cancelled:
        count = (
            f"{len(cancelled)} of {_builds(len(builds))} {'was' if len(cancelled) == 1 else 'were'} cancelled"
        )
        return Answer("warn", f"{count}: {_names(cancelled)}.")
    return None


def _failed_text(failed: Sequence[BuildView], count: int) -> str:
    if len(failed) == 1:
        code = (failed[0].error or {}).get("code") or "failed"
        return f"The build for {_names(failed)} failed: {plain(code)}."
    return f"{len(failed)} of {_builds(count)} failed: {_names(failed)}."


def _builds(count: int) -> str:
    return f"{count} build{'' if count == 1 else 's'}"


def _names(builds: Sequence[BuildView]) -> str:
    return name_targets([build.target for build in builds])


def _of_promotion(standing: Standing) -> Answer:
    alias, preview, speed = standing.production, standing.preview, standing.speed
    if alias is None:
        return Answer("good", "Ready: every target has an artifact. The model has no production alias yet.")
    if preview is None:
        return Answer("warn", f"It cannot be compared with {alias.name}.")
    if not preview.allowed:
        failed = [check for check in preview.checks if not check.passed]
        count = f"{len(failed)} of {_checks(len(preview.checks))}"
        verb = "refuses" if len(failed) == 1 else "refuse"
        text = f"{count} {verb} it for {alias.name}: {_some_of(_name_checks(failed))}."
        return Answer("bad", _join(text, speed))
    if preview.checks:
        every = "its check passes" if len(preview.checks) == 1 else f"all {_checks(len(preview.checks))} pass"
        tone = "warn" if speed and speed.tone == "bad" else "good"
        return Answer(tone, _join(f"Ready to promote to {alias.name}: {every}.", speed))
    if speed is None:
        return Answer("good", f"Ready; {alias.name} has no checks.")
    return Answer(speed.tone, f"{speed.text} {alias.name} is on version {alias.number} and has no checks.")


def _checks(count: int) -> str:
    return f"{count} check{'' if count == 1 else 's'}"


def _name_checks(checks: Sequence[PromotionCheckResult]) -> list[str]:
    """Return what checks are about, each metric once: `the median latency at batch 1 and 8`."""
    batches: dict[str, set[int | None]] = {}
    for check in checks:
        if metric := check.check.get("metric"):
            batch = check.comparison.batch if check.comparison else None
            batches.setdefault(str(metric), set()).add(batch)
    others = [check_name(check) for check in checks if not check.check.get("metric")]
    return [*(name_metric(metric, found) for metric, found in batches.items()), *others]


def _some_of(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    shown = ", ".join(distinct[:_MAX_NAMED])
    return f"{shown} and {len(distinct) - _MAX_NAMED} more" if len(distinct) > _MAX_NAMED else shown


def _join(text: str, speed: Answer | None) -> str:
    return f"{text} {speed.text}" if speed else text
