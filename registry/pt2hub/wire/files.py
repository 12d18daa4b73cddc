"""Attached files of versions."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal


@dataclass(frozen=True, slots=True)
class FileView:
    """An attached file of a version.

    Attributes:
        name: Its name.
        kind: What it is for: `tokenizer`, `labels`, `preprocessing`, `calibration` or `other`; or documentation, which
            can change: `card`, `license`, `example` or `document`.
        media_type: Media type, as its publisher says.
        digest: Digest of the content.
        size: Size in bytes.
        pinned: Whether the version's artifacts have it, so that digests and lock files pin it; others were attached later.
    """

    name: str
    kind: str
    media_type: str
    digest: Digest
    size: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class FileList:
    """The attached files of a version.

    Attributes:
        files: The files, by name.
        changed_by: Who changed the documentation last; None if it is as it was published, or by nobody known.
        changed_at: When it was, ISO 8601, UTC; None if it is as it was published.
    """

    files: tuple[FileView, ...]
    changed_by: Principal | None = None
    changed_at: str | None = None
