"""Resolution of references and digests to artifacts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import Region
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference, parse_model_name
from pt2hub.errors import Ambiguous, BlobDamaged, Detail, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.ports import PresignedTransfers
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.artifacts.references import ReferenceStore, ResolvedName
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services import not_found
from pt2hub.server.services.artifacts.referrers import kept_profiles
from pt2hub.server.services.blobs.damage import DamageService
from pt2hub.server.services.blobs.documents import read_bytes, read_json
from pt2hub.wire.artifacts import ArtifactView, RegionView
from pt2hub.wire.resolution import ResolvedReference

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.errors import Pt2hubError
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.artifacts.artifacts import ArtifactOwner

_WHERE = "reference"


class ResolutionService:
    """Resolves references, and reads manifests and artifacts."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage
        self._damage = DamageService(sessions, storage)
        self._references = ReferenceStore(sessions.reader)
        self._location = storage.location if isinstance(storage, PresignedTransfers) else None

    def resolve(self, reference: str) -> ResolvedReference:
        """Return the version that a reference names, and its artifacts.

        One round trip to the database on success; further queries only explain a failure.

        Args:
            reference: `team/name`, `team/name@3`, `team/name@prod`, `team/name@sha256:...`.

        Raises:
            InvalidInput: The reference is malformed.
            NotFound: The model, version, alias or artifact does not exist; the hint has suggestions.
            NotReady: The version has no artifact yet.
            Ambiguous: The digest prefix matches several artifacts.
        """
        wanted = Reference.parse(reference)
        found = self._artifact(wanted) if wanted.digest_start else self._version(wanted)
        return ResolvedReference(
            reference,
            wanted.model,
            found.number,
            found.artifacts,
            wanted.alias,
            self._location,
            found.yanked,
        )

    def manifest(self, model: str, digest: Digest) -> tuple[bytes, ArtifactOwner]:
        """Return the exact bytes of a manifest, of an artifact of the model or of a referrer, and its version.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The model has no such manifest.
        """
        with self._sessions.begin() as session:
            owner = ArtifactStore(session).owner(parse_model_name(model), digest)
            if owner is None:
                raise _no_artifact(session, model, digest)
        return read_bytes(self._storage, StorageKey.manifest(digest)), owner

    def artifact(self, digest: Digest) -> ArtifactView:
        """Return an artifact with its database rows, manifest and config; damaged ones are left out and listed.

        Raises:
            NotFound: The artifact does not exist.
            Deleted: It was deleted.
        """
        with self._sessions.begin() as session:
            rows = ArtifactStore(session).rows(digest)
            if rows is None:
                raise not_found.deleted_artifact(session, digest) or NotFound(
                    f"Artifact {digest[:80]} not found", where="artifact"
                )
            measurement = MeasurementStateStore(session).of([digest]).get(digest)
        config = self._read(StorageKey.blob(Digest(rows["config"])))
        manifest = self._read(StorageKey.manifest(digest))
        kinds = ((item["digest"], item["artifact_type"]) for item in rows["referrers"])
        profiles = kept_profiles(self._storage, kinds)
        whole = {
            **rows,
            "steps": config.get("steps", []),
            "regions": _regions(config),
            "weights_form": "baked" if config.get("constants", {}).get("baked") else "split",
            "manifest": manifest,
            "config_digest": rows["config"],
            "config": config,
        }
        return replace(
            decode(ArtifactView, whole),
            profile=profiles.artifact,
            torch_compile_profile=profiles.torch_compile,
            measurement=measurement,
            damaged=self._damage.parts([digest]).get(digest, ()),
        )

    def _read(self, key: StorageKey) -> dict[str, Any]:
        """Return a stored document; empty if it is damaged, which is recorded."""
        try:
            document: dict[str, Any] = read_json(self._storage, key)
        except (BlobDamaged, NotFound) as error:
            explained = self._damage.explain(error)
            if not isinstance(explained, BlobDamaged):
                raise
            return {}
        return document

    def _version(self, wanted: Reference) -> ResolvedName:
        found = self._references.version(wanted)
        if found and found.artifacts:
            return found
        with self._sessions.begin() as session:
            raise _missing_version(session, wanted, found)

    def _artifact(self, wanted: Reference) -> ResolvedName:
        candidates = self._references.artifacts(wanted)
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise _ambiguous(wanted, candidates)
        with self._sessions.begin() as session:
            raise _no_artifact(session, wanted.model, wanted.digest_start)


def _regions(config: dict[str, Any]) -> list[dict[str, Any]]:
    regions = decode(tuple[Region, ...], config.get("regions", []), where="regions")
    return [encode(RegionView.of(item)) for item in regions]


def _missing_version(session: Session, wanted: Reference, found: ResolvedName | None) -> Pt2hubError:
    if found:
        version = VersionStore(session).by_number(wanted.model, found.number)
        if version is None:  # deleted a moment ago
            return not_found.no_version(session, wanted.model, found.number, where=_WHERE)
        return not_found.not_ready(session, version, where=_WHERE)
    if wanted.alias:
        return not_found.no_alias(session, wanted.model, wanted.alias, where=_WHERE)
    if wanted.number:
        return not_found.no_version(session, wanted.model, wanted.number, where=_WHERE)
    return not_found.none_ready(session, wanted.model, where=_WHERE)


def _no_artifact(session: Session, model: str, digest: str) -> NotFound:
    if deleted := not_found.no_artifact(session, model, digest, where=_WHERE):
        return deleted
    if VersionStore(session).newest(model) is None:
        return not_found.no_model(session, model, where=_WHERE)
    owner = ArtifactStore(session).model_of(digest)
    hint = (
        f"It belongs to {owner}: use {owner}@{digest}."
        if owner and readable().covers(owner)
        else f"pt2hub versions {model} lists its versions."
    )
    return NotFound(f"Artifact {digest} not found in {model}", where=_WHERE, hint=hint)


def _ambiguous(wanted: Reference, candidates: list[ResolvedName]) -> Ambiguous:
    refs = [(named.number, ref) for named in candidates for ref in named.artifacts]
    return Ambiguous(
        f"Ambiguous digest: {wanted.prefix} matches several artifacts of {wanted.model}",
        where=_WHERE,
        hint="Use more digits.",
        details=tuple(
            Detail(ref.digest, f"{wanted.model}@{number} for {ref.target}") for number, ref in refs
        ),
        context={
            "candidates": [
                {"number": number, "target": ref.target, "digest": ref.digest} for number, ref in refs
            ]
        },
    )
