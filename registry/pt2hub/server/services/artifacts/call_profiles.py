"""Profiles of an artifact's calls and of torch.compile's, with the origin of each kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest
from pt2hub.domain.fusion import group_by_line, sources_of
from pt2hub.domain.performance.profile_rows import KernelIndex, PairedRow, pair_rows
from pt2hub.errors import CorruptArchive, NotRecorded
from pt2hub.server.db.stores.artifacts.inspection import InspectionStore
from pt2hub.server.services.artifacts.inspection import MAX_REFERRERS, artifact_facts
from pt2hub.server.services.artifacts.referrers import kept_profiles
from pt2hub.wire.profiles import ModelLine, ProfileRowView, ProfileView, SourcePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.artifacts.generated_sources import GeneratedSourceService
    from pt2hub.server.services.artifacts.kernels import KernelService
    from pt2hub.wire.kernels import KernelsView

_MISSING = (
    "A measuring job records one after its last timing, unless the spec sets measure: {profile: false} or the profiler "
    "fails (see the job's log): pt2hub measure measures again."
)


class CallProfileService:
    """Returns profiles of calls with the operations and the sources of their kernels."""

    def __init__(
        self,
        sessions: Sessions,
        storage: BlobReader,
        kernels: KernelService,
        sources: GeneratedSourceService,
    ) -> None:
        self._sessions = sessions
        self._storage = storage
        self._kernels = kernels
        self._sources = sources

    def profile(self, digest: str) -> ProfileView:
        """Return the profiles of an artifact's calls and of torch.compile's.

        Raises:
            NotFound: The artifact does not exist.
            NotRecorded: The artifact has no profile.
            CorruptArchive: Its profile is damaged.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            referrers = InspectionStore(session).referrers(Digest(digest), limit=MAX_REFERRERS)
        kept = kept_profiles(self._storage, [(item.digest, item.artifact_type) for item in referrers])
        if kept.problem:
            raise CorruptArchive(kept.problem, where="profile")
        if kept.artifact is None:
            raise NotRecorded(
                f"No profile is recorded for the artifact {digest}", where="profile", hint=_MISSING
            )
        rows = pair_rows(kept.artifact, kept.torch_compile)
        kernels, _ = self._kernels.shown(digest)
        return ProfileView(
            digest=Digest(digest),
            model=facts["model"],
            number=facts["number"],
            target=facts["target"],
            artifact=replace(kept.artifact, rows=()),
            torch_compile=replace(kept.torch_compile, rows=()) if kept.torch_compile else None,
            rows=self._views(digest, rows, kernels),
        )

    def _views(
        self, digest: str, rows: tuple[PairedRow, ...], kernels: KernelsView | None
    ) -> tuple[ProfileRowView, ...]:
        """Return rows with their kernels, lines of the model and places in the sources."""
        index = KernelIndex(kernels.kernels if kernels else ())
        lines = sources_of(kernels.graph) if kernels else {}
        found = [_view(row, index, lines) for row in rows]
        places = self._sources.places(digest, [row.kernel or row.name for row in found if row.artifact])
        return tuple(
            replace(row, source=SourcePlace(*place))
            if row.artifact and (place := places.get(row.kernel or row.name))
            else row
            for row in found
        )


def _view(row: PairedRow, index: KernelIndex, lines: Mapping[str, str]) -> ProfileRowView:
    kernel = index.find(row.artifact) if row.artifact else None
    grouped = group_by_line(kernel, lines) if kernel else ()
    return ProfileRowView(
        name=row.name,
        artifact=row.artifact,
        torch_compile=row.torch_compile,
        kernel=kernel.name if kernel else None,
        lines=tuple(ModelLine(line, operations) for line, operations in grouped),
    )
