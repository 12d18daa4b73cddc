"""The checker of histories: it accepts what some order explains, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.linearizability import Operation, Outcome, find_violation, settle

LATE = 1 << 40


def read(began: int, ended: int, value: int) -> Operation:
    return Operation(0, began, ended, Outcome.OK, None, value)


def swap(began: int, ended: int, expected: int, value: int, outcome: Outcome = Outcome.OK) -> Operation:
    return Operation(0, began, ended, outcome, expected, value)


@pytest.mark.parametrize(
    "history",
    [
        [swap(0, 9, 1, 2), read(1, 8, 1), read(2, 7, 2), read(3, 6, 1)],
        [swap(0, 9, 1, 2), swap(0, 9, 2, 1), swap(0, 9, 1, 3), read(10, 11, 3)],
        [swap(0, 5, 1, 2, Outcome.UNKNOWN), read(10, 11, 1), read(20, 21, 2)],
        [swap(0, 5, 1, 2, Outcome.UNKNOWN), read(10, 11, 1)],
        [swap(0, 9, 1, 2), swap(1, 8, 1, 3, Outcome.CONFLICT)],
        [swap(0, 9, 1, 2, Outcome.CONFLICT), swap(0, 9, 1, 3), swap(0, 9, 3, 1)],
    ],
    ids=["overlap", "chain", "late effect", "no effect", "conflict", "conflict in between"],
)
def test_histories_that_an_order_explains_are_accepted(history: list[Operation]) -> None:
    assert find_violation(history, 1) is None
    assert find_violation(history[::-1], 1) is None


@pytest.mark.parametrize(
    ("history", "at"),
    [
        ([swap(0, 1, 1, 2), read(2, 3, 1)], 1),
        ([swap(0, 9, 1, 2), swap(0, 9, 1, 3)], 1),
        ([swap(0, 9, 1, 2), read(1, 3, 2), read(4, 5, 1)], 2),
        ([swap(0, 1, 1, 2, Outcome.CONFLICT)], 0),
        ([swap(0, 5, 1, 2, Outcome.UNKNOWN), read(10, 11, 2), read(20, 21, 1)], 2),
        ([swap(10, 15, 1, 2, Outcome.UNKNOWN), read(0, 1, 2)], 1),
        ([read(0, 1, 3)], 0),
    ],
    ids=["stale read", "lost update", "back again", "conflict", "unknown undone", "too early", "never set"],
)
def test_planted_violations_are_found(history: list[Operation], at: int) -> None:
    assert find_violation(history, 1) == history[at]


def explained(history: list[Operation], initial: int) -> bool:
    """Whether one of all orders explains a history, with each choice of lost operations that had an effect."""
    known = [item for item in history if item.outcome is not Outcome.UNKNOWN]
    lost = [item for item in history if item.outcome is Outcome.UNKNOWN]
    for chosen in range(1 << len(lost)):
        some = [*known, *(item for number, item in enumerate(lost) if chosen >> number & 1)]
        if any(follows(order, initial) for order in permutations(some)):
            return True
    return False


def follows(order: tuple[Operation, ...], value: int | None) -> bool:
    for number, item in enumerate(order):
        if any(ended(other) < item.began for other in order[number + 1 :]):
            return False
        after = item.apply(value)
        if after is None:
            return False
        value = after[0]
    return True


def ended(item: Operation) -> int:
    return LATE if item.outcome is Outcome.UNKNOWN else item.ended


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    values = st.integers(1, 3)
    found = []
    for _ in range(draw(st.integers(1, 6))):
        began = draw(st.integers(0, 20))
        over = began + draw(st.integers(1, 8))
        if draw(st.booleans()):
            found.append(read(began, over, draw(values)))
        else:
            found.append(swap(began, over, draw(values), draw(values), draw(st.sampled_from(list(Outcome)))))
    return found


@settings(max_examples=300, deadline=None)
@given(histories())
def test_the_search_agrees_with_trying_every_order(history: list[Operation]) -> None:
    assert (find_violation(history, 1) is None) == explained(history, 1)


def test_the_registers_own_record_decides_what_became_of_lost_answers() -> None:
    lost, never = (
        Operation(0, began, 5, Outcome.UNKNOWN, 1, 2, reason) for began, reason in ((0, "lost"), (1, "never"))
    )
    answered = Operation(1, 20, 21, Outcome.OK, 2, 3, "answered")
    refused = Operation(1, 30, 31, Outcome.CONFLICT, 1, 4, "refused")
    history = [lost, never, read(10, 11, 1), answered, refused]

    settled = settle(history, ["first", "lost", "answered"], until=40)

    assert settled == [replace(lost, outcome=Outcome.OK, ended=40), read(10, 11, 1), answered, refused]
    assert find_violation(settled, 1) is None
    assert find_violation([item for item in settled if item.reason != "lost"], 1) == answered
    for wrong in (["lost"], ["answered", "refused"], ["answered", "answered"]):
        with pytest.raises(AssertionError):
            settle(history, wrong, until=40)
