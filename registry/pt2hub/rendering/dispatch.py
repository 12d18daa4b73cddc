"""Which function renders which of the API's shapes."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from pt2hub.rendering import comparing, measuring, printing
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.performance import ComparisonView, EventView, HistoryView, PolicyView
from pt2hub.wire.resolution import ArtifactRef, Resolved
from pt2hub.wire.shapes import (
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
    from pt2hub.printed import Sheet


@singledispatch
def sheet_of(value: object) -> Sheet:
    """Describe one of the API's shapes.

    Raises:
        TypeError: Nobody said how a value of this class is rendered.
    """
    raise TypeError(f"pt2hub.rendering has no sheet for {type(value).__name__}")


sheet_of.register(AliasView, printing.alias)
sheet_of.register(ArtifactRef, printing.artifact)
sheet_of.register(ArtifactView, printing.whole_artifact)
sheet_of.register(BuildView, printing.build)
sheet_of.register(ComparisonView, comparing.comparison)
sheet_of.register(EventView, comparing.event)
sheet_of.register(HistoryView, measuring.history)
sheet_of.register(LogView, printing.log)
sheet_of.register(ModelView, printing.model)
sheet_of.register(PolicyView, measuring.policy)
sheet_of.register(Resolved, printing.resolved)
sheet_of.register(TargetView, printing.target)
sheet_of.register(VersionSummary, printing.summary)
sheet_of.register(VersionView, printing.version)
sheet_of.register(WorkerView, printing.worker)
