"""`pt2hub token` and `pt2hub login --ci` against a server, over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.tokens import Actor, Scope
from pt2hub.errors import Conflict, TokenRevoked

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from support.oidc_provider import Provider
    from support.registry import Registry
    from support.shell import Shell

CREATE = ("token", "create", "vision-ci", "--scope", "publish", "--scope", "build", "--models", "vision/*")


@pytest.fixture
def admin(served: Registry, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands of an admin."""
    monkeypatch.setenv("PT2HUB_TOKEN", served.services.access.create_token("root", admin=True))
    return shell


def test_a_token_is_created_listed_rotated_and_revoked(served: Registry, admin: Shell) -> None:
    access = served.services.access
    made = admin(*CREATE, "--expires", "90d")
    assert (made.code, made.err) == (0, "")
    actor = access.verify(made.out.strip())
    assert (actor.name, actor.scopes, actor.patterns) == (
        "vision-ci",
        {Scope.PUBLISH, Scope.BUILD},
        ("vision/*",),
    )
    listed = admin("token", "ls")
    (line,) = [line for line in listed.lines if "vision-ci" in line]
    assert line[:5] == [str(actor.id), "vision-ci", "build", "publish", "vision/*"]
    assert made.out.strip() not in listed.out
    rotated = admin.json("token", "rotate", "vision-ci", "--overlap", "1h")
    assert rotated[0] == 0
    assert access.verify(rotated[1]["token"]).scopes == actor.scopes
    assert access.verify(made.out.strip())
    two = admin("token", "revoke", "vision-ci")
    assert two.code == 1
    assert f"Use an id: {actor.id}, {rotated[1]['info']['id']}." in two.err
    ended = admin("token", "revoke", str(actor.id))
    assert (ended.code, ended.out) == (0, f"Token {actor.id} (vision-ci) was revoked.\n")
    with pytest.raises(TokenRevoked):
        access.verify(made.out.strip())
    assert admin.json("token", "ls")[1]["tokens"][-1]["created_by"]["name"] == "root"


def test_a_name_is_given_once_and_lists_say_whose_tokens_are(served: Registry, admin: Shell) -> None:
    made = admin.json(*CREATE)[1]["info"]["id"]
    taken = admin(*CREATE)
    assert (taken.code, f"Token vision-ci already exists (id {made})" in taken.err) == (1, True)
    assert f"pt2hub token rotate {made}" in taken.err
    assert admin("token", "revoke", str(made)).code == 0
    assert admin(*CREATE).code == 0, "the name of a token that has ended is free"
    assert "OWNER" in admin("token", "ls").out
    by = served.services.access.verify(served.services.access.create_token("root", admin=True))
    with ThreadPoolExecutor(8) as pool:
        made_at_once = list(pool.map(partial(_create, served, by), ["same"] * 8))
    assert made_at_once.count(True) == 1, "of those who ask at the same time, one gets it"


def _create(served: Registry, by: Actor, name: str) -> bool:
    try:
        served.services.token_management.create(
            name, scopes=[Scope.READ], patterns=["vision/*"], lasting=None, by=by
        )
    except Conflict:
        return False
    return True


def test_a_refusal_names_a_command_that_a_shell_takes_as_it_is(
    served: Registry, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = served.services.access.create_token("reader", scopes=[Scope.READ], patterns=["vision/*"])
    monkeypatch.setenv("PT2HUB_TOKEN", token)
    assert "--scope admin --models 'vision/*'" in shell(*CREATE).err
    refused = shell("label", "set", "vision/resnet18", "a=b").err
    assert "--scope publish --models vision/resnet18" in refused


def test_without_a_name_the_own_token_is_replaced(
    served: Registry, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = served.services.access
    own = access.create_token("ci", scopes=[Scope.BUILD])
    monkeypatch.setenv("PT2HUB_TOKEN", own)
    assert [item["name"] for item in shell.json("token", "ls")[1]["tokens"]] == ["ci"]
    made = shell("token", "rotate")
    assert access.verify(made.out.strip()).scopes == {Scope.BUILD}
    refused = shell(*CREATE)
    assert refused.code == 1
    assert "needs an admin token" in refused.err or "does not allow admin" in refused.err
    missing = shell("token", "revoke", "nobody")
    assert "`pt2hub token ls` lists the tokens." in missing.err


def test_a_ci_job_logs_in_with_its_id_token(
    served: Registry, client: Client, shell: Shell, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.services.trust.add(
        "vision-ci",
        issuer=provider.issuer,
        audience=client.config.url,
        claims={"repository": "acme/vision"},
        scopes=[Scope.PUBLISH],
        patterns=["vision/*"],
        by=Actor("ada"),
    )
    for name in ("PT2HUB_TOKEN", "PT2HUB_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PT2HUB_ID_TOKEN", provider.token(aud=client.config.url))
    told = shell.json("login", client.config.url, "--ci")
    assert told[0] == 0
    assert told[1]["name"].startswith("vision-ci:repo:acme/vision")
    assert told[1]["scopes"] == ["publish"]
    assert shell.json("whoami")[1]["name"] == told[1]["name"]
    monkeypatch.setenv("PT2HUB_ID_TOKEN", provider.token(aud=client.config.url, repository="mallory/vision"))
    refused = shell("login", client.config.url, "--ci")
    assert refused.code == 1
    assert "the rule vision-ci requires acme/vision" in refused.err
    monkeypatch.setenv("PT2HUB_ID_TOKEN", "abc")
    malformed = shell("login", client.config.url, "--ci")
    assert "three parts, with dots between them" in malformed.err
    assert "No token was sent" not in malformed.err, "it is not about the server's tokens"
