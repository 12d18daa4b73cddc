"""Filters of versions: fields and labels."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import Readiness
from pt2hub.domain.labels import check_key, in_stored_case
from pt2hub.domain.names import is_team, parse_alias, parse_model_name
from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELDS = ("model", "alias", "target", "state", "publisher", "since", "until")
"""What a filter names besides labels; a label of such a name is written `label.NAME`."""
LABEL_PREFIX = "label."
MAX_CONDITIONS = 10
_AGE = re.compile(r"(\d{1,6})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_SHOWN = 80
_MAX_PUBLISHER_CHARS = 200


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """A label that a model or version must have.

    Attributes:
        value: Its value; None for any.
    """

    key: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """Filter for versions; None matches everything.

    Attributes:
        model: `team/name`, or `team/` for all models of a team.
        alias: Name of an alias that points to the version.
        target: Target that the version has a build for, in any state.
        publisher: Name of who published it.
        since: Earliest time of publication.
        until: Latest time of publication.
    """

    model: str | None = None
    labels: tuple[LabelFilter, ...] = ()
    alias: str | None = None
    target: str | None = None
    state: Readiness | None = None
    publisher: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def parse_label_filter(text: str, *, where: str = "label") -> LabelFilter:
    """Return the filter that `KEY=VALUE`, or `KEY` for any value, means.

    Raises:
        InvalidInput: The key is malformed, or the value is missing.
    """
    key, equals, value = text.partition("=")
    if equals and not value.strip():
        raise InvalidInput(
            f"Invalid condition {text[:_SHOWN]!a}: its value is missing",
            where=where,
            hint=f"Use {key[:_SHOWN]}=VALUE, or {key[:_SHOWN]} alone for any value.",
        )
    checked = check_key(key.strip(), where=where)
    return LabelFilter(checked, in_stored_case(checked, value.strip()) if equals else None)


def parse_conditions(texts: Sequence[str], *, now: datetime) -> VersionFilter:
    """Return the filter that conditions such as `alias=prod`, `since=7d` or `git.sha=4f1c...` mean, all of them.

    Args:
        texts: `FIELD=VALUE` for the fields in `FIELDS`, `KEY=VALUE` or `KEY` for labels.
        now: What ages are counted from.

    Raises:
        InvalidInput: A condition is malformed, there are too many, or a field is given twice.
    """
    if len(texts) > MAX_CONDITIONS:
        raise InvalidInput(
            f"Too many conditions ({len(texts)}, at most {MAX_CONDITIONS})", where="where", hint="Use fewer."
        )
    wanted, labels = VersionFilter(), list[LabelFilter]()
    for text in texts:
        name, _, value = text.partition("=")
        if name.strip() not in FIELDS:
            labels.append(parse_label_filter(text.strip().removeprefix(LABEL_PREFIX), where="where"))
            continue
        field = name.strip()
        if getattr(wanted, field) is not None:
            raise InvalidInput(f"{field} is given twice", where="where", hint="Give it once.")
        wanted = replace(wanted, **{field: _parse_field(field, value.strip(), now)})
    return replace(wanted, labels=tuple(labels))


def _parse_field(field: str, value: str, now: datetime) -> Any:
    if not value:
        raise InvalidInput(f"{field} requires a value", where="where", hint=f"Use {field}=VALUE.")
    if field == "model":
        return _parse_model(value)
    if field == "alias":
        return parse_alias(value)
    if field == "target":
        parse_target(value)
        return value
    if field == "state":
        return _parse_state(value)
    if field == "publisher":
        return value[:_MAX_PUBLISHER_CHARS]
    return _parse_time(field, value, now)


def _parse_model(value: str) -> str:
    if value.endswith("/") and is_team(value[:-1]):
        return value
    if "/" not in value and is_team(value):
        raise InvalidInput(
            f"invalid model name {value!r}",
            where="where",
            hint=f"Use model={value}/ for all models of the team, or model={value}/NAME for one.",
        )
    return parse_model_name(value)


def _parse_state(value: str) -> Readiness:
    try:
        return Readiness(value.lower())
    except ValueError as exc:
        raise InvalidInput(
            f"Unknown state {value[:_SHOWN]!a}", where="where", hint=f"Use one of {', '.join(Readiness)}."
        ) from exc


def _parse_time(field: str, value: str, now: datetime) -> datetime:
    """Return a time from ISO 8601 or an age; PostgreSQL supports fewer years and zones than Python."""
    try:
        if match := _AGE.fullmatch(value):
            return now - timedelta(hours=int(match[1]) * _HOURS[match[2]])
        parsed = datetime.fromisoformat(value)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(
            f"Invalid time {value[:_SHOWN]!a}",
            where="where",
            hint=f"Use an age or ISO 8601: {field}=7d, {field}=2026-11-26, {field}=2026-11-26T18:00:00Z.",
        ) from exc
