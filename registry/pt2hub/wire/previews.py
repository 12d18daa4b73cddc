"""Publish previews: dry runs of a publish."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.wire.responses import WaitReason


@dataclass(frozen=True, slots=True)
class TargetPreview:
    """The preview of one target.

    Attributes:
        target: Its name.
        state: Of the build that the version has for it already; None where one would be queued.
        ahead: Builds and measuring jobs that wait for the target now.
        wait: Why a new build would wait, None where nothing stands in its way.
    """

    target: str
    state: str | None = None
    ahead: int = 0
    wait: WaitReason | None = None


@dataclass(frozen=True, slots=True)
class PublishPreview:
    """The preview of a publish.

    Attributes:
        model: The model's name.
        number: The version's number: of the one there is, or the next one as things stand.
        created: Whether a new version would be made.
        first: Whether the model would be new, too.
        identity: Digest of the canonical spec.
        targets: Those that the spec asks for, `auto` resolved.
        blobs: Size of each blob that the spec names, by path.
        unread: Paths of blobs that were too large to look into now; `submit` does.
        settings: Which settings the version that there is would take over from the spec (`limits`, `compile.debug`).
        notes: Labels that would be set or changed, and modes and options of the spec that change nothing on a target.
        documentation: Names of documentation files that the version that there is would take over.
    """

    model: str
    number: int
    created: bool
    first: bool
    identity: Digest
    targets: tuple[TargetPreview, ...]
    blobs: dict[str, int]
    unread: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    documentation: tuple[str, ...] = ()

    @property
    def queued(self) -> int:
        """Number of builds to queue."""
        return sum(item.state is None for item in self.targets)
