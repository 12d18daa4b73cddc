"""Sentences about aliases: the first thing that the pages of a model and an alias say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from pt2hub.domain.rollbacks import rollback_version
from pt2hub.rendering.alias_answers import (
    answer_alias,
    answer_model,
    previous_version,
    sort_aliases,
)
from pt2hub.wire.responses import AliasMove, AliasView, ModelView

MODEL = ModelView("vision/resnet18", "2026-01-01T00:00:00Z", 3, newest=17, newest_ready=17)


def alias(name: str = "prod", before: int | None = 16, after: int | None = 17, days: int = 3) -> AliasView:
    """An alias whose last move was so many days ago."""
    at = (datetime.now(UTC) - timedelta(days=days, minutes=5)).isoformat()
    last = AliasMove(2, before, after, "offline test +0.3 points", "mary", at)
    return AliasView(MODEL.name, name, after, last)


def test_a_models_answer_is_where_its_main_alias_is_since_when_and_by_whom() -> None:
    answer = answer_model(MODEL, alias(), "ready")
    assert answer.text == (
        "prod is on version 17, moved 3 d ago from version 16 by mary: offline test +0.3 points."
    )
    assert answer.tone == "good"


def test_a_newer_ready_version_is_named() -> None:
    answer = answer_model(replace(MODEL, newest_ready=19), alias(), "ready")
    assert answer.text.endswith("points. Version 19 is newer and ready.")
    slower = answer_model(
        replace(MODEL, newest_ready=19), alias(), "ready", "11.1 % slower than prod on H100", is_slower=True
    )
    assert (answer.tone, slower.tone) == ("good", "warn")
    assert slower.text.endswith("Version 19 is newer and ready, 11.1 % slower than prod on H100.")


@pytest.mark.parametrize(
    ("state", "tone", "words"),
    [
        ("pending", "busy", "is being built"),
        ("failed", "bad", "failed"),
        ("cancelled", "warn", "was cancelled"),
        (None, "warn", "is not ready"),
    ],
)
def test_without_a_ready_version_the_newest_says_why(state: str | None, tone: str, words: str) -> None:
    answer = answer_model(replace(MODEL, newest_ready=None), None, state)
    assert (answer.tone, answer.text) == (tone, f"No version is ready: version 17 {words}.")


def test_without_an_alias_the_newest_ready_version_answers() -> None:
    assert answer_model(MODEL, None, "ready").text == (
        "No alias yet: version 17 is the newest ready version."
    )
    empty = replace(MODEL, newest=None, newest_ready=None)
    assert answer_model(empty, None, None).text == "No versions yet."


def test_an_alias_that_was_set_forced_or_removed_says_so() -> None:
    assert answer_alias(alias(before=None)).text.startswith("prod is on version 17, set 3 d ago by mary: ")
    moved = alias()
    forced = replace(moved, last=replace(moved.last, forced={"count": 2, "refused": []}))
    assert answer_alias(forced).tone == "warn"
    assert answer_alias(forced).text.endswith("points. The move was forced past 2 failed checks.")
    gone = answer_alias(alias(before=17, after=None)).text
    assert gone.startswith("prod is on no version, removed 3 d ago from version 17 by mary: ")


def test_a_long_reason_is_shortened_and_is_one_line() -> None:
    moved = alias()
    text = answer_alias(replace(moved, last=replace(moved.last, reason="a\nb " + "x" * 490))).text
    assert text.endswith("x...")
    assert ": a b xxx" in text
    assert len(text) < 250


def test_production_stands_first_then_what_moved_last() -> None:
    found = [alias("old", days=9), alias("production"), alias("new", days=1), alias("prod", days=30)]
    assert [item.name for item in sort_aliases(found)] == ["prod", "production", "new", "old"]


@pytest.mark.parametrize(
    ("versions", "back"),
    [
        ([None, 1], None),
        ([None, 1, 1], None),
        ([None, 1, 2], 1),
        ([None, 1, 2, 1], None),  # 2 was left by a rollback
        ([None, 1, 2, 3, 2], 1),
        ([None, 1, 2, 1, 3], 1),
        ([None, 1, 2, 1, 2], 1),
        ([None, 1, 2, None, 3], None),
        ([7, 8], 7),  # a long history, of which only the end is read
    ],
)
def test_a_version_that_was_left_by_a_rollback_is_not_offered(
    versions: list[int | None], back: int | None
) -> None:
    assert rollback_version(list(pairwise(versions))) == back


def test_every_caller_replays_the_same_moves_however_many_it_has() -> None:
    to_and_fro = [(None, 1), *pairwise([1, *([2, 3] * 100)])]
    assert rollback_version(to_and_fro) == rollback_version(to_and_fro[-100:])


def test_a_first_move_has_no_version_before_it() -> None:
    assert previous_version(alias().last) == 16
    assert previous_version(alias(before=None).last) is None
    assert previous_version(alias(before=17).last) is None


def test_damage_is_said_first_and_is_bad() -> None:
    damaged = replace(MODEL, damaged={"prod": ("cpu-x86_64-v3", "cpu-x86_64-v4")})
    answer = answer_model(damaged, alias(), "ready")
    assert answer.tone == "bad"
    assert answer.text.startswith("Version 17 is damaged on the server: it cannot be pulled for ")
    assert "(pt2hub admin heal). prod is on version 17" in answer.text
    others = replace(MODEL, damaged={"canary": ("cpu-x86_64-v3",)})
    assert answer_model(others, alias(), "ready") == answer_model(MODEL, alias(), "ready")
