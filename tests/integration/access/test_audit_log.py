"""The audit log: each mutating route with real requests, one entry for each mutation and none without."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from flask.testing import FlaskClient
from sqlalchemy import event
from sqlalchemy.engine import Engine

from pt2hub.domain.audit import Action
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.people import Role
from pt2hub.domain.principals import Principal
from pt2hub.domain.tokens import SERVER, Actor, Scope
from pt2hub.errors import AliasMoved, NotReady, PromotionCheckFailed, Pt2hubError
from pt2hub.server.api.app import REQUEST_HEADER
from pt2hub.server.api.permissions import RULES
from pt2hub.server.services.access.audit_log import read_filter
from pt2hub.wire.documents import write_document
from support.access import Case, changeable, send
from support.registry import ENVIRONMENT, V3, V4, Registry, a_spec
from support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MODEL = "vision/resnet18"
API = f"/api/v1/models/{MODEL}"
ADA = Actor("ada")
UNCHANGING = {
    "audit.entries",
    "aliases.preview",
    "meta.whoami",
    "pages.audit",
    "pages.retention",
    "retention.preview_retention",
    "retention.show_retention",
    "pages.check_spec",
    "pages.device",
    "pages.teams",
    "pages.tokens",
    "roles.roles",
    "tokens.tokens",
    "uploads.sign",  # presigned addresses, which nobody needs to use
    "uploads.upload",  # a look; what it may find complete is `upload.complete`
    "versions.preview",
    "webhooks.deliveries",
    "webhooks.webhooks",
}
"""Routes that require a token and change nothing."""
OWN = {"pages.create_token", "pages.revoke_token", "pages.rotate_token", "tokens.revoke", "tokens.rotate"}
"""Routes by which every token replaces and ends itself, and people theirs: `test_token_management.py`, `test_own_tokens.py`."""
PERSONAL = {"pages.decide_device"}
"""Routes for people alone: `test_devices.py`."""


@dataclass(frozen=True)
class Mutation:
    """A request that changes something.

    Attributes:
        prepare: Makes what the request needs, and the request.
        again: Entries of the same request sent again.
    """

    action: Action
    prepare: Callable[[Registry, FlaskClient], Case]
    again: int = 0


def built(registry: Registry) -> Digest:
    """A version with an artifact."""
    return registry.published()


def after(setup: Callable[[Registry], object], case: Case) -> Callable[[Registry, FlaskClient], Case]:
    """The request after the preparation."""

    def prepare(registry: Registry, _web: FlaskClient) -> Case:
        setup(registry)
        return case

    return prepare


def with_alias(registry: Registry) -> None:
    built(registry)
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=ADA)


def queued(url: str) -> Callable[[Registry, FlaskClient], Case]:
    return lambda registry, _: Case("POST", url.format(registry.submit().builds[0].id), {})


def cancelled(url: str) -> Callable[[Registry, FlaskClient], Case]:
    def prepare(registry: Registry, _web: FlaskClient) -> Case:
        build = registry.submit().builds[0].id
        registry.services.builds.cancel(build, ADA)
        return Case("POST", url.format(build), {})

    return prepare


def upload(method: str, suffix: str) -> Callable[[Registry, FlaskClient], Case]:
    """A request about an upload whose bytes are there."""

    def prepare(registry: Registry, web: FlaskClient) -> Case:
        digest, token = digest_bytes(b"bytes"), registry.services.access.create_token("uploader")
        view = registry.services.uploads.begin(digest, 5, by=ADA)
        blob = Case("PUT", f"/api/v1/blobs/{digest}", data=b"bytes")
        assert send(web, "blobs.upload", blob, token).status_code == 201
        return Case(method, f"/api/v1/uploads/{view.id}{suffix}", {"etags": []})

    return prepare


def report(registry: Registry, _web: FlaskClient) -> Case:
    machine = {"cpu_model": "EPYC", "cores": 2, "torch": ENVIRONMENT.torch}
    own = {"key": "a", "metric": "accuracy", "value": 0.7, "unit": "1", "environment": machine}
    return Case("POST", "/api/v1/measurements", {"measurements": [{**own, "artifact": built(registry)}]})


def with_yank(registry: Registry) -> None:
    built(registry)
    registry.services.yanks.yank(MODEL, 1, reason="first", by=ADA)


def webhook(method: str, suffix: str, body: dict[str, Any] | None = None) -> Callable[..., Case]:
    """A request about a webhook, at an address that is never called here."""

    def prepare(registry: Registry, _web: FlaskClient) -> Case:
        made = registry.services.webhooks.create(PUBLIC, pattern="vision/*", events=(), by=ADMIN)
        delivery = registry.services.webhooks.test(made.webhook.id, by=ADMIN)
        url = f"/api/v1/webhooks/{made.webhook.id}{suffix}"
        return Case(method, url.format(delivery=delivery.id), body)

    return prepare


def assigned(method: str, url: str) -> Callable[[Registry, FlaskClient], Case]:
    """A request about a role of a group."""

    def prepare(registry: Registry, _web: FlaskClient) -> Case:
        made = registry.services.roles.assign("others", Role.READER, "vision/*", by=Actor("root", admin=True))
        return Case(method, url.format(made.id))

    return prepare


ADMIN = Actor("ada", admin=True)
PUBLIC = "https://192.0.32.10/hook"
HOOK = {"address": PUBLIC, "models": "vision/*"}
ROLE = {"group": "vision-team", "role": "publisher", "models": "vision/*"}


def unneeded(registry: Registry, _web: FlaskClient) -> Case:
    digest = registry.blob(b"unneeded").digest
    registry.sql("DELETE FROM blob_leases")
    return Case("DELETE", f"/api/v1/blobs/{digest}")


def second_build(registry: Registry, _web: FlaskClient) -> Case:
    build = registry.submit(targets=[V4, V3]).builds[1].id
    registry.services.builds.cancel(build, ADA)
    return Case("DELETE", f"/api/v1/builds/{build}?reason=x")


def with_retention(registry: Registry) -> None:
    built(registry)
    registry.services.retention.put(MODEL, last=3, by=ADMIN)


def with_card(registry: Registry) -> None:
    registry.submit()
    registry.attach("README.md", b"# A net")


def another_card(registry: Registry, web: FlaskClient) -> Case:
    """A documentation file whose bytes are there, in place of the present one."""
    with_card(registry)
    data, token = b"# Another net", registry.services.access.create_token("uploader")
    blob = Case("PUT", f"/api/v1/blobs/{digest_bytes(data)}", data=data)
    assert send(web, "blobs.upload", blob, token).status_code == 201
    return Case("PUT", f"{API}/versions/1/files/README.md", {"digest": digest_bytes(data)})


MOVE = {"number": 1, "expected": None, "reason": "first"}
FORM = {"alias": "prod", "number": "1", "reason": "first"}
UPLOAD = {"digest": digest_bytes(b"new"), "size": 3}
PIECE = {"number": 1, "md5": "A" * 22 + "=="}
LINEAGE = {"add": ["other:hf:team/net@v1"]}
EVALUATION = {
    "key": "a",
    "version": f"{MODEL}@1",
    "metric": "accuracy",
    "value": 0.7,
    "unit": "1",
    "data_set": digest_bytes(b"data"),
    "count": 10,
}
LABELS = {"set": {"owner": "search"}}
TEXT = {"description": "A net."}
GRANT = {"name": "x", "scopes": ["read"], "models": ["vision/*"]}
MUTATIONS = {
    "aliases.move": Mutation(Action.ALIAS_MOVE, after(built, Case("PUT", f"{API}/aliases/prod", MOVE))),
    "aliases.remove": Mutation(
        Action.ALIAS_REMOVE, after(with_alias, Case("DELETE", f"{API}/aliases/prod?expected=1&reason=x"))
    ),
    "blobs.upload": Mutation(
        Action.BLOB_UPLOAD,
        lambda *_: Case("PUT", f"/api/v1/blobs/{digest_bytes(b'new')}", data=b"new"),
    ),
    "labels.label_model": Mutation(
        Action.MODEL_LABEL, after(Registry.submit, Case("PATCH", f"{API}/labels", LABELS))
    ),
    "labels.label_version": Mutation(
        Action.VERSION_LABEL, after(Registry.submit, Case("PATCH", f"{API}/versions/1/labels", LABELS))
    ),
    "files.put": Mutation(
        Action.VERSION_ATTACH,
        another_card,
    ),
    "files.remove": Mutation(
        Action.VERSION_DETACH, after(with_card, Case("DELETE", f"{API}/versions/1/files/README.md"))
    ),
    "lineage.change": Mutation(
        Action.VERSION_LINEAGE, after(Registry.submit, Case("PATCH", f"{API}/versions/1/lineage", LINEAGE))
    ),
    "measuring.measure": Mutation(
        Action.MEASUREMENT_QUEUE, after(built, Case("POST", "/api/v1/measure", {"reference": f"{MODEL}@1"}))
    ),
    "models.change": Mutation(Action.MODEL_DESCRIBE, after(Registry.submit, Case("PATCH", API, TEXT))),
    "policies.put": Mutation(
        Action.POLICY_CHANGE,
        after(Registry.submit, Case("PUT", f"{API}/policy", {"document": {}, "revision": 0})),
    ),
    "reports.evaluate": Mutation(
        Action.EVALUATION_REPORT,
        after(Registry.submit, Case("POST", "/api/v1/evaluations", {"evaluations": [EVALUATION]})),
    ),
    "reports.report": Mutation(Action.MEASUREMENT_REPORT, report),
    "roles.assign": Mutation(Action.ROLE_ASSIGN, lambda *_: Case("POST", "/api/v1/roles", ROLE)),
    "roles.remove": Mutation(Action.ROLE_REMOVE, assigned("DELETE", "/api/v1/roles/{}")),
    "retention.delete_blob": Mutation(Action.BLOB_DELETE, unneeded),
    "retention.delete_build": Mutation(Action.BUILD_DELETE, second_build),
    "retention.delete_model": Mutation(Action.MODEL_DELETE, after(built, Case("DELETE", f"{API}?reason=x"))),
    "retention.delete_version": Mutation(
        Action.VERSION_DELETE, after(built, Case("DELETE", f"{API}/versions/1?reason=x"))
    ),
    "retention.remove_retention": Mutation(
        Action.RETENTION_CHANGE, after(with_retention, Case("DELETE", f"/api/v1/retention?scope={MODEL}"))
    ),
    "retention.set_retention": Mutation(
        Action.RETENTION_CHANGE,
        after(built, Case("PUT", "/api/v1/retention", {"scope": MODEL, "last": 3})),
    ),
    "tokens.create": Mutation(Action.TOKEN_CREATE, lambda *_: Case("POST", "/api/v1/tokens", GRANT)),
    "uploads.begin": Mutation(  # each is an upload of its own
        Action.UPLOAD_BEGIN, lambda *_: Case("POST", "/api/v1/uploads", UPLOAD), again=1
    ),
    "uploads.cancel": Mutation(Action.UPLOAD_CANCEL, upload("DELETE", "")),
    "uploads.complete": Mutation(Action.UPLOAD_COMPLETE, upload("POST", "/complete")),
    "versions.add_target": Mutation(
        Action.VERSION_ADD_TARGET,
        after(Registry.submit, Case("POST", f"{API}/versions/1/targets", {"target": V3})),
    ),
    "versions.cancel": Mutation(Action.BUILD_CANCEL, queued("/api/v1/builds/{}/cancel")),
    "versions.retry": Mutation(Action.BUILD_RETRY, cancelled("/api/v1/builds/{}/retry")),
    "versions.submit": Mutation(
        Action.VERSION_PUBLISH, lambda *_: Case("POST", "/api/v1/versions", a_spec())
    ),
    "versions.unyank": Mutation(
        Action.VERSION_UNYANK, after(with_yank, Case("DELETE", f"{API}/versions/1/yank?reason=x"))
    ),
    "versions.yank": Mutation(
        Action.VERSION_YANK, after(built, Case("PUT", f"{API}/versions/1/yank", {"reason": "x"}))
    ),
    "webhooks.change": Mutation(Action.WEBHOOK_DISABLE, webhook("PATCH", "", {"enabled": False})),
    "webhooks.create": Mutation(
        Action.WEBHOOK_CREATE, lambda *_: Case("POST", "/api/v1/webhooks", HOOK), again=1
    ),
    "webhooks.delete": Mutation(Action.WEBHOOK_DELETE, webhook("DELETE", "")),
    "webhooks.redeliver": Mutation(
        Action.WEBHOOK_REDELIVER, webhook("POST", "/deliveries/{delivery}/redeliver"), again=1
    ),
    "webhooks.rotate": Mutation(Action.WEBHOOK_ROTATE, webhook("POST", "/rotate", {}), again=1),
    "webhooks.test": Mutation(Action.WEBHOOK_TEST, webhook("POST", "/test"), again=1),
    "pages.add_derivation": Mutation(
        Action.VERSION_LINEAGE,
        after(
            Registry.submit,
            Case("POST", f"/models/{MODEL}/versions/1/lineage", {"relation": "other", "parent": "hf:net@v1"}),
        ),
    ),
    "pages.assign_role": Mutation(Action.ROLE_ASSIGN, lambda *_: Case("POST", "/teams", ROLE)),
    "pages.remove_role": Mutation(Action.ROLE_REMOVE, assigned("POST", "/teams/roles/{}/remove")),
    "pages.cancel_build": Mutation(Action.BUILD_CANCEL, queued("/builds/{}/cancel")),
    "pages.describe": Mutation(
        Action.MODEL_DESCRIBE, after(Registry.submit, Case("POST", f"/models/{MODEL}/description", TEXT))
    ),
    "pages.measure": Mutation(
        Action.MEASUREMENT_QUEUE,
        lambda registry, _: Case("POST", f"/artifacts/{built(registry)}/measure", {}),
    ),
    "pages.move_alias": Mutation(
        Action.ALIAS_MOVE, after(built, Case("POST", f"/models/{MODEL}/aliases", FORM))
    ),
    "pages.publish": Mutation(
        Action.VERSION_PUBLISH, lambda *_: Case("POST", "/publish", {"spec": write_document(a_spec())})
    ),
    "pages.remove_alias": Mutation(
        Action.ALIAS_REMOVE,
        after(
            with_alias,
            Case("POST", f"/models/{MODEL}/aliases/prod/remove", {"seen": "prod=1", "reason": "x"}),
        ),
    ),
    "pages.unyank_version": Mutation(
        Action.VERSION_UNYANK,
        after(with_yank, Case("POST", f"/models/{MODEL}/versions/1/unyank", {"reason": "x"})),
    ),
    "pages.yank_version": Mutation(
        Action.VERSION_YANK, after(built, Case("POST", f"/models/{MODEL}/versions/1/yank", {"reason": "x"}))
    ),
    "pages.retry_build": Mutation(Action.BUILD_RETRY, cancelled("/builds/{}/retry")),
}


def entries(registry: Registry) -> list[tuple[Any, ...]]:
    return registry.sql(
        "SELECT principal_kind, principal, principal_id, action, request FROM audit_log ORDER BY id"
    )


def count(registry: Registry) -> int:
    return int(registry.sql("SELECT count(*) FROM audit_log")[0][0])


def state(registry: Registry) -> list[Any]:
    """Everything that a mutation changes, and that reads do not."""
    return [
        *changeable(registry),
        registry.sql("SELECT id FROM api_tokens ORDER BY 1"),
        registry.sql("SELECT id FROM role_assignments ORDER BY 1"),
    ]


def test_each_route_that_requires_a_token_is_walked_or_known_to_change_nothing() -> None:
    required = {
        endpoint for endpoint, rule in RULES.items() if rule.scope not in {None, Scope.READ} or rule.signed_in
    }
    assert not UNCHANGING & set(MUTATIONS)
    assert required == UNCHANGING | OWN | PERSONAL | set(MUTATIONS)


@pytest.mark.parametrize("endpoint", sorted(MUTATIONS))
def test_a_mutation_has_one_entry_and_a_refusal_or_a_repetition_none(
    registry: Registry, web: FlaskClient, endpoint: str
) -> None:
    mutation, access, scope = MUTATIONS[endpoint], registry.services.access, RULES[endpoint].scope
    assert scope is not None
    others = access.create_token("others", scopes=set(Scope) - {scope, Scope.ADMIN})
    token = access.create_token("allowed", scopes=[scope], patterns=["vision/*"])
    case = mutation.prepare(registry, web)
    before, known = state(registry), count(registry)
    assert send(web, endpoint, case, None).status_code == 401
    assert send(web, endpoint, case, others).status_code == 403
    assert (state(registry), count(registry)) == (before, known)

    response = send(web, endpoint, case, token)
    assert response.status_code < 400, response.get_data(as_text=True)
    (entry,) = entries(registry)[known:]
    ((own,),) = registry.sql("SELECT id::text FROM api_tokens WHERE name = 'allowed'")
    assert entry == ("token", "allowed", own, mutation.action, response.headers[REQUEST_HEADER])
    assert state(registry) != before
    changed = state(registry)

    send(web, endpoint, case, token)
    assert count(registry) == known + 1 + mutation.again
    assert mutation.again or state(registry) == changed


@contextmanager
def refused_entries() -> Iterator[list[str]]:
    """Let PostgreSQL refuse each entry within its transaction; yields what was to be written.

    A constraint would do it, too, and cost the test its database: the next one's copy takes half a second.
    """
    refused: list[str] = []

    def refuse(
        _connection: object, _cursor: object, statement: str, parameters: object, *_rest: object
    ) -> tuple[str, object]:
        if not statement.startswith("INSERT INTO audit_log"):
            return statement, parameters
        refused.append(statement)
        return "SELECT 1 / 0", {}

    event.listen(Engine, "before_cursor_execute", refuse, retval=True)
    try:
        yield refused
    finally:
        event.remove(Engine, "before_cursor_execute", refuse)


@pytest.mark.parametrize("endpoint", sorted(MUTATIONS))
def test_without_its_entry_nothing_is_changed(registry: Registry, web: FlaskClient, endpoint: str) -> None:
    case = MUTATIONS[endpoint].prepare(registry, web)
    token = registry.services.access.create_token("ci", admin=True)
    before = state(registry)
    with refused_entries() as refused:
        assert send(web, endpoint, case, token).status_code == 500
    assert refused
    assert state(registry) == before


@pytest.mark.parametrize(
    ("endpoint", "case"),
    [
        ("audit.entries", Case("GET", "/api/v1/audit")),
        ("meta.whoami", Case("GET", "/api/v1/whoami")),
        ("pages.audit", Case("GET", "/audit")),
        ("pages.retention", Case("GET", "/retention?scope=vision")),
        ("pages.device", Case("GET", "/device")),
        ("pages.teams", Case("GET", "/teams")),
        ("pages.tokens", Case("GET", "/tokens")),
        ("roles.roles", Case("GET", "/api/v1/roles")),
        ("pages.check_spec", Case("POST", "/publish/check", {"spec": write_document(a_spec())})),
        ("tokens.tokens", Case("GET", "/api/v1/tokens")),
        ("uploads.upload", Case("GET", "/api/v1/uploads/{}")),
        ("uploads.sign", Case("POST", "/api/v1/uploads/{}/parts", {"parts": [PIECE]})),
        ("versions.preview", Case("POST", "/api/v1/versions/preview", a_spec())),
        ("webhooks.deliveries", Case("GET", "/api/v1/webhooks/{hook}/deliveries")),
        ("webhooks.webhooks", Case("GET", "/api/v1/webhooks")),
    ],
)
def test_a_route_that_changes_nothing_has_no_entry(
    registry: Registry, web: FlaskClient, endpoint: str, case: Case
) -> None:
    token = registry.services.access.create_token("ci", admin=True)
    open_upload = registry.services.uploads.begin(digest_bytes(b"new"), 3, by=ADA).id
    hook = registry.services.webhooks.create(PUBLIC, pattern="vision/*", events=(), by=ADMIN).webhook.id
    known = count(registry)
    made = Case(case.method, case.url.format(open_upload, hook=hook), case.body)
    assert send(web, endpoint, made, token).status_code in {200, 409}  # this storage has no parts
    assert count(registry) == known


def test_what_services_refuse_has_no_entry(registry: Registry) -> None:
    registry.submit()
    aliases, known = registry.services.aliases, count(registry)
    with pytest.raises(NotReady):
        aliases.move(MODEL, "prod", 1, expected=None, reason="x", by=ADA)
    registry.published(registry.submit(checks={"tolerance": 0.01}))
    aliases.move(MODEL, "prod", 2, expected=None, reason="x", by=ADA)
    known = count(registry)
    with pytest.raises(AliasMoved):
        aliases.move(MODEL, "prod", 2, expected=None, reason="another reason", by=Actor("bob"))
    for refused in (
        lambda: registry.services.publish.submit(a_spec(targets=["nothing"]), by=ADA),
        lambda: registry.services.catalog.describe("vision/none", "x", by=ADA),
        lambda: registry.services.access.create_token(""),
    ):
        with suppress(Pt2hubError):
            refused()
    assert count(registry) == known


def test_a_forced_move_names_the_checks_that_it_overrode(registry: Registry) -> None:
    admin, aliases = Actor("root", admin=True), registry.services.aliases
    registry.published()
    registry.published(registry.submit(checks={"tolerance": 0.01}))
    check = {"metric": "accuracy", "max_worse": 0.01}
    policy = {"checks": [check], "metrics": {"accuracy": {"better": "higher"}}}
    registry.services.policies.put(MODEL, policy, revision=0, by=admin)
    aliases.force(MODEL, "prod", 1, expected=None, reason="first", by=admin)
    known = count(registry)
    with pytest.raises(PromotionCheckFailed):
        aliases.move(MODEL, "prod", 2, expected=1, reason="x", by=ADA)
    assert count(registry) == known
    aliases.force(MODEL, "prod", 2, expected=1, reason="it mends a wrong result", by=admin)
    ((change,),) = registry.sql("SELECT change FROM audit_log ORDER BY id DESC LIMIT 1")
    assert (change["before"], change["after"], change["reason"]) == (1, 2, "it mends a wrong result")
    assert change["forced"]["count"] == 1


def test_the_database_refuses_to_change_or_delete_entries(registry: Registry) -> None:
    registry.submit()
    before = registry.sql("SELECT * FROM audit_log")
    assert before
    for statement in ("UPDATE audit_log SET principal = 'x'", "DELETE FROM audit_log", "TRUNCATE audit_log"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
            registry.sql(statement)
    assert registry.sql("SELECT * FROM audit_log") == before


def test_a_name_that_is_used_again_is_another_principal(registry: Registry, web: FlaskClient) -> None:
    access = registry.services.access
    for number in (1, 2):
        token = access.create_token("ci")
        spec = a_spec(checks={"tolerance": 0.01 * number})
        assert send(web, "versions.submit", Case("POST", "/api/v1/versions", spec), token).status_code == 201
        access.revoke("ci")
    versions = [web.get(f"{API}/versions/{number}").get_json() for number in (1, 2)]
    principals = [version["published_by"] for version in versions]
    assert [one["name"] for one in principals] == ["ci", "ci"]
    assert principals[0]["id"] != principals[1]["id"]
    assert [version["builds"][0]["requested_by"] for version in versions] == principals


def test_every_record_says_who(registry: Registry) -> None:
    services, ada = registry.services, Principal("token", "ada", "7")
    by = Actor("ada", admin=True, id=7)
    version = services.publish.submit(a_spec(), by=by)
    build = version.builds[0]
    services.builds.cancel(build.id, by)
    assert services.builds.view(build.id).cancelled_by == ada
    services.builds.retry(build.id, by)
    again = services.builds.view(build.id)
    assert (again.requested_by, again.retried_by, again.cancelled_by) == (ada, ada, None)
    claim = registry.claim(build.id)
    assert (claim.published_by, claim.requested_by) == (ada, ada)
    services.builds.publish(claim, registry.publication(claim))
    (job,) = services.measuring_jobs.measure(f"{MODEL}@1", by=by).builds
    assert job.requested_by == ada
    assert services.aliases.move(MODEL, "prod", 1, expected=None, reason="x", by=by).last.principal == ada
    assert services.policies.put(MODEL, {}, revision=0, by=by).principal == ada
    assert services.catalog.describe(MODEL, "A net.", by=by).described_by == ada
    assert services.catalog.versions(MODEL).versions[0].published_by == ada
    services.access.create_token("ci", by=by)
    revoked = services.access.revoke("ci", by=by)
    assert (revoked.created_by, revoked.revoked_by) == (ada, ada)
    services.access.revoke(str(revoked.id), by=Actor("bob"))  # changes nothing
    assert services.access.tokens()[-1].revoked_by == ada
    actions = [entry.action for entry in services.audit_log.export(read_filter())]
    assert actions[-2:] == [Action.TOKEN_CREATE, Action.TOKEN_REVOKE]
    assert len(actions) == 9


def test_tokens_that_were_pasted_are_not_kept(registry: Registry) -> None:
    registry.published()
    token = registry.services.access.create_token("ci")
    registry.services.catalog.describe(MODEL, f"Use {token}", by=ADA)
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason=f"with {token}", by=ADA)
    kept = registry.sql("SELECT audit_log::text FROM audit_log")
    assert token.split("_")[1] not in str(kept)
    assert "pt2_(redacted)" in str(kept)


def test_a_long_value_is_kept_as_its_size_and_digest(registry: Registry) -> None:
    registry.submit()
    metrics = {f"{'m' * 60}{number}": {"better": "lower"} for number in range(200)}
    registry.services.policies.put(MODEL, {"metrics": metrics}, revision=0, by=Actor("ada", admin=True))
    ((change,),) = registry.sql("SELECT change FROM audit_log ORDER BY id DESC LIMIT 1")
    assert change["revision"] == 1
    assert change["after"]["omitted_bytes"] > 1 << 14
    assert change["after"]["digest"].startswith("sha256:")


@pytest.fixture
def history(registry: Registry) -> Registry:
    """Changes of two teams by two tokens."""
    for name, by in (("vision/net", "ada"), ("nlp/bert", "bob")):
        actor = Actor(name=by)
        registry.services.publish.submit(a_spec(model=name), by=actor)
        for number in range(3):
            registry.services.catalog.describe(name, f"text {number}", by=actor)
    registry.services.access.create_token("reader")
    return registry


def read(registry: Registry, web: FlaskClient, query: str = "", *patterns: str) -> dict[str, Any]:
    token = registry.services.access.create_token("root", admin=True, patterns=patterns or ["*"])
    response = send(web, "audit.entries", Case("GET", f"/api/v1/audit{query}"), token)
    assert response.status_code == 200, response.get_data(as_text=True)
    found: dict[str, Any] = response.get_json()
    return found


def test_entries_come_newest_first_page_by_page(history: Registry, web: FlaskClient) -> None:
    token = history.services.access.create_token("root", admin=True)
    seen, query = [], "?limit=4"
    while query:
        found = send(web, "audit.entries", Case("GET", f"/api/v1/audit{query}"), token).get_json()
        seen += [entry["id"] for entry in found["entries"]]
        query = f"?limit=4&after={found['next']}" if found["next"] else ""
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == count(history) == 10


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("?model=vision/net", 4),
        ("?model=vision/ne", 0),
        ("?principal=bob", 4),
        ("?action=model.describe", 6),
        ("?action=model.describe&model=nlp/bert&principal=bob", 3),
        ("?principal=b%00b", 0),
        ("?since=2020-01-01T00:00:00Z", 10),
        ("?since=2990-01-01", 0),
    ],
)
def test_filters_choose_entries(history: Registry, web: FlaskClient, query: str, number: int) -> None:
    assert len(read(history, web, query)["entries"]) == number


def test_the_page_shows_labels_as_words_and_not_as_json(registry: Registry, web: FlaskClient) -> None:
    by, labels = Actor("ada"), registry.services.labels
    registry.services.publish.submit(a_spec(labels={"stage": "dev"}), by=by)
    labels.change(MODEL, None, put={"owner": "<b>ada</b>"}, remove=(), expected={}, by=by)
    labels.change(MODEL, None, put={"owner": "bob"}, remove=(), expected={}, by=by)
    token = registry.services.access.create_token("root", admin=True)
    html = send(web, "pages.audit", Case("GET", "/audit"), token).get_data(as_text=True)
    for shown in (
        "labels stage=dev;",
        ">owner=&lt;b&gt;ada&lt;/b&gt;<",
        ">owner=&lt;b&gt;ada&lt;/b&gt; → bob<",
    ):
        assert shown in html, shown


@pytest.mark.parametrize("query", ["?since=yesterday", "?action=fly", "?model=resnet", "?after=x"])
def test_a_filter_that_is_wrong_is_refused(history: Registry, web: FlaskClient, query: str) -> None:
    token = history.services.access.create_token("root", admin=True)
    for endpoint, path in (("audit.entries", "/api/v1/audit"), ("pages.audit", "/audit")):
        assert send(web, endpoint, Case("GET", f"{path}{query}"), token).status_code in {400, 422}


def test_an_admin_of_some_models_sees_nothing_about_others(history: Registry, web: FlaskClient) -> None:
    found = read(history, web, "", "vision/*")["entries"]
    assert {name for entry in found for name in entry["models"]} == {"vision/net"}
    assert len(found) == 4
    assert read(history, web, "", "vision/ne", "*/net-1", "nlp/ber.")["entries"] == []
    assert len(read(history, web, "", "*/net", "nlp/b*")["entries"]) == 8


@pytest.mark.usefixtures("history")
def test_the_page_shows_entries_to_admins_and_links_them(signed_in: FlaskClient) -> None:
    page = signed_in.get("/audit?model=nlp/bert").get_data(as_text=True)
    assert "bob" in page
    assert "/models/nlp/bert/versions/1" in page
    assert "ada" not in page
    assert "/audit?model=nlp/bert" in signed_in.get("/models/nlp/bert").get_data(as_text=True)
    assert "by bob" in signed_in.get("/models/nlp/bert/versions/1").get_data(as_text=True)


@pytest.mark.usefixtures("history")
def test_readers_have_no_link_to_it_and_are_asked_to_sign_in(web: FlaskClient) -> None:
    assert "/audit" not in web.get("/models/nlp/bert").get_data(as_text=True)
    asked = web.get("/audit?model=nlp/bert")
    assert asked.status_code == 303
    assert asked.location == "/sign-in?to=/audit?model%3Dnlp/bert"


def test_the_operator_is_recorded_and_reads_and_exports_on_the_servers_machine(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PT2HUB_DATABASE_URL", registry.database_url)
    monkeypatch.setenv("PT2HUB_STORAGE", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "kofi")
    monkeypatch.setenv("PT2HUB_HOME", str(tmp_path))
    shell = Shell(capsys)
    made = shell.json("admin", "token", "--name", "ci")[1]["token"]
    shell("admin", "revoke", "ci")
    registry.services.publish.submit(a_spec(), by=SERVER)
    found = shell.json("admin", "audit-log")[1]["entries"]
    assert [entry["action"] for entry in found] == ["version.publish", "token.revoke", "token.create"]
    assert found[1]["principal"] == {"kind": "operator", "name": "kofi", "id": None}
    assert made not in json.dumps(found)
    assert "kofi (operator)" in shell("admin", "audit-log", "--action", "token.create").out
    lines = shell("admin", "audit-log", "--jsonl", "--since", "1h").out.splitlines()
    assert [json.loads(line) for line in lines] == found[::-1]
