"""Tokens of people: never more than their roles, at any time; and who may give and take roles."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.audit import AuditFilter
from pt2hub.domain.people import Role
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.errors import Conflict, Forbidden, NotFound, SignInRequired, TokenRevoked
from support.people import ROOT, Browser, make_web
from support.registry import a_spec

if TYPE_CHECKING:
    from werkzeug.test import TestResponse

    from pt2hub.server.container import Container
    from support.registry import Registry

TOKEN = re.compile(r"pt2_[a-z2-7]{52}_[a-z2-7]{6}")
OWN: dict[str, Any] = {"name": "laptop", "scope": ["read", "publish"], "models": "vision/*", "days": "30"}


def create(browser: Browser, **changes: Any) -> TestResponse:
    return browser.send("/tokens", **(OWN | changes))


def created(browser: Browser, **changes: Any) -> str:
    answer = create(browser, **changes)
    assert answer.status_code == 201, answer.get_data(as_text=True)
    assert "no-store" in answer.headers["Cache-Control"]
    return TOKEN.findall(answer.get_data(as_text=True))[0]


def publish(browser: Browser, token: str, **spec: Any) -> int:
    """The status of a publish with a token, without cookies."""
    web = browser.web.application.test_client()
    headers = {"Authorization": f"Bearer {token}"}
    return web.post("/api/v1/versions", json=a_spec(**spec), headers=headers).status_code


def person_of(container: Container) -> Actor:
    """The person who signed in last, in a browser."""
    (person,) = container.people.all()
    value = container.web_sessions.open_for(person)
    actor = container.web_sessions.actor(value)
    assert actor is not None
    return actor


def test_a_token_of_a_person_acts_in_their_name_and_follows_their_roles(
    browser: Browser, container: Container
) -> None:
    browser.sign_in()
    token = created(browser)
    assert token not in browser.text("/tokens")
    assert publish(browser, token) == 201
    version = container.publish.version("vision/resnet18", 1)
    assert version.published_by is not None
    assert (version.published_by.kind, version.published_by.name) == ("person", "ada@acme.example")
    entry = next(
        one for one in container.audit_log.entries(AuditFilter()).entries if one.action == "version.publish"
    )
    assert (entry.principal.kind, entry.change["with_token"]) == ("person", container.access.tokens()[-1].id)
    assert publish(browser, token, model="nlp/bert") == 403
    (role,) = container.roles.assignments(ROOT)
    container.roles.remove(role.id, by=ROOT)
    different = {"checks": {"tolerance": 0.01}}
    assert publish(browser, token, **different) == 403, "a role that was taken is gone with the next request"
    container.roles.assign("vision-team", Role.READER, "vision/*", by=ROOT)
    assert publish(browser, token, **different) == 403
    container.roles.assign("vision-team", Role.MAINTAINER, "*", by=ROOT)
    assert publish(browser, token, **different) == 201
    assert publish(browser, token, model="nlp/bert") == 403, (
        "a role gives a token no more than it was made for"
    )
    browser.sign_in(groups=[])
    assert publish(browser, token, checks={"tolerance": 0.02}) == 403, "groups are those of the last sign-in"


def test_nobody_gives_a_token_more_than_their_roles(browser: Browser, container: Container) -> None:
    browser.sign_in()
    for changes in (
        {"scope": ["promote"]},
        {"scope": ["admin"]},
        {"scope": ["publish", "promote"]},
        {"models": "*"},
        {"models": "vision/* nlp/*"},
        {"models": "*/resnet18"},
        {"kind": "service"},
    ):
        refused = create(browser, **changes)
        assert (refused.status_code, "<code>forbidden</code>" in refused.get_data(as_text=True)) == (
            403,
            True,
        ), changes
    for changes in ({"scope": []}, {"scope": ["fly"]}, {"models": "x"}, {"name": " "}, {"days": "9999"}):
        assert create(browser, **changes).status_code in {403, 422}, changes
    assert container.access.tokens() == ()
    with pytest.raises(Forbidden):
        container.token_management.create_own(
            "x", scopes=[Scope.READ], patterns=["vision/*"], lasting=(_days(7)), by=Actor("ci", id=1)
        )


def _days(number: int) -> Any:
    from datetime import timedelta

    return timedelta(days=number)


def test_a_token_that_leaked_makes_and_takes_no_others(browser: Browser, container: Container) -> None:
    container.roles.assign("vision-team", Role.ADMIN, "vision/*", by=ROOT)
    browser.sign_in()
    weak, strong = created(browser, scope=["read"]), created(browser, name="strong", scope=["admin"])
    web = browser.web.application.test_client()
    ids = {item.name: item.id for item in container.access.tokens()}

    def ask(method: str, url: str, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return web.open(f"/api/v1/tokens{url}", method=method, json={}, headers=headers).status_code

    assert ask("POST", f"/{ids['strong']}/rotate", weak) == 404
    assert ask("DELETE", f"/{ids['strong']}", weak) == 404
    assert ask("POST", f"/{ids['laptop']}/rotate", strong) == 403, (
        "an admin gets nobody's new token, not even so"
    )
    pasted = Browser(make_web(container, web.application.extensions["pt2hub"].config), browser.provider)
    pasted.send("/sign-in", token=strong)
    assert create(pasted, kind="own").status_code in {403, 422}
    assert ask("POST", f"/{ids['laptop']}/rotate", weak) == 403, "its own successor would outlive it"
    assert pasted.send(f"/tokens/{ids['strong']}/rotate").status_code == 403
    assert f"/tokens/{ids['strong']}/rotate" not in pasted.text("/tokens")
    assert len(container.access.tokens()) == len(ids)
    assert ask("DELETE", f"/{ids['laptop']}", strong) == 200, "but may end it"


def test_the_list_of_tokens_is_filtered_and_sorted_by_its_address(browser: Browser) -> None:
    browser.sign_in()
    for name, days in (("laptop", "30"), ("Desk", "7"), ("notebook", "365")):
        created(browser, name=name, days=days)

    def names(query: str) -> list[str]:
        return re.findall(r'<th scope="row">(\w+) <span', browser.text(f"/tokens{query}"))

    assert names("") == ["laptop", "Desk", "notebook"]
    assert names("?sort=name") == ["Desk", "laptop", "notebook"]
    assert names("?sort=expires") == ["Desk", "laptop", "notebook"]
    assert names("?q=BOOK&sort=name") == ["notebook"]
    assert names("?q=ADA@") == ["laptop", "Desk", "notebook"]
    assert "No token matches." in browser.text("/tokens?q=nothing")
    assert browser.web.get("/tokens?sort=secret").status_code == 422


def test_people_see_rotate_and_revoke_their_own_tokens(browser: Browser, container: Container) -> None:
    browser.sign_in()
    token = created(browser)
    container.access.create_token("ci", patterns=["vision/*"])
    page = browser.text("/tokens")
    assert "laptop" in page
    assert "ci" not in [item.name for item in container.token_management.tokens(person_of(container))]
    own, service = (item.id for item in container.access.tokens())
    answer = browser.send(f"/tokens/{own}/rotate")
    (new,) = TOKEN.findall(answer.get_data(as_text=True))[:1]
    assert container.access.verify(new).name == container.access.verify(token).name == "ada@acme.example"
    assert container.access.tokens()[-1].owner == container.access.tokens()[0].owner
    assert browser.send(f"/tokens/{own}/revoke").status_code == 303
    with pytest.raises(TokenRevoked):
        container.access.verify(token)
    for url in (f"/tokens/{service}/revoke", f"/tokens/{service}/rotate", "/tokens/99999/revoke"):
        assert browser.send(url).status_code == 404
    assert (
        browser.web.post(f"/tokens/{own}/revoke", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    )


def test_an_admin_among_people_makes_tokens_of_services(browser: Browser, container: Container) -> None:
    container.roles.assign("vision-team", Role.ADMIN, "vision/*", by=ROOT)
    browser.sign_in()
    token = created(browser, kind="service", name="vision-ci")
    assert container.access.verify(token).name == "vision-ci"
    assert container.access.tokens()[-1].owner is None
    assert create(browser, kind="service", models="nlp/*").status_code == 403


def test_tokens_of_people_wait_when_they_have_not_signed_in_for_long(
    browser: Browser, container: Container, served: Registry
) -> None:
    browser.sign_in()
    token = created(browser)
    served.sql("UPDATE people SET signed_in_at = now() - interval '15 days'")
    with pytest.raises(SignInRequired):
        container.access.verify(token)
    assert "ada@acme.example" not in browser.text("/")
    browser.sign_in()
    assert container.access.verify(token).may(Scope.PUBLISH, "vision/resnet18")


def test_groups_of_another_provider_give_nothing_though_they_have_the_same_names(
    browser: Browser, container: Container
) -> None:
    container.roles.assign("vision-team", Role.ADMIN, "*", by=ROOT)
    browser.sign_in()
    token = created(browser)
    root = container.token_management.create(
        "root", scopes=[Scope.ADMIN], patterns=["*"], lasting=None, by=ROOT
    )
    assert publish(browser, token) == 201
    container.believe("https://new-provider.example")  # as a server does that starts with other settings
    with pytest.raises(SignInRequired, match="with this server's provider"):
        container.access.verify(token)
    assert "ada@acme.example" not in browser.text("/")
    assert create(browser).status_code == 401
    with pytest.raises(Conflict, match="is the last"):  # nor are they the admin that must remain
        container.token_management.revoke(root.info.id, by=ROOT)
    container.believe(browser.provider.issuer)
    assert container.access.verify(token).name == "ada@acme.example"


def test_the_operator_ends_the_access_of_a_person_at_once(browser: Browser, container: Container) -> None:
    browser.sign_in()
    token = created(browser)
    assert container.people.end("ada@acme.example", by=ROOT).name == "ada@acme.example"
    with pytest.raises(TokenRevoked):
        container.access.verify(token)
    assert "ada@acme.example" not in browser.text("/")
    with pytest.raises(NotFound):
        container.people.end("bob@acme.example", by=ROOT)


def test_an_admin_of_a_team_gives_roles_on_it_alone(browser: Browser, container: Container) -> None:
    container.roles.assign("vision-team", Role.ADMIN, "vision/*", by=ROOT)
    browser.sign_in()
    form = {"group": "interns", "role": "reader", "models": "vision/*"}
    assert browser.send("/teams", **form).status_code == 303
    page = browser.text("/teams")
    assert "interns" in page
    assert "ada@acme.example" in page
    for changes, status in (
        ({"models": "nlp/*"}, 403),
        ({"models": "*"}, 403),
        ({"models": "*/resnet18"}, 403),
        ({"role": "owner"}, 422),
        ({"group": ""}, 422),
        ({"models": "vision"}, 422),
    ):
        assert browser.send("/teams", **(form | changes)).status_code == status, changes
    foreign = container.roles.assign("nlp-team", Role.READER, "nlp/*", by=ROOT)
    assert "nlp-team" not in browser.text("/teams")
    assert browser.send(f"/teams/roles/{foreign.id}/remove").status_code == 404
    browser.sign_in(groups=["interns"])
    page = browser.text("/teams")
    assert "vision-team" in page
    assert "Give the role" not in page
    assert "Tokens that act" not in page
    assert browser.send("/teams", **form).status_code == 403


def test_two_admins_who_demote_each_other_leave_one(browser: Browser, container: Container) -> None:
    """Each takes the admin's role from the other's group, at once."""
    people = {}
    for number, name in enumerate(("ada", "bob")):
        browser.sign_in(sub=str(number), email=f"{name}@acme.example", groups=[f"{name}s"])
        people[name] = next(one for one in container.people.all() if one.name.startswith(name))
    for _ in range(5):
        roles = {name: container.roles.assign(f"{name}s", Role.ADMIN, "*", by=ROOT) for name in people}
        actors = {
            name: container.web_sessions.actor(container.web_sessions.open_for(one))
            for name, one in people.items()
        }
        barrier, refused = threading.Barrier(2), list[Conflict]()

        def demote(
            by: Actor | None,
            other: int,
            barrier: threading.Barrier = barrier,
            refused: list[Conflict] = refused,
        ) -> None:
            assert by is not None
            barrier.wait()
            try:
                container.roles.remove(other, by=by)
            except Conflict as error:
                refused.append(error)

        threads = [
            threading.Thread(target=demote, args=(actors[one], roles[other].id))
            for one, other in (("ada", "bob"), ("bob", "ada"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert [item.role for item in container.roles.assignments(ROOT)].count(Role.ADMIN) == 1
    container.access.create_token("root", admin=True)
    (last,) = (item for item in container.roles.assignments(ROOT) if item.role is Role.ADMIN)
    actor = container.web_sessions.actor(container.web_sessions.open_for(people[last.group[:-1]]))
    assert actor is not None
    container.roles.remove(last.id, by=actor)  # somebody else is an admin of all models


def test_a_group_without_people_and_a_token_of_a_person_are_no_last_admins(
    browser: Browser, container: Container, served: Registry
) -> None:
    root = container.access.verify(container.access.create_token("root", admin=True))
    container.roles.assign("nobody", Role.ADMIN, "*", by=ROOT)
    with pytest.raises(Conflict):
        container.token_management.revoke(root.id or 0, by=root)
    container.roles.assign("vision-team", Role.ADMIN, "*", by=ROOT)
    browser.sign_in()
    created(browser, scope=["admin"], models="*")
    served.sql("UPDATE people SET signed_in_at = now() - interval '15 days'")
    with pytest.raises(Conflict):
        container.token_management.revoke(root.id or 0, by=root)
    browser.sign_in()
    container.token_management.revoke(root.id or 0, by=root)


def test_a_protected_alias_takes_a_persons_address_and_no_name_for_tokens() -> None:
    from pt2hub.domain.tokens import matches_name

    assert matches_name("release-*", "release-ci")
    assert not matches_name("release-*", "release-me@acme.example")
    assert matches_name("*@acme.example", "ada@acme.example")
    assert matches_name("*", "ada@acme.example")
    assert matches_name("vision-ci:*", "vision-ci:repo:acme/vision@v2")


def test_roles_are_managed_over_the_api(browser: Browser, container: Container) -> None:
    headers = {"Authorization": f"Bearer {container.access.create_token('root', admin=True)}"}
    web = browser.web
    made = web.post(
        "/api/v1/roles", json={"group": "nlp-team", "role": "promoter", "models": "nlp/*"}, headers=headers
    )
    assert (made.status_code, made.get_json()["role"]) == (201, "promoter")
    listed = web.get("/api/v1/roles", headers=headers).get_json()["roles"]
    assert [(item["group"], item["pattern"]) for item in listed] == [
        ("nlp-team", "nlp/*"),
        ("vision-team", "vision/*"),
    ]
    for wrong in ({"role": "owner"}, {"models": "x"}, {"group": "\u202e"}):
        body = {"group": "g", "role": "reader", "models": "vision/*"} | wrong
        assert web.post("/api/v1/roles", json=body, headers=headers).status_code == 422
    gone = web.delete(f"/api/v1/roles/{made.get_json()['id']}", headers=headers)
    assert gone.get_json()["group"] == "nlp-team"
    again = web.delete(f"/api/v1/roles/{made.get_json()['id']}", headers=headers)
    assert (again.status_code, again.get_json()["code"]) == (404, "not_found")


def test_actors_of_several_roles_mix_none_of_them(browser: Browser, container: Container) -> None:
    container.roles.assign("vision-team", Role.PROMOTER, "nlp/*", by=ROOT)
    browser.sign_in()
    token = created(browser, scope=["publish", "promote"], models="vision/* nlp/*")
    for actor in (person_of(container), replace(container.access.verify(token))):
        assert actor.may(Scope.PUBLISH, "vision/a")
        assert actor.may(Scope.PROMOTE, "nlp/a")
        assert not actor.may(Scope.PUBLISH, "nlp/a")
        assert not actor.may(Scope.PROMOTE, "vision/a")
        assert not actor.may(Scope.READ, "audio/a")
