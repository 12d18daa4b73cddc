"""The tables of the performance history. See `schema` for the rules."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # SQLAlchemy reads annotations when it runs
from typing import Any

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from pt2hub.server.db.schema import Base, counted, now

_VERDICTS = "verdict IN ('better', 'worse')"
_ON_FRONT = "metric = 'latency_p50' AND subject = 'artifact' AND newest_at IS NOT NULL"


class Series(Base):
    """Figures that may be compared: one metric of one model on one target, in one environment class.

    `batch` is 0 where there is none. `changed_at` says when a figure came, `examined_at` up to which change points
    were looked for, `newest_at` when the newest figure was taken (null while there is no point).
    """

    __tablename__ = "series"
    __table_args__ = (
        UniqueConstraint(
            "model_id", "metric", "target", "batch", "subject", "class_digest", "unit", name="uq_series_what"
        ),
        # What the front page shows: the models with the newest figures, and the series of each.
        Index("ix_series_front", "newest_at", "model_id", postgresql_where=text(_ON_FRONT)),
        Index("ix_series_front_model", "model_id", "newest_at", "id", postgresql_where=text(_ON_FRONT)),
        Index(
            "ix_series_unexamined",
            "changed_at",
            postgresql_where=text("examined_at IS DISTINCT FROM changed_at"),
        ),
    )

    id: Mapped[int] = counted()
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    class_digest: Mapped[str]
    metric: Mapped[str]
    unit: Mapped[str]
    batch: Mapped[int] = mapped_column(server_default="0")
    subject: Mapped[str] = mapped_column(server_default="artifact")
    changed_at: Mapped[datetime] = now()
    examined_at: Mapped[datetime | None]
    newest_at: Mapped[datetime | None]


class Measurement(Base):
    """A figure. `run` names the build or measuring job and its attempt; `key` is its reporter's name for it."""

    __tablename__ = "measurements"
    __table_args__ = (
        CheckConstraint("source IN ('build', 'again', 'report')", name="source"),
        # The latest figures of a point.
        Index(None, "series_id", "number", "measured_at", "id"),
        Index(
            # A series has one artifact of each version, whose number is a twentieth of its digest.
            "uq_measurements_run",
            "series_id",
            "number",
            "run",
            unique=True,
            postgresql_where=text("run IS NOT NULL"),
        ),
        Index(
            "uq_measurements_key", "reporter", "key", unique=True, postgresql_where=text("key IS NOT NULL")
        ),
    )

    id: Mapped[int] = counted()
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    number: Mapped[int] = mapped_column(Integer)
    artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    environment: Mapped[str] = mapped_column(ForeignKey("environments.digest"))
    source: Mapped[str]
    run: Mapped[str | None]
    reporter: Mapped[str | None]
    key: Mapped[str | None]
    value: Mapped[float]
    replicates: Mapped[list[float] | None] = mapped_column(ARRAY(Double))
    samples: Mapped[list[Any] | None]
    measured_at: Mapped[datetime]
    received_at: Mapped[datetime] = now()


class MeasurementPair(Base):
    """An artifact beside an earlier one in the same processes: `ratios` is its figure over the other's."""

    __tablename__ = "measurement_pairs"
    __table_args__ = (UniqueConstraint("series_id", "artifact", "baseline", "run"),)

    id: Mapped[int] = counted()
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    baseline: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    run: Mapped[str]
    ratios: Mapped[list[float]] = mapped_column(ARRAY(Double))
    measured_at: Mapped[datetime]


class SeriesPoint(Base):
    """What a series says of a version, kept with each figure that comes: charts read these and no measurements.

    `value` is the figure of its latest run, or where there are only reports the median of the latest (200 at most,
    `count` says of how many); `low` and `high` span their replicates (or them, where there are none).
    """

    __tablename__ = "series_points"

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    value: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    count: Mapped[int] = mapped_column(Integer)
    measured_at: Mapped[datetime]


class PerformanceEvent(Base):
    """A change that was flagged. `kind`: `comparison` with the version before, or `change_point` of a long series."""

    __tablename__ = "performance_events"
    __table_args__ = (
        CheckConstraint("kind IN ('comparison', 'change_point')", name="kind"),
        CheckConstraint(_VERDICTS, name="verdict"),
        UniqueConstraint("series_id", "kind", "number"),
        Index(None, "at", "id"),
        Index(None, "model_id", "at", "id"),
    )

    id: Mapped[int] = counted()
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    kind: Mapped[str]
    number: Mapped[int] = mapped_column(Integer)
    before: Mapped[int] = mapped_column(Integer)
    verdict: Mapped[str]
    ratio: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]
    method: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class Policy(Base):
    """What a model's owners demand of its performance; changed by compare-and-set on `revision`."""

    __tablename__ = "policies"

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    revision: Mapped[int] = mapped_column(Integer)
    document: Mapped[dict[str, Any]]
    by: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
