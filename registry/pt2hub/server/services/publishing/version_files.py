"""Attached files of versions: reading them, and changing documentation after the publication.

Each change writes a manifest with all of the documentation, from which the rows are rebuilt. Artifacts and what pins
them stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.attached_files.files import AttachedFile, check_content, published_files
from pt2hub.domain.attached_files.kinds import check_media_type, kind_of, media_type_of, read_kind
from pt2hub.domain.attached_files.names import check_name, check_names
from pt2hub.domain.audit import Action
from pt2hub.domain.digests import Digest
from pt2hub.errors import Conflict, FileFixed, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.publishing.documentation import (
    Documentation,
    DocumentationStore,
)
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.blobs.documentation_manifests import (
    compose_documentation,
    documentation_chunks,
    not_uploaded,
    read_change,
    refer_documentation,
)
from pt2hub.server.services.builds.quotas import TeamQuotas
from pt2hub.server.services.not_found import require_version
from pt2hub.server.services.suggestions import suggest_words
from pt2hub.wire.files import FileList, FileView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.limits import Limits
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.publishing.versions import StoredVersion
    from pt2hub.server.services.blobs.blob_writes import BlobService

_MAX_TRIES = 8
"""Changes at the same time by others; each of them made one."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to add to a version.

    Attributes:
        kind: What it is for; what its name suggests if None.
        media_type: Media type; what its name suggests if None.
    """

    name: str
    digest: Digest
    kind: str | None = None
    media_type: str | None = None


class VersionFileService:
    """Attached files of versions."""

    def __init__(self, sessions: Sessions, storage: BlobReader, blobs: BlobService, limits: Limits) -> None:
        self._sessions = sessions
        self._storage = storage
        self._blobs = blobs
        self._limits = limits

    def files(self, model: str, number: int) -> FileList:
        """Return the files of a version, by name.

        Raises:
            NotFound: The version does not exist.
        """
        with self._sessions.begin() as session:
            version = require_version(session, model, number)
            return list_files(version, DocumentationStore(session).of(version))

    def file(self, model: str, number: int, name: str) -> FileView:
        """Return a file of a version.

        Raises:
            NotFound: The version or the file does not exist.
        """
        found = self.files(model, number).files
        for item in found:
            if item.name == name:
                return item
        raise _no_file(f"{model}@{number}", name, [item.name for item in found])

    def put(self, model: str, number: int, new: NewFile, *, by: Actor) -> FileList:
        """Add a documentation file to a version, or replace it; its bytes were uploaded before.

        Raises:
            InvalidInput: Name, kind or media type is malformed, or the file is empty; each has its own code.
            FileFixed: The file is not documentation, or its name belongs to a file that is not.
            NotFound: The version does not exist, or the bytes were not uploaded.
            QuotaExceeded: The team stores too much.
        """
        check_name(new.name)
        version, file = self._version(model, number), self._describe(new)
        if not file.is_documentation:
            raise _fixed(
                version, file.name, f"A file of the kind {file.kind} cannot be added after the publication"
            )
        self.attach(version, (file,), by=by)
        return self.files(model, number)

    def attach(self, version: StoredVersion, files: Sequence[AttachedFile], *, by: Actor) -> None:
        """Add documentation files to a version, or replace those with the same names; errors as for `put`."""
        self._change(version, lambda now: _replace(now, files), by)

    def remove(self, model: str, number: int, name: str, *, by: Actor) -> FileList:
        """Remove a documentation file from a version; what is pinned still has it.

        Raises:
            FileFixed: The file is not documentation.
            NotFound: The version or the file does not exist.
        """
        version = self._version(model, number)
        found = self.file(model, number, name)
        if any(item.name == name and not item.is_documentation for item in published_files(version.pins)):
            raise _fixed(version, name, f"A file of the kind {found.kind} cannot be removed")
        self._change(version, lambda now: tuple(item for item in now if item.name != name), by)
        return self.files(model, number)

    def _describe(self, new: NewFile) -> AttachedFile:
        kind = read_kind(new.kind, "kind") if new.kind else kind_of(new.name)
        given = new.media_type
        media_type = check_media_type(given, "media_type") if given else media_type_of(new.name)
        size = self._storage.size(StorageKey.blob(new.digest))
        if size is None:
            raise not_uploaded(new.digest)
        check_content(new.name, new.digest, size)
        return AttachedFile(new.name, str(kind), media_type, new.digest, size)

    def _version(self, model: str, number: int) -> StoredVersion:
        with self._sessions.begin() as session:
            return require_version(session, model, number)

    def _change(
        self,
        version: StoredVersion,
        edit: Callable[[tuple[AttachedFile, ...]], tuple[AttachedFile, ...]],
        by: Actor,
    ) -> None:
        """Replace the documentation by an edit of it; if others change it at the same time, edit theirs."""
        for _ in range(_MAX_TRIES):
            with self._sessions.begin() as session:
                before = DocumentationStore(session).of(version)
            files = tuple(sorted(edit(before.files), key=lambda item: item.name))
            if files == before.files:
                return
            _check_beside(version, files)
            manifest = compose_documentation(version, files, before.revision + 1, by)
            holder = f"documentation:{version.id}:{before.revision + 1}"
            self._blobs.store(documentation_chunks(manifest), holder=holder)
            with self._sessions.begin() as session:
                quotas = TeamQuotas(session, self._limits)
                quotas.lock(version.model)
                if not DocumentationStore(session).replace(version.id, read_change(manifest)):
                    continue
                if _size(files) > _size(before.files):
                    quotas.check_bytes(version.model)
                _record(session, by, version, manifest.digest, before.files, files)
                refer_documentation(session, version.id, manifest, before=before.files)
                BlobStore(session).drop(holder)
                return
        raise Conflict(
            "Others keep changing the documentation",
            where=f"{version.model}@{version.number}",
            hint="Try again.",
        )


def check_attachable(
    session: Session, version: StoredVersion, files: Sequence[AttachedFile], quotas: TeamQuotas
) -> None:
    """Check documentation that a submission adds to an existing version, before anything is written.

    Raises:
        FileFixed: A name belongs to a file that is not documentation.
        InvalidInput: Names collide with those of other files, or there are too many.
        QuotaExceeded: The team stores too much.
    """
    before = DocumentationStore(session).of(version).files
    after = _replace(before, files)
    _check_beside(version, after)
    if _size(after) > _size(before):
        quotas.check_bytes(version.model)


def _replace(now: Sequence[AttachedFile], files: Sequence[AttachedFile]) -> tuple[AttachedFile, ...]:
    """Return documentation with some files added or replaced."""
    names = {item.name for item in files}
    return (*(item for item in now if item.name not in names), *files)


def list_files(version: StoredVersion, documentation: Documentation) -> FileList:
    """Return the files of a version, by name."""
    published = published_files(version.pins)
    now = [*(item for item in published if not item.is_documentation), *documentation.files]
    views = tuple(
        FileView(item.name, item.kind, item.media_type, item.digest, item.size, pinned=item in published)
        for item in sorted(now, key=lambda item: item.name)
    )
    return FileList(views, documentation.changed_by, documentation.changed_at)


def _check_beside(version: StoredVersion, files: Sequence[AttachedFile]) -> None:
    """Check the names of documentation, also beside the files that never change."""
    fixed = [item.name for item in published_files(version.pins) if not item.is_documentation]
    for item in files:
        if item.name in fixed:
            raise _fixed(version, item.name, "The name belongs to a file that never changes")
    check_names([*fixed, *(item.name for item in files)])


def _size(files: Sequence[AttachedFile]) -> int:
    return sum(item.size for item in files)


def _record(
    session: Session,
    by: Actor,
    version: StoredVersion,
    manifest: Digest,
    before: Sequence[AttachedFile],
    after: Sequence[AttachedFile],
) -> None:
    old, new = ({item.name: item.digest for item in files} for files in (before, after))
    changed = sorted(name for name in old | new if old.get(name) != new.get(name))
    audit_log.record(
        session,
        by,
        Action.VERSION_ATTACH if new.keys() & set(changed) else Action.VERSION_DETACH,
        f"{version.model}@{version.number}",
        models=[version.model],
        manifest=manifest,  # a reindex knows by it that the change was accepted
        before={name: old[name] for name in changed if name in old},
        after={name: new[name] for name in changed if name in new},
    )


def _fixed(version: StoredVersion, name: str, reason: str) -> FileFixed:
    return FileFixed(
        reason,
        where=f"files.{name[:80]}",
        hint=f"Publish another version with it. Of {version.model}@{version.number}, documentation can be changed: files of "
        "the kinds card, license, example and document.",
    )


def _no_file(where: str, name: str, names: Sequence[str]) -> NotFound:
    near = suggest_words(name[:200], names)
    listed = f"Did you mean {' or '.join(near)}?" if near else f"Its files: {', '.join(names) or 'none'}."
    return NotFound(f"File {name[:80]!a} not found", where=where, hint=listed)
