"""View model of where a rollback of an alias leads."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.errors import Pt2hubError


@dataclass(frozen=True, slots=True)
class Rollback:
    """Where a rollback of an alias leads.

    Attributes:
        number: The version.
        obstacle: The error that refuses it whatever the policy says, with its cure; None where nothing stands in the way.
    """

    number: int
    obstacle: Pt2hubError | None = None
