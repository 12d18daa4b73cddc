from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.tokens import Actor, Scope
from pt2hub.errors import Ambiguous, InvalidInput, NotFound, TokenExpired, TokenRevoked, Unauthorized

if TYPE_CHECKING:
    from support.registry import Registry


def test_a_token_is_shown_once_and_only_its_hash_is_stored(registry: Registry) -> None:
    token = registry.services.access.create_token("ci")
    assert re.fullmatch(r"pt2_[a-z2-7]{52}_[a-z2-7]{6}", token)
    ((row,),) = registry.sql("SELECT row_to_json(t)::text FROM api_tokens t")
    assert token not in row
    assert token.split("_")[1] not in row
    registry.services.access.verify(token)


def test_the_last_use_is_kept_to_the_minute(registry: Registry) -> None:
    token = registry.services.access.create_token("ci")
    uses = []
    for _ in range(2):
        registry.services.access.verify(token)
        uses.append(registry.sql("SELECT last_used_at FROM api_tokens")[0][0])
    assert uses[0] is not None
    assert uses[0] == uses[1]


@pytest.mark.parametrize("text", ["", "pt2_", "Bearer x", "pt2_" + "a" * 52 + "_aaaaaa", "\x00"])
def test_what_is_no_token_does_not_reach_the_database(registry: Registry, text: str) -> None:
    registry.sql("DROP TABLE api_tokens CASCADE")
    with pytest.raises(Unauthorized) as caught:
        registry.services.access.verify(text)
    assert caught.value.hint


def test_a_whole_token_of_another_server_is_refused(registry: Registry) -> None:
    token = registry.services.access.create_token("ci")
    registry.sql("DELETE FROM api_tokens")
    with pytest.raises(Unauthorized):
        registry.services.access.verify(token)


def test_a_revoked_token_is_refused(registry: Registry) -> None:
    token = registry.services.access.create_token("ci")
    registry.sql("UPDATE api_tokens SET revoked_at = now()")
    with pytest.raises(Unauthorized):
        registry.services.access.verify(token)


def test_tokens_are_listed_without_their_secrets_and_revoked_by_name_or_id(registry: Registry) -> None:
    access = registry.services.access
    used, other = access.create_token("ci"), access.create_token("laptop")
    access.verify(used)
    first, second = access.tokens()
    assert [first.name, second.name] == ["ci", "laptop"]
    assert first.last_used_at
    assert (second.last_used_at, second.revoked_at) == (None, None)
    revoked = access.revoke("ci")
    assert (revoked.id, bool(revoked.revoked_at)) == (first.id, True)
    with pytest.raises(Unauthorized):
        access.verify(used)
    access.verify(other)
    assert access.revoke(str(first.id)).revoked_at == revoked.revoked_at
    with pytest.raises(NotFound, match="No valid token named 'ci'"):
        access.revoke("ci")


def test_a_name_of_several_valid_tokens_is_ambiguous_and_their_ids_are_named(registry: Registry) -> None:
    for _ in range(2):
        registry.services.access.create_token("ci")
    ids = [item.id for item in registry.services.access.tokens()]
    with pytest.raises(Ambiguous) as caught:
        registry.services.access.revoke("ci")
    assert f"{ids[0]}, {ids[1]}" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["", "  ", "ci\x1b[2J", "c\u202ei", "x" * 101])
def test_a_token_has_a_name_that_people_can_read(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid token name"):
        registry.services.access.create_token(name)


def test_an_admins_token_is_told_from_others(registry: Registry) -> None:
    access = registry.services.access
    assert access.verify(access.create_token("ci")) == Actor("ci", admin=False)
    assert access.verify(access.create_token("root", admin=True)) == Actor("root", admin=True)
    assert [(item.name, item.admin) for item in access.tokens()] == [("ci", False), ("root", True)]


def test_a_token_keeps_its_scopes_patterns_and_end(registry: Registry) -> None:
    access = registry.services.access
    token = access.create_token(
        "ci", scopes=[Scope.PUBLISH], patterns=["vision/*", "nlp/bert"], lasting=timedelta(days=90)
    )
    assert access.verify(token) == Actor(
        "ci", scopes=frozenset({Scope.PUBLISH}), patterns=("vision/*", "nlp/bert")
    )
    (found,) = access.tokens()
    assert (found.scopes, found.patterns) == ((Scope.PUBLISH,), ("vision/*", "nlp/bert"))
    left = datetime.fromisoformat(str(found.expires_at)) - datetime.fromisoformat(found.created_at)
    assert left == timedelta(days=90)


@pytest.mark.parametrize(
    ("grant", "where"),
    [
        ({"scopes": []}, "scopes"),
        ({"patterns": []}, "patterns"),
        ({"patterns": ["vision"]}, "patterns"),
        ({"patterns": ["vision/*", "Vision/x"]}, "patterns"),
        ({"lasting": timedelta()}, "lasting"),
        ({"lasting": timedelta(days=40_000)}, "lasting"),
    ],
)
def test_a_token_that_would_allow_nothing_is_refused(
    registry: Registry, grant: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.services.access.create_token("ci", **grant)
    assert caught.value.where == where
    assert registry.sql("SELECT count(*) FROM api_tokens") == [(0,)]


def test_an_expired_and_a_revoked_token_have_codes_of_their_own(registry: Registry) -> None:
    access = registry.services.access
    expired, revoked = access.create_token("old", lasting=timedelta(days=1)), access.create_token("gone")
    registry.sql("UPDATE api_tokens SET expires_at = now() - interval '1 second' WHERE name = 'old'")
    access.revoke("gone")
    for token, kind in ((expired, TokenExpired), (revoked, TokenRevoked)):
        with pytest.raises(kind) as caught:
            access.verify(token)
        assert token not in str(caught.value)
    assert [item.last_used_at for item in access.tokens()] == [None, None]
