"""Tabs of an artifact's page: their addresses, what each loads, and their template values."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import (
    AUTOTUNE_TYPE,
    BASELINE_PROFILE_TYPE,
    DEBUG_LOGS_TYPE,
    FUSION_TYPE,
    LOG_TYPE,
    MEASUREMENT_RUN_TYPE,
    PROFILE_TYPE,
    SOURCES_TYPE,
    TRACE_TYPE,
)
from pt2hub.domain.performance import autotune as autotuning
from pt2hub.rendering.regions import region_lines
from pt2hub.rendering.sheets import compile_text, isolation_text, state_text
from pt2hub.server.api.context import container
from pt2hub.server.pages.artifacts import (
    documents,
    file_tree,
    kernel_table,
    measurements,
    runs,
    time_breakdown,
)
from pt2hub.server.pages.artifacts.step_shares import share_steps
from pt2hub.server.pages.choices import check_choice
from pt2hub.server.views.inspection import InspectionPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.views.inspection import InspectionView
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.kernels import KernelsView


class ArtifactTab(StrEnum):
    """Tab of an artifact's page, by its name in the address."""

    OVERVIEW = "overview"
    FILES = "files"
    KERNELS = "kernels"
    AUTOTUNE = "autotune"
    BENCHMARK = "benchmark"
    TRACE = "trace"
    PROVENANCE = "provenance"
    RAW = "raw"

    @property
    def label(self) -> str:
        """Its name on the page."""
        return self.value.capitalize()


_PARTS = {
    ArtifactTab.OVERVIEW: {
        InspectionPart.CONFIG,
        InspectionPart.CODE,
        InspectionPart.BEFORE,
        InspectionPart.REFERRERS,
        InspectionPart.PROFILES,
    },
    ArtifactTab.FILES: {InspectionPart.MEMBERS, InspectionPart.CONFIG, InspectionPart.CODE},
    ArtifactTab.KERNELS: {InspectionPart.REFERRERS, InspectionPart.PROFILES, InspectionPart.CODE},
    ArtifactTab.AUTOTUNE: {InspectionPart.AUTOTUNE},
    ArtifactTab.BENCHMARK: {InspectionPart.MEASUREMENTS, InspectionPart.JOBS},
    ArtifactTab.TRACE: {InspectionPart.REFERRERS, InspectionPart.PROFILES, InspectionPart.CODE},
    ArtifactTab.PROVENANCE: {InspectionPart.CONFIG},
    ArtifactTab.RAW: {InspectionPart.CONFIG, InspectionPart.MANIFEST, InspectionPart.REFERRERS},
}
_REFERRERS = {
    SOURCES_TYPE: ("Generated sources", "sources.zip"),
    FUSION_TYPE: ("Exported graph and kernels", "fusion.json"),
    DEBUG_LOGS_TYPE: ("Debug logs of the compile", "debug-logs.zip"),
    AUTOTUNE_TYPE: ("Timings of autotuning", "autotune.json"),
    MEASUREMENT_RUN_TYPE: ("Measurements of one run", "measurements.json"),
    LOG_TYPE: ("Log of the build", "build.log.jsonl"),
    PROFILE_TYPE: ("Time breakdown of a call", "profile.json"),
    BASELINE_PROFILE_TYPE: ("Time breakdown of a call of torch.compile", "profile-torch_compile.json"),
    TRACE_TYPE: ("Trace of some calls, for Perfetto and chrome://tracing", "trace.json.gz"),
}
"""Label and file name of referrers, by media type."""


def parse_tab(name: str) -> ArtifactTab:
    """Return the tab with a name.

    Raises:
        InvalidInput: There is none.
    """
    check_choice(name, list(ArtifactTab), "view")
    return ArtifactTab(name)


def load(digest: str, tab: ArtifactTab, *, tuned_after: int = 0) -> InspectionView:
    """Return the parts of an artifact that a tab shows.

    Raises:
        NotFound: The artifact does not exist.
    """
    return container().inspection.artifact(digest, _PARTS[tab], tuned_after=tuned_after)


def tab_values(tab: ArtifactTab, found: InspectionView) -> dict[str, Any]:
    """Return the template values of a tab."""
    return _VALUES[tab](found)


def _overview(found: InspectionView) -> dict[str, Any]:
    view = found.artifact
    return {
        "compiled": compile_text(view) or None,
        "regions": region_lines(view.regions),
        "kernels": _kernels(found)["kernels"],
    }


def _files(found: InspectionView) -> dict[str, Any]:
    blob = found.parsed.constants.blob_member if found.parsed else ""
    return {"tree": file_tree.tree(found.artifact.members), "blob": blob}


def _kernels(found: InspectionView) -> dict[str, Any]:
    view = found.artifact
    kernels, no_kernels = container().kernels.shown(view.digest)
    timed = view if view.profile else _timed_origin(view.digest, kernels)
    profile = timed.profile if timed else None
    return {
        "kernels": kernel_table.tabulate(kernels, profile) if kernels or profile else None,
        "no_kernels": no_kernels,
        "timed_origin": timed if timed is not view else None,
    }


def _timed_origin(digest: str, kernels: KernelsView | None) -> ArtifactView | None:
    """Return the artifact that reused code was compiled for, if its calls were profiled."""
    if kernels is None or kernels.compiled_for == digest:
        return None
    parts = {InspectionPart.REFERRERS, InspectionPart.PROFILES}
    origin = container().inspection.artifact(kernels.compiled_for, parts).artifact
    return origin if origin.profile else None


def _autotune(found: InspectionView) -> dict[str, Any]:
    return {"operations": autotuning.operations(found.artifact.autotune)}


def _benchmark(found: InspectionView) -> dict[str, Any]:
    groups = measurements.groups(found.measurements, found.environments)
    listed = runs.runs(found.measurements)
    return {
        "speed": measurements.table([group for group in groups if not group.is_permanent]),
        "lasting": measurements.table([group for group in groups if group.is_permanent]),
        "runs": listed,
        "runs_machine": runs.common_machine(listed),
        "width": measurements.WIDTH,
        "jobs": [(job, state_text(job)) for job in found.jobs],
    }


def _trace(found: InspectionView) -> dict[str, Any]:
    view = found.artifact
    kernels = container().kernels.shown(view.digest)[0] if view.profile else None
    return {
        "time_breakdown": time_breakdown.break_down(view.profile, view.torch_compile_profile, kernels)
        if view.profile
        else None,
        "trace": next((item.digest for item in view.referrers if item.artifact_type == TRACE_TYPE), None),
        "width": time_breakdown.WIDTH,
    }


def _provenance(found: InspectionView) -> dict[str, Any]:
    view = found.artifact
    return {
        "isolation": isolation_text(str(view.provenance.get("isolation") or "unknown")),
        "steps": share_steps(view.steps),
    }


def _raw(found: InspectionView) -> dict[str, Any]:
    config, manifest = found.config, found.manifest
    view = found.artifact
    return {
        "sections": documents.sections(config.value) if config and config.problem is None else [],
        "manifest": documents.whole(manifest.value) if manifest and manifest.problem is None else None,
        "referrers": [(item, *_REFERRERS.get(item.artifact_type, (None, "file"))) for item in view.referrers],
    }


_VALUES: dict[ArtifactTab, Callable[[InspectionView], dict[str, Any]]] = {
    ArtifactTab.OVERVIEW: _overview,
    ArtifactTab.FILES: _files,
    ArtifactTab.KERNELS: _kernels,
    ArtifactTab.AUTOTUNE: _autotune,
    ArtifactTab.BENCHMARK: _benchmark,
    ArtifactTab.TRACE: _trace,
    ArtifactTab.PROVENANCE: _provenance,
    ArtifactTab.RAW: _raw,
}
