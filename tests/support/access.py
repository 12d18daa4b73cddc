"""Requests to routes that require a token, of the API and of the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
READING_POSTS = {"artifacts.check", "oidc.exchange", "pages.sign_in", "pages.sign_out"}
"""Routes that change nothing that is recorded."""


@dataclass(frozen=True)
class Case:
    """A request that a route accepts from a token that allows it."""

    method: str
    url: str
    body: dict[str, Any] | None = None
    data: bytes | None = None


def send(web: FlaskClient, endpoint: str, case: Case, token: str | None) -> TestResponse:
    """Sends a request; to a page with a session of the token, to the API with the token itself."""
    if endpoint.startswith("pages."):
        if token:
            web.post("/sign-in", data={"token": token}, headers=SAME_SITE)
        return web.open(case.url, method=case.method, data=case.body, headers=SAME_SITE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if case.data is not None:
        return web.open(case.url, method=case.method, data=case.data, headers=headers)
    return web.open(case.url, method=case.method, json=case.body, headers=headers)
