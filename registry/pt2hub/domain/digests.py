"""Content digests and canonical JSON."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NewType

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Digest = NewType("Digest", str)
"""`sha256:` and 64 lowercase hexadecimal digits, as in the OCI image specification."""

DIGEST_PATTERN = r"sha256:[0-9a-f]{64}"
CHUNK = 1 << 20
"""Bytes per read when hashing, large enough that Python's overhead is negligible."""


def hex_of(digest: Digest) -> str:
    """Return the 64 hexadecimal digits of a digest."""
    return digest.removeprefix("sha256:")


def digest_bytes(data: bytes) -> Digest:
    """Return the digest of a byte string."""
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def digest_chunks(chunks: Iterable[bytes | memoryview]) -> Digest:
    """Return the digest of a stream of byte strings."""
    hasher = hashlib.sha256()
    for chunk in chunks:
        hasher.update(chunk)
    return Digest("sha256:" + hasher.hexdigest())


def digest_file(path: Path) -> Digest:
    """Return the digest of a file."""
    with path.open("rb") as file:
        return Digest("sha256:" + hashlib.file_digest(file, "sha256").hexdigest())


def canonical_json(value: Any) -> bytes:
    """Return the canonical encoding of a JSON value: sorted keys, no spaces, UTF-8, no NaN.

    Equal values give equal bytes on every machine, so the digest identifies the value.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest_json(value: Any) -> Digest:
    """Return the digest of a value's canonical JSON."""
    return digest_bytes(canonical_json(value))
