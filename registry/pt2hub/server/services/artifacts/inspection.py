"""Inspects an artifact's contents for display, within size limits; blob contents are untrusted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from pt2hub.domain.artifacts import DEBUG_LOGS_TYPE, SOURCES_TYPE, ArtifactConfig
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.errors import BadResponse, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.artifacts.code import ArtifactCodeStore
from pt2hub.server.db.stores.artifacts.inspection import InspectionStore
from pt2hub.server.db.stores.builds.build_views import BuildViewStore
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.performance.series import HistoryStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.artifacts.code_comparison import missing_autotune_reason, sentence
from pt2hub.server.services.artifacts.referrers import MAX_MANIFEST_BYTES, kept_profiles, payload
from pt2hub.server.services.blobs.documents import read_verified
from pt2hub.server.services.builds.waits import explain_waits
from pt2hub.server.views.inspection import InspectionView, StoredDocument
from pt2hub.wire.artifacts import ArtifactView, RegionView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Descriptor
    from pt2hub.domain.performance.autotune import AutotuneChoice
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.inspection import MetricView

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

    def artifact(self, digest: str, *, tuned_after: int = 0) -> InspectionView:
        """Return everything in an artifact; missing or damaged parts are replaced by a problem.

        Args:
            tuned_after: Cursor of the autotune candidates, from `tuned_next`.

        Raises:
            NotFound: The artifact does not exist.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            found = self._view_fields(session, facts, tuned_after)
        config, raw = self._document(StorageKey.blob(Digest(facts["config"])), MAX_CONFIG_BYTES)
        parsed, constants = _parse_config(raw)
        own = {
            "config_digest": facts["config"],
            "config": {},
            "weights_form": "baked" if parsed and parsed.constants.baked else "split",
            "steps": list(parsed.steps) if parsed else [],
            "regions": [encode(RegionView.of(item)) for item in parsed.regions] if parsed else [],
        }
        artifact = decode(ArtifactView, {**facts, **found.pop("lists"), **own})
        kinds = [(item.digest, item.artifact_type) for item in artifact.referrers]
        profiles = kept_profiles(self._storage, kinds)
        manifest, _ = self._document(StorageKey.manifest(Digest(facts["digest"])), MAX_MANIFEST_BYTES)
        artifact = replace(artifact, profile=profiles.artifact, torch_compile_profile=profiles.torch_compile)
        return InspectionView(
            artifact, manifest, config, parsed, constants, profile_problem=profiles.problem, **found
        )

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

    def _view_fields(self, session: Session, facts: dict[str, Any], tuned_after: int) -> dict[str, Any]:
        """Return the fields of the view that come from the database."""
        store, digest = InspectionStore(session), Digest(facts["digest"])
        members = store.members(digest, limit=MAX_MEMBERS + 1)
        figures = store.figures(digest, limit=MAX_FIGURES + 1)
        referrers = store.referrers(digest, limit=MAX_REFERRERS + 1)
        code = ArtifactCodeStore(session).of([digest])[digest]
        tuned = store.autotune(code.tuned or digest, after=tuned_after, limit=MAX_CANDIDATES + 1)
        choices, tuned_next = _whole_operations(tuned)
        jobs = BuildViewStore(session).of(
            store.jobs(digest, limit=MAX_JOBS), heartbeat_timeout=self._heartbeat_timeout
        )
        lengths = {
            "members": len(members) > MAX_MEMBERS,
            "measurements": len(figures) > MAX_FIGURES,
            "referrers": len(referrers) > MAX_REFERRERS,
        }
        return {
            "lists": {
                "members": members[:MAX_MEMBERS],
                "autotune": choices,
                "referrers": referrers[:MAX_REFERRERS],
                "measurement": encode(MeasurementStateStore(session).of([digest]).get(digest)),
            },
            "measurements": tuple(sorted(figures[:MAX_FIGURES], key=_sort_key)),
            "environments": HistoryStore(session).environments(item.class_digest for item in figures),
            "sources": store.code_referrer(digest, SOURCES_TYPE),
            "debug_logs": store.code_referrer(digest, DEBUG_LOGS_TYPE),
            "before": HistoryStore(session).earlier_artifact(
                facts["model"], facts["number"], facts["target"]
            ),
            "jobs": tuple(sorted(explain_waits(session, jobs), key=lambda job: job.created_at, reverse=True)),
            "tuned": code.tuned,
            "untuned": sentence(missing_autotune_reason(code, "it")),
            "tuned_next": tuned_next,
            "more": frozenset(name for name, longer in lengths.items() if longer),
        }

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


def artifact_facts(session: Session, digest: str) -> dict[str, Any]:
    """Return an artifact's row, without its lists.

    Raises:
        NotFound: The artifact does not exist; if the digest is a referrer, the hint names its artifact.
    """
    if not _DIGEST.fullmatch(digest):
        raise NotFound(
            f"Invalid artifact digest {digest[:80]!a}",
            where="artifact",
            hint="A digest is sha256: and 64 hex digits; a version's page lists those of its artifacts.",
        )
    facts = ArtifactStore(session).facts(Digest(digest))
    if facts is None:
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


def _sort_key(figure: MetricView) -> tuple[int, str, int, bool, str]:
    known = list(METRICS)
    index = known.index(figure.metric) if figure.metric in METRICS else len(known)
    return index, figure.metric, figure.batch or 0, figure.implementation != "artifact", figure.implementation


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
