"""Attached files under their own names: a folder of links to cached blobs for each artifact.

Libraries look for files by name, or take a folder, and blobs are named by digest.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pt2hub.domain.digests import hex_of
from pt2hub.places import make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pt2hub.domain.digests import Digest

FOLDER = "files"
_SHORT = 32
"""Digits of the digests that name folders."""


def link_files(root: Path, manifest: Digest, blobs: Mapping[str, Path]) -> dict[str, Path]:
    """Return paths that have the files' names, all in one folder.

    Where no links can be made (a read-only cache, or a system without them) they are the blobs' own.

    Args:
        root: The folder of this user's own cache.
        manifest: The artifact.
        blobs: Verified files by name; the names were checked (`domain.attached_files.names`).
    """
    folder = root / FOLDER / hex_of(manifest)[:_SHORT]
    with suppress(OSError):
        return {name: _link(folder / name, blob) for name, blob in blobs.items()}
    return dict(blobs)


def remove_broken_links(root: Path) -> None:
    """Remove the links to files that are in the cache no longer, and the folders that are empty then."""
    for link in (root / FOLDER).glob("*/*"):
        if link.is_symlink() and not link.exists():
            with suppress(OSError):
                link.unlink()
                link.parent.rmdir()  # fails while another link is there


def _link(link: Path, blob: Path) -> Path:
    blob = blob.absolute()
    if link.is_symlink() and link.readlink() == blob:
        return link
    for folder in (link.parent.parent, link.parent):
        make_folder(folder, 0o700)
    made = link.with_name(f".{os.urandom(4).hex()}")
    try:
        made.symlink_to(blob)
        made.replace(link)
    finally:
        made.unlink(missing_ok=True)
    return link
