"""Yanks: hidden from names and alias moves, served where pinned, kept with reasons, and safe against races."""

from __future__ import annotations

import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.artifacts.yanks import YankedVersionWarning
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    NotReady,
    VersionInUse,
    VersionYanked,
)
from support.artifacts import a_target
from support.promoted import ADMIN, MODEL, move, published

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from support.registry import Registry
    from support.shell import Shell

HERE = a_target().name
ADA = Actor("ada")


def yank(registry: Registry, number: int, reason: str = "wrong labels", by: Actor = ADA) -> None:
    registry.services.yanks.yank(MODEL, number, reason=reason, by=by)


def test_a_yanked_version_is_passed_over_by_names_and_served_where_it_is_pinned(registry: Registry) -> None:
    first, second = published(registry), published(registry)
    resolve = registry.services.resolve.resolve
    assert resolve(MODEL).number == 2
    yank(registry, 2)
    assert (resolve(MODEL).number, resolve(MODEL).yanked) == (1, None)
    assert registry.services.catalog.model(MODEL).newest_ready == 1
    for pinned in (f"{MODEL}@2", f"{MODEL}@{second}", f"{MODEL}@{second[:20]}"):
        found = resolve(pinned)
        assert found.number == 2
        assert found.yanked is not None
        assert (found.yanked.reason, found.yanked.by) == ("wrong labels", "ada")
    assert resolve(f"{MODEL}@{first}").yanked is None
    view = registry.services.publish.version(MODEL, 2)
    assert view.yanked is not None
    assert [item.yanked for item in registry.services.catalog.versions(MODEL).versions] == [view.yanked, None]
    registry.services.yanks.unyank(MODEL, 2, reason="the labels were right", by=ADA)
    assert resolve(MODEL).number == 2
    view = registry.services.publish.version(MODEL, 2)
    assert view.yanked is None
    assert [(item.sequence, item.yanked, item.reason) for item in view.yanks] == [
        (2, False, "the labels were right"),
        (1, True, "wrong labels"),
    ]


def test_where_every_ready_version_is_yanked_a_name_says_so(registry: Registry) -> None:
    published(registry)
    yank(registry, 1)
    with pytest.raises(NotReady, match=r"No version of .* is ready that is not yanked") as caught:
        registry.services.resolve.resolve(MODEL)
    assert "is yanked: wrong labels" in str(caught.value.hint)


def test_no_alias_moves_to_a_yanked_version_not_even_by_force(registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    move(registry, 1, None)
    yank(registry, 2)
    aliases = registry.services.aliases
    with pytest.raises(
        VersionYanked, match=r'cannot move to .*@2: it was yanked by token "ada".*: wrong labels'
    ) as caught:
        move(registry, 2, 1)
    assert f"pt2hub unyank {MODEL}@2" in str(caught.value.hint)
    with pytest.raises(VersionYanked):
        aliases.force(MODEL, "prod", 2, expected=1, reason="x", by=ADMIN)
    with pytest.raises(VersionYanked):
        aliases.preview(MODEL, "prod", 2, by=ADMIN.principal)
    with pytest.raises(VersionYanked):
        move(registry, 2, None, "canary")
    assert aliases.alias(MODEL, "prod").number == 1
    assert [item.name for item in aliases.aliases(MODEL).aliases] == ["prod"]


def test_a_version_that_aliases_point_to_cannot_be_yanked(registry: Registry) -> None:
    for _ in range(2):
        published(registry)
    move(registry, 1, None)
    move(registry, 2, 1)
    move(registry, 2, None, "canary")
    with pytest.raises(VersionInUse, match=r"Cannot yank .*@2: canary, prod point to it") as caught:
        yank(registry, 2)
    assert caught.value.context["aliases"] == ["canary", "prod"]
    assert f"pt2hub alias rollback {MODEL} canary" in str(caught.value.hint)
    move(registry, 1, 2)
    registry.services.aliases.remove(MODEL, "canary", expected=2, reason="x", by=Actor("ci"))
    yank(registry, 2)


def test_the_same_yank_again_changes_nothing_and_another_is_refused(registry: Registry) -> None:
    published(registry)
    yank(registry, 1)
    yank(registry, 1)
    with pytest.raises(VersionYanked, match=r'already yanked, by token "ada" at .*: wrong labels'):
        yank(registry, 1, "another reason")
    with pytest.raises(VersionYanked):
        yank(registry, 1, by=Actor("bob"))
    services = registry.services
    services.yanks.unyank(MODEL, 1, reason="right", by=ADA)
    services.yanks.unyank(MODEL, 1, reason="right", by=ADA)
    with pytest.raises(Conflict, match="is not yanked"):
        services.yanks.unyank(MODEL, 1, reason="another", by=ADA)
    assert len(services.publish.version(MODEL, 1).yanks) == 2


def test_what_does_not_exist_or_has_no_reason_is_not_yanked(registry: Registry) -> None:
    published(registry)
    with pytest.raises(NotFound, match=f"Version {MODEL}@9 not found"):
        yank(registry, 9)
    with pytest.raises(NotFound, match="Model vision/none not found"):
        registry.services.yanks.yank("vision/none", 1, reason="x", by=ADA)
    with pytest.raises(InvalidInput, match="The reason is missing"):
        yank(registry, 1, " ")
    with pytest.raises(Conflict, match="is not yanked"):
        registry.services.yanks.unyank(MODEL, 1, reason="x", by=ADA)
    assert registry.sql("SELECT count(*) FROM version_yanks") == [(0,)]


def test_a_yank_and_an_alias_move_at_once_never_both_succeed(registry: Registry) -> None:
    for _ in range(12):
        published(registry)
    move(registry, 1, None)
    together = Barrier(2)

    def attempt(act: Callable[[], object]) -> bool:
        together.wait()
        try:
            act()
        except (VersionYanked, VersionInUse):
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        for number in range(2, 13):
            name = f"a{number}"  # a new alias, whose row no lock covers yet
            acts = (partial(move, registry, number, None, name), partial(yank, registry, number))
            moved, yanked = pool.map(attempt, acts)
            assert moved != yanked
    for item in registry.services.aliases.aliases(MODEL).aliases:
        assert registry.services.publish.version(MODEL, item.number or 0).yanked is None


@pytest.fixture
def two(served: Registry) -> list[Digest]:
    """Two versions for this machine's target."""
    served.worker("w0", HERE)
    return [
        served.published(
            served.submit(targets=[HERE], checks={"tolerance": 0.01 * number}), code=b"%d" % number
        )
        for number in (1, 2)
    ]


def test_the_client_warns_once_of_what_is_pinned_and_yanked(
    client: Client, served: Registry, two: list[Digest], tmp_path: Path
) -> None:
    client.versions.yank(MODEL, 2, reason="wrong\nlabels")
    with pytest.warns(YankedVersionWarning) as warned:
        pulled = [client.pull(f"{MODEL}@2", target=HERE).manifest_digest for _ in range(2)]
    assert pulled == [two[1]] * 2
    (text,) = [str(item.message) for item in warned]
    assert text.startswith(f"{MODEL}@2 is yanked by client, ")
    assert text.endswith(": wrong labels")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert client.pull(MODEL, target=HERE).config.version.number == 1
    other = ClientConfig(home=tmp_path / "other", url=client.config.url)
    with Client(other) as fresh, pytest.warns(YankedVersionWarning, match=f"{MODEL}@{two[1]} is yanked by"):
        fresh.pull(f"{MODEL}@{two[1]}", target=HERE)
    view = client.versions.unyank(MODEL, 2, reason="right")
    assert (view.yanked, len(view.yanks)) == (None, 2)
    assert served.services.resolve.resolve(MODEL).number == 2


def test_a_yank_needs_the_scope_promote(
    client: Client, served: Registry, two: list[Digest], tmp_path: Path
) -> None:
    assert two
    token = served.services.access.create_token("ci", scopes=set(Scope) - {Scope.PROMOTE, Scope.ADMIN})
    with Client(ClientConfig(home=tmp_path / "ci", url=client.config.url, token=token)) as plain:
        with pytest.raises(Forbidden, match="does not allow promote"):
            plain.versions.yank(MODEL, 1, reason="x")
        with pytest.raises(Forbidden, match="does not allow promote"):
            plain.aliases.preview(MODEL, "prod", 1)


def test_commands_yank_warn_list_lock_and_end_a_yank(
    shell: Shell, two: list[Digest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert two
    told = shell("yank", f"{MODEL}@2", "--reason", "wrong labels")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(f"{MODEL}@2 is yanked by client, ")
    again = shell("yank", f"{MODEL}@2", "--reason", "others")
    assert (again.code, "[version_yanked]" in again.err) == (1, True)
    assert shell("versions", MODEL).lines[1][:3] == ["2", "ready,", "yanked"]
    assert "wrong labels" in shell("show", f"{MODEL}@2").out
    pulled = shell("pull", f"{MODEL}@2", "--target", HERE)
    assert pulled.code == 0
    assert pulled.err.count(f"pt2hub: warning: {MODEL}@2 is yanked by client") == 1
    code, document = shell.json("pull", f"{MODEL}@2", "--target", HERE)
    assert (code, len(document["warnings"])) == (0, 1)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    locked = shell("lock", f"{MODEL}@2")
    assert (locked.code, locked.err.count("is yanked by client")) == (0, 1)
    assert json.loads(shell("show", f"{MODEL}@2", "--json").out)["yanked"]["reason"] == "wrong labels"
    assert "is not yanked any more" in shell("unyank", f"{MODEL}@2", "--reason", "right").out
    assert shell("unyank", f"{MODEL}@2", "--reason", "twice").code == 1
    assert "[not_found]" in shell("yank", f"{MODEL}@7", "--reason", "x").err
    assert shell("yank", MODEL, "--reason", "x").code == 2
    assert shell("yank", f"{MODEL}@1", "--reason", " ").code == 2
