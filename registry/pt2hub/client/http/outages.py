"""Errors that mean an outage of the server."""

from __future__ import annotations

from http import HTTPStatus

from pt2hub.errors import BadResponse, InternalError, Pt2hubError, TransientError


def is_away(error: Pt2hubError) -> bool:
    """Return whether an error means that the server does not work at the moment, and not that it refused."""
    if isinstance(error, BadResponse):
        return int(error.context.get("status", 0)) >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, TransientError | InternalError)


def with_hint(error: Pt2hubError, hint: str) -> Pt2hubError:
    """Return the same error with more advice."""
    return error.replace(hint=f"{error.hint or ''} {hint}".strip())
