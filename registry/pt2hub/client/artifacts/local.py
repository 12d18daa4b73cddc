"""An artifact whose files are on this machine."""

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
        """Return an artifact out of files that no manifest names yet, as the publish gate loads it."""
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
        """Where the code layer lies."""
        return self.code.parent

    def check_code(self) -> None:
        """Compare the code layer with its digest: a damaged library is a crash (SIGBUS) once it is mapped.

        Raises:
            NotFound: The file is gone.
            DigestMismatch: The file holds other bytes.
        """
        check_digest(self.code, self.code_digest)


def literals(artifact: LocalArtifact) -> bytes | None:
    """Return the constants that the export lifted out of the model's source, a safetensors file's bytes; None without any.

    Raises:
        CorruptArchive: The code layer is damaged.
        NotFound: It lacks them.
    """
    return archive.read_literals(artifact.config.constants, artifact.code)


def check_digest(path: Path, digest: Digest | None) -> None:
    """Check a file's digest; without one, only that the file exists.

    Raises:
        NotFound: The file is gone.
        DigestMismatch: The file holds other bytes.
    """
    if not path.is_file():
        raise NotFound("The file is gone", where=str(path), hint="Pull the artifact again.")
    if digest and (found := digest_file(path)) != digest:
        raise DigestMismatch(
            f"The file holds {found}, not {digest}",
            where=str(path),
            hint="Delete the file and pull the artifact again.",
        )
