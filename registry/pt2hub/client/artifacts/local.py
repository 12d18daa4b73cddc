"""An artifact with local files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pt2hub import archive
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.digests import Digest, digest_file
from pt2hub.errors import DigestMismatch, NotFound
from pt2hub.renderable import Renderable, Sheet


@dataclass(frozen=True, slots=True, repr=False)
class LocalArtifact(Renderable):
    """An artifact and its files.

    Attributes:
        manifest_digest: The artifact's identity, None for files that are not published yet.
        code_digest: The code layer's digest, hashed again on every load where known.
        weights_digest: The weights layer's digest; the cache says when it is hashed again.
    """

    config: ArtifactConfig
    code: Path
    weights: Path
    manifest_digest: Digest | None = None
    code_digest: Digest | None = None
    weights_digest: Digest | None = None

    @classmethod
    def from_files(cls, config: ArtifactConfig, code: Path, weights: Path) -> LocalArtifact:
        """Return an artifact from files without a manifest, for verification before publishing."""
        return cls(config=config, code=code, weights=weights)

    def _sheet(self) -> Sheet:
        version = self.config.version
        name = f"{version.model}@{version.number}"
        pinned = f"{version.model}@{self.manifest_digest}" if self.manifest_digest else name
        weights = "baked into the code" if self.config.constants.baked else str(self.weights)
        rows = (("code", str(self.code)), ("weights", weights))
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
        raise NotFound("File not found", where=str(path), hint="Pull the artifact again.")
    if digest and (found := digest_file(path)) != digest:
        raise DigestMismatch(
            f"The file's digest is {found}, not {digest}",
            where=str(path),
            hint="Delete the file and pull the artifact again.",
        )
