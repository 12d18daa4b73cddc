"""Errors of what pt2hub depends on, and defects of its own."""

from __future__ import annotations

from pt2hub.errors.base import FatalError, TransientError


class StorageUnavailable(TransientError):
    """The blob storage did not do what was asked."""

    code = "storage_unavailable"


class StorageFull(TransientError):
    """The blob storage has no room for the upload."""

    code = "storage_full"


class BlobGone(TransientError):
    """Bytes that are to be referred to are not in the storage any more."""

    code = "blob_gone"


class DatabaseUnavailable(TransientError):
    """The database did not answer."""

    code = "database_unavailable"


class ServerUnreachable(TransientError):
    """The pt2hub server did not answer."""

    code = "server_unreachable"


class WorkerLost(TransientError):
    """The worker or its build process went away."""

    code = "worker_lost"


class Busy(TransientError):
    """The server follows as many builds as it can."""

    code = "busy"


class CompileFailed(FatalError):
    """AOTInductor could not compile the exported program."""

    code = "compile_failed"


class LayoutUnproven(FatalError):
    """The recorded layout of the constants does not rebuild the compiler's own bytes."""

    code = "layout_unproven"


class ArtifactCrashed(FatalError):
    """The artifact ended its process by a signal."""

    code = "artifact_crashed"


class ArtifactHung(FatalError):
    """The artifact did not answer within the time limit."""

    code = "artifact_hung"


class ArtifactWrong(FatalError):
    """The artifact computes wrong numbers."""

    code = "artifact_wrong"


class DigestMismatch(FatalError):
    """Bytes do not have the digest that names them."""

    code = "digest_mismatch"


class CorruptArchive(FatalError):
    """The archive is not a well-formed .pt2."""

    code = "corrupt_archive"


class StaleAttempt(FatalError):
    """This attempt at a build was overtaken by another one."""

    code = "stale_attempt"


class BadResponse(FatalError):
    """The server's answer is not pt2hub's."""

    code = "bad_response"


class InternalError(FatalError):
    """Something failed that pt2hub did not foresee."""

    code = "internal"
