"""The tables. Rows stay inside the stores, which turn them into domain values.

A change here needs a revision under `migrations/`; a test compares the two. Rows of artifacts are an index over
manifests in storage, rebuilt by `ReindexService`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
    false,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pt2hub.domain.builds import BuildState

_STATES = ", ".join(f"'{state}'" for state in BuildState)
_OF_VERSION = text("version_id IS NOT NULL")
_OF_MODEL = text("version_id IS NULL")


class Base(DeclarativeBase):
    """Base class of all tables. Constraints are named by rule, so that later revisions can refer to them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads this attribute under its own declaration
        str: Text,
        int: BigInteger,
        float: Double,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
    }


def serial_key() -> Mapped[int]:
    """Return a primary key column, numbered by the database."""
    return mapped_column(Identity(always=True), primary_key=True)


def now() -> Mapped[datetime]:
    """Return a time column with the database's clock; times of other clocks are never compared."""
    return mapped_column(server_default=func.now())


class Model(Base):
    """A model."""

    __tablename__ = "models"

    id: Mapped[int] = serial_key()
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(server_default="")
    described_by: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = now()


class Version(Base):
    """A version of a model. Only `weights` and `golden` are set later, once each, and `settings` by each submission.

    `settings`: `limits`, `measure` and `compile.debug` of the latest submission; each attempt reads them when it begins.
    `yanked`: `reason`, `by` and `at` while it is yanked, as its last row in `version_yanks` says.
    `label_values`: values of its labels by key; triggers on `labels` set it, for searches and lists.
    """

    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("model_id", "identity"),
        UniqueConstraint("model_id", "number"),
        Index("ix_versions_created_at", "created_at"),
        Index("ix_versions_publisher", text("(published_by ->> 'name')")),
        Index(
            "ix_versions_label_values",
            "label_values",
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
        ),
    )

    id: Mapped[int] = serial_key()
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int] = mapped_column(Integer)
    identity: Mapped[str]
    spec: Mapped[dict[str, Any]]
    settings: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    pins: Mapped[dict[str, Any]]
    weights: Mapped[str | None]
    golden: Mapped[str | None]
    published_by: Mapped[dict[str, Any] | None]
    yanked: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = now()
    label_values: Mapped[dict[str, Any]] = mapped_column(server_default="{}", deferred=True)


class VersionYank(Base):
    """A yank of a version, or the end of one; rows are only ever added."""

    __tablename__ = "version_yanks"

    version_id: Mapped[int] = mapped_column(ForeignKey("versions.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    yanked: Mapped[bool]
    reason: Mapped[str]
    by: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class Label(Base):
    """A label of a model, or of one of its versions."""

    __tablename__ = "labels"
    __table_args__ = (
        Index("ix_labels_version_id", "version_id", "key", unique=True, postgresql_where=_OF_VERSION),
        Index("ix_labels_model_id", "model_id", "key", unique=True, postgresql_where=_OF_MODEL),
        # Searches by label, newest version first.
        Index("ix_labels_versions", "key", "value", "version_id", postgresql_where=_OF_VERSION),
        Index("ix_labels_models", "key", "value", "model_id", postgresql_where=_OF_MODEL),
    )

    id: Mapped[int] = serial_key()
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    version_id: Mapped[int | None] = mapped_column(ForeignKey("versions.id", ondelete="CASCADE"))
    key: Mapped[str]
    value: Mapped[str]
    by: Mapped[dict[str, Any]]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class VersionDocumentation(Base):
    """The documentation of a version since it was first changed; before, its pins have it.

    `manifest`: Digest of the manifest with the same content, from which the row is rebuilt.
    """

    __tablename__ = "version_documentation"

    version_id: Mapped[int] = mapped_column(ForeignKey("versions.id", ondelete="CASCADE"), primary_key=True)
    revision: Mapped[int]
    manifest: Mapped[str]
    files: Mapped[list[Any]]
    changed_by: Mapped[dict[str, Any] | None]
    changed_at: Mapped[datetime]


class Derivation(Base):
    """What a version is derived from: another version, or something elsewhere.

    `parent_id` becomes NULL when that version is deleted; `parent`, `parent_model` and `parent_identity` stay. All three of
    them but `parent` are NULL for what is elsewhere.
    """

    __tablename__ = "derivations"
    __table_args__ = (UniqueConstraint("version_id", "parent"),)

    id: Mapped[int] = serial_key()
    version_id: Mapped[int] = mapped_column(ForeignKey("versions.id", ondelete="CASCADE"))
    relation: Mapped[str]
    parent: Mapped[str]
    parent_model: Mapped[str | None]
    parent_identity: Mapped[str | None]
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("versions.id", ondelete="SET NULL"), index=True)
    automatic: Mapped[bool]
    by: Mapped[dict[str, Any]]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class Alias(Base):
    """A movable name on a version. The row stays when the alias is removed, so that its moves stay numbered."""

    __tablename__ = "aliases"
    __table_args__ = (UniqueConstraint("model_id", "name"),)

    id: Mapped[int] = serial_key()
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    name: Mapped[str]
    version_id: Mapped[int | None] = mapped_column(ForeignKey("versions.id"), index=True)
    moves: Mapped[int] = mapped_column(Integer, server_default="0")


class AliasMove(Base):
    """A move of an alias; rows are only ever added. Versions are stored by number, without a foreign key."""

    __tablename__ = "alias_moves"

    alias_id: Mapped[int] = mapped_column(ForeignKey("aliases.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    before: Mapped[int | None] = mapped_column(Integer)
    after: Mapped[int | None] = mapped_column(Integer)
    reason: Mapped[str]
    by: Mapped[str]
    principal: Mapped[dict[str, Any] | None]  # the same with kind and id: names are used again
    forced: Mapped[dict[str, Any] | None]  # the failed checks, if an admin forced the move
    # Not the transaction's time, which is its start: it may have waited for the previous move.
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class Target(Base):
    """A target that was ever offered or requested."""

    __tablename__ = "targets"

    name: Mapped[str] = mapped_column(primary_key=True)
    torch: Mapped[str]
    device: Mapped[str] = mapped_column(index=True)
    arch: Mapped[str]
    cuda: Mapped[str | None]
    os: Mapped[str]
    machine: Mapped[str]


class Worker(Base):
    """A worker and its latest registration."""

    __tablename__ = "workers"
    __table_args__ = (Index(None, "target", "last_seen"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    environment: Mapped[str] = mapped_column(ForeignKey("environments.digest"))
    toolchain: Mapped[dict[str, Any]]
    packages: Mapped[dict[str, Any]]
    host: Mapped[str] = mapped_column(server_default="")
    version: Mapped[str] = mapped_column(server_default="")
    concurrency: Mapped[int] = mapped_column(Integer, server_default="1")
    clock_skew: Mapped[float] = mapped_column(server_default="0")
    started_at: Mapped[datetime] = now()
    last_seen: Mapped[datetime] = now()
    draining_at: Mapped[datetime | None]
    left_at: Mapped[datetime | None]
    isolation: Mapped[str] = mapped_column(server_default="process")
    isolation_profile: Mapped[str | None]


class ServerSetting(Base):
    """A server-wide setting, written by the API at start and read by workers."""

    __tablename__ = "server_settings"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    set_at: Mapped[datetime] = now()


class Blob(Base):
    """A stored blob or manifest; the row stays after deletion, so that no generation is used twice.

    `state`: `pending` (being written under a lease), `stored`, `deleting` (being collected: nothing may refer to it any
    more), `deleted`, `damaged` (see `BlobDamage`). Writers of a `deleting`, `deleted` or `damaged` blob use the next
    generation, so that a late collector deletes only the old one, and nothing is ever overwritten. A `damaged` blob whose
    generation has no damage is being written in it; it stays `damaged` until that is confirmed.

    `checked_at`: when the bytes were last verified, by their writer or by a scrub; `-infinity` asks for a check.
    """

    __tablename__ = "blobs"
    __table_args__ = (
        CheckConstraint("state IN ('pending', 'stored', 'deleting', 'deleted', 'damaged')", name="state"),
        Index("ix_blobs_checks", "checked_at", "kind", "digest", postgresql_where=text("state = 'stored'")),
        Index("ix_blobs_damaged", "kind", "digest", postgresql_where=text("state = 'damaged'")),
    )

    kind: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, server_default="1")
    state: Mapped[str]
    size: Mapped[int]
    changed_at: Mapped[datetime] = now()
    checked_at: Mapped[datetime] = now()


class BlobDamage(Base):
    """Damage that was found in a generation of a blob; while the blob is `damaged`, its latest one is current.

    `quarantined`: whether the damaged object was moved out of readers' way, or cannot be (missing, unreadable).
    """

    __tablename__ = "blob_damage"
    __table_args__ = (
        Index("ix_blob_damage_loose", "kind", "digest", postgresql_where=text("NOT quarantined")),
    )

    kind: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, primary_key=True)
    problem: Mapped[str]
    expected_bytes: Mapped[int]
    found_bytes: Mapped[int | None]
    found_digest: Mapped[str | None]
    found_by: Mapped[str]
    found_at: Mapped[datetime] = now()
    quarantined: Mapped[bool] = mapped_column(server_default=false())


class ScrubPosition(Base):
    """The only row says which process scrubs, until when it claimed that, and how much was checked in all."""

    __tablename__ = "scrub_position"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    holder: Mapped[str]
    claimed_until: Mapped[datetime]
    blobs: Mapped[int] = mapped_column(server_default="0")
    bytes: Mapped[int] = mapped_column(server_default="0")


class BlobLease(Base):
    """A lease of a writer or future referrer: the blob is not collected before `pending_until`."""

    __tablename__ = "blob_leases"

    kind: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(primary_key=True, index=True)
    pending_until: Mapped[datetime] = mapped_column(index=True)


class BlobReference(Base):
    """A reference to a blob, by `version:<id>`, `artifact:<digest>` or `log:<build>:<attempt>`."""

    __tablename__ = "blob_references"

    kind: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(primary_key=True, index=True)


class Upload(Base):
    """A client's upload, which the server verifies.

    `state`: `open` (receiving bytes), `checking` (a process hashes them; its claim expires at `checking_until`),
    `stored`, `failed` (with `error`).
    """

    __tablename__ = "uploads"
    __table_args__ = (CheckConstraint("state IN ('open', 'checking', 'stored', 'failed')", name="state"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    size: Mapped[int]
    holder: Mapped[str]
    state: Mapped[str]
    multipart: Mapped[str | None]
    part_bytes: Mapped[int | None]
    checked_bytes: Mapped[int] = mapped_column(server_default="0")
    checking_until: Mapped[datetime | None]
    error: Mapped[dict[str, Any] | None]
    pending_until: Mapped[datetime] = mapped_column(index=True)
    created_at: Mapped[datetime] = now()


class Build(Base):
    """A build of a version on a target, or a measuring job. Publishing compares `attempt` and `state`.

    `kind`: `build` (one per version and target), `measure` (benchmarks the artifact again), or `rebuild`
    (builds it again, to replace damaged files).
    """

    __tablename__ = "builds"
    __table_args__ = (
        Index(
            "ix_builds_version_target",
            "version_id",
            "target",
            unique=True,
            postgresql_where=text("kind = 'build'"),
        ),
        Index("ix_builds_version_id", "version_id"),
        CheckConstraint("kind IN ('build', 'measure', 'rebuild')", name="kind"),
        CheckConstraint(f"state IN ({_STATES})", name="state"),
        Index(
            "ix_builds_unfinished",
            "state",
            "worker_id",
            postgresql_where=text("state IN ('queued', 'running')"),
        ),
        # Lists of builds, newest first: all, by state, by target.
        Index(None, "created_at", "id"),
        Index(None, "state", "created_at", "id"),
        Index(None, "target", "created_at", "id"),
        # Those that ended, the last one first, and the longest first.
        Index("ix_builds_ended", "finished_at", "id", postgresql_where=text("finished_at IS NOT NULL")),
        Index(
            "ix_builds_state_ended",
            "state",
            "finished_at",
            "id",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        Index(
            "ix_builds_duration",
            text("(finished_at - started_at)"),
            "id",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        # A build's position in its queue.
        Index(
            "ix_builds_queued",
            "target",
            "priority",
            "queued_at",
            "id",
            postgresql_where=text("state = 'queued'"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(server_default="build")
    version_id: Mapped[int] = mapped_column(ForeignKey("versions.id"))
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    position: Mapped[int] = mapped_column(Integer)
    request: Mapped[dict[str, Any]]
    first_submitted: Mapped[bool]
    state: Mapped[str]
    priority: Mapped[int] = mapped_column(Integer, server_default="0")
    attempt: Mapped[int] = mapped_column(Integer, server_default="0")
    failures: Mapped[int] = mapped_column(Integer, server_default="0")
    worker_id: Mapped[str | None] = mapped_column(ForeignKey("workers.id"))
    created_at: Mapped[datetime] = now()
    queued_at: Mapped[datetime] = now()
    not_before: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    error: Mapped[dict[str, Any] | None]
    requested_by: Mapped[dict[str, Any] | None]
    retried_by: Mapped[dict[str, Any] | None]
    cancelled_by: Mapped[dict[str, Any] | None]


class BuildAttempt(Base):
    """One attempt of a build; `log` is the blob of its archived log, until its age limit is over."""

    __tablename__ = "build_attempts"
    __table_args__ = (
        Index("ix_build_attempts_unarchived", "ended_at", postgresql_where=text("log_lines IS NULL")),
        Index("ix_build_attempts_uncounted", "ended_at", postgresql_where=text("NOT counted")),
    )

    build_id: Mapped[str] = mapped_column(ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    worker_id: Mapped[str]
    started_at: Mapped[datetime] = now()
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    error: Mapped[dict[str, Any] | None]
    reused: Mapped[bool | None]
    log: Mapped[str | None]
    log_bytes: Mapped[int | None]
    log_lines: Mapped[int | None]
    log_removed_at: Mapped[datetime | None]
    counted: Mapped[bool] = mapped_column(server_default="false")


class BuildSum(Base):
    """A sum over counted attempts; only `StatisticsStore` interprets the counters."""

    __tablename__ = "build_sums"

    counter: Mapped[str] = mapped_column(primary_key=True)
    scope: Mapped[str] = mapped_column(primary_key=True)
    detail: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]
    seconds: Mapped[float]


class BuildStep(Base):
    """A named step of one attempt."""

    __tablename__ = "build_steps"

    build_id: Mapped[str] = mapped_column(ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    seconds: Mapped[float | None]
    detail: Mapped[str | None]
    waited: Mapped[float | None]


class BuildLog(Base):
    """A line of one attempt's log."""

    __tablename__ = "build_logs"

    build_id: Mapped[str] = mapped_column(ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    step: Mapped[str]
    level: Mapped[str]
    text: Mapped[str]


class Environment(Base):
    """The fingerprint of a machine.

    `class_digest` identifies the fields that must be equal for comparisons (`measurements.environment_class`).
    """

    __tablename__ = "environments"

    digest: Mapped[str] = mapped_column(primary_key=True)
    class_digest: Mapped[str] = mapped_column(index=True)
    fields: Mapped[dict[str, Any]]


class Artifact(Base):
    """The result of a succeeded build."""

    __tablename__ = "artifacts"

    digest: Mapped[str] = mapped_column(primary_key=True)
    build_id: Mapped[str] = mapped_column(ForeignKey("builds.id"), unique=True)
    attempt: Mapped[int] = mapped_column(Integer)
    environment: Mapped[str] = mapped_column(ForeignKey("environments.digest"))
    program_key: Mapped[str] = mapped_column(index=True)
    config: Mapped[str]
    code: Mapped[str]
    code_bytes: Mapped[int]
    weights: Mapped[str]
    weights_bytes: Mapped[int]
    single_file: Mapped[str]
    single_file_bytes: Mapped[int]
    dtype: Mapped[str | None]
    torch: Mapped[str] = mapped_column(index=True)
    python: Mapped[str]
    compiler: Mapped[str]
    libc: Mapped[str]
    pt2hub: Mapped[str]
    triton: Mapped[str | None]
    cuda: Mapped[str | None]
    driver: Mapped[str | None]
    verification: Mapped[dict[str, Any]]
    provenance: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = now()


class Referrer(Base):
    """A referrer of an artifact: log, sources, autotune table, measurements."""

    __tablename__ = "referrers"

    digest: Mapped[str] = mapped_column(primary_key=True)
    artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    artifact_type: Mapped[str]
    size: Mapped[int]
    annotations: Mapped[dict[str, Any]]


class ArchiveMember(Base):
    """A file inside the single `model.pt2`."""

    __tablename__ = "archive_members"

    artifact: Mapped[str] = mapped_column(
        ForeignKey("artifacts.digest", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(Integer)
    size: Mapped[int]
    digest: Mapped[str] = mapped_column(index=True)


class Region(Base):
    """A part of an artifact with code of its own, by the part's program key."""

    __tablename__ = "regions"

    program_key: Mapped[str] = mapped_column(primary_key=True)
    artifact: Mapped[str] = mapped_column(
        ForeignKey("artifacts.digest", ondelete="CASCADE"), primary_key=True, index=True
    )


class AutotuneChoice(Base):
    """An autotune candidate for an operation, timed or failed."""

    __tablename__ = "autotune_choices"

    id: Mapped[int] = serial_key()
    artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.digest", ondelete="CASCADE"), index=True)
    op: Mapped[str] = mapped_column(index=True)
    shapes: Mapped[list[Any]]
    dtypes: Mapped[list[Any]]
    candidate: Mapped[str]
    milliseconds: Mapped[float | None]
    rank: Mapped[int] = mapped_column(Integer)
    chosen: Mapped[bool]
    template: Mapped[str] = mapped_column(server_default="")
    parameters: Mapped[dict[str, Any] | None]
    reason: Mapped[str] = mapped_column(server_default="")
    strides: Mapped[list[Any]] = mapped_column(server_default="[]")
    operation: Mapped[int] = mapped_column(Integer, server_default="0")
    precompile_seconds: Mapped[float | None]
    benchmark_seconds: Mapped[float | None]


class ApiToken(Base):
    """An API token, by its SHA-256. The scope `admin` has a column of its own and includes the others."""

    __tablename__ = "api_tokens"

    id: Mapped[int] = serial_key()
    name: Mapped[str]
    sha256: Mapped[str] = mapped_column(unique=True)
    admin: Mapped[bool] = mapped_column(server_default="false")
    scopes: Mapped[list[str]] = mapped_column(
        ARRAY(Text), server_default="{read,publish,build,measure,promote}"
    )
    patterns: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{*}")
    expires_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = now()
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    created_by: Mapped[dict[str, Any] | None]
    revoked_by: Mapped[dict[str, Any] | None]
    person_id: Mapped[int | None] = mapped_column(ForeignKey("people.id", ondelete="CASCADE"), index=True)


class Person(Base):
    """Somebody who signed in with an OpenID Connect provider. `groups` are those of the last sign-in."""

    __tablename__ = "people"
    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    id: Mapped[int] = serial_key()
    issuer: Mapped[str]
    subject: Mapped[str]
    name: Mapped[str]
    full_name: Mapped[str]
    email: Mapped[str]
    groups: Mapped[list[str]] = mapped_column(ARRAY(Text))
    created_at: Mapped[datetime] = now()
    signed_in_at: Mapped[datetime] = now()


class RoleAssignment(Base):
    """A role that a group of the provider has on the models of a pattern; see `domain.people`."""

    __tablename__ = "role_assignments"
    __table_args__ = (UniqueConstraint("group_name", "role", "pattern"),)

    id: Mapped[int] = serial_key()
    group_name: Mapped[str]
    role: Mapped[str]
    pattern: Mapped[str]
    created_at: Mapped[datetime] = now()
    created_by: Mapped[dict[str, Any] | None]


class DeviceRequest(Base):
    """A device that asks for a token, by the SHA-256 of its device code; the row goes when it got one.

    `grant`: name, scopes, patterns and seconds of the token, as the person approved it.
    """

    __tablename__ = "device_requests"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    user_code: Mapped[str] = mapped_column(unique=True)
    client: Mapped[str]
    state: Mapped[str] = mapped_column(server_default="pending")
    interval_s: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = now()
    polled_at: Mapped[datetime | None]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    person_id: Mapped[int | None] = mapped_column(ForeignKey("people.id", ondelete="CASCADE"))
    grant: Mapped[dict[str, Any] | None]


class TrustRule(Base):
    """A rule by which ID tokens of an OpenID Connect provider are exchanged for tokens; see `domain.trust`."""

    __tablename__ = "trust_rules"

    id: Mapped[int] = serial_key()
    name: Mapped[str]
    issuer: Mapped[str]
    audience: Mapped[str]
    claims: Mapped[dict[str, Any]] = mapped_column(JSONB())
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    patterns: Mapped[list[str]] = mapped_column(ARRAY(Text))
    seconds: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = now()
    created_by: Mapped[dict[str, Any] | None]


class WebSession(Base):
    """A browser session, by the SHA-256 of its cookie, with the rights of its token while that is valid, or of a person."""

    __tablename__ = "web_sessions"
    __table_args__ = (CheckConstraint("num_nonnulls(token_id, person_id) = 1", name="holder"),)

    sha256: Mapped[str] = mapped_column(primary_key=True)
    token_id: Mapped[int | None] = mapped_column(ForeignKey("api_tokens.id", ondelete="CASCADE"), index=True)
    person_id: Mapped[int | None] = mapped_column(ForeignKey("people.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = now()
    last_used_at: Mapped[datetime] = now()
    expires_at: Mapped[datetime] = mapped_column(index=True)


class AuditEntry(Base):
    """A mutation and who made it. A trigger refuses UPDATE, DELETE and TRUNCATE; workers' attempts have no entries."""

    __tablename__ = "audit_log"
    __table_args__ = (
        Index(None, "at", "id"),
        Index("ix_audit_log_models", "models", postgresql_using="gin"),
    )

    id: Mapped[int] = serial_key()
    # Not the transaction's time, which is its start: it may have waited for another mutation.
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    principal_kind: Mapped[str]
    principal: Mapped[str]
    principal_id: Mapped[str | None]
    action: Mapped[str]
    resource: Mapped[str]
    models: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{}")
    request: Mapped[str | None]
    change: Mapped[dict[str, Any]] = mapped_column(server_default="{}")


class JournalMark(Base):
    """Something that changed and is not in the journal yet; triggers add it in the transaction that changes it.

    `kind` and `key` name it by what outlives the database; see `db.stores.operations.journal`.
    """

    __tablename__ = "journal_outbox"

    id: Mapped[int] = serial_key()
    kind: Mapped[str]
    key: Mapped[list[Any]] = mapped_column(JSONB())


class RateCounter(Base):
    """Requests that count towards a rate limit, until `expires_at`. Not logged: a crash empties it, and no write waits for it."""

    __tablename__ = "rate_counters"
    __table_args__ = {"prefixes": ["UNLOGGED"]}  # noqa: RUF012  # SQLAlchemy reads it as it is

    key: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]
    expires_at: Mapped[datetime] = mapped_column(index=True)
