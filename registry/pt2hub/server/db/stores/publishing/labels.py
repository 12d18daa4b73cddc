"""Labels of models and versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.codec import encode
from pt2hub.domain.principals import read_principal
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Label as SQLLabel
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.responses import LabelView

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal


_MAX_LATEST = 2000
"""Labels that suggestions are chosen from."""


class LabelStore:
    """Labels; a version id of None means the model's own."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock(self, model_id: int, version_id: int | None) -> dict[str, str]:
        """Lock the labels of a model or version until the transaction ends, and return their values by key."""
        row: Any = SQLModel if version_id is None else SQLVersion
        found = model_id if version_id is None else version_id
        self._session.execute(select(row.id).where(row.id == found).with_for_update(key_share=True))
        rows = self._session.execute(select(SQLLabel.key, SQLLabel.value).where(_of(model_id, version_id)))
        return {key: value for key, value in rows}  # noqa: C416  # rows are no pairs to the type checker

    def views(self, model_id: int, version_id: int | None) -> tuple[LabelView, ...]:
        """Return labels by key, with who set them."""
        return self._views(_of(model_id, version_id))

    def of_version(self, version_id: int) -> tuple[LabelView, ...]:
        """Return a version's labels by key, with who set them."""
        return self._views(SQLLabel.version_id == version_id)

    def of_models(self, model_ids: Sequence[int]) -> dict[int, dict[str, str]]:
        """Return the models' own labels, by model id and key."""
        mine = (SQLLabel.model_id.in_(model_ids), SQLLabel.version_id.is_(None))
        rows = select(SQLLabel.model_id, SQLLabel.key, SQLLabel.value).where(*mine).order_by(SQLLabel.key)
        found: dict[int, dict[str, str]] = {}
        for model_id, key, value in self._session.execute(rows):
            found.setdefault(model_id, {})[key] = value
        return found

    def has_key(self, key: str, *, on_versions: bool) -> bool:
        """Return whether a version, or a model itself, that may be read has a label with this key."""
        found = _readable(SQLLabel.id, on_versions=on_versions).where(SQLLabel.key == key)
        return self._session.scalar(found.limit(1)) is not None

    def commits(self, key: str, beginning: str, *, on_versions: bool, limit: int) -> list[str]:
        """Return the values of a label that begin with hexadecimal digits, in their order."""
        # Digits sort before g in every collation, so that the index is used.
        like = SQLLabel.value.between(beginning, f"{beginning}g")
        found = _readable(SQLLabel.value, on_versions=on_versions).where(SQLLabel.key == key, like)
        values = found.order_by(SQLLabel.value).limit(_MAX_LATEST).subquery().c.value
        return list(self._session.scalars(select(values).distinct().order_by(values).limit(limit)))

    def known_keys(self, *, on_versions: bool) -> list[str]:
        """Return keys of the labels that were set last, for suggestions."""
        latest = _readable(SQLLabel.key, on_versions=on_versions).order_by(SQLLabel.id.desc())
        keys = latest.limit(_MAX_LATEST).subquery().c.key
        return list(self._session.scalars(select(keys).distinct()))

    def put(self, model_id: int, version_id: int | None, labels: Mapping[str, str], *, by: Principal) -> None:
        """Set labels of a locked model or version; others stay."""
        if not labels:
            return
        self.remove(model_id, version_id, labels.keys())
        rows = [
            {"model_id": model_id, "version_id": version_id, "key": key, "value": value, "by": encode(by)}
            for key, value in sorted(labels.items())
        ]
        self._session.execute(insert(SQLLabel).values(rows))

    def remove(self, model_id: int, version_id: int | None, keys: Collection[str]) -> None:
        """Remove labels of a locked model or version; missing ones are ignored."""
        self._session.execute(
            delete(SQLLabel).where(_of(model_id, version_id), SQLLabel.key.in_(sorted(keys)))
        )

    def _views(self, mine: ColumnElement[bool]) -> tuple[LabelView, ...]:
        rows = self._session.scalars(select(SQLLabel).where(mine).order_by(SQLLabel.key))
        return tuple(LabelView(row.key, row.value, read_principal(row.by), stamp(row.at)) for row in rows)


def _readable(column: Any, *, on_versions: bool) -> Select[Any]:
    """Select a column of the labels on versions, or on models themselves, that may be read."""
    of_version = SQLLabel.version_id.is_not(None)
    limits = (of_version if on_versions else ~of_version, *only_readable(SQLModel.name))
    return select(column).join(SQLModel, SQLModel.id == SQLLabel.model_id).where(*limits)


def _of(model_id: int, version_id: int | None) -> ColumnElement[bool]:
    if version_id is None:
        return (SQLLabel.model_id == model_id) & SQLLabel.version_id.is_(None)
    return SQLLabel.version_id == version_id
