"""Kernels of an artifact's code, read from an untrusted fusion document within size limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import FUSION_TYPE
from pt2hub.domain.digests import Digest
from pt2hub.domain.fusion import MAX_FUSION_BYTES, read_fusion
from pt2hub.errors import BadResponse, CorruptArchive, DigestMismatch, NotFound, NotRecorded, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.inspection import InspectionStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.artifacts.inspection import artifact_facts
from pt2hub.server.services.artifacts.referrers import payload
from pt2hub.server.services.artifacts.reused_parts import find_reused_parts
from pt2hub.server.services.blobs.documents import read_verified
from pt2hub.wire.kernels import KernelsView

if TYPE_CHECKING:
    from pt2hub.domain.fusion import Fusion
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.inspection import CodeReferrer


class KernelService:
    """Returns the kernels of artifacts and the operations that each holds."""

    def __init__(self, sessions: Sessions, storage: BlobReader) -> None:
        self._sessions = sessions
        self._storage = storage

    def kernels(self, digest: str) -> KernelsView:
        """Return the kernels of an artifact's code.

        Raises:
            NotFound: The artifact does not exist.
            NotRecorded: No kernels are recorded for its code.
            CorruptArchive: The record is damaged.
            DigestMismatch: The record in storage was changed.
            TooLarge: The record is too large.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            kept = InspectionStore(session).code_referrer(Digest(digest), FUSION_TYPE)
        if kept is None:
            raise NotRecorded(
                f"No kernels are recorded for the artifact {digest}", where="kernels", hint=_MISSING
            )
        found = self._read(kept)
        return KernelsView(
            artifact=Digest(digest),
            model=facts["model"],
            number=facts["number"],
            target=facts["target"],
            compiled_for=kept.artifact,
            kernels=found.kernels,
            graph=found.graph,
            left_out=found.left_out,
            reused_parts=find_reused_parts(self._sessions, self._storage, kept.artifact),
        )

    def shown(self, digest: str) -> tuple[KernelsView | None, str | None]:
        """Return the kernels for a page, or else the reason why they cannot be shown."""
        try:
            return self.kernels(digest), None
        except _SHOWN as error:
            return None, error.message

    def _read(self, kept: CodeReferrer) -> Fusion:
        layer = payload(self._storage, kept.referrer)
        if layer.mediaType != FUSION_TYPE:
            raise CorruptArchive("The referrer contains no record of kernels", where=kept.referrer)
        data = read_verified(self._storage, StorageKey.blob(layer.digest), most=MAX_FUSION_BYTES)
        try:
            return read_fusion(storable(json.loads(data)))
        except BadResponse as error:
            raise CorruptArchive(error.message, where=kept.referrer) from error
        except (ValueError, RecursionError) as error:
            raise CorruptArchive(
                "The record of the kernels is not valid JSON", where=kept.referrer
            ) from error


_SHOWN = (NotFound, TooLarge, DigestMismatch, CorruptArchive)
"""Errors that are shown as text; an unavailable storage fails the page."""
_MISSING = "Its code was compiled by an earlier pt2hub, or elsewhere. The generated sources may be on the artifact's page."
