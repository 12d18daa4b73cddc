"""Attached files as layers of manifests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import (
    CONFIG_LAYER_TYPE,
    DOCUMENT_LAYER_TYPE,
    FILE_KIND,
    FILE_MEDIA_TYPE,
    FILE_PATH,
    TITLE,
    Descriptor,
)
from pt2hub.domain.attached_files.kinds import BINARY, DOCUMENTATION_KINDS
from pt2hub.domain.attached_files.names import check_name, check_names, show_name
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import EmptyFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.artifacts import Manifest

_EMPTY_DIGEST = digest_bytes(b"")


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file of a version.

    Attributes:
        name: Its name, without folders.
        kind: A `FileKind`, or one of a newer pt2hub.
        media_type: Media type, as its publisher says; nothing relies on it.
        digest: Digest of the content.
        size: Size in bytes.
    """

    name: str
    kind: str
    media_type: str
    digest: Digest
    size: int

    @property
    def is_documentation(self) -> bool:
        """Whether people read it, and it can change after the publication."""
        return self.kind in DOCUMENTATION_KINDS

    def as_layer(self) -> Descriptor:
        """Return the descriptor of the file in a manifest."""
        annotations = {
            TITLE: self.name,
            FILE_PATH: self.name,
            FILE_KIND: self.kind,
            FILE_MEDIA_TYPE: self.media_type,
        }
        media_type = DOCUMENT_LAYER_TYPE if self.is_documentation else CONFIG_LAYER_TYPE
        return Descriptor(media_type, self.digest, self.size, annotations)


def published_files(pins: Mapping[str, Any]) -> tuple[AttachedFile, ...]:
    """Return the files that a version was published with, from its pins, by name."""
    return decode(tuple[AttachedFile, ...], pins.get("files", []), where="files")


def file_layers(pins: Mapping[str, Any]) -> tuple[Descriptor, ...]:
    """Return the layers that each artifact of a version has for the files that it was published with."""
    return tuple(item.as_layer() for item in published_files(pins))


def files_of(manifest: Manifest) -> tuple[AttachedFile, ...]:
    """Return the attached files among a manifest's layers, by name.

    Raises:
        InvalidInput: A name is one that no server of pt2hub accepts: it might lead out of a folder.
    """
    found = [
        AttachedFile(
            check_name(layer.annotations.get(TITLE, "")),
            layer.annotations[FILE_KIND],
            layer.annotations.get(FILE_MEDIA_TYPE, BINARY),
            layer.digest,
            layer.size,
        )
        for layer in manifest.files
    ]
    check_names([item.name for item in found])
    return tuple(sorted(found, key=lambda item: item.name))


def check_content(name: str, digest: Digest, size: int) -> None:
    """Refuse an empty file.

    Raises:
        EmptyFile: It is empty.
    """
    if size == 0 or digest == _EMPTY_DIGEST:
        raise EmptyFile(
            f"File {show_name(name)} is empty",
            where=f"files.{name[:80]}",
            hint="Leave it out, or write its content.",
        )
