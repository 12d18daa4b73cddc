"""Usage of teams in API responses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TeamUsage:
    """What a team uses.

    Attributes:
        team: Its name.
        models: Number of its models.
        versions: Number of their versions.
        artifacts: Number of their artifacts.
        stored_bytes: Size of all blobs that its versions, artifacts and logs refer to; each counts once per team.
        builds: Queued and running builds and measuring jobs.
    """

    team: str
    models: int
    versions: int
    artifacts: int
    stored_bytes: int
    builds: int


@dataclass(frozen=True, slots=True)
class UsageView:
    """The usage of teams, and the limits that hold for each of them.

    Attributes:
        teams: By name.
        max_builds: Limit of queued and running builds of a team; 0 is none.
        max_bytes: Limit of stored bytes of a team; 0 is none.
    """

    teams: tuple[TeamUsage, ...]
    max_builds: int
    max_bytes: int
