"""Limits of what one token, address or team may use of a server."""

from __future__ import annotations

from dataclasses import dataclass

MAX_REASON_CHARS = 500
"""Of the reason of an alias move, a yank or a deletion."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server; 0 is none.

    Attributes:
        requests_per_token: Requests with one token within a minute (`PT2HUB_MAX_REQUESTS`).
        sign_ins_per_address: Sign-ins on the pages from one address within a minute (`PT2HUB_MAX_SIGN_INS`).
        uploads_per_token: Uploads that one token has begun and not completed (`PT2HUB_MAX_UPLOADS`).
        waits_per_token: Requests with one token, or without one from one address, that wait for a change in one API process
            (`PT2HUB_MAX_WAITS`).
        builds_per_team: Queued and running builds and measuring jobs of one team (`PT2HUB_MAX_TEAM_BUILDS`).
        bytes_per_team: Stored bytes that a team's versions refer to (`PT2HUB_MAX_TEAM_BYTES`).
    """

    requests_per_token: int = 60_000
    sign_ins_per_address: int = 60
    uploads_per_token: int = 1000
    waits_per_token: int = 250
    builds_per_team: int = 1000
    bytes_per_team: int = 0


NO_LIMITS = Limits(0, 0, 0, 0, 0, 0)
