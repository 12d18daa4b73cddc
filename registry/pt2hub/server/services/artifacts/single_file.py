"""Assembly of an artifact's single `model.pt2` from its layers, while it is sent.

Weights are neither copied to disk nor held in memory: they are read from storage in the file's order, chunk by chunk.
The file ends with a checksum of the weights, so a range request reads everything before the range, and a whole file is
verified against the recorded digest before its last piece is sent.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.domain.artifacts import CODE_NAME, CODE_TYPE, WEIGHTS_TYPE, ArtifactConfig, Descriptor
from pt2hub.errors import CorruptArchive, DigestMismatch, LayoutUnproven, NotFound, WeightsMismatch
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.sources import StoredSource
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.services.blobs.documents import read_config, read_manifest
from pt2hub.server.services.not_found import deleted_artifact

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from pt2hub.domain.artifacts import Manifest, SingleFile
    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions

_MAX_CODE_BYTES = 1 << 30
"""1 GiB: the code layer is copied to a temporary file; the largest known ones have some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The config and layers from which a single file is assembled."""

    config: ArtifactConfig
    code: Descriptor
    weights: Descriptor

    @property
    def name(self) -> str:
        """File name for downloads: `resnet18-3-torch2.13-cpu-x86_64_v3.pt2`."""
        version = self.config.version
        return f"{version.model.rpartition('/')[2]}-{version.number}-{self.config.target.name}.pt2"


class SingleFileService:
    """Assembles single files on request."""

    def __init__(self, sessions: Sessions, storage: BlobReader) -> None:
        self._sessions = sessions
        self._storage = storage

    def find(self, digest: Digest) -> Assembly:
        """Prepare the assembly of an artifact's single file; no layer is read.

        Raises:
            NotFound: The artifact does not exist, or a layer is missing from storage.
            CorruptArchive: A layer's stored size differs from the published one.
        """
        with self._sessions.begin() as session:
            if ArtifactStore(session).ref(digest) is None:
                raise deleted_artifact(session, digest) or NotFound(
                    f"Artifact {digest} not found", where="artifact"
                )
        manifest = read_manifest(self._storage, digest)
        config = read_config(self._storage, manifest)
        return Assembly(config, self._layer(manifest, CODE_TYPE), self._layer(manifest, WEIGHTS_TYPE))

    def chunks(self, assembly: Assembly, start: int, stop: int) -> Iterator[bytes]:
        """Return an iterator over a byte range of the file.

        Args:
            start: First byte.
            stop: End of the range, exclusive.

        Returns:
            The pieces; close it if not all are read. If the stored weights are damaged, it raises before the last
            piece.

        Raises:
            CorruptArchive: A layer is damaged and this is detected before the first byte.
        """
        pieces = self._pieces(assembly, start, stop)
        next(pieces)
        return pieces

    def _pieces(self, assembly: Assembly, start: int, stop: int) -> Generator[bytes, None, None]:
        """Yield an empty piece after all checks that precede the first byte, then the range."""
        expected = assembly.config.single_file
        if assembly.code.digest == expected.digest:  # baked weights: the code layer is the file already
            stored = self._storage.read(StorageKey.blob(expected.digest))
            yield b""
            yield from _part(_verify_digest(stored, expected), start, stop)
            return
        constants = assembly.config.constants
        with tempfile.TemporaryDirectory(prefix="pt2hub-single-") as folder:
            code = Path(folder) / CODE_NAME
            try:
                self._fetch_code(assembly.code, code)
                weights = StoredSource(
                    self._storage, StorageKey.blob(assembly.weights.digest), assembly.weights.size
                )
                blob = archive.blob_chunks(constants, weights, archive.read_literals(constants, code))
                first = next(blob, b"")  # checks the whole layout against the weights' header
            except (DigestMismatch, LayoutUnproven, WeightsMismatch) as exc:
                raise CorruptArchive(
                    f"The stored artifact is damaged: {exc.message}", where=exc.where, hint=_REPORT
                ) from exc
            yield b""
            whole = archive.assemble(code, constants.blob_member, chain([first], blob), constants.blob_size)
            yield from _part(_verify_digest(whole, expected), start, stop)

    def _fetch_code(self, layer: Descriptor, path: Path) -> None:
        if layer.size > _MAX_CODE_BYTES:
            raise CorruptArchive(
                f"The code layer is too large to assemble on the server ({layer.size} bytes, "
                f"at most {_MAX_CODE_BYTES}).",
                where=layer.digest,
                hint="Assemble the file on your machine: pt2hub pull -o model.pt2",
            )
        self._storage.fetch(StorageKey.blob(layer.digest), path)

    def _layer(self, manifest: Manifest, media_type: str) -> Descriptor:
        """Return a layer, whose stored size must match the manifest."""
        layer = manifest.layer(media_type)
        if layer is None:
            raise CorruptArchive(f"The artifact's manifest has no layer {media_type}.", hint=_REPORT)
        stored = self._storage.size(StorageKey.blob(layer.digest))
        if stored is None:
            raise NotFound(
                "A layer of the artifact is missing from storage.",
                where=layer.digest,
                hint=_REPORT,
                context={"kind": "blobs"},  # whoever answers says if it is known to be damaged
            )
        if stored != layer.size:
            raise CorruptArchive(
                f"A layer of the artifact has {stored} bytes in storage, but must have {layer.size}.",
                where=layer.digest,
                hint=_REPORT,
            )
        return layer


_REPORT = "Report it to the server's operator: published data was lost or changed in storage; restore it from a backup."


def _verify_digest(pieces: Iterable[bytes], expected: SingleFile) -> Iterator[bytes]:
    """Yield a file's pieces one piece late, so that the last one is not sent if the digest is wrong.

    Raises:
        DigestMismatch: The file's digest differs from the one that the worker recorded.
    """
    hasher = hashlib.sha256()
    held = b""
    for piece in pieces:
        hasher.update(piece)
        yield held
        held = piece
    found = f"sha256:{hasher.hexdigest()}"
    if found != expected.digest:
        raise DigestMismatch(
            f"The assembled file has the digest {found}.", where=expected.digest, hint=_REPORT
        )
    yield held


def _part(pieces: Iterable[bytes], start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to before `stop`, without reading further."""
    at = 0
    for piece in pieces:
        part = piece[max(0, start - at) : stop - at]
        at += len(piece)
        if part:
            yield part
        if at >= stop:
            return
