"""From references and digests to artifacts."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import readiness
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference, parse_model_name
from pt2hub.errors import NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.versions import StoredVersion, VersionStore
from pt2hub.server.services.documents import read_bytes, read_json
from pt2hub.wire.shapes import ArtifactRef, Resolved

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions


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

    def resolve(self, reference: str) -> Resolved:
        """The version that a reference names, and its artifacts.

        Args:
            reference: `team/name`, `team/name@3` or `team/name@sha256:...`.

        Raises:
            InvalidInput: The text is no reference.
            NotFound: It names nothing that can be pulled.
        """
        wanted = Reference.parse(reference)
        with self._sessions.begin() as session:
            if wanted.digest:
                number, artifacts = _by_digest(session, wanted.model, wanted.digest)
            else:
                version = _version(session, wanted)
                number, artifacts = version.number, _artifacts(session, version)
        return Resolved(reference=reference, model=wanted.model, number=number, artifacts=tuple(artifacts))

    def manifest(self, model: str, digest: Digest) -> bytes:
        """A manifest, byte for byte: that of an artifact of the model, or of one of its referrers.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: The model has no such manifest.
        """
        with self._sessions.begin() as session:
            if ArtifactStore(session).owner(parse_model_name(model), digest) is None:
                raise _no_manifest(session, model, digest)
        return read_bytes(self._storage, StorageKey.manifest(digest))

    def artifact(self, digest: Digest) -> dict[str, Any]:
        """Everything known of an artifact: the rows of the database, its manifest, its config.

        Raises:
            NotFound: There is no such artifact.
        """
        with self._sessions.begin() as session:
            rows = ArtifactStore(session).rows(digest)
        if rows is None:
            raise NotFound(f"There is no artifact {digest[:80]}", where="artifact")
        config = read_json(self._storage, StorageKey.blob(Digest(rows["config"])))
        return {
            **rows,
            "steps": config.get("steps", []),
            "manifest": read_json(self._storage, StorageKey.manifest(digest)),
            "config_digest": rows["config"],
            "config": config,
        }


def _version(session: Session, wanted: Reference) -> StoredVersion:
    versions = VersionStore(session)
    if wanted.alias:
        found = None
    elif wanted.number:
        found = versions.by_number(wanted.model, wanted.number)
    else:
        found = versions.newest_ready(wanted.model)
    if found:
        return found
    newest = versions.newest(wanted.model)
    if newest is None:
        raise _no_model(session, wanted.model)
    if wanted.alias or wanted.number:
        raise NotFound(
            f"There is no version {wanted}",
            where="reference",
            hint=f"The newest version is {wanted.model}@{newest.number}.",
        )
    raise NotFound(
        f"No version of {wanted.model} is ready",
        where="reference",
        hint=f"The newest is {_standing(session, newest)}",
    )


def _artifacts(session: Session, version: StoredVersion) -> list[ArtifactRef]:
    artifacts = ArtifactStore(session).of_version(version.id)
    if not artifacts:
        raise NotFound(
            f"{version.model}@{version.number} has no artifact yet",
            where="reference",
            hint=f"It is {_standing(session, version)}",
        )
    return artifacts


def _by_digest(session: Session, model: str, digest: Digest) -> tuple[int, list[ArtifactRef]]:
    artifacts = ArtifactStore(session)
    number, ref = artifacts.owner(model, digest), artifacts.ref(digest)
    if number is None or ref is None:
        raise _no_manifest(session, model, digest)
    return number, [ref]


def _standing(session: Session, version: StoredVersion) -> str:
    builds = BuildStore(session)
    state = readiness(builds.first_submitted(version.id))
    each = ", ".join(f"{target} {state}" for target, state in builds.states(version.id))
    return f"{version.model}@{version.number}, {state} ({each})."


def _no_manifest(session: Session, model: str, digest: Digest) -> NotFound:
    if VersionStore(session).newest(model) is None:
        return _no_model(session, model)
    return NotFound(f"{model} has no artifact {digest}", where="reference")


def _no_model(session: Session, name: str) -> NotFound:
    models = VersionStore(session).models()
    near = difflib.get_close_matches(name, models)
    hint = f"Did you mean {' or '.join(near)}?" if near else "Publish one with pt2hub publish."
    return NotFound(f"There is no model {name}", where="reference", hint=hint, context={"near": near})
