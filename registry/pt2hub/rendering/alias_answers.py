"""Sentences about aliases: which version one is on, since when, by whom and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.names import PRODUCTION_PREFIXES
from pt2hub.errors import INVISIBLE_CHARACTERS
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.rendering.quantities import format_count
from pt2hub.rendering.targets import short_target
from pt2hub.rendering.times import format_ago

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.wire.responses import AliasMove, AliasView, ModelView

_MAX_NAMED = 3
"""Targets that are named."""
_MAX_REASON = 160
_UNREADY = {
    "pending": ("busy", "is being built"),
    "partial": ("warn", "is partly built"),
    "failed": ("bad", "failed"),
    "cancelled": ("warn", "was cancelled"),
}
"""Tone and words for a newest version that is not ready."""


def is_production(alias: str) -> bool:
    """Return whether an alias, by its name, is in production."""
    return alias.lower().startswith(PRODUCTION_PREFIXES)


def sort_aliases(aliases: Iterable[AliasView]) -> list[AliasView]:
    """Sort aliases: production first, shortest name first; then the others, last moved first."""
    found = list(aliases)
    production = [alias for alias in found if is_production(alias.name)]
    others = [alias for alias in found if not is_production(alias.name)]
    production.sort(key=lambda alias: (len(alias.name), alias.name))
    others.sort(key=lambda alias: alias.last.at, reverse=True)
    return [*production, *others]


def answer_model(
    model: ModelView,
    main: AliasView | None,
    newest_state: str | None,
    speed: str = "",
    *,
    is_slower: bool = False,
) -> Answer:
    """Answer which version of a model is in use.

    Args:
        main: The model's most important alias; None without aliases.
        newest_state: Readiness of the newest version; None if it is unknown.
        speed: How the newest ready version's speed differs from that of the alias's version; empty if that is unknown.
        is_slower: Whether it is slower.
    """
    ready = model.newest_ready
    if main is not None and main.number:
        answer = answer_alias(main, model.damaged.get(main.name, ()))
        comma = f", {speed}" if speed else ""
        if not ready or ready <= main.number:
            return answer
        tone = "warn" if is_slower and answer.tone == "good" else answer.tone
        return Answer(tone, f"{answer.text} Version {ready} is newer and ready{comma}.")
    if ready:
        return Answer("calm", f"No alias yet: version {ready} is the newest ready version.")
    if not model.newest:
        return Answer("calm", "No versions yet.")
    tone, words = _UNREADY.get(newest_state or "", ("warn", "is not ready"))
    return Answer(tone, f"No version is ready: version {model.newest} {words}.")


def answer_alias(alias: AliasView, damaged: Sequence[str] = ()) -> Answer:
    """Answer which version an alias is on, and what its last move changed.

    Its tone is `good`, `bad` where the version is damaged, or `warn` where the last move was forced past failed checks.

    Args:
        damaged: Targets whose artifacts of this version are damaged on the server.
    """
    answer = _answer_move(alias)
    if not damaged or not alias.number:
        return answer
    damage = describe_damage(f"Version {alias.number} is damaged", name_targets(damaged))
    return Answer("bad", f"{damage} {answer.text}")


def _answer_move(alias: AliasView) -> Answer:
    last = alias.last
    if not alias.number:
        was = f" from version {last.before}" if last.before else ""
        return Answer("calm", f"{alias.name} is on no version, removed {_by(last, was)}")
    how, was = ("moved", f" from version {last.before}") if last.before else ("set", "")
    where = f"{alias.name} is on version {alias.number}, {how} {_by(last, was)}"
    refused = count_forced(last)
    if not refused:
        return Answer("good", where)
    return Answer("warn", f"{where} The move was forced past {format_count(refused, 'failed check')}.")


def describe_damage(subject: str, targets: str) -> str:
    """Return that a version cannot be pulled.

    Args:
        subject: What is damaged, with its verb: `Version 1 is damaged`.
        targets: Names of the targets whose artifacts are damaged; empty for all.
    """
    where = f" for {targets}" if targets else ""
    return f"{subject} on the server: it cannot be pulled{where} until its operator mends it (pt2hub admin heal)."


def name_targets(among: Sequence[str]) -> str:
    """Return the short names of targets: the first three, and how many more there are."""
    named = ", ".join(short_target(target, among) for target in among[:_MAX_NAMED])
    return f"{named} and {len(among) - _MAX_NAMED} more" if len(among) > _MAX_NAMED else named


def count_forced(move: AliasMove) -> int:
    """Return how many failed promotion checks a move was forced past."""
    forced = move.forced or {}
    return int(forced.get("count") or len(forced.get("refused") or ()))


def previous_version(last: AliasMove) -> int | None:
    """Return the version that an alias was on before its last move, None if that did not change the version."""
    return last.before if last.before != last.after else None


def _by(move: AliasMove, was: str) -> str:
    reason = " ".join(move.reason.translate(INVISIBLE_CHARACTERS).split()).rstrip(".")
    if len(reason) > _MAX_REASON:
        reason = f"{reason[:_MAX_REASON]}..."
    end = "" if reason.endswith(("...", "!", "?")) else "."
    return f"{format_ago(move.at)}{was} by {move.by}: {reason}{end}"
