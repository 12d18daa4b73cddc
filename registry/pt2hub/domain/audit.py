"""The audit log's vocabulary: what can be done to which resource."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Action(StrEnum):
    """What was done. The part before the dot names the kind of the resource."""

    VERSION_PUBLISH = "version.publish"
    VERSION_ADD_TARGET = "version.add_target"
    VERSION_UPDATE = "version.update"
    """The same content was submitted again, with other settings or a higher priority."""
    VERSION_YANK = "version.yank"
    VERSION_UNYANK = "version.unyank"
    VERSION_DELETE = "version.delete"
    MODEL_DELETE = "model.delete"
    BUILD_DELETE = "build.delete"
    BLOB_DELETE = "blob.delete"
    BLOB_ACCEPT = "blob.accept"
    """A digest that a forced deletion had refused may be stored again."""
    RETENTION_CHANGE = "retention.change"
    VERSION_ATTACH = "version.attach"
    """Documentation was added to a version, or replaced."""
    VERSION_DETACH = "version.detach"
    BUILD_CANCEL = "build.cancel"
    BUILD_RETRY = "build.retry"
    BUILD_REQUEUE = "build.requeue"
    BUILD_REBUILD = "build.rebuild"
    """A rebuild of an artifact with damaged files was queued."""
    ALIAS_MOVE = "alias.move"
    ALIAS_REMOVE = "alias.remove"
    POLICY_CHANGE = "policy.change"
    MODEL_DESCRIBE = "model.describe"
    MODEL_LABEL = "model.label"
    VERSION_LABEL = "version.label"
    VERSION_LINEAGE = "version.lineage"
    MEASUREMENT_QUEUE = "measurement.queue"
    MEASUREMENT_REPORT = "measurement.report"
    EVALUATION_REPORT = "evaluation.report"
    BLOB_UPLOAD = "blob.upload"
    UPLOAD_BEGIN = "upload.begin"
    UPLOAD_COMPLETE = "upload.complete"
    UPLOAD_CANCEL = "upload.cancel"
    TOKEN_CREATE = "token.create"  # noqa: S105  # an action, no secret
    TOKEN_ROTATE = "token.rotate"  # noqa: S105
    TOKEN_REVOKE = "token.revoke"  # noqa: S105
    TRUST_ADD = "trust.add"
    TRUST_REMOVE = "trust.remove"
    WEBHOOK_CREATE = "webhook.create"
    WEBHOOK_ENABLE = "webhook.enable"
    WEBHOOK_DISABLE = "webhook.disable"
    WEBHOOK_ROTATE = "webhook.rotate"
    WEBHOOK_DELETE = "webhook.delete"
    WEBHOOK_TEST = "webhook.test"
    WEBHOOK_REDELIVER = "webhook.redeliver"
    ROLE_ASSIGN = "role.assign"
    ROLE_REMOVE = "role.remove"
    DEVICE_APPROVE = "device.approve"
    DEVICE_DENY = "device.deny"
    PERSON_END = "person.end"
    """An admin ended all sessions of a person, revoked their tokens and forgot their groups."""
    ARTIFACT_RESTORE = "artifact.restore"
    """A row was added from a manifest in storage, by `pt2hub admin reindex`."""
    JOURNAL_APPLY = "journal.apply"
    """Rows were added from the journal in storage, by the same command."""
    REINDEX_ACCEPT_LOSSES = "reindex.accept_losses"
    """The same command gave up what it could not read: the collector may take what only that names."""
    TOMBSTONE_APPLY = "tombstone.apply"
    """A restored backup had what was deleted after it; that was deleted again."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter for audit entries; None matches everything.

    Attributes:
        model: Model that was changed, `team/name`.
        principal: Name of the principal.
        since: Earliest time.
    """

    model: str | None = None
    principal: str | None = None
    action: Action | None = None
    since: datetime | None = None
