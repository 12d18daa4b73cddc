"""The audit log. The database refuses to change or delete its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import ARRAY, Text, and_, bindparam, cast, func, insert, select, text, tuple_

from pt2hub.domain.audit import Action
from pt2hub.domain.principals import Principal
from pt2hub.domain.reading import Readable
from pt2hub.server.db.schema import AuditEntry as SQLAuditEntry
from pt2hub.server.db.stores.values import stamp, storable
from pt2hub.wire.audit_log import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

    from pt2hub.domain.audit import AuditFilter

_ALL_COVERED = text(
    "NOT EXISTS (SELECT FROM unnest(audit_log.models) AS given (name) WHERE given.name !~ :covered)"
)


_DOCUMENTATION_ENTRIES = text("""
    SELECT resource, action, change ->> 'manifest' FROM audit_log
    WHERE action IN ('version.publish', 'version.attach', 'version.detach') AND resource = ANY(:versions)""")


@dataclass(frozen=True, slots=True)
class DocumentationEntries:
    """What the audit log says about documentation of versions.

    Attributes:
        published: Versions, `team/name@3`, whose publication it has.
        manifests: Digests of the manifests of accepted changes.
        unnamed: Numbers of changes by older releases, whose entries name no manifest, by version.
    """

    published: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    unnamed: dict[str, int] = field(default_factory=dict)


class AuditLogStore:
    """Entries of the audit log."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self,
        by: Principal,
        action: Action,
        resource: str,
        *,
        models: Sequence[str],
        request: str | None,
        change: dict[str, Any],
    ) -> None:
        """Add an entry."""
        values = {
            "principal_kind": by.kind,
            "principal": by.name,
            "principal_id": by.id,
            "action": action,
            "resource": resource,
            "models": list(models),
            "request": request,
            "change": change,
        }
        self._session.execute(insert(SQLAuditEntry).values(values))

    def documentation_entries(self, versions: Collection[str]) -> DocumentationEntries:
        """Return what the log says about the documentation of versions."""
        found = DocumentationEntries()
        rows = self._session.execute(_DOCUMENTATION_ENTRIES, {"versions": list(versions)})
        for version, action, manifest in rows:
            if action == Action.VERSION_PUBLISH:
                found.published.add(version)
            elif manifest is None:
                found.unnamed[version] = found.unnamed.get(version, 0) + 1
            else:
                found.manifests.add(manifest)
        return found

    def page(
        self,
        wanted: AuditFilter,
        *,
        patterns: Sequence[str],
        after: tuple[datetime, int] | None,
        limit: int,
    ) -> list[AuditEntry]:
        """Return entries, newest first.

        Args:
            patterns: Only entries whose models these cover; `*` also covers entries about no model.
            after: Time and id of the previous page's last entry; None for the newest.
        """
        key = (SQLAuditEntry.at, SQLAuditEntry.id)
        statement = select(SQLAuditEntry).where(*_matching(wanted), *_visible(patterns))
        if after is not None:
            statement = statement.where(tuple_(*key) < after)
        statement = statement.order_by(*(column.desc() for column in key)).limit(limit)
        return [_entry(row) for row in self._session.scalars(statement)]

    def following(self, wanted: AuditFilter, *, after: int, limit: int) -> list[AuditEntry]:
        """Return entries in the order of their ids, from the one after `after`."""
        statement = select(SQLAuditEntry).where(*_matching(wanted), SQLAuditEntry.id > after)
        return [
            _entry(row) for row in self._session.scalars(statement.order_by(SQLAuditEntry.id).limit(limit))
        ]


def _matching(wanted: AuditFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.model is not None:
        conditions.append(SQLAuditEntry.models.op("@>")(cast([wanted.model], ARRAY(Text))))
    if wanted.principal is not None:
        conditions.append(SQLAuditEntry.principal == storable(wanted.principal))
    if wanted.action is not None:
        conditions.append(SQLAuditEntry.action == wanted.action)
    if wanted.since is not None:
        conditions.append(SQLAuditEntry.at >= wanted.since)
    return conditions


def _visible(patterns: Sequence[str]) -> list[Any]:
    """Return the conditions for entries about nothing but the models that the patterns cover."""
    visible = Readable(tuple(patterns))
    if visible.everything:
        return []
    covered = _ALL_COVERED.bindparams(bindparam("covered", visible.expression))
    return [and_(func.cardinality(SQLAuditEntry.models) > 0, covered)]


def _entry(row: SQLAuditEntry) -> AuditEntry:
    return AuditEntry(
        id=row.id,
        at=stamp(row.at),
        principal=Principal(row.principal_kind, row.principal, row.principal_id),
        action=row.action,
        resource=row.resource,
        models=tuple(row.models),
        request=row.request,
        change=row.change,
    )
