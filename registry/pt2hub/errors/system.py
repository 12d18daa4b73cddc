"""Errors of services that pt2hub depends on, and defects of pt2hub itself."""

from __future__ import annotations

from pt2hub.errors.base import FatalError, TransientError


class StorageUnavailable(TransientError):
    """The blob storage is unavailable."""

    code = "storage_unavailable"


class StorageFull(TransientError):
    """The blob storage has no space for the upload."""

    code = "storage_full"


class BlobGone(TransientError):
    """A blob is no longer in the storage."""

    code = "blob_gone"


class DatabaseUnavailable(TransientError):
    """The database is unavailable."""

    code = "database_unavailable"


class DatabaseFull(DatabaseUnavailable):
    """The database's disk is full."""

    code = "database_full"


class DatabaseReadOnly(DatabaseUnavailable):
    """The database accepts no writes."""

    code = "database_read_only"


class IssuerUnavailable(TransientError):
    """The keys of an OpenID Connect provider cannot be read."""

    code = "issuer_unavailable"


class ReceiverUnreachable(TransientError):
    """The receiver of a webhook cannot be reached, or does not answer in time."""

    code = "receiver_unreachable"


class ServerUnreachable(TransientError):
    """The pt2hub server is unreachable."""

    code = "server_unreachable"


class ResolutionExpired(TransientError):
    """The server did not answer, and the last known resolution of the reference is too old."""

    code = "resolution_expired"


class WorkerLost(TransientError):
    """The worker or its build process was lost."""

    code = "worker_lost"


class Busy(TransientError):
    """Too many requests already wait for changes in this server process."""

    code = "busy"


class RequestTimeout(TransientError):
    """The request arrived too slowly."""

    code = "request_timeout"


class RateLimited(TransientError):
    """Too many requests within a minute."""

    code = "rate_limited"


class CompileFailed(FatalError):
    """AOTInductor could not compile the exported program."""

    code = "compile_failed"


class LayoutUnproven(FatalError):
    """The recorded layout of the constants does not reproduce the compiler's bytes."""

    code = "layout_unproven"


class ArtifactCrashed(FatalError):
    """The artifact's process was killed by a signal."""

    code = "artifact_crashed"


class ArtifactHung(FatalError):
    """The artifact did not respond within the time limit."""

    code = "artifact_hung"


class ArtifactWrong(FatalError):
    """The artifact computes wrong numbers."""

    code = "artifact_wrong"


class DigestMismatch(FatalError):
    """The content does not match its digest."""

    code = "digest_mismatch"


class BlobDamaged(DigestMismatch):
    """The stored blob is damaged."""

    code = "blob_damaged"


class CorruptArchive(FatalError):
    """The archive is not a valid .pt2 file."""

    code = "corrupt_archive"


class StaleAttempt(FatalError):
    """The attempt was superseded by a newer one."""

    code = "stale_attempt"


class BadResponse(FatalError):
    """The response does not come from a pt2hub server."""

    code = "bad_response"


class InternalError(FatalError):
    """Unexpected internal error."""

    code = "internal"
