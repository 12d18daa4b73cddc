from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.errors import AliasMoved, InvalidInput, NotFound, NotReady, Pt2hubError
from support.registry import V3, V4

if TYPE_CHECKING:
    from pt2hub.server.services.promotion.aliases import AliasService
    from pt2hub.wire.responses import AliasView
    from support.registry import Registry

MODEL = "vision/resnet18"
THREADS = 12


def published(registry: Registry, versions: int) -> AliasService:
    """A model with so many versions that can be pulled."""
    for number in range(versions):
        registry.published(registry.submit(checks={"tolerance": 0.01 * (number + 1)}))
    return registry.services.aliases


def move(
    aliases: AliasService, number: int, expected: int | None, *, reason: str = "release", by: str = "ci"
) -> AliasView:
    return aliases.move(MODEL, "prod", number, expected=expected, reason=reason, by=Actor(by))


def test_an_alias_is_made_moved_and_resolved_and_keeps_its_history(registry: Registry) -> None:
    aliases = published(registry, 2)
    made = move(aliases, 1, None, reason="  first\r\nline two ")
    assert (made.model, made.name, made.number, made.history) == (MODEL, "prod", 1, (made.last,))
    assert (made.last.sequence, made.last.before, made.last.after) == (1, None, 1)
    assert (made.last.reason, made.last.by) == ("first\nline two", "ci")
    moved = move(aliases, 2, 1, by="ada")
    assert (moved.number, moved.last.before, moved.last.by) == (2, 1, "ada")
    assert aliases.alias(MODEL, "prod").history == (moved.last, made.last)
    resolved = registry.services.resolve.resolve(f"{MODEL}@prod")
    assert (resolved.number, resolved.alias) == (2, "prod")
    assert registry.services.resolve.resolve(f"{MODEL}@2").alias is None


def test_a_removed_alias_leaves_its_history_which_goes_on_when_it_is_made_again(registry: Registry) -> None:
    aliases = published(registry, 2)
    move(aliases, 1, None)
    move(aliases, 2, 1)
    removed = aliases.remove(MODEL, "prod", expected=2, reason="retired", by=Actor("ada"))
    assert (removed.number, removed.last.before, removed.last.after) == (None, 2, None)
    assert aliases.aliases(MODEL).aliases == ()
    assert aliases.alias(MODEL, "prod").number is None
    with pytest.raises(NotFound, match="@prod not found") as caught:
        registry.services.resolve.resolve(f"{MODEL}@prod")
    assert f"It was removed: pt2hub alias log {MODEL} prod shows its history." in (caught.value.hint or "")
    move(aliases, 1, None, reason="back")
    history = aliases.alias(MODEL, "prod").history
    assert [(item.sequence, item.before, item.after) for item in history] == [
        (4, None, 1),
        (3, 2, None),
        (2, 1, 2),
        (1, None, 1),
    ]


def test_a_move_from_where_the_alias_is_not_shows_the_move_that_won(registry: Registry) -> None:
    aliases = published(registry, 3)
    move(aliases, 1, None)
    won = move(aliases, 2, 1, by="ada", reason="canary passed")
    with pytest.raises(AliasMoved) as caught:
        move(aliases, 3, 1)
    error = caught.value
    winner = {"number": 2, "by": "ada", "reason": "canary passed", "at": won.last.at}
    assert error.context == {"model": MODEL, "alias": "prod", "expected": 1, "winner": winner}
    for part in (f"{MODEL}@prod is on version 2, not on 1", '"ada"', won.last.at[:19], "canary passed"):
        assert part in error.message
    assert "repeat it expecting 2" in (error.hint or "")
    with pytest.raises(AliasMoved, match="though it was expected not to exist"):
        move(aliases, 3, None)
    with pytest.raises(AliasMoved, match="is on version 2, not on 3"):
        aliases.remove(MODEL, "prod", expected=3, reason="x", by=Actor("ci"))
    aliases.remove(MODEL, "prod", expected=2, reason="retired", by=Actor("ada"))
    with pytest.raises(AliasMoved, match="was removed, not on 2") as caught:
        move(aliases, 3, 2)
    assert caught.value.context["winner"]["number"] is None


def test_the_same_move_again_is_answered_as_it_was_and_adds_no_history(registry: Registry) -> None:
    aliases = published(registry, 2)
    first = move(aliases, 1, None)
    assert move(aliases, 1, None) == first
    second = move(aliases, 2, 1)
    assert move(aliases, 2, 1) == second
    assert move(aliases, 2, 2, reason="it is there", by="ada") == second  # nothing to do
    for other in ({"by": "ada"}, {"reason": "another"}):
        with pytest.raises(AliasMoved):
            move(aliases, 2, 1, **other)
    gone = aliases.remove(MODEL, "prod", expected=2, reason="retired", by=Actor("ci"))
    assert aliases.remove(MODEL, "prod", expected=2, reason="retired", by=Actor("ci")) == gone
    assert len(aliases.alias(MODEL, "prod").history) == 3


@pytest.mark.parametrize("expected", [None, 1], ids=["made", "moved"])
def test_of_many_that_move_an_alias_at_once_one_wins_and_all_others_are_shown_it(
    registry: Registry, expected: int | None
) -> None:
    aliases = published(registry, 4)
    if expected:
        move(aliases, expected, None)
    together = Barrier(THREADS)

    def attempt(number: int) -> AliasView | Pt2hubError:
        together.wait()
        try:
            return move(aliases, 2 + number % 3, expected, by=f"token {number}")
        except Pt2hubError as exc:
            return exc

    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(attempt, range(THREADS)))
    losers = [item for item in outcomes if isinstance(item, AliasMoved)]
    (winner,) = [item for item in outcomes if item not in losers]
    assert not isinstance(winner, Pt2hubError)
    seen = {(item.context["winner"]["number"], item.context["winner"]["by"]) for item in losers}
    assert seen == {(winner.number, winner.last.by)}
    assert len(aliases.alias(MODEL, "prod").history) == (2 if expected else 1)


def test_many_moves_one_after_the_other_are_numbered_and_dated_in_their_order(registry: Registry) -> None:
    aliases = published(registry, 2)
    move(aliases, 1, None)

    def swap(turn: int) -> None:
        while True:
            now = aliases.alias(MODEL, "prod").number
            assert now
            try:
                move(aliases, 3 - now, now, reason=f"turn {turn}")
            except AliasMoved:
                continue
            return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(swap, range(20)))
    history = aliases.alias(MODEL, "prod").history[::-1]
    assert [item.sequence for item in history] == list(range(1, 22))
    assert [item.after for item in history] == [1, 2] * 10 + [1]
    assert [item.before for item in history[1:]] == [item.after for item in history[:-1]]
    assert sorted(item.at for item in history) == [item.at for item in history]


def test_only_a_version_with_an_artifact_can_be_named(registry: Registry) -> None:
    aliases = registry.services.aliases
    version = registry.submit(targets=[V4, V3])
    with pytest.raises(NotReady, match="has no artifact yet") as caught:
        move(aliases, 1, None)
    assert f"pending ({V4} queued, {V3} queued)" in (caught.value.hint or "")
    registry.published(version)  # partial is enough: it can be pulled for one target
    assert move(aliases, 1, None).number == 1
    with pytest.raises(NotFound, match=f"Version {MODEL}@2 not found") as not_found:
        move(aliases, 2, 1)
    assert "Its only version is 1" in (not_found.value.hint or "")


def test_what_does_not_exist_is_not_found_and_leaves_nothing_behind(registry: Registry) -> None:
    aliases = published(registry, 1)
    with pytest.raises(NotFound, match=r"Alias .*@prod not found"):
        move(aliases, 1, 1)
    with pytest.raises(NotFound, match=r"Alias .*@prod not found"):
        aliases.alias(MODEL, "prod")
    with pytest.raises(NotFound, match=r"Model .* not found"):
        aliases.aliases("vision/none")
    with pytest.raises(NotFound, match=r"Version .* not found"):
        move(aliases, 2, None)
    assert registry.sql("SELECT count(*) FROM aliases") == [(0,)]


@pytest.mark.parametrize("name", ["3", "sha256:a1b2c3", "a/b", ""])
def test_an_alias_that_is_a_number_or_a_digest_is_refused_before_anything_is_looked_up(
    registry: Registry, name: str
) -> None:
    with pytest.raises(InvalidInput, match="invalid alias"):
        registry.services.aliases.move(MODEL, name, 1, expected=None, reason="x", by=Actor("ci"))


@pytest.mark.parametrize("reason", ["", " \n", "x" * 501, "a\x00b", "\x1b[2J", "\ud800", "a\u202eb"])
def test_a_reason_that_cannot_be_kept_or_shown_is_refused(registry: Registry, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason=reason, by=Actor("ci"))
    assert (caught.value.where, bool(caught.value.hint)) == ("reason", True)


def test_a_long_history_is_answered_by_its_newest_thousand_moves(registry: Registry) -> None:
    aliases = published(registry, 1)
    move(aliases, 1, None)
    registry.sql(
        "INSERT INTO alias_moves (alias_id, sequence, after, reason, by) "
        "SELECT id, i, 1, 'x', 'ci' FROM aliases, generate_series(2, 1500) i"
    )
    registry.sql("UPDATE aliases SET moves = 1500")
    history = aliases.alias(MODEL, "prod").history
    assert [history[0].sequence, history[-1].sequence, len(history)] == [1500, 501, 1000]
