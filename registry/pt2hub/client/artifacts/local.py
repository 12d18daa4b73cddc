"""An artifact with local files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.client.artifacts.pulled_files import PulledFiles
from pt2hub.client.blobs.records import Stamp, stamp
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.digests import Digest, digest_file
from pt2hub.errors import DigestMismatch, NotFound
from pt2hub.renderable import Renderable, Sheet

if TYPE_CHECKING:
    from io import BufferedReader


@dataclass(frozen=True, slots=True, repr=False)
class LocalArtifact(Renderable):
    """An artifact and its files.

    Attributes:
        manifest_digest: The artifact's identity, None for files that are not published yet.
        code_digest: The code layer's digest, hashed again on every load where known.
        weights_digest: The weights layer's digest; the cache says when it is hashed again.
        weights_stamp: How the weights file looked when it was verified, None for files that nothing verified.
        files: Paths of the attached files by name, all in one folder; empty if they were not pulled.
    """

    config: ArtifactConfig
    code: Path
    weights: Path
    manifest_digest: Digest | None = None
    code_digest: Digest | None = None
    weights_digest: Digest | None = None
    weights_stamp: Stamp | None = None
    files: Mapping[str, Path] = field(default_factory=PulledFiles)

    @classmethod
    def from_files(cls, config: ArtifactConfig, code: Path, weights: Path) -> LocalArtifact:
        """Return an artifact from files without a manifest, for verification before publishing."""
        return cls(config=config, code=code, weights=weights)

    def _sheet(self) -> Sheet:
        version = self.config.version
        name = f"{version.model}@{version.number}"
        pinned = f"{version.model}@{self.manifest_digest}" if self.manifest_digest else name
        weights = "baked into the code" if self.config.constants.baked else str(self.weights)
        files = ((f"file {name}", str(path)) for name, path in self.files.items())
        rows = (("code", str(self.code)), ("weights", weights), *files)
        return Sheet(f"{name} for {self.config.target}", rows, (f'To use it: pt2hub.load("{pinned}")',))

    __repr__ = Renderable.__str__  # what a prompt shows; the config alone would fill a screen

    @property
    def directory(self) -> Path:
        """Path of the code layer."""
        return self.code.parent

    def check_code(self) -> None:
        """Check the code layer's digest: a damaged library would crash the process (SIGBUS) once mapped.

        Raises:
            NotFound: File not found.
            DigestMismatch: The file holds other bytes.
        """
        check_digest(self.code, self.code_digest)

    def open_weights(self) -> BufferedReader:
        """Open the weights file, which must be the one that was pulled.

        Raises:
            NotFound: File not found.
            DigestMismatch: The file was changed since.
        """
        try:
            file = self.weights.open("rb")
        except OSError as exc:
            raise _missing(self.weights) from exc
        try:
            if self.weights_stamp and stamp(os.fstat(file.fileno())) != self.weights_stamp:
                self._check_weights(file)  # they changed, or were only touched
        except BaseException:
            file.close()
            raise
        return file

    def _check_weights(self, file: BufferedReader) -> None:
        found = Digest(f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}")
        if self.weights_digest and found != self.weights_digest:
            raise _changed(self.weights, found, self.weights_digest)


def literals(artifact: LocalArtifact) -> bytes | None:
    """Return the constants that the export lifted, as safetensors bytes; None if there are none.

    Raises:
        CorruptArchive: The code layer is damaged.
        NotFound: It lacks them.
    """
    return archive.read_literals(artifact.config.constants, artifact.code)


def check_digest(path: Path, digest: Digest | None) -> None:
    """Check a file's digest; without a digest, only check that the file exists.

    Raises:
        NotFound: File not found.
        DigestMismatch: The file holds other bytes.
    """
    if not path.is_file():
        raise _missing(path)
    if digest and (found := digest_file(path)) != digest:
        raise _changed(path, found, digest)


def _missing(path: Path) -> NotFound:
    return NotFound("File not found", where=str(path), hint="Pull the artifact again.")


def _changed(path: Path, found: Digest, digest: Digest) -> DigestMismatch:
    return DigestMismatch(
        f"The file's digest is {found}, not {digest}",
        where=str(path),
        hint="Delete the file and pull the artifact again.",
    )
