"""Checks whether a history of a register with compare-and-set is linearizable.

A search after Wing and Gong that goes through the history in the order of time and keeps every state that the register may
be in: its value, and which of the unfinished operations have taken effect. An operation whose answer was lost may take effect
at any time after its beginning, or never.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Outcome(StrEnum):
    """What a client knows about its operation."""

    OK = "ok"
    CONFLICT = "conflict"
    """A compare-and-set found another value."""
    UNKNOWN = "unknown"
    """The answer was lost; that to a read says nothing then."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a client.

    Attributes:
        began: When it was sent, in ns.
        ended: When its answer was there, in ns, by the same clock; of a lost answer when the client gave up.
        expected: The value that a compare-and-set replaces; None for a read.
        value: What a read returned, or a compare-and-set sets.
        reason: What the register's own record of changes calls it.
    """

    client: int
    began: int
    ended: int
    outcome: Outcome
    expected: int | None
    value: int | None
    reason: str = ""

    def apply(self, register: int | None) -> tuple[int | None] | None:
        """The register's value afterwards, None if the operation cannot have had its outcome with this value."""
        if self.expected is None:
            return (register,) if register == self.value else None
        if self.outcome is Outcome.CONFLICT:
            return (register,) if register != self.expected else None
        return (self.value,) if register == self.expected else None


class _State(NamedTuple):
    """A state that the register may be in.

    Attributes:
        done: Unfinished operations that have taken effect, by number.
        lost: Operations with a lost answer that have taken effect, by number.
    """

    value: int | None
    done: frozenset[int]
    lost: frozenset[int]


def settle(history: Sequence[Operation], recorded: Sequence[str], until: int) -> list[Operation]:
    """The history with what the register's own record tells of lost answers: the search is exponential in their number.

    A lost compare-and-set that is recorded took effect at some time until the record was read, one that is not never did.

    Args:
        recorded: Reasons of the changes in the record.
        until: When it was read, in ns.

    Raises:
        AssertionError: The record has a change twice, lacks one that was answered, or has one that was refused.
    """
    assert len(set(recorded)) == len(recorded), "a change is recorded twice"
    settled, known = list[Operation](), set(recorded)
    for item in history:
        if item.expected is None:
            settled.append(item)
        elif item.outcome is Outcome.UNKNOWN:
            settled += [replace(item, outcome=Outcome.OK, ended=until)] if item.reason in known else []
        else:
            assert (item.reason in known) == (item.outcome is Outcome.OK), item
            settled.append(item)
    return settled


def find_violation(history: Sequence[Operation], initial: int | None) -> Operation | None:
    """The first operation whose answer no order explains; None if the history is linearizable.

    Args:
        history: In any order.
        initial: The register's value before the first operation.
    """
    history = [item for item in history if item.expected is not None or item.outcome is Outcome.OK]
    pending: set[int] = set()
    states = {_State(initial, frozenset(), frozenset())}
    for number, is_end in _events(history):
        if not is_end:
            pending.add(number)
        elif history[number].outcome is not Outcome.UNKNOWN:
            states = _minimal(_states_after(number, states, history, pending))
            pending.remove(number)
            if not states:
                return history[number]
    return None


def _events(history: Sequence[Operation]) -> Iterator[tuple[int, bool]]:
    """Beginnings and ends in the order of time; at the same time, beginnings come first."""
    begun = [(item.began, False, number) for number, item in enumerate(history)]
    over = [(item.ended, True, number) for number, item in enumerate(history)]
    return ((number, is_end) for _, is_end, number in sorted([*begun, *over]))


def _states_after(
    number: int, states: Iterable[_State], history: Sequence[Operation], pending: set[int]
) -> Iterator[_State]:
    """Every state in which an operation has taken effect, which ends now; others may have done so before it."""
    seen, left = set(states), list(states)
    while left:
        state = left.pop()
        if number in state.done:
            yield state._replace(done=state.done - {number})
            continue
        for other in pending - state.done - state.lost:
            after = history[other].apply(state.value)
            if after is None:
                continue
            is_lost = history[other].outcome is Outcome.UNKNOWN
            following = _State(
                after[0],
                state.done if is_lost else state.done | {other},
                state.lost | {other} if is_lost else state.lost,
            )
            if following not in seen:
                seen.add(following)
                left.append(following)


def _minimal(states: Iterable[_State]) -> set[_State]:
    """Leave out states in which more lost operations have taken effect than in another: these may still do so."""
    least: dict[tuple[int | None, frozenset[int]], list[frozenset[int]]] = {}
    for state in sorted(set(states), key=lambda item: len(item.lost)):
        kept = least.setdefault((state.value, state.done), [])
        if not any(lost <= state.lost for lost in kept):
            kept.append(state.lost)
    return {_State(value, done, lost) for (value, done), kept in least.items() for lost in kept}
