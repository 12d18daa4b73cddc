"""The audit log: one entry for each mutation, written in its transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pt2hub.domain.audit import Action, AuditFilter
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.names import parse_model_name
from pt2hub.domain.tokens import EVERY_MODEL, TOKEN
from pt2hub.errors import InvalidInput
from pt2hub.server.db.stores.access.audit_log import AuditLogStore
from pt2hub.server.db.stores.values import moment, storable
from pt2hub.server.services import cursors
from pt2hub.wire.audit_log import AuditPage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.audit_log import AuditEntry

DEFAULT_LIMIT = 100
_MAX_VALUE_BYTES = 1 << 14
"""A larger value of a change, such as a long policy, is replaced by its size and digest."""
_EXPORT_BATCH = 1000
_REDACTED = "pt2_(redacted)"


def record(
    session: Session, by: Actor, action: Action, resource: str, *, models: Sequence[str] = (), **change: Any
) -> None:
    """Record a mutation in the transaction that makes it, so that neither exists without the other.

    Call it once, and only where something changed: a repeated request that changes nothing has no entry.

    Args:
        models: The models that it changes.
        change: What changed. Name the fields one by one: a whole document may contain secrets.
    """
    if by.person is not None and by.id is not None:
        change["with_token"] = by.id  # a person has several, and one of them may have leaked
    AuditLogStore(session).add(
        by.principal,
        action,
        redact_tokens(resource),
        models=models,
        request=by.request,
        change={name: _bound(redact_tokens(storable(value))) for name, value in change.items()},
    )


def read_filter(
    model: str | None = None,
    principal: str | None = None,
    action: str | None = None,
    since: str | None = None,
) -> AuditFilter:
    """Return a filter from texts; an empty one matches everything.

    The model need not exist: entries outlive what they are about.

    Raises:
        InvalidInput: The model's name, the action or the time is malformed.
    """
    if action and action not in list(Action):
        raise InvalidInput(
            f"Unknown action {action[:80]!a}", where="action", hint=f"Use one of {', '.join(Action)}."
        )
    at = moment(since) if since else None
    if since and at is None:
        raise InvalidInput(
            f"Invalid time {since[:80]!a}", where="since", hint="Use ISO 8601, such as 2026-11-26T18:00:00Z."
        )
    if model:
        parse_model_name(model)
    return AuditFilter(model or None, principal or None, Action(action) if action else None, at)


class AuditLogService:
    """Reads the audit log."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def entries(
        self,
        wanted: AuditFilter,
        *,
        patterns: Sequence[str] = (EVERY_MODEL,),
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> AuditPage:
        """Return entries, newest first.

        Args:
            patterns: Only entries about models that these cover; see `AuditLogStore.page`.
            after: The previous page's cursor; None for the newest.

        Raises:
            InvalidInput: The cursor is malformed.
        """
        begin = cursors.decode_numbered(after, "audit entries") if after is not None else None
        with self._sessions.begin() as session:
            found = AuditLogStore(session).page(wanted, patterns=patterns, after=begin, limit=limit + 1)
        page = tuple(found[:limit])
        return AuditPage(page, next=cursors.encode(page[-1].at, page[-1].id) if len(found) > limit else None)

    def export(self, wanted: AuditFilter) -> Iterator[AuditEntry]:
        """Yield all entries, oldest first; batch by batch, however many there are."""
        last = 0
        while True:
            with self._sessions.begin() as session:
                found = AuditLogStore(session).following(wanted, after=last, limit=_EXPORT_BATCH)
            yield from found
            if len(found) < _EXPORT_BATCH:
                return
            last = found[-1].id


def redact_tokens(value: Any) -> Any:
    """Replace tokens, which people paste into descriptions and reasons: entries cannot be deleted."""
    if isinstance(value, str):
        return TOKEN.sub(_REDACTED, value)
    if isinstance(value, list):
        return [redact_tokens(item) for item in value]
    if isinstance(value, dict):
        return {redact_tokens(name): redact_tokens(item) for name, item in value.items()}
    return value


def _bound(value: Any) -> Any:
    data = json.dumps(value).encode()
    if len(data) <= _MAX_VALUE_BYTES:
        return value
    return {"omitted_bytes": len(data), "digest": digest_bytes(data)}
