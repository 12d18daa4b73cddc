"""Errors of lock files; never retried."""

from __future__ import annotations

from pt2hub.errors.base import UsageError


class LockInvalid(UsageError):
    """The lock file is malformed."""

    code = "lock_invalid"


class LockOutdated(UsageError):
    """The lock file does not match the declared references."""

    code = "lock_outdated"


class LockMismatch(UsageError):
    """The artifact is not the one that the lock file describes."""

    code = "lock_mismatch"
