"""What is in an artifact, for people who look: bounded, and robust against whatever its blobs hold."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.performance import METRICS
from pt2hub.errors import BadResponse, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.db.stores.build_views import BuildViewStore
from pt2hub.server.db.stores.codes import CodeStore
from pt2hub.server.db.stores.histories import HistoryStore
from pt2hub.server.db.stores.inspecting import InspectingStore
from pt2hub.server.db.stores.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.codes import sentence, untuned
from pt2hub.server.services.documents import read_proven
from pt2hub.server.services.referrers import MOST_MANIFEST, kept_profile, payload
from pt2hub.server.services.waiting import explained
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.inspecting import InspectionView, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Descriptor
    from pt2hub.domain.publications import AutotuneChoice
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.inspecting import FigureView

MOST_CONFIG = 4 << 20
"""4 MiB: a config of ten thousand constants; larger ones are for programs."""
MOST_MEMBERS = 2000
MOST_FIGURES = 200
MOST_REFERRERS = 50
MOST_JOBS = 5
MOST_CANDIDATES = 300
MOST_ITEMS = 100
"""Of a list within a document; programs get the whole."""
_DIGEST = re.compile(DIGEST_PATTERN)
_SHOWN = (NotFound, TooLarge, DigestMismatch)
"""What becomes a sentence on the page; a storage that does not answer fails it."""


class InspectingService:
    """Opens artifacts up, for people."""

    def __init__(self, sessions: Sessions, storage: Reads, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Holds manifests and configs.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._storage = storage
        self._silence = silence

    def artifact(self, digest: str, *, tuned_after: int = 0) -> InspectionView:
        """Everything in an artifact.

        What the storage lost or damaged is said in its place; the rest is shown.

        Args:
            digest: Its manifest digest.
            tuned_after: Where candidates of autotuning begin, as `tuned_next` said it.

        Raises:
            NotFound: There is no such artifact.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            found = self._listed(session, facts, tuned_after)
        config, raw = self._document(StorageKey.blob(Digest(facts["config"])), MOST_CONFIG)
        parsed, constants = _parsed(raw)
        own = {
            "config_digest": facts["config"],
            "config": {},
            "weights_form": "baked" if parsed and parsed.constants.baked else "split",
            "steps": list(parsed.steps) if parsed else [],
        }
        artifact = decode(ArtifactView, {**facts, **found.pop("lists"), **own})
        kinds = [(item.digest, item.artifact_type) for item in artifact.referrers]
        profile, problem = kept_profile(self._storage, kinds)
        manifest, _ = self._document(StorageKey.manifest(Digest(facts["digest"])), MOST_MANIFEST)
        artifact = replace(artifact, profile=profile)
        return InspectionView(artifact, manifest, config, parsed, constants, profile_problem=problem, **found)

    def reference(self, digest: str) -> str:
        """How an artifact is named: `team/name@sha256:...`.

        Raises:
            NotFound: There is no such artifact.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
        return f"{facts['model']}@{digest}"

    def payload(self, digest: str, referrer: str) -> Descriptor:
        """The blob that a referrer of an artifact brings.

        Raises:
            NotFound: There is no such artifact or referrer, or the storage lost it.
            CorruptArchive: The referrer names no blob.
        """
        with self._sessions.begin() as session:
            artifact_facts(session, digest)
            if not _DIGEST.fullmatch(referrer) or InspectingStore(session).refers(Digest(referrer)) != digest:
                raise NotFound(f"The artifact has no referrer {referrer[:80]}", where="referrer")
        return payload(self._storage, Digest(referrer))

    def _listed(self, session: Session, facts: dict[str, Any], tuned_after: int) -> dict[str, Any]:
        """Fields of the view that the database gives."""
        store, digest = InspectingStore(session), Digest(facts["digest"])
        members = store.members(digest, limit=MOST_MEMBERS + 1)
        figures = store.figures(digest, limit=MOST_FIGURES + 1)
        referrers = store.referrers(digest, limit=MOST_REFERRERS + 1)
        code = CodeStore(session).of([digest])[digest]
        tuned = store.autotune(code.tuned or digest, after=tuned_after, limit=MOST_CANDIDATES + 1)
        choices, tuned_next = _whole_operations(tuned)
        jobs = BuildViewStore(session).of(store.jobs(digest, limit=MOST_JOBS), silence=self._silence)
        lengths = {
            "members": len(members) > MOST_MEMBERS,
            "figures": len(figures) > MOST_FIGURES,
            "referrers": len(referrers) > MOST_REFERRERS,
        }
        return {
            "lists": {
                "members": members[:MOST_MEMBERS],
                "autotune": choices,
                "referrers": referrers[:MOST_REFERRERS],
                "measurement": encode(MeasurementStateStore(session).of([digest]).get(digest)),
            },
            "figures": tuple(sorted(figures[:MOST_FIGURES], key=_place)),
            "environments": HistoryStore(session).environments(item.class_digest for item in figures),
            "sources": store.sources(digest),
            "before": HistoryStore(session).earlier_artifact(
                facts["model"], facts["number"], facts["target"]
            ),
            "jobs": tuple(sorted(explained(session, jobs), key=lambda job: job.created_at, reverse=True)),
            "tuned": code.tuned,
            "untuned": sentence(untuned(code, "it")),
            "tuned_next": tuned_next,
            "more": frozenset(name for name, longer in lengths.items() if longer),
        }

    def _document(self, key: StorageKey, most: int) -> tuple[StoredDocument, Any]:
        """A document as it is shown, and what it holds."""
        try:
            data = read_proven(self._storage, key, most=most)
            value = json.loads(data, parse_constant=_refuse)
            return StoredDocument(key.digest, len(data), _shortened(value)), value
        except _SHOWN as error:
            return StoredDocument(key.digest, problem=error.message), None
        except (ValueError, RecursionError):
            return StoredDocument(key.digest, problem="It is no JSON that can be shown"), None


def artifact_facts(session: Session, digest: str) -> dict[str, Any]:
    """What the database holds of an artifact, without its lists.

    Args:
        session: The transaction.
        digest: As somebody wrote it.

    Raises:
        NotFound: There is no such artifact; whose referrer it is, is in the hint.
    """
    if not _DIGEST.fullmatch(digest):
        raise NotFound(
            f"{digest[:80]!a} is no digest of an artifact",
            where="artifact",
            hint="It begins with sha256: and has 64 digits; pages of versions name those of their artifacts.",
        )
    facts = ArtifactStore(session).facts(Digest(digest))
    if facts is None:
        owner = InspectingStore(session).refers(Digest(digest))
        raise NotFound(
            f"There is no artifact {digest}",
            where="artifact",
            hint=f"It names something that belongs to the artifact {owner}." if owner else _ELSEWHERE,
        )
    return facts


_ELSEWHERE = "It may be of another server. Pages of versions, and pt2hub show, name the artifacts there are."


def _whole_operations(
    rows: Sequence[tuple[int, AutotuneChoice]],
) -> tuple[list[AutotuneChoice], int | None]:
    """Candidates to show, and where those that follow begin; an operation is not torn apart unless it must be."""
    if len(rows) <= MOST_CANDIDATES:
        return [choice for _, choice in rows], None
    begins = [at for at in range(1, MOST_CANDIDATES + 1) if rows[at][1].rank <= rows[at - 1][1].rank]
    end = begins[-1] if begins else MOST_CANDIDATES
    return [choice for _, choice in rows[:end]], rows[end - 1][0]


def _shortened(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """A JSON value that can be shown, where something stands for the end of what is long."""
    if isinstance(value, list):
        more = [f"... {len(value) - MOST_ITEMS} more"] if len(value) > MOST_ITEMS else []
        return [_shortened(item) for item in value[:MOST_ITEMS]] + more
    if isinstance(value, dict):
        end = {"...": f"{len(value) - MOST_ITEMS} more"} if len(value) > MOST_ITEMS else {}
        return {storable(key): _shortened(item) for key, item in islice(value.items(), MOST_ITEMS)} | end
    return storable(value)


def _parsed(config: Any) -> tuple[ArtifactConfig | None, int]:  # noqa: ANN401  # any JSON value
    """A config with its first constants and without members, which the database has; and how many constants it has."""
    try:
        table, single = config["constants"]["table"], {**config["single_file"], "members": []}
        constants = {**config["constants"], "table": table[:MOST_ITEMS]}
        short = {**config, "constants": constants, "single_file": single}
        return decode(ArtifactConfig, storable(short)), len(table)
    except (BadResponse, RecursionError, TypeError, KeyError):  # another document, or a newer pt2hub's
        return None, 0


def _place(figure: FigureView) -> tuple[int, str, int, bool, str]:
    known = list(METRICS)
    place = known.index(figure.metric) if figure.metric in METRICS else len(known)
    return place, figure.metric, figure.batch or 0, figure.subject != "artifact", figure.subject


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
