"""Validation of a submission: the spec in itself, and against the files that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pt2hub.domain.attached_files.files import AttachedFile, check_content
from pt2hub.domain.digests import Digest
from pt2hub.domain.labels import check_labels
from pt2hub.domain.lineage import Derivation, parse_derivations
from pt2hub.domain.publishing.spec import CodeSource, ProgramSource, Spec
from pt2hub.errors import Detail, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.sources import StoredSource
from pt2hub.server.services.publishing.example_checks import check_tensors
from pt2hub.server.services.publishing.source_checks import check_source, check_uploaded
from pt2hub.server.services.publishing.spec_errors import parse_spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.server.blobs.ports import BlobReader


@dataclass(frozen=True, slots=True)
class ValidSubmission:
    """A spec that has passed validation.

    Attributes:
        blobs: Digest and size of every blob that the spec names, by path.
        labels: Its labels, in the form of their types.
        files: The attached files, by name.
        unread: Paths of the files that were too large to be read.
        derived_from: What it says that it is derived from.
    """

    spec: Spec
    blobs: dict[str, dict[str, Any]]
    files: tuple[AttachedFile, ...] = ()
    unread: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    derived_from: tuple[Derivation, ...] = ()

    @property
    def documentation(self) -> tuple[AttachedFile, ...]:
        """The attached files that may change later."""
        return tuple(item for item in self.files if item.is_documentation)


class SpecValidator:
    """Validates specs and the uploaded files that they name."""

    def __init__(self, storage: BlobReader, *, factories: Sequence[str]) -> None:
        self._storage = storage
        self._factories = factories

    def validate(self, document: Mapping[str, Any], *, largest_program: int | None = None) -> ValidSubmission:
        """Read a spec, and check it and its files; nothing is written.

        Args:
            largest_program: Larger programs are not read, bytes; None reads all.

        Raises:
            InvalidInput: Fields are wrong; often a subclass, see `spec_errors`.
            UnknownFactory: The factory's module is not on the operator's list.
            NotFound: The spec names a blob that was not uploaded.
            EmptyFile: An attached file is empty.
            BadCodeArchive: The code archive is malformed.
            UnknownEntry: The uploaded code lacks the entry's module.
            BadProgram: The program is malformed.
            ProgramNewer: A named target has an older torch than the program.
            UsageError: The uploaded program or its weights do not fit the spec, see `sources`.
        """
        spec = parse_spec(document)
        labels, derived_from = check_labels(spec.labels), parse_derivations(spec.derived_from)
        check_source(spec.source, self._factories)
        blobs = self._resolve_blobs(spec)
        attached = _attached(spec, blobs)
        files = self._open_blobs(blobs)
        check_tensors(spec, files)
        unread = _too_large(files, largest_program)
        if not unread:
            check_uploaded(spec, files)
        return ValidSubmission(spec, blobs, attached, unread, labels, derived_from)

    def _resolve_blobs(self, spec: Spec) -> dict[str, dict[str, Any]]:
        """Return digest and size of every blob the spec names, by path."""
        named = {
            "weights": spec.weights,
            "source.code": spec.source.code if isinstance(spec.source, CodeSource | ProgramSource) else None,
            "source.program": spec.source.program if isinstance(spec.source, ProgramSource) else None,
        } | {f"inputs[{index}].example": item.example for index, item in enumerate(spec.inputs)}
        named |= {file_path(name): item.digest for name, item in spec.files.items()}
        sizes = {
            path: (digest, self._storage.size(StorageKey.blob(Digest(digest))))
            for path, digest in named.items()
            if digest is not None
        }
        missing = {path: digest for path, (digest, size) in sizes.items() if size is None}
        if missing:
            raise not_uploaded(missing)
        return {path: {"digest": digest, "size": size} for path, (digest, size) in sizes.items()}

    def _open_blobs(self, blobs: Mapping[str, Mapping[str, Any]]) -> dict[str, StoredSource]:
        """Return readable sources of the blobs; a blob that is named twice is one source."""
        sizes = {blob["digest"]: blob["size"] for blob in blobs.values()}
        files = {
            digest: StoredSource(self._storage, StorageKey.blob(Digest(digest)), size)
            for digest, size in sizes.items()
        }
        return {path: files[blob["digest"]] for path, blob in blobs.items()}


def file_path(name: str) -> str:
    """Return the path of an attached file in the spec."""
    return f"files.{name}"


def _attached(spec: Spec, blobs: Mapping[str, Mapping[str, Any]]) -> tuple[AttachedFile, ...]:
    """Return the attached files of a spec with their sizes."""
    found = []
    for name, item in sorted(spec.files.items()):
        blob = blobs[file_path(name)]
        check_content(name, blob["digest"], blob["size"])
        found.append(AttachedFile(name, str(item.kind), item.media_type, blob["digest"], blob["size"]))
    return tuple(found)


def _too_large(files: Mapping[str, StoredSource], largest_program: int | None) -> tuple[str, ...]:
    program = files.get("source.program")
    return ("source.program",) if program and largest_program and program.size > largest_program else ()


def not_uploaded(missing: Mapping[str, str]) -> NotFound:
    """Return the error for blobs that a spec names and storage lacks, by path."""
    return NotFound(
        "The spec names a blob that was not uploaded",
        where=next(iter(missing)),
        hint="Upload it first: POST /api/v1/uploads, or PUT /api/v1/blobs/<digest> (pt2hub publish does it with "
        "--weights, --code and --program).",
        details=tuple(Detail(path, "not uploaded", given=digest) for path, digest in missing.items()),
    )
