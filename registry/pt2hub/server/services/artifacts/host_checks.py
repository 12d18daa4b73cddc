"""Checks of a version's artifacts against a machine that a client describes."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.codec import decode
from pt2hub.domain.compatibility.assessment import assess_compatibility
from pt2hub.domain.compatibility.findings import DAMAGED, Compatibility, finding
from pt2hub.domain.compatibility.hosts import parse_host
from pt2hub.domain.compatibility.selection import Candidate, select
from pt2hub.domain.digests import Digest
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BadResponse
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_json
from pt2hub.wire.host_checks import ArtifactCheck, FindingView, HostCheck

if TYPE_CHECKING:
    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.services.artifacts.resolution import ResolutionService
    from pt2hub.wire.resolution import ArtifactRef

_MAX_KNOWN = 1024
"""Artifacts whose requirements are kept in memory, some KiB each; they never change."""


class HostCheckService:
    """Checks artifacts against machines."""

    def __init__(self, resolve: ResolutionService, storage: BlobReader) -> None:
        self._resolve = resolve
        self._storage = storage
        self._requirements = functools.lru_cache(_MAX_KNOWN)(self._read_requirements)

    def check(self, reference: str, description: object) -> HostCheck:
        """Resolve a reference, and check each of its artifacts against a machine.

        Args:
            reference: As for `ResolutionService.resolve`.
            description: The machine, see `parse_host`; untrusted.

        Raises:
            InvalidInput: The reference or the description is malformed.
            NotFound: The model, version, alias or artifact does not exist; the hint has suggestions.
            NotReady: The version has no artifact yet.
            Ambiguous: The digest prefix matches several artifacts.
        """
        host = parse_host(description)
        resolved = self._resolve.resolve(reference)
        checked = [
            self._check(
                Candidate(item.target, parse_target(item.target), item.digest, item.created_at), host, item
            )
            for item in resolved.artifacts
        ]
        selection = select(checked, host, lambda item: item.compatibility)
        on_gpu = any(item.target is not None and item.target.device == "cuda" for item in checked)
        native = host.native_target("cuda" if on_gpu else "cpu")
        return HostCheck(
            reference=reference,
            model=resolved.model,
            number=resolved.number,
            artifacts=tuple(map(_view, checked)),
            selected=selection.chosen.digest if selection.chosen else None,
            passed_over=tuple(item.name for item in selection.passed_over),
            build_target=None if native in {item.name for item in checked} else native,
            alias=resolved.alias,
            yanked=resolved.yanked,
        )

    def _check(self, candidate: Candidate, host: Host, artifact: ArtifactRef) -> Candidate:
        assert candidate.target is not None, "the server knows the targets of its artifacts"
        if artifact.damaged:
            return replace(candidate, compatibility=DAMAGED)
        native = self._requirements(candidate.digest)
        if native is None:
            unread = finding(
                "config", ok=False, needs="a readable config", has="one of another pt2hub release"
            )
            return replace(candidate, compatibility=Compatibility((unread,)))
        return replace(candidate, compatibility=assess_compatibility(candidate.target, host, native))

    def _read_requirements(self, artifact: Digest) -> NativeCode | None:
        """Return the requirements of an artifact's libraries from its config; None if they cannot be read."""
        manifest = read_json(self._storage, StorageKey.manifest(artifact))
        config = read_json(self._storage, StorageKey.blob(Digest(manifest["config"]["digest"])))
        try:
            return decode(NativeCode, config.get("native"))
        except BadResponse:
            return None


def _view(candidate: Candidate) -> ArtifactCheck:
    compatibility = candidate.compatibility
    return ArtifactCheck(
        target=candidate.name,
        digest=candidate.digest,
        created_at=candidate.created_at,
        state=compatibility.state,
        findings=tuple(
            FindingView(item.axis, item.state, item.needs, item.has) for item in compatibility.findings
        ),
    )
