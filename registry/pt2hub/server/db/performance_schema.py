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

from pt2hub.server.db.schema import Base, now, serial_key

_OUTCOMES = "outcome IN ('better', 'worse')"
_ON_FRONT = "metric = 'latency_p50' AND implementation = 'artifact' AND newest_at IS NOT NULL"


class Series(Base):
    """Comparable measurements: one metric of one model on one target, in one environment class.

    `batch` is 0 where there is none. `changed_at` is when a measurement was last added, `examined_at` up to where changes
    were searched, `newest_at` when the newest measurement was taken (null while there is no point).
    """

    __tablename__ = "series"
    __table_args__ = (
        UniqueConstraint(
            "model_id",
            "metric",
            "target",
            "batch",
            "implementation",
            "class_digest",
            "unit",
            name="uq_series_what",
        ),
        # For the overview: the models with the newest measurements, and the series of each.
        Index("ix_series_front_model", "model_id", "newest_at", "id", postgresql_where=text(_ON_FRONT)),
        Index(
            "ix_series_unexamined",
            "changed_at",
            postgresql_where=text("examined_at IS DISTINCT FROM changed_at"),
        ),
    )

    id: Mapped[int] = serial_key()
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    class_digest: Mapped[str]
    metric: Mapped[str]
    unit: Mapped[str]
    batch: Mapped[int] = mapped_column(server_default="0")
    implementation: Mapped[str] = mapped_column(server_default="artifact")
    changed_at: Mapped[datetime] = now()
    examined_at: Mapped[datetime | None]
    newest_at: Mapped[datetime | None]


class Measurement(Base):
    """A measurement. `run` names the build or measuring job and its attempt; `key` is its reporter's name for it."""

    __tablename__ = "measurements"
    __table_args__ = (
        CheckConstraint("source IN ('build', 'again', 'report')", name="source"),
        # The latest measurements of a point.
        Index(None, "series_id", "number", "measured_at", "id"),
        Index(
            # A series has one artifact per version, and a number takes a twentieth of a digest's size.
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

    id: Mapped[int] = serial_key()
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
    """A run of an artifact and a baseline in the same processes: `ratios` are artifact over baseline."""

    __tablename__ = "measurement_pairs"
    __table_args__ = (UniqueConstraint("series_id", "artifact", "baseline", "run"),)

    id: Mapped[int] = serial_key()
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    baseline: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    run: Mapped[str]
    ratios: Mapped[list[float]] = mapped_column(ARRAY(Double))
    measured_at: Mapped[datetime]


class SeriesPoint(Base):
    """The value of a series at a version, updated with each measurement; charts read points and no measurements.

    `value` is that of the latest run, or if there are only reports the median of the latest (at most 200; `count` is
    their number); `low` and `high` span their replicates, or the values if there are none.
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
    """A flagged change. `kind`: `comparison` with the previous version, or `change_point` of a long series."""

    __tablename__ = "performance_events"
    __table_args__ = (
        CheckConstraint("kind IN ('comparison', 'change_point')", name="kind"),
        CheckConstraint(_OUTCOMES, name="outcome"),
        UniqueConstraint("series_id", "kind", "number"),
        Index(None, "at", "id"),
        Index(None, "model_id", "at", "id"),
    )

    id: Mapped[int] = serial_key()
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    kind: Mapped[str]
    number: Mapped[int] = mapped_column(Integer)
    before: Mapped[int] = mapped_column(Integer)
    outcome: Mapped[str]
    ratio: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]
    method: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class Policy(Base):
    """A model's policy; changed by compare-and-set on `revision`."""

    __tablename__ = "policies"

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    revision: Mapped[int] = mapped_column(Integer)
    document: Mapped[dict[str, Any]]
    by: Mapped[str]
    principal: Mapped[dict[str, Any] | None]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class Evaluation(Base):
    """The quality of a version on data of its users. `data_set` is the name beside the digest, which may be empty."""

    __tablename__ = "evaluations"
    __table_args__ = (
        UniqueConstraint("reporter", "key"),
        Index("ix_evaluations_version_id_metric", "version_id", "metric"),
    )

    id: Mapped[int] = serial_key()
    version_id: Mapped[int] = mapped_column(ForeignKey("versions.id", ondelete="CASCADE"))
    metric: Mapped[str]
    unit: Mapped[str]
    value: Mapped[float]
    data_set: Mapped[str]
    data_digest: Mapped[str]
    count: Mapped[int]
    reporter: Mapped[str]
    key: Mapped[str]
    by: Mapped[dict[str, Any]]
    measured_at: Mapped[datetime]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
