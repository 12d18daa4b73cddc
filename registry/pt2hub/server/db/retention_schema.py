"""The tables of deletion and retention. See `schema` for the rules."""

from __future__ import annotations

from datetime import date, datetime  # noqa: TC003  # SQLAlchemy reads annotations when it runs
from typing import Any

from sqlalchemy import CheckConstraint, Date, ForeignKey, Index, Integer, Text, func
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from pt2hub.server.db import performance_schema, webhook_schema  # noqa: F401  # so that Base knows every table
from pt2hub.server.db.schema import Base, now, serial_key


class Tombstone(Base):
    """What remains of something that was deleted: who did it, when and why.

    `name`: `team/name@3`, `team/name` or a build's id. `artifacts`: manifests that `reindex` must not
    bring back, and ids of the builds that went with a version. `document`: its digest in storage; null until it is written there.
    """

    __tablename__ = "tombstones"
    __table_args__ = (
        CheckConstraint("kind IN ('version', 'model', 'build')", name="kind"),
        Index(None, "model", "number"),
        Index("ix_tombstones_artifacts", "artifacts", postgresql_using="gin"),
        Index("ix_tombstones_unwritten", "id", postgresql_where="document IS NULL"),
    )

    id: Mapped[int] = serial_key()
    kind: Mapped[str]
    name: Mapped[str] = mapped_column(index=True)
    model: Mapped[str | None]
    number: Mapped[int | None] = mapped_column(Integer)
    reason: Mapped[str]
    by: Mapped[dict[str, Any] | None]
    forced: Mapped[bool] = mapped_column(server_default="false")
    artifacts: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{}")
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    document: Mapped[str | None] = mapped_column(unique=True)


class RefusedDigest(Base):
    """Bytes that a forced deletion removed: nobody may store them again until an operator accepts them."""

    __tablename__ = "refused_digests"

    kind: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    tombstone_id: Mapped[int] = mapped_column(ForeignKey("tombstones.id"), index=True)


class VersionPull(Base):
    """The day on which a version was last resolved or pulled; written at most once per version and day."""

    __tablename__ = "version_pulls"

    version_id: Mapped[int] = mapped_column(ForeignKey("versions.id", ondelete="CASCADE"), primary_key=True)
    pulled_on: Mapped[date] = mapped_column(Date)


class RetentionPolicy(Base):
    """Which versions of a model, or of a team's models, are kept. `scope`: `team/name` or `team`."""

    __tablename__ = "retention_policies"

    scope: Mapped[str] = mapped_column(primary_key=True)
    document: Mapped[dict[str, Any]]
    by: Mapped[dict[str, Any] | None]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class Collection(Base):
    """A run of the blob collector. `ended_at` stays null when its process died; the next run goes on."""

    __tablename__ = "collections"

    id: Mapped[int] = serial_key()
    trigger: Mapped[str]
    started_at: Mapped[datetime] = now()
    ended_at: Mapped[datetime | None]
    counts: Mapped[dict[str, Any] | None]
