"""From references and digests to artifacts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference, parse_model_name
from pt2hub.errors import Ambiguous, Detail, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.db.stores.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.references import Named, ReferenceStore
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services import missing
from pt2hub.server.services.documents import read_bytes, read_json
from pt2hub.server.services.referrers import kept_profile
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.resolution import Resolved

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.errors import Pt2hubError
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions


_WHERE = "reference"


class ResolveService:
    """What pulls and readers of artifacts ask."""

    def __init__(self, sessions: Sessions, storage: Reads) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Holds manifests and configs.
        """
        self._sessions = sessions
        self._storage = storage
        self._references = ReferenceStore(sessions.reader)

    def resolve(self, reference: str) -> Resolved:
        """The version that a reference names, and its artifacts.

        One round trip to the database where it names something; only what is missing is looked into further.

        Args:
            reference: `team/name`, `team/name@3`, `team/name@prod`, `team/name@sha256:...`.

        Raises:
            InvalidInput: The text is no reference.
            NotFound: There is no such model, version, alias or artifact; near ones are in the hint.
            NotReady: It names a version that has no artifact yet.
            Ambiguous: The beginning of a digest fits several artifacts.
        """
        wanted = Reference.parse(reference)
        found = self._artifact(wanted) if wanted.digest or wanted.prefix else self._version(wanted)
        return Resolved(reference, wanted.model, found.number, found.artifacts, alias=wanted.alias)

    def manifest(self, model: str, digest: Digest) -> bytes:
        """A manifest, byte for byte: that of an artifact of the model, or of one of its referrers.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: The model has no such manifest.
        """
        with self._sessions.begin() as session:
            if ArtifactStore(session).owner(parse_model_name(model), digest) is None:
                raise _no_artifact(session, model, digest)
        return read_bytes(self._storage, StorageKey.manifest(digest))

    def artifact(self, digest: Digest) -> ArtifactView:
        """Everything known of an artifact: the rows of the database, its manifest, its config.

        Raises:
            NotFound: There is no such artifact.
        """
        with self._sessions.begin() as session:
            rows = ArtifactStore(session).rows(digest)
            measurement = MeasurementStateStore(session).of([digest]).get(digest)
        if rows is None:
            raise NotFound(f"There is no artifact {digest[:80]}", where="artifact")
        config = read_json(self._storage, StorageKey.blob(Digest(rows["config"])))
        kinds = ((item["digest"], item["artifact_type"]) for item in rows["referrers"])
        profile, _ = kept_profile(self._storage, kinds)
        whole = {
            **rows,
            "steps": config.get("steps", []),
            "weights_form": "baked" if config.get("constants", {}).get("baked") else "split",
            "manifest": read_json(self._storage, StorageKey.manifest(digest)),
            "config_digest": rows["config"],
            "config": config,
        }
        return replace(decode(ArtifactView, whole), profile=profile, measurement=measurement)

    def _version(self, wanted: Reference) -> Named:
        found = self._references.version(wanted)
        if found and found.artifacts:
            return found
        with self._sessions.begin() as session:
            raise _missing_version(session, wanted, found)

    def _artifact(self, wanted: Reference) -> Named:
        candidates = self._references.artifacts(wanted)
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise _ambiguous(wanted, candidates)
        with self._sessions.begin() as session:
            raise _no_artifact(session, wanted.model, wanted.digest or wanted.prefix or "")


def _missing_version(session: Session, wanted: Reference, found: Named | None) -> Pt2hubError:
    if found:
        version = VersionStore(session).by_number(wanted.model, found.number)
        assert version is not None, "versions are never taken away"
        return missing.not_ready(session, version, where=_WHERE)
    if wanted.alias:
        return missing.no_alias(session, wanted.model, wanted.alias, where=_WHERE)
    if wanted.number:
        return missing.no_version(session, wanted.model, wanted.number, where=_WHERE)
    return missing.none_ready(session, wanted.model, where=_WHERE)


def _no_artifact(session: Session, model: str, digest: str) -> NotFound:
    if VersionStore(session).newest(model) is None:
        return missing.no_model(session, model, where=_WHERE)
    owner = ArtifactStore(session).model_of(digest)
    hint = (
        f"It belongs to {owner}: ask for {owner}@{digest}."
        if owner
        else f"pt2hub versions {model} lists what it has."
    )
    return NotFound(f"{model} has no artifact {digest}", where=_WHERE, hint=hint)


def _ambiguous(wanted: Reference, candidates: list[Named]) -> Ambiguous:
    refs = [(named.number, ref) for named in candidates for ref in named.artifacts]
    return Ambiguous(
        f"{wanted.prefix} begins the digests of several artifacts of {wanted.model}",
        where=_WHERE,
        hint="Write more of its digits.",
        details=tuple(
            Detail(ref.digest, f"{wanted.model}@{number} for {ref.target}") for number, ref in refs
        ),
        context={
            "candidates": [
                {"number": number, "target": ref.target, "digest": ref.digest} for number, ref in refs
            ]
        },
    )
