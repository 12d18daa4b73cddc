"""Dispatch of API responses to their rendering functions."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from pt2hub.rendering import (
    comparisons,
    debug_logs,
    differences,
    histories,
    host_checks,
    kernels,
    profiles,
    promotions,
    sheets,
)
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.debug_logs import DebugLogsView, DebugLogView
from pt2hub.wire.differences import DiffView
from pt2hub.wire.host_checks import HostCheck
from pt2hub.wire.kernels import KernelsView
from pt2hub.wire.performance import ComparisonView, EventView, HistoryView, PolicyView, PromotionPreview
from pt2hub.wire.profiles import ProfileView
from pt2hub.wire.resolution import ArtifactRef, ResolvedReference
from pt2hub.wire.responses import (
    AliasMoves,
    AliasView,
    BuildView,
    LogView,
    ModelView,
    TargetView,
    VersionSummary,
    VersionView,
)
from pt2hub.wire.workers import WorkerView

if TYPE_CHECKING:
    from pt2hub.renderable import Sheet


@singledispatch
def sheet_of(value: object) -> Sheet:
    """Render an API response as a sheet.

    Raises:
        TypeError: No rendering function is registered for the class.
    """
    raise TypeError(f"pt2hub.rendering has no sheet for {type(value).__name__}")


sheet_of.register(AliasView, sheets.alias)
sheet_of.register(AliasMoves, sheets.alias_moves)
sheet_of.register(ArtifactRef, sheets.artifact)
sheet_of.register(ArtifactView, sheets.whole_artifact)
sheet_of.register(BuildView, sheets.build)
sheet_of.register(ComparisonView, comparisons.comparison)
sheet_of.register(DebugLogView, debug_logs.log)
sheet_of.register(DebugLogsView, debug_logs.logs)
sheet_of.register(DiffView, differences.diff)
sheet_of.register(EventView, comparisons.event)
sheet_of.register(HistoryView, histories.history)
sheet_of.register(HostCheck, host_checks.host_check)
sheet_of.register(KernelsView, kernels.kernels)
sheet_of.register(LogView, sheets.log)
sheet_of.register(ModelView, sheets.model)
sheet_of.register(PolicyView, histories.policy)
sheet_of.register(ProfileView, profiles.profile)
sheet_of.register(PromotionPreview, promotions.preview)
sheet_of.register(ResolvedReference, sheets.reference_sheet)
sheet_of.register(TargetView, sheets.target)
sheet_of.register(VersionSummary, sheets.summary)
sheet_of.register(VersionView, sheets.version)
sheet_of.register(WorkerView, sheets.worker)
