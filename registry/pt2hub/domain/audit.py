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
    VERSION_ATTACH = "version.attach"
    """Documentation was added to a version, or replaced."""
    VERSION_DETACH = "version.detach"
    BUILD_CANCEL = "build.cancel"
    BUILD_RETRY = "build.retry"
    BUILD_REQUEUE = "build.requeue"
    ALIAS_MOVE = "alias.move"
    ALIAS_REMOVE = "alias.remove"
    POLICY_CHANGE = "policy.change"
    MODEL_DESCRIBE = "model.describe"
    MEASUREMENT_QUEUE = "measurement.queue"
    MEASUREMENT_REPORT = "measurement.report"
    BLOB_UPLOAD = "blob.upload"
    UPLOAD_BEGIN = "upload.begin"
    UPLOAD_COMPLETE = "upload.complete"
    UPLOAD_CANCEL = "upload.cancel"
    TOKEN_CREATE = "token.create"  # noqa: S105  # an action, no secret
    TOKEN_ROTATE = "token.rotate"  # noqa: S105
    TOKEN_REVOKE = "token.revoke"  # noqa: S105
    TRUST_ADD = "trust.add"
    TRUST_REMOVE = "trust.remove"
    ARTIFACT_RESTORE = "artifact.restore"
    """A row was added from a manifest in storage, by `pt2hub admin reindex`."""


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
