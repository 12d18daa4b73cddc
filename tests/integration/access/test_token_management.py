"""Tokens that are managed through the API: nobody gives, or takes from, more than they have."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.audit import AuditFilter
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.errors import Conflict, Pt2hubError, TokenExpired, TokenRevoked

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

WANTED = {"name": "ci", "scopes": ["publish"], "models": ["vision/*"]}


def headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def create(web: FlaskClient, token: str, **changes: Any) -> tuple[int, dict[str, Any]]:
    answer = web.post("/api/v1/tokens", json=WANTED | changes, headers=headers(token))
    return answer.status_code, answer.get_json()


def test_an_admin_creates_what_its_own_token_covers(registry: Registry, web: FlaskClient) -> None:
    access = registry.services.access
    root, vision = (
        access.create_token("root", admin=True),
        access.create_token("v", admin=True, patterns=["vision/*"]),
    )
    status, made = create(web, vision, expires_seconds=3600)
    assert status == 201
    actor = access.verify(made["token"])
    assert (actor.name, actor.scopes, actor.patterns) == ("ci", {Scope.PUBLISH}, ("vision/*",))
    assert actor.expires_at
    assert create(web, vision, name="ci-2", models=["vision/resnet*"])[0] == 201
    for beyond in (["*"], ["nlp/*"], ["*/resnet18"], ["vision/*", "nlp/bert"], ["vision*/x"]):
        status, answer = create(web, vision, models=beyond)
        assert (status, answer["code"]) == (403, "forbidden"), beyond
    assert create(web, root, name="ci-3", models=["*"], scopes=["admin"])[0] == 201
    assert create(web, vision)[1]["code"] == "conflict"
    assert create(web, access.create_token("ci"))[0] == 403
    for wrong in (
        {"scopes": []},
        {"scopes": ["root"]},
        {"models": []},
        {"models": ["x"]},
        {"expires_seconds": 0},
    ):
        assert create(web, root, **wrong)[0] == 422
    assert create(web, root, name="\u202e")[0] == 422


def test_lists_show_what_the_sender_manages(registry: Registry, web: FlaskClient) -> None:
    access = registry.services.access
    tokens = {
        "root": access.create_token("root", admin=True),
        "vision": access.create_token("vision", admin=True, patterns=["vision/*"]),
        "ci": access.create_token("ci", patterns=["vision/*"]),
        "nlp": access.create_token("nlp", patterns=["nlp/*"]),
    }
    for sender, shown in (
        ("root", ["root", "vision", "ci", "nlp"]),
        ("vision", ["vision", "ci"]),
        ("ci", ["ci"]),
        ("nlp", ["nlp"]),
    ):
        answer = web.get("/api/v1/tokens", headers=headers(tokens[sender]))
        assert [item["name"] for item in answer.get_json()["tokens"]] == shown
        assert tokens[sender] not in answer.get_data(as_text=True)
    nlp = access.verify(tokens["nlp"]).id
    for method, url in (("DELETE", f"/api/v1/tokens/{nlp}"), ("POST", f"/api/v1/tokens/{nlp}/rotate")):
        for sender in ("vision", "ci"):
            refused = web.open(url, method=method, json={}, headers=headers(tokens[sender]))
            unheard = web.open(
                url.replace(str(nlp), "999"), method=method, json={}, headers=headers(tokens[sender])
            )
            assert refused.status_code == unheard.status_code == 404
            assert refused.get_json()["detail"].replace(str(nlp), "999") == unheard.get_json()["detail"]
    assert access.verify(tokens["nlp"])


def test_a_rotated_token_works_until_its_overlap_ends(registry: Registry, web: FlaskClient) -> None:
    access = registry.services.access
    old = access.create_token("ci", scopes=[Scope.BUILD], patterns=["nlp/*"], lasting=timedelta(days=10))
    own = access.verify(old).id
    answer = web.post(f"/api/v1/tokens/{own}/rotate", json={"overlap_seconds": 3600}, headers=headers(old))
    assert answer.status_code == 201
    new = answer.get_json()["token"]
    one, other = access.verify(old), access.verify(new)
    assert (one.scopes, one.patterns, one.admin) == (other.scopes, other.patterns, other.admin)
    lasts = "SELECT round(extract(epoch FROM expires_at - now()) / 3600) FROM api_tokens ORDER BY id"
    assert [int(row[0]) for row in registry.sql(lasts)] == [1, 240]
    (entry,) = registry.services.audit_log.entries(AuditFilter(), limit=1).entries
    assert (str(entry.action), entry.principal.name, entry.change["before"]) == ("token.rotate", "ci", own)
    registry.sql("UPDATE api_tokens SET expires_at = now() WHERE id = %s", own)
    with pytest.raises(TokenExpired):
        access.verify(old)
    assert web.post(f"/api/v1/tokens/{own}/rotate", json={}, headers=headers(old)).status_code == 401
    admin = access.create_token("root", admin=True)
    ended = web.post(f"/api/v1/tokens/{own}/rotate", json={}, headers=headers(admin))
    assert (ended.status_code, ended.get_json()["code"]) == (409, "conflict")
    for wrong in (-1, 31 * 86_400):
        refused = web.post(
            f"/api/v1/tokens/{other.id}/rotate", json={"overlap_seconds": wrong}, headers=headers(new)
        )
        assert refused.status_code == 422


def test_a_token_revokes_itself_and_an_admin_others(registry: Registry, web: FlaskClient) -> None:
    access = registry.services.access
    root, ci = access.create_token("root", admin=True), access.create_token("ci")
    own = access.verify(ci).id
    assert web.delete(f"/api/v1/tokens/{own}", headers=headers(ci)).status_code == 200
    with pytest.raises(TokenRevoked):
        access.verify(ci)
    assert web.delete(f"/api/v1/tokens/{own}", headers=headers(root)).get_json()["revoked_at"]
    (entry,) = registry.services.audit_log.entries(AuditFilter(), limit=1).entries
    assert (str(entry.action), entry.principal.name, entry.change["id"]) == ("token.revoke", "ci", own)
    last = web.delete(f"/api/v1/tokens/{access.verify(root).id}", headers=headers(root))
    assert (last.status_code, last.get_json()["code"]) == (409, "conflict")
    assert access.verify(root).admin


def test_two_admins_who_revoke_each_other_leave_one(registry: Registry) -> None:
    access, management = registry.services.access, registry.services.token_management
    for _ in range(5):
        registry.sql("UPDATE api_tokens SET revoked_at = now() WHERE revoked_at IS NULL")
        pair = [access.verify(access.create_token(name, admin=True)) for name in ("ada", "bob")]
        barrier, refused = threading.Barrier(2), []

        def revoke(
            by: Actor,
            other: Actor,
            barrier: threading.Barrier = barrier,
            refused: list[Pt2hubError] = refused,
        ) -> None:
            barrier.wait()
            try:
                management.revoke(other.id or 0, by=by)
            except Conflict as error:
                refused.append(error)

        threads = [threading.Thread(target=revoke, args=args) for args in (pair, pair[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert registry.sql("SELECT count(*) FROM api_tokens WHERE admin AND revoked_at IS NULL") == [(1,)]
