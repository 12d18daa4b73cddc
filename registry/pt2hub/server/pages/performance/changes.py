"""Page of versions that got better or worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flask import request, url_for

from pt2hub.errors import InvalidInput, UsageError
from pt2hub.rendering.comparisons import TWO_FIGURES, change, found_as
from pt2hub.rendering.version_changes import answer_recent, change_headline, other_metrics
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page
from pt2hub.server.services.performance.version_changes import PRODUCTION, SORTS, ChangeQuery
from pt2hub.server.views.changes import VersionChange, VersionChangePage

if TYPE_CHECKING:
    from flask import Response

_LIMIT = 20
_FILTERS = ("model", "target", "outcome", "since", "sort")
_PERIODS = (7, 30, 90, 365)
"""Days that the form offers."""


@dataclass(frozen=True, slots=True)
class ChangeCard:
    """A version that changed.

    Attributes:
        headline: What happened, in short.
        others: Metrics in which it also shows.
        production: Production aliases that point to it.
        compare: URL of the comparison, on the target of the headline.
        compare_all: URL of the comparison on all targets, None where it shows on one.
    """

    change: VersionChange
    headline: str
    others: list[str]
    production: list[str]
    compare: str
    compare_all: str | None


@routes.get("/changes")
def changes() -> Response:
    """List the versions that got better or worse, with a filter form."""
    chosen = {name: request.args.get(name, "").strip()[:400] or None for name in _FILTERS}
    after = request.args.get("after")
    error: UsageError | None = None
    found, recent = VersionChangePage(()), None
    try:
        days = _parse_days(chosen["since"])
        query = ChangeQuery(chosen["model"], chosen["target"], chosen["outcome"], days)
        service = container().version_changes
        found = service.changes(query, sort=chosen["sort"] or SORTS[0], after=after, limit=_LIMIT)
        recent = service.recent(query)
    except UsageError as caught:
        error = caught
    return page(
        "changes.html",
        section="changes",
        status=status_of(type(error)) if error else 200,
        error=error,
        found=found,
        cards=[_card(item) for item in found.changes],
        answer=recent and answer_recent(recent.days, recent.count, recent.in_production, _where(chosen)),
        chosen=chosen,
        filtered=any(chosen[name] for name in _FILTERS[:-1]),
        periods=_PERIODS,
        sorts=SORTS,
        targets=[target.name for target in container().workers.targets()],
        first=after is None,
        **_texts(),
    )


def _texts() -> dict[str, Any]:
    return {"found_as": found_as, "two_figures": TWO_FIGURES, "change": change}


def _where(chosen: dict[str, str | None]) -> str:
    parts = (("of", chosen["model"]), ("on", chosen["target"]))
    return " ".join(f"{word} {value}" for word, value in parts if value)


def _parse_days(text: str | None) -> int | None:
    if text is None:
        return None
    if text not in map(str, _PERIODS):
        raise InvalidInput(
            f"Invalid number of days {text[:40]!a}",
            where="since",
            hint=f"Use {', '.join(map(str, _PERIODS))}, or omit it for any time.",
        )
    return int(text)


def _card(item: VersionChange) -> ChangeCard:
    main = item.events[0]
    before, after = f"{item.model}@{main.before}", f"{item.model}@{item.number}"
    several = len({event.target for event in item.events}) > 1
    return ChangeCard(
        item,
        change_headline(item.events),
        other_metrics(item.events),
        [name for name in item.aliases if name.lower().startswith(PRODUCTION)],
        url_for("pages.compare", before=before, after=after, target=main.target),
        url_for("pages.compare", before=before, after=after) if several else None,
    )
