"""Inspects an artifact's contents for display, within size limits; blob contents are untrusted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pt2hub.domain.artifacts import DEBUG_LOGS_TYPE, SOURCES_TYPE, ArtifactConfig
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.domain.publishing.spec_settings import find_setting, merge_settings
from pt2hub.errors import BadResponse, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.artifacts.code import ArtifactCodeStore
from pt2hub.server.db.stores.artifacts.inspection import InspectionStore
from pt2hub.server.db.stores.builds.build_views import BuildViewStore
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.performance.series import HistoryStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.artifacts.code_comparison import missing_autotune_reason, sentence
from pt2hub.server.services.artifacts.referrers import MAX_MANIFEST_BYTES, kept_profiles, payload
from pt2hub.server.services.blobs.documents import read_verified
from pt2hub.server.services.builds.waits import explain_waits
from pt2hub.server.services.not_found import deleted_artifact
from pt2hub.server.views.inspection import InspectionPart, InspectionView, StoredDocument
from pt2hub.wire.artifacts import ArtifactView, RegionView

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Descriptor
    from pt2hub.domain.performance.autotune import AutotuneChoice
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.inspection import MetricView

T = TypeVar("T")
MAX_CONFIG_BYTES = 4 << 20
"""4 MiB: a config of ten thousand constants; larger ones are only in the API."""
MAX_MEMBERS = 2000
MAX_FIGURES = 200
MAX_REFERRERS = 50
MAX_JOBS = 5
MAX_CANDIDATES = 300
MAX_ITEMS = 100
"""Of a list within a document; the API has the whole list."""
_DIGEST = re.compile(DIGEST_PATTERN)
_SHOWN = (NotFound, TooLarge, DigestMismatch)
"""Errors that the page shows as text; an unavailable storage fails the page."""


class InspectionService:
    """Contents of artifacts, for display."""

    def __init__(self, sessions: Sessions, storage: BlobReader, *, heartbeat_timeout: timedelta) -> None:
        self._sessions = sessions
        self._storage = storage
        self._heartbeat_timeout = heartbeat_timeout

    def artifact(
        self,
        digest: str,
        parts: Collection[InspectionPart] = frozenset(InspectionPart),
        *,
        tuned_after: int = 0,
    ) -> InspectionView:
        """Return the requested parts of an artifact; missing or damaged ones are replaced by a problem.

        Args:
            tuned_after: Cursor of the autotune candidates, from `tuned_next`.

        Raises:
            NotFound: The artifact does not exist.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            rows = _PartReader(session, facts, self._heartbeat_timeout, parts)
            lists, fields = rows.lists(), rows.fields()
            if InspectionPart.AUTOTUNE in parts:
                choices, tuning = rows.autotune(tuned_after)
                lists, fields = {**lists, "autotune": choices}, {**fields, **tuning}
        if InspectionPart.CONFIG in parts:
            config, raw = self._document(StorageKey.blob(Digest(facts["config"])), MAX_CONFIG_BYTES)
            parsed, constants = _parse_config(raw)
            fields |= {"config": config, "parsed": parsed, "constants": constants}
            lists |= _config_fields(parsed)
        if InspectionPart.MANIFEST in parts:
            fields["manifest"], _ = self._document(
                StorageKey.manifest(Digest(facts["digest"])), MAX_MANIFEST_BYTES
            )
        own = {"config_digest": facts["config"], "config": {}}
        artifact = decode(ArtifactView, {**facts, **lists, **own})
        if InspectionPart.PROFILES in parts:
            kinds = [(item.digest, item.artifact_type) for item in artifact.referrers]
            found = kept_profiles(self._storage, kinds)
            artifact = replace(artifact, profile=found.artifact, torch_compile_profile=found.torch_compile)
            fields["profile_problem"] = found.problem
        return InspectionView(artifact, **fields)

    def reference(self, digest: str) -> str:
        """Return the reference of an artifact: `team/name@sha256:...`.

        Raises:
            NotFound: The artifact does not exist.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
        return f"{facts['model']}@{digest}"

    def payload(self, digest: str, referrer: str) -> Descriptor:
        """Return the blob of an artifact's referrer.

        Raises:
            NotFound: The artifact or the referrer does not exist, or is missing from storage.
            CorruptArchive: The referrer names no blob.
        """
        with self._sessions.begin() as session:
            artifact_facts(session, digest)
            if not _DIGEST.fullmatch(referrer) or InspectionStore(session).refers(Digest(referrer)) != digest:
                raise NotFound(f"Referrer {referrer[:80]} not found", where="referrer")
        return payload(self._storage, Digest(referrer))

    def _document(self, key: StorageKey, most: int) -> tuple[StoredDocument, Any]:
        """Return a document for display, and its value."""
        try:
            data = read_verified(self._storage, key, most=most)
            value = json.loads(data, parse_constant=_refuse)
            return StoredDocument(key.digest, len(data), _shorten(value)), value
        except _SHOWN as error:
            return StoredDocument(key.digest, problem=error.message), None
        except (ValueError, RecursionError):
            return StoredDocument(key.digest, problem="The document is not valid JSON"), None


class _PartReader:
    """Reads the requested parts of an artifact from the database, in one transaction."""

    def __init__(
        self,
        session: Session,
        facts: dict[str, Any],
        heartbeat_timeout: timedelta,
        parts: Collection[InspectionPart],
    ) -> None:
        self._session = session
        self._facts = facts
        self._digest = Digest(facts["digest"])
        self._store = InspectionStore(session)
        self._heartbeat_timeout = heartbeat_timeout
        self._parts = parts
        self._longer: set[str] = set()

    def lists(self) -> dict[str, Any]:
        """Return the requested lists of the artifact's own view, and its measurement status."""
        found: dict[str, Any] = {
            "measurement": encode(MeasurementStateStore(self._session).of([self._digest]).get(self._digest))
        }
        if InspectionPart.MEMBERS in self._parts:
            members = self._store.members(self._digest, limit=MAX_MEMBERS + 1)
            found["members"] = self._bounded("members", members, MAX_MEMBERS)
        if InspectionPart.REFERRERS in self._parts:
            referrers = self._store.referrers(self._digest, limit=MAX_REFERRERS + 1)
            found["referrers"] = self._bounded("referrers", referrers, MAX_REFERRERS)
        return found

    def fields(self) -> dict[str, Any]:
        """Return the requested other fields, and which lists hold more than is shown; call it after `lists`."""
        found: dict[str, Any] = {"latency": self._store.latency(self._digest)}
        if InspectionPart.MEASUREMENTS in self._parts:
            figures = self._store.figures(self._digest, limit=MAX_FIGURES + 1)
            found["environments"] = HistoryStore(self._session).environments(
                item.class_digest for item in figures
            )
            shown = self._bounded("measurements", figures, MAX_FIGURES)
            found["measurements"] = tuple(sorted(shown, key=_sort_key))
        if InspectionPart.CODE in self._parts:
            found["sources"] = self._store.code_referrer(self._digest, SOURCES_TYPE)
            found["debug_logs"] = self._store.code_referrer(self._digest, DEBUG_LOGS_TYPE)
        if InspectionPart.BEFORE in self._parts:
            facts = self._facts
            found["before"] = HistoryStore(self._session).earlier_artifact(
                facts["model"], facts["number"], facts["target"]
            )
        if InspectionPart.PROFILES in self._parts:
            found["wants_profile"] = self._wants_profile()
        if InspectionPart.JOBS in self._parts:
            jobs = BuildViewStore(self._session).of(
                self._store.jobs(self._digest, limit=MAX_JOBS), heartbeat_timeout=self._heartbeat_timeout
            )
            explained = explain_waits(self._session, jobs)
            found["jobs"] = tuple(sorted(explained, key=lambda job: job.created_at, reverse=True))
        return {**found, "more": frozenset(self._longer)}

    def autotune(self, after: int) -> tuple[list[AutotuneChoice], dict[str, Any]]:
        """Return a page of the autotune candidates, and the fields that describe it."""
        code = ArtifactCodeStore(self._session).of([self._digest])[self._digest]
        tuned = self._store.autotune(code.tuned or self._digest, after=after, limit=MAX_CANDIDATES + 1)
        choices, tuned_next = _whole_operations(tuned)
        untuned = sentence(missing_autotune_reason(code, "it"))
        return choices, {"tuned": code.tuned, "untuned": untuned, "tuned_next": tuned_next}

    def _wants_profile(self) -> bool:
        version = VersionStore(self._session).by_number(self._facts["model"], self._facts["number"])
        merged = merge_settings(version.spec, version.settings) if version else {}
        return find_setting(merged, "measure.profile") is not False

    def _bounded(self, name: str, found: Sequence[T], most: int) -> Sequence[T]:
        """Return the items to show, and remember whether there are more."""
        if len(found) > most:
            self._longer.add(name)
        return found[:most]


def artifact_facts(session: Session, digest: str) -> dict[str, Any]:
    """Return an artifact's row, without its lists.

    Raises:
        NotFound: The artifact does not exist; if the digest is a referrer, the hint names its artifact.
        Deleted: It was deleted.
    """
    if not _DIGEST.fullmatch(digest):
        raise NotFound(
            f"Invalid artifact digest {digest[:80]!a}",
            where="artifact",
            hint="A digest is sha256: and 64 hex digits; a version's page lists those of its artifacts.",
        )
    facts = ArtifactStore(session).facts(Digest(digest))
    if facts is None:
        if deleted := deleted_artifact(session, digest):
            raise deleted
        owner = InspectionStore(session).refers(Digest(digest))
        raise NotFound(
            f"Artifact {digest} not found",
            where="artifact",
            hint=f"It is a referrer of the artifact {owner}." if owner else _ELSEWHERE,
        )
    return facts


_ELSEWHERE = "It may be on another server. A version's page and pt2hub show list the existing artifacts."


def _whole_operations(
    rows: Sequence[tuple[int, AutotuneChoice]],
) -> tuple[list[AutotuneChoice], int | None]:
    """Return the candidates to show and the next cursor, without splitting an operation unless it is too long."""
    if len(rows) <= MAX_CANDIDATES:
        return [choice for _, choice in rows], None
    begins = [at for at in range(1, MAX_CANDIDATES + 1) if rows[at][1].rank <= rows[at - 1][1].rank]
    end = begins[-1] if begins else MAX_CANDIDATES
    return [choice for _, choice in rows[:end]], rows[end - 1][0]


def _shorten(value: Any) -> Any:
    """Return a JSON value for display, with long lists and objects cut."""
    if isinstance(value, list):
        more = [f"... {len(value) - MAX_ITEMS} more"] if len(value) > MAX_ITEMS else []
        return [_shorten(item) for item in value[:MAX_ITEMS]] + more
    if isinstance(value, dict):
        end = {"...": f"{len(value) - MAX_ITEMS} more"} if len(value) > MAX_ITEMS else {}
        return {storable(key): _shorten(item) for key, item in islice(value.items(), MAX_ITEMS)} | end
    return storable(value)


def _parse_config(config: Any) -> tuple[ArtifactConfig | None, int]:
    """Return a config with its first constants and without members, and the number of its constants."""
    try:
        table, single = config["constants"]["table"], {**config["single_file"], "members": []}
        constants = {**config["constants"], "table": table[:MAX_ITEMS]}
        short = {**config, "constants": constants, "single_file": single}
        return decode(ArtifactConfig, storable(short)), len(table)
    except (BadResponse, RecursionError, TypeError, KeyError):  # another document, or one of a newer pt2hub
        return None, 0


def _config_fields(parsed: ArtifactConfig | None) -> dict[str, Any]:
    """Return the fields of the artifact's view that are in its config."""
    return {
        "weights_form": "baked" if parsed and parsed.constants.baked else "split",
        "steps": list(parsed.steps) if parsed else [],
        "regions": [encode(RegionView.of(item)) for item in parsed.regions] if parsed else [],
    }


def _sort_key(figure: MetricView) -> tuple[int, str, int, bool, str]:
    known = list(METRICS)
    index = known.index(figure.metric) if figure.metric in METRICS else len(known)
    return index, figure.metric, figure.batch or 0, figure.implementation != "artifact", figure.implementation


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
