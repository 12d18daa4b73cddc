"""Requests to routes that require a token, of the API and of the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from support.registry import Registry

SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
READING_POSTS = {
    "artifacts.check",
    "devices.request",
    "devices.token",
    "oidc.exchange",
    "pages.sign_in",
    "pages.sign_out",
}
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


def changeable(registry: Registry) -> list[Any]:
    """What requests change, without the tokens that they carry."""
    tables = (
        "versions",
        "builds",
        "procrastinate_jobs",
        "alias_moves",
        "measurements",
        "evaluations",
        "derivations",
        "policies",
        "uploads",
        "version_yanks",
        "webhook_secrets",
        "webhook_deliveries",
        "retention_policies",
        "tombstones",
    )
    values = (
        "state, priority FROM builds",
        "description FROM models",
        "version_id FROM aliases",
        "state FROM uploads",
        "key, value FROM labels",
        "enabled FROM webhooks",
        "count(*) FROM blobs WHERE state = 'deleting'",
        "manifest FROM version_documentation",
    )
    return [
        *(registry.sql(f"SELECT count(*) FROM {table}") for table in tables),
        *(registry.sql(f"SELECT {value} ORDER BY 1") for value in values),
        # Manifests are stored before the transaction that refers to them, and stay unreferenced if it is refused.
        registry.sql("SELECT count(*) FROM blobs WHERE state = 'stored' AND kind = 'blobs'"),
    ]
