"""Deletion plans: what goes, what stays and why, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import UNFINISHED, BuildKind, name_kind
from pt2hub.domain.rollbacks import rollback_version
from pt2hub.errors import Detail, StillNeeded
from pt2hub.rendering.quantities import format_bytes, format_count
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.retention.dependents import DependentStore, Doomed
from pt2hub.server.db.stores.retention.shared_blobs import OwnedBlob
from pt2hub.wire.retention import DeletionView, KeptThing, SharedBlob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.retention.dependents import DoomedBuild, Needs

TRIVIAL_BYTES = 64
"""A blob of at most this size holds no tensor: it is an empty document that every artifact has."""
MAX_NAMED = 5
"""Versions that a sentence about a blob names."""


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """What a deletion would do.

    Attributes:
        blobs: The blobs that what goes refers to.
        notes: What else happens, in words.
    """

    name: str
    doomed: tuple[Doomed, ...]
    goes: tuple[str, ...]
    kept: tuple[KeptThing, ...]
    blobs: tuple[OwnedBlob, ...]
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse a deletion of what is needed.

        Raises:
            StillNeeded: Something needs it.
        """
        if not self.kept:
            return
        first = self.kept[0]
        more = f" (and {len(self.kept) - 1} more)" if len(self.kept) > 1 else ""
        raise StillNeeded(
            f"Cannot delete {self.name}: {first.name} is kept because {first.reasons[0]}{more}",
            where="version",
            hint="Nothing was deleted. A dry run lists everything that is kept, and why.",
            details=tuple(
                Detail(item.name, f"kept because {reason}") for item in self.kept for reason in item.reasons
            ),
            context={
                "kept": [{"name": item.name, "reasons": list(item.reasons)} for item in self.kept],
            },
        )

    def view(self, *, deleted: bool, forced: bool = False, refused: Sequence[str] = ()) -> DeletionView:
        """Return the plan for people."""
        # Leased ones too: uploads are for six hours, and the lease of a published one holds back only the collector.
        freed = [blob for blob in self.blobs if blob.exclusive]
        return DeletionView(
            name=self.name,
            deleted=deleted,
            forced=forced,
            goes=self.goes,
            kept=self.kept,
            notes=self.notes,
            shared=tuple(_shared(blob) for blob in self.blobs if is_shared(blob)),
            freed_bytes=sum(blob.size for blob in freed),
            freed_blobs=len(freed),
            refused=tuple(refused),
        )


def is_shared(blob: OwnedBlob) -> bool:
    """Return whether something else needs a blob, other than an empty document that everything has."""
    return not blob.exclusive and blob.size > TRIVIAL_BYTES


def find_needs(session: Session, doomed: Doomed) -> Needs:
    """Return what needs versions and artifacts besides themselves."""
    moves = AliasStore(session).steps(doomed.model)
    rollbacks = {alias: back for alias, steps in moves.items() if (back := rollback_version(steps))}
    return DependentStore(session).needs(doomed, rollbacks)


def list_needs(doomed: Doomed, needs: Needs) -> tuple[KeptThing, ...]:
    """Return what needs versions or a build that are to be deleted, in the order of the versions."""
    found: dict[str, list[str]] = {}
    for version, number in doomed.versions.items():
        builds = [build for build in doomed.builds if build.version == version]
        reasons = [
            *_of_aliases(doomed, version, needs),
            *list_unfinished(builds),
            *_of_artifacts(builds, needs),
        ]
        if reasons:
            found[f"{doomed.model}@{number}"] = reasons
    return tuple(KeptThing(name, tuple(reasons)) for name, reasons in found.items())


def list_unfinished(builds: Sequence[DoomedBuild]) -> Iterator[str]:
    """Yield what builds are doing that have not ended."""
    for build in builds:
        if build.state in UNFINISHED:
            yield f"its {name_kind(build.kind)} {build.id} for {build.target} is {build.state}: pt2hub cancel {build.id}"


def list_goes(doomed: Doomed, measurements: int) -> tuple[str, ...]:
    """Return what goes, in words."""
    lines = []
    for version, number in doomed.versions.items():
        builds = [build for build in doomed.builds if build.version == version]
        targets = [build.target for build in builds if build.artifact]
        jobs = sum(build.kind == BuildKind.MEASURE for build in builds)
        parts = [format_count(len(targets), "artifact") + (f" ({', '.join(targets)})" if targets else "")]
        parts.append(format_count(len(builds) - jobs, "build"))
        parts += [format_count(jobs, "measuring job")] * bool(jobs)
        name = f"{doomed.model}@{number}" if doomed.whole else f"of {doomed.model}@{number}"
        lines.append(f"{name}: {', '.join(parts)}")
    if doomed.logs:
        lines.append(f"{format_count(len(doomed.logs), 'log')} of their attempts")
    if measurements:
        lines.append(f"{format_count(measurements, 'measurement')}, with their points in charts")
    return tuple(lines)


def sharing_text(blob: OwnedBlob) -> str:
    """Return in words what needs a shared blob, to follow its title."""
    named = blob.needed_by[:MAX_NAMED]
    hidden = blob.others - len(named)
    who = " and ".join(filter(None, (", ".join(named), f"{hidden} more" if hidden else "")))
    return f"also needed by {who}"


def blob_title(blob: OwnedBlob) -> str:
    """Return what a blob is: `weights of vision/resnet18@3 (sha256:0a1b2c3d4e5f, 44.7 MiB)`."""
    more = f" and {len(blob.owners) - 1} more" if len(blob.owners) > 1 else ""
    of = f" of {blob.owners[0]}{more}" if blob.owners else ""
    return f"{blob.what}{of} ({blob.digest[:19]}, {format_bytes(blob.size)})"


def must_be_decided(blob: OwnedBlob) -> bool:
    """Return whether a forced deletion must say what happens to a blob: not to code, which versions usually share."""
    return is_shared(blob) and blob.what != "code"


def _of_aliases(doomed: Doomed, version: int, needs: Needs) -> Iterator[str]:
    if not doomed.whole and not doomed.artifacts:
        return  # an alias pins artifacts, and this build has none
    for alias in needs.aliases.get(version, ()):
        yield f"{alias} of {doomed.model} pins it"
    for alias in needs.rollbacks.get(version, ()):
        yield f"{alias} of {doomed.model} would roll back to it"


def _of_artifacts(builds: Sequence[DoomedBuild], needs: Needs) -> Iterator[str]:
    for build in builds:
        if build.artifact is None:
            continue
        for name in needs.baselines.get(build.artifact, ()):
            yield f"{name}, which an alias pins, was compared with its artifact for {build.target}"
        for job in needs.measured.get(build.artifact, ()):
            yield f"measuring job {job} compares another artifact with it: pt2hub cancel {job}"


def _shared(blob: OwnedBlob) -> SharedBlob:
    return SharedBlob(
        blob.digest, blob.what, blob.size, blob.needed_by, blob_title(blob), must_be_decided(blob)
    )
