"""Adds to the database what the journal has and the database lacks; rows that exist stay."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import ARRAY, DateTime, Double, func, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import UNFINISHED, BuildState
from pt2hub.domain.digests import Digest
from pt2hub.domain.targets import parse_target
from pt2hub.server.db.performance_schema import Evaluation as SQLEvaluation
from pt2hub.server.db.performance_schema import Measurement as SQLMeasurement
from pt2hub.server.db.performance_schema import Policy as SQLPolicy
from pt2hub.server.db.retention_schema import RetentionPolicy as SQLRetentionPolicy
from pt2hub.server.db.schema import Alias as SQLAlias
from pt2hub.server.db.schema import AliasMove as SQLAliasMove
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import AuditEntry as SQLAuditEntry
from pt2hub.server.db.schema import Base
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Derivation as SQLDerivation
from pt2hub.server.db.schema import Environment as SQLEnvironment
from pt2hub.server.db.schema import Label as SQLLabel
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import RoleAssignment as SQLRoleAssignment
from pt2hub.server.db.schema import TrustRule as SQLTrustRule
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.schema import VersionYank as SQLVersionYank
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.performance.measurements import PerformanceStore, SeriesKey
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore
from pt2hub.server.db.stores.values import moment, storable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Insert, Table, Update
    from sqlalchemy.orm import Session
    from sqlalchemy.types import TypeEngine

    from pt2hub.server.db.stores.operations.journal import JournalEntry

_HAS_AUDIT_ENTRY = text(
    "SELECT EXISTS (SELECT FROM audit_log WHERE at = :at AND action = :action AND resource = :resource)"
)

_ENDED = (
    *("state", "error", "attempt", "failures", "queued_at", "started_at", "finished_at", "not_before"),
    *("retried_by", "cancelled_by"),
)
"""Columns of a build that its attempts and their end set."""
_DESCRIBED_BEFORE = text("""
    coalesce((SELECT max(at) FROM audit_log WHERE action = 'model.describe' AND resource = :name), '-infinity') < :described
""")


class JournalRestoration:
    """Adds rows of entries; each method takes those of one kind and returns how many it added.

    Args:
        described: When each model was described last, according to the journal.
    """

    def __init__(self, session: Session, *, described: Mapping[str, str] | None = None) -> None:
        self._session = session
        self._described = described or {}
        self.conflicts: dict[str, str] = {}

    def add(self, kind: str, entries: Sequence[JournalEntry]) -> int:
        """Add the rows of entries of one kind, unless they exist; unknown kinds, of a newer pt2hub, are ignored."""
        known: dict[str, Callable[[dict[str, Any]], int]] = {
            "model": self._add_model,
            "version": self._add_version,
            "label": self._add_label,
            "build": self._add_build,
            "environment": self._add_environment,
            "alias": self._add_alias,
            "policy": self._add_policy,
            "trust_rule": self._add_trust_rule,
            "derivation": self._add_derivation,
            "evaluation": partial(self._add_to_version, SQLEvaluation),
            "role": partial(self._insert, SQLRoleAssignment),
            "retention_policy": self._add_retention_policy,
            "audit_entry": self._add_audit_entry,
        }
        add = known.get(kind)
        documents = [entry.document for entry in entries if entry.document]
        if kind == "report":
            return self._add_reports(documents)
        return sum(map(add, documents)) if add else 0

    def add_moves(self, model: str, name: str, moves: Sequence[dict[str, Any]]) -> int:
        """Add the moves that an alias lacks, if those that it has are the same; see `_add_alias`."""
        alias = self._session.execute(
            select(SQLAlias.id, SQLAlias.moves)
            .join(SQLModel)
            .where(SQLModel.name == model, SQLAlias.name == name)
        ).one_or_none()
        if alias is None:
            return 0
        present = select(SQLAliasMove.sequence, SQLAliasMove.at).where(SQLAliasMove.alias_id == alias.id)
        times = {sequence: at for sequence, at in self._session.execute(present)}  # noqa: C416  # rows are no pairs
        if any(times.get(move["sequence"], moment(move["at"])) != moment(move["at"]) for move in moves):
            self.conflicts[f"{model}@{name}"] = "The alias has moved elsewhere in this database"
            return 0
        new = [move for move in moves if move["sequence"] not in times]
        for move in new:
            self._insert(SQLAliasMove, move, alias_id=alias.id)
        if new and new[-1]["sequence"] > alias.moves:
            self._move(alias.id, model, new[-1])
        return len(new)

    def _move(self, alias_id: int, model: str, last: dict[str, Any]) -> None:
        version = self._version_id(model, last["after"]) if last["after"] is not None else None
        values = {"version_id": version, "moves": last["sequence"]}
        self._session.execute(update(_table(SQLAlias)).where(SQLAlias.id == alias_id).values(values))

    def _add_model(self, document: dict[str, Any]) -> int:
        name = document["name"]
        deleted, created = (
            TombstoneStore(self._session).model_deleted_at(name),
            moment(document["created_at"]),
        )
        if deleted and created and created <= deleted:
            return 0  # deleted, and the database was lost before the journal knew
        if self._insert(SQLModel, document):
            return 1
        told = {name: document[name] for name in ("description", "described_by")}
        undescribed = SQLModel.described_by.is_(None) & (SQLModel.description == "")
        older = _DESCRIBED_BEFORE.bindparams(name=name, described=moment(self._described.get(name)))
        changed = SQLModel.description != document["description"]
        wanted = (SQLModel.name == name, changed, undescribed | older)
        return self._count(update(_table(SQLModel)).where(*wanted).values(told))

    def _add_version(self, document: dict[str, Any]) -> int:
        if TombstoneStore(self._session).version(document["model"], document["number"]):
            return 0  # deleted, and the database was lost before the journal knew
        if (model_id := self._model_id(document["model"])) is None:
            return 0
        added = self._insert(SQLVersion, document, model_id=model_id)
        named = (SQLVersion.model_id == model_id, SQLVersion.number == document["number"])
        row = self._session.execute(select(SQLVersion.id, SQLVersion.identity).where(*named)).one_or_none()
        if row is None or row.identity != document["identity"]:
            name = f"{document['model']}@{document['number']}"
            self.conflicts[name] = "The version has other content in this database"
            return 0
        # Weights and golden values are set once, later than the row.
        values = {
            name: func.coalesce(_table(SQLVersion).c[name], document[name]) for name in ("weights", "golden")
        }
        self._session.execute(update(_table(SQLVersion)).where(SQLVersion.id == row.id).values(values))
        yanks = sum(self._insert(SQLVersionYank, yank, version_id=row.id) for yank in document["yanks"])
        if yanks and not added:
            yanked = {"yanked": document["yanked"]}
            self._session.execute(update(_table(SQLVersion)).where(SQLVersion.id == row.id).values(yanked))
        return added

    def _add_build(self, document: dict[str, Any]) -> int:
        version_id = self._version_id(document["model"], document["number"], document["identity"])
        if version_id is None or TombstoneStore(self._session).named("build", document["id"]):
            return 0
        WorkerStore(self._session).add_target(parse_target(document["target"]))
        state = BuildState(document["state"])
        given = document | {"state": state if state.final else BuildState.QUEUED}
        return self._insert(SQLBuild, given, version_id=version_id) or self._end_build(document, state)

    def _end_build(self, document: dict[str, Any], state: BuildState) -> int:
        """End a build that a backup has as unfinished and that failed or was cancelled since; its job finds it ended."""
        finished = moment(document.get("finished_at"))
        if state not in (BuildState.FAILED, BuildState.CANCELLED) or finished is None:
            return 0
        values = {name: value for name, value in _row(SQLBuild, document).items() if name in _ENDED}
        older = (SQLBuild.state.in_(UNFINISHED), SQLBuild.queued_at < finished)
        ended = update(_table(SQLBuild)).where(SQLBuild.id == document["id"], *older)
        return self._count(ended.values(worker_id=None, **values))

    def queue_incomplete(self, builds: Sequence[str]) -> None:
        """Queue builds that succeeded and whose artifact is not in storage; maintenance gives them jobs."""
        done = select(SQLArtifact.build_id).where(SQLArtifact.build_id == SQLBuild.id).exists()
        incomplete = (SQLBuild.id.in_(builds), SQLBuild.state == BuildState.SUCCEEDED, ~done)
        values = {"state": BuildState.QUEUED, "finished_at": None, "queued_at": func.now()}
        statement = update(_table(SQLBuild)).where(*incomplete).values(values)
        self._session.execute(statement)

    def _add_label(self, document: dict[str, Any]) -> int:
        number = document["number"]
        version_id = None if number is None else self._version_id(document["model"], number)
        if number is not None and version_id is None:
            return 0
        if (model_id := self._model_id(document["model"])) is None:
            return 0
        added = self._insert(SQLLabel, document, model_id=model_id, version_id=version_id)
        return added or self._change_label(document, model_id, version_id)

    def _change_label(self, document: dict[str, Any], model_id: int, version_id: int | None) -> int:
        """Set a label to a value that it was given later than the present one, as after a restored backup."""
        values = {
            name: value for name, value in _row(SQLLabel, document).items() if name in ("value", "by", "at")
        }
        same = (
            SQLLabel.model_id == model_id,
            SQLLabel.version_id.is_not_distinct_from(version_id),
            SQLLabel.key == document["key"],
        )
        if "at" not in values:
            return 0
        return self._count(update(_table(SQLLabel)).where(*same, SQLLabel.at < values["at"]).values(values))

    def _add_derivation(self, document: dict[str, Any]) -> int:
        parent = select(SQLVersion.id).join(SQLModel)
        same = (SQLModel.name == document["parent_model"], SQLVersion.identity == document["parent_identity"])
        added = self._add_to_version(
            SQLDerivation, document, parent_id=self._session.scalar(parent.where(*same))
        )
        return added or self._change_derivation(document)

    def _change_derivation(self, document: dict[str, Any]) -> int:
        """Set how a version is derived from the same parent, if that was said later, as after a restored backup."""
        version_id = self._version_id(document["model"], document["number"])
        same = (SQLDerivation.version_id == version_id, SQLDerivation.parent == document["parent"])
        names = ("relation", "automatic", "by", "at")
        values = {name: value for name, value in _row(SQLDerivation, document).items() if name in names}
        older = SQLDerivation.at < moment(document["at"])
        return self._count(update(_table(SQLDerivation)).where(*same, older).values(values))

    def _add_retention_policy(self, document: dict[str, Any]) -> int:
        """Set a policy, unless there is a later one; one of a deleted model would hold for the next of its name."""
        scope = document["scope"]
        if "/" in scope and self._session.scalar(select(SQLModel.id).where(SQLModel.name == scope)) is None:
            return 0
        if self._insert(SQLRetentionPolicy, document):
            return 1
        older = (SQLRetentionPolicy.scope == scope, SQLRetentionPolicy.at < moment(document["at"]))
        values = _row(SQLRetentionPolicy, document)
        return self._count(update(_table(SQLRetentionPolicy)).where(*older).values(values))

    def _add_to_version(self, of: type[Base], document: dict[str, Any], **references: Any) -> int:
        """Insert a row of a version, unless the version was deleted."""
        version_id = self._version_id(document["model"], document["number"])
        return 0 if version_id is None else self._insert(of, document, version_id=version_id, **references)

    def _add_environment(self, document: dict[str, Any]) -> int:
        return self._insert(SQLEnvironment, document)

    def _add_alias(self, document: dict[str, Any]) -> int:
        """Add an alias that never moved; `add_moves` moves it to where it was."""
        if (model_id := self._model_id(document["model"])) is None:
            return 0
        return self._insert(SQLAlias, {"name": document["name"], "moves": 0}, model_id=model_id)

    def _add_policy(self, document: dict[str, Any]) -> int:
        if (model_id := self._model_id(document["model"])) is None:
            return 0
        if self._insert(SQLPolicy, document, model_id=model_id):
            return 1
        older = (SQLPolicy.model_id == model_id, SQLPolicy.revision < document["revision"])
        return self._count(update(_table(SQLPolicy)).where(*older).values(_row(SQLPolicy, document)))

    def _add_trust_rule(self, document: dict[str, Any]) -> int:
        same = select(SQLTrustRule.id).where(SQLTrustRule.created_at == moment(document["created_at"]))
        exists = self._session.scalar(same) is not None
        return 0 if exists else self._insert(SQLTrustRule, document)

    def _add_reports(self, documents: Sequence[dict[str, Any]]) -> int:
        """Add reported measurements of artifacts that exist; all series are locked in one call, see `hold`."""
        store = PerformanceStore(self._session)
        measured = store.find_measured({Digest(document["artifact"]) for document in documents})
        named = [
            (
                document,
                of,
                SeriesKey(of.model_id, of.target, *(document[name] for name in SeriesKey._fields[2:])),
            )
            for document in documents
            if (of := measured.get(document["artifact"]))
        ]
        held = store.hold(what for _, _, what in named)
        changed = [
            (held[what], of.number)
            for document, of, what in named
            if self._insert(SQLMeasurement, document, series_id=held[what])
        ]
        store.sum_up(changed)
        return len(changed)

    def _add_audit_entry(self, document: dict[str, Any]) -> int:
        named = {name: document[name] for name in ("at", "action", "resource")}
        exists = self._session.scalar(_HAS_AUDIT_ENTRY, named)
        return 0 if exists else self._insert(SQLAuditEntry, document)

    def _model_id(self, name: str) -> int | None:
        """Return a model's id, added if needed; None if it was deleted and the journal does not know that yet."""
        wanted = select(SQLModel.id).where(SQLModel.name == name)
        found = self._session.scalar(wanted)
        if found is not None:
            return found
        if TombstoneStore(self._session).model_deleted_at(name):
            return None
        self._insert(SQLModel, {"name": name})
        return self._session.execute(wanted).scalar_one()

    def _version_id(self, model: str, number: int, identity: str | None = None) -> int | None:
        statement = select(SQLVersion.id).join(SQLModel)
        statement = statement.where(SQLModel.name == model, SQLVersion.number == number)
        if identity is not None:
            statement = statement.where(SQLVersion.identity == identity)
        return self._session.scalar(statement)

    def _insert(self, of: type[Base], document: dict[str, Any], **references: Any) -> int:
        """Insert a row unless it exists; return how many were."""
        values = _row(of, document) | references
        return self._count(insert(_table(of)).values(values).on_conflict_do_nothing())

    def _count(self, statement: Insert | Update) -> int:
        return len(self._session.execute(statement.returning(literal_column("1"))).all())


def _row(of: type[Base], document: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that a document has; a newer pt2hub may have written more, an older one fewer."""
    return {
        column.name: _value(column.type, document[column.name])
        for column in _table(of).columns
        if column.name in document
    }


def _value(of: TypeEngine[Any], value: Any) -> Any:
    """Return a value of a document as its column takes it: JSON has no times, and writes 10.0 as 10."""
    if value is None:
        return None
    if isinstance(of, DateTime):
        return moment(value)
    if isinstance(of, Double):
        return float(value)
    if isinstance(of, ARRAY) and isinstance(of.item_type, Double):
        return [float(item) for item in value]
    return storable(value)


def _table(of: type[Base]) -> Table:
    return cast("Table", of.__table__)
