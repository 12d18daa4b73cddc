"""Verification of the cached files of locked artifacts, byte by byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import ArtifactConfig, Manifest
from pt2hub.domain.codec import decode
from pt2hub.errors import BadResponse, LockMismatch, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pt2hub.client.blobs.cache import BlobCache
    from pt2hub.domain.locks import Lock, LockedArtifact, LockedBlob, LockedFile, LockedModel


class FileState(StrEnum):
    """State of a locked artifact in the cache."""

    VERIFIED = "verified"
    ABSENT = "absent"
    """Its code is not cached: it is for another machine, or was never pulled."""
    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"
    MISMATCH = "mismatch"
    """Its files are intact, and are not what the lock describes."""


@dataclass(frozen=True, slots=True)
class VerifiedArtifact:
    """Outcome of the verification of one locked artifact.

    Attributes:
        reference: The locked reference.
        version: Number of the version.
        target: The target.
        state: The outcome.
        files: The blobs that are damaged or missing.
        bytes: How many bytes were hashed.
        reason: What does not match, or None.
    """

    reference: str
    version: int
    target: str
    state: FileState
    files: tuple[str, ...] = ()
    bytes: int = 0
    reason: str | None = None


def require_targets(lock: Lock, targets: Sequence[str], *, where: str) -> None:
    """Check that each of these targets is locked for some reference, and each reference for some of them.

    Args:
        where: Where the targets are named, for errors.

    Raises:
        NotFound: One is not.
    """
    known = sorted({target for locked in lock.models for target in locked.targets})
    if unknown := sorted(set(targets) - set(known)):
        raise NotFound(
            f"Nothing is locked for {', '.join(unknown)}",
            where=where,
            hint=f"Locked targets: {', '.join(known) or 'none'}.",
        )
    for locked in lock.models:
        if targets and not set(targets) & set(locked.targets):
            raise NotFound(
                f"{locked.reference} is not locked for {', '.join(targets)}",
                where=where,
                hint=f"Locked targets: {', '.join(locked.targets)}.",
            )


def verify_lock(lock: Lock, cache: BlobCache, targets: Sequence[str] = ()) -> Iterator[VerifiedArtifact]:
    """Hash every cached file of a lock.

    Args:
        targets: Only these targets; all where omitted.

    Raises:
        NotFound: Nothing is locked for a target, or a reference for none of them.
    """
    require_targets(lock, targets, where="targets")
    for locked in lock.models:
        for artifact in locked.artifacts:
            if not targets or artifact.target in targets:
                yield _verify(locked, artifact, cache)


def find_failures(found: Sequence[VerifiedArtifact], *, required: Sequence[str] = ()) -> list[str]:
    """Return the references with a damaged or incomplete artifact, or without any verified one.

    Args:
        required: Targets of which each locked artifact must be there.
    """
    failed = {item.reference for item in found if item.state not in (FileState.VERIFIED, FileState.ABSENT)}
    failed |= {item.reference for item in found if item.state is FileState.ABSENT and item.target in required}
    whole = {item.reference for item in found if item.state is FileState.VERIFIED}
    return sorted(failed | ({item.reference for item in found} - whole))


def _verify(locked: LockedModel, artifact: LockedArtifact, cache: BlobCache) -> VerifiedArtifact:
    files = {f"files.{item.name}": item for item in locked.files if cache.holds(item.digest)}
    blobs: dict[str, LockedBlob | LockedFile] = {**artifact.blobs, **files}  # a pull may have left files out
    there = {name: cache.holds(blob.digest) for name, blob in blobs.items()}
    whole = {
        name: path
        for name, blob in blobs.items()
        if there[name] and (path := cache.find(blob.digest, verify="always"))
    }
    state, wrong, reason = FileState.VERIFIED, tuple[str, ...](), None
    if damaged := tuple(name for name, is_there in there.items() if is_there and name not in whole):
        state, wrong = FileState.DAMAGED, damaged
    elif {"manifest", "config"} <= whole.keys() and (reason := _mismatch(locked, artifact, whole)):
        state = FileState.MISMATCH  # before missing files: one that the lock names wrongly is never found
    elif not there["code"]:
        state = FileState.ABSENT
    elif missing := tuple(name for name, is_there in there.items() if not is_there):
        state, wrong = FileState.INCOMPLETE, missing
    hashed = sum(path.stat().st_size for path in whole.values())
    return VerifiedArtifact(locked.reference, locked.version, artifact.target, state, wrong, hashed, reason)


def _mismatch(locked: LockedModel, artifact: LockedArtifact, paths: dict[str, Path]) -> str | None:
    try:
        manifest = decode(Manifest, json.loads(paths["manifest"].read_bytes()))
        config = decode(ArtifactConfig, json.loads(paths["config"].read_bytes()))
        locked.check(artifact.manifest.digest, paths["manifest"].stat().st_size, manifest, config)
    except LockMismatch as exc:
        return "; ".join(f"{item.path} {item.message}" for item in exc.details)
    except (ValueError, RecursionError, BadResponse) as exc:
        return str(exc)
    return None
