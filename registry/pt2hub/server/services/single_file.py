"""The single `model.pt2` of an artifact, assembled from its layers while it is sent.

Nothing of the weights is copied to this machine's disk or held in memory: they are read from the storage in
the order of the file, chunk by chunk. The file ends with a checksum of the weights, so a part of it costs the
reading of all that stands before it, and a whole one is proven against the recorded digest before its last
piece leaves.
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
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.services.documents import read_config, read_manifest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from pt2hub.domain.artifacts import Manifest, SingleFile
    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions

_MOST_CODE = 1 << 30
"""1 GiB: the code layer is copied to a temporary file, and the largest seen has some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A single file that can be assembled.

    Attributes:
        config: The artifact's; `single_file` has the file's digest and size.
        code: The code layer.
        weights: The weights layer.
    """

    config: ArtifactConfig
    code: Descriptor
    weights: Descriptor

    @property
    def name(self) -> str:
        """What a person would call the file: `resnet18-3-torch2.13-cpu-x86_64_v3.pt2`."""
        version = self.config.version
        return f"{version.model.rpartition('/')[2]}-{version.number}-{self.config.target.name}.pt2"


class SingleFileService:
    """Assembles single files on request."""

    def __init__(self, sessions: Sessions, storage: Reads) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Holds manifests, configs and layers.
        """
        self._sessions = sessions
        self._storage = storage

    def find(self, digest: Digest) -> Assembly:
        """What is needed to assemble an artifact's single file; no layer is read.

        Raises:
            NotFound: There is no such artifact, it is made up, or a layer of it is gone from the storage.
            CorruptArchive: A layer is stored with another length than it was published with.
        """
        with self._sessions.begin() as session:
            if ArtifactStore(session).ref(digest) is None:
                raise NotFound(f"There is no artifact {digest}.", where="artifact")
        manifest = read_manifest(self._storage, digest)
        config = read_config(self._storage, manifest)
        if config.made_up:
            raise NotFound(
                "There is no such file: the artifact is made up, by pt2hub admin seed-demo.",
                where="artifact",
                hint="Models of teams that begin with demo- are there to be looked at; nothing of them can be pulled.",
            )
        return Assembly(config, self._layer(manifest, CODE_TYPE), self._layer(manifest, WEIGHTS_TYPE))

    def chunks(self, assembly: Assembly, start: int, stop: int) -> Iterator[bytes]:
        """A part of the file, in pieces.

        Args:
            assembly: The file.
            start: First byte.
            stop: First byte no longer wanted.

        Returns:
            The pieces; close it where not all are read. Where the stored weights turn out to be damaged, it
            raises before the last piece.

        Raises:
            CorruptArchive: A layer is damaged, as far as that shows before the first byte.
        """
        pieces = self._pieces(assembly, start, stop)
        next(pieces)
        return pieces

    def _pieces(self, assembly: Assembly, start: int, stop: int) -> Generator[bytes, None, None]:
        """Yields one empty piece when all that can be known before the first byte is known, then the part."""
        expected = assembly.config.single_file
        if assembly.code.digest == expected.digest:  # baked weights: the code layer is the file already
            stored = self._storage.read(StorageKey.blob(expected.digest))
            yield b""
            yield from _part(_proven(stored, expected), start, stop)
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
            yield from _part(_proven(whole, expected), start, stop)

    def _fetch_code(self, layer: Descriptor, path: Path) -> None:
        if layer.size > _MOST_CODE:
            raise CorruptArchive(
                f"The code layer has {layer.size} bytes, more than is assembled here.",
                where=layer.digest,
                hint="Assemble it on your machine: pt2hub pull -o model.pt2",
            )
        self._storage.fetch(StorageKey.blob(layer.digest), path)

    def _layer(self, manifest: Manifest, media_type: str) -> Descriptor:
        """A layer that is stored with the size that the manifest gives it."""
        layer = manifest.layer(media_type)
        if layer is None:
            raise CorruptArchive(f"The artifact's manifest has no layer {media_type}.", hint=_REPORT)
        stored = self._storage.size(StorageKey.blob(layer.digest))
        if stored is None:
            raise NotFound(
                "A layer of the artifact is gone from the storage.", where=layer.digest, hint=_REPORT
            )
        if stored != layer.size:
            raise CorruptArchive(
                f"A layer of the artifact has {stored} bytes in the storage where {layer.size} belong.",
                where=layer.digest,
                hint=_REPORT,
            )
        return layer


_REPORT = (
    "Tell the server's operator: the storage lost or changed what was published; restore it from a backup."
)


def _proven(pieces: Iterable[bytes], expected: SingleFile) -> Iterator[bytes]:
    """Passes a file on, one piece late, so that the last one never leaves where the digest is wrong.

    Raises:
        DigestMismatch: The file is not the one that the worker recorded.
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
    """The bytes from `start` to before `stop`; what comes after is not asked for."""
    at = 0
    for piece in pieces:
        part = piece[max(0, start - at) : stop - at]
        at += len(piece)
        if part:
            yield part
        if at >= stop:
            return
