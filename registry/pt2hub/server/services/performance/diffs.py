"""Differences between two artifacts, section by section."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.domain.differences.fields import compare_fields, limit_fields
from pt2hub.domain.differences.graphs import GraphDifferences, compare_graphs
from pt2hub.domain.differences.kernels import KernelDifferences, compare_kernels
from pt2hub.domain.differences.numerics import compare_numerics
from pt2hub.domain.differences.parts import ChangedParts
from pt2hub.domain.differences.program_keys import KeyDifferences, compare_keys
from pt2hub.domain.differences.regions import add_regions
from pt2hub.domain.differences.sizes import compare_sizes
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import team_of
from pt2hub.errors import BadResponse, DigestMismatch, NotFound, Pt2hubError, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.artifacts.inspection import MAX_CONFIG_BYTES, artifact_facts
from pt2hub.server.services.blobs.documents import read_verified
from pt2hub.wire.differences import DiffView, SpecDifferences

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.artifacts.kernels import KernelService
    from pt2hub.server.services.performance.comparisons import ComparisonService
    from pt2hub.wire.performance import ComparisonView, SideView

_UNREADABLE = (NotFound, TooLarge, DigestMismatch, BadResponse, ValueError, RecursionError)
"""Errors of one config, which leave the other sections as they are; an unavailable storage fails the request."""


class DiffService:
    """Returns the differences between two artifacts."""

    def __init__(
        self, sessions: Sessions, storage: BlobReader, comparisons: ComparisonService, kernels: KernelService
    ) -> None:
        self._sessions = sessions
        self._storage = storage
        self._comparisons = comparisons
        self._kernels = kernels

    def diff(
        self, before: str, after: str, *, target: str | None = None, with_target: str | None = None
    ) -> DiffView:
        """Return the differences between a second artifact and a first.

        Args:
            after: Another reference, or the same for two targets of one version.
            target: Target of both artifacts; where omitted, the only one that both have.
            with_target: Target of the second side, if it differs.

        Raises:
            InvalidInput: A reference is malformed, or both sides are the same artifact.
            NotFound: A version, alias or artifact does not exist, or has no artifact for the target.
            NotReady: A version has no artifact yet.
            Ambiguous: Several targets match.
        """
        view = self._comparisons.compare(before, after, target=target, with_target=with_target)
        with self._sessions.begin() as session:
            one, other = (artifact_facts(session, side.artifact) for side in (view.before, view.after))
        graph, kernels = self._compare_code(view)
        spec, key = self._compare_configs(view, one, other, graph.summary)
        return DiffView(
            comparison=view,
            spec=spec,
            key=key,
            graph=graph,
            kernels=kernels,
            sizes=compare_sizes(one, other),
            numerics=compare_numerics(one["verification"], other["verification"]),
        )

    def changed_parts(self, view: ComparisonView) -> ChangedParts | None:
        """Return the parts in which two compared artifacts differ, without graphs and kernels; None if a config is unreadable."""
        with self._sessions.begin() as session:
            one, other = (artifact_facts(session, side.artifact) for side in (view.before, view.after))
        spec, key = self._compare_configs(view, one, other, "")
        if spec.missing:
            return None
        return ChangedParts(
            one["weights"] != other["weights"],
            tuple(item.path for item in spec.fields),
            tuple(dict.fromkeys(item.path.partition(".")[0] for item in key.fields)),
        )

    def _compare_code(self, view: ComparisonView) -> tuple[GraphDifferences, KernelDifferences]:
        """Return the differences between the exported graphs and between the kernels."""
        sides = view.before, view.after
        (before, _), (after, _) = found = [self._kernels.shown(side.artifact) for side in sides]
        if before is None or after is None:
            missing = " ".join(
                f"{side.model}@{side.number} for {side.target}: {problem}."
                for side, (_, problem) in zip(sides, found, strict=True)
                if problem
            )
            return GraphDifferences(missing=missing), KernelDifferences(missing=missing)
        unrecorded = before.left_out + after.left_out
        return (
            replace(compare_graphs(before.graph, after.graph), unrecorded=unrecorded),
            replace(
                compare_kernels(before.kernels, after.kernels),
                unrecorded=unrecorded,
                reused_parts=(len(before.reused_parts), len(after.reused_parts)),
            ),
        )

    def _compare_configs(
        self, view: ComparisonView, one: dict[str, Any], other: dict[str, Any], graph: str
    ) -> tuple[SpecDifferences, KeyDifferences]:
        """Return the differences that the configs have: specs and program keys."""
        is_same = one["program_key"] == other["program_key"]
        try:
            before, after = self._config(view.before, one), self._config(view.after, other)
            whole = compare_keys(before, after, graph=graph)
            spec, key = _compare_specs(before, after), add_regions(whole, before.regions, after.regions)
        except (BadResponse, RecursionError) as error:
            missing = error.message if isinstance(error, BadResponse) else "A config is nested too deeply."
            reason = f"The program keys {'are the same' if is_same else 'differ'}."
            unread = KeyDifferences(is_same, (reason, *_reuse(view, same_key=is_same)), missing=missing)
            return SpecDifferences(missing=missing), unread
        reasons = (*key.reasons, *_reuse(view, same_key=key.same))
        return spec, replace(key, reasons=reasons)

    def _config(self, side: SideView, facts: dict[str, Any]) -> ArtifactConfig:
        """Read an artifact's config.

        Raises:
            BadResponse: It cannot be read.
        """
        try:
            key = StorageKey.blob(Digest(facts["config"]))
            data = read_verified(self._storage, key, most=MAX_CONFIG_BYTES)
            return decode(ArtifactConfig, storable(json.loads(data, parse_constant=_refuse)))
        except _UNREADABLE as error:
            name = f"{side.model}@{side.number} for {side.target}"
            reason = error.message if isinstance(error, Pt2hubError) else "it is not valid JSON"
            raise BadResponse(f"The config of {name} cannot be read: {reason}") from error


def _reuse(view: ComparisonView, *, same_key: bool) -> tuple[str, ...]:
    """Return what happened to the code, as sentences."""
    if view.code is None:
        return ()
    teams = {team_of(side.model) for side in (view.before, view.after)}
    apart = same_key and not view.code.same and len(teams) > 1
    return (*(["Code is reused within a team only."] if apart else []), view.code.message)


def _compare_specs(before: ArtifactConfig, after: ArtifactConfig) -> SpecDifferences:
    """Compare specs with what the targets add to them: overrides, and installed packages if both versions recorded them."""
    one, other = ({**config.version.spec, "request": config.request} for config in (before, after))
    installed = _packages(before), _packages(after)
    if all(installed):
        one["packages"], other["packages"] = installed
    return SpecDifferences(*limit_fields(compare_fields(one, other)))


def _packages(config: ArtifactConfig) -> Any:
    packages = config.version.pins.get("packages")
    return packages.get(config.target.name) if isinstance(packages, dict) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
