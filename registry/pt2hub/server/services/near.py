"""Names that somebody who wrote another one may have meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CLOSE = 0.8
"""Of `difflib`'s ratio: one letter of five may be wrong; resnet18 and resnet34 are two models, not one misspelt."""
_MOST = 3


def near_models(name: str, models: Iterable[str]) -> list[str]:
    """Models that a name may have meant, likeliest first: team and model misspelt, or another team's model.

    The two halves are compared for themselves, since a long team's name would make all its models alike.

    Args:
        name: `team/name` as asked for.
        models: The models there are.
    """
    team, _, model = name.partition("/")
    like_model, like_team = _closeness_to(model), _closeness_to(team)
    scored = [(like_model(other.partition("/")[2]), other) for other in models]
    close = [(score, like_team(other.partition("/")[0]), other) for score, other in scored if score]
    near = sorted(((-score, -teams, other) for score, teams, other in close if teams or score == 1))
    return [other for _, _, other in near[:_MOST]]


def near_words(word: str, words: Iterable[str]) -> list[str]:
    """Words that one may have meant: misspelt, in other letters' case, or cut off (`prod` for `production`)."""
    lower = word.lower()
    like_word = _closeness_to(lower)
    scored = [(like_word(other.lower()), other) for other in words]
    near = [(-score, other) for score, other in scored if score or _begins(lower, other.lower())]
    return [other for _, other in sorted(near)[:_MOST]]


def _closeness_to(word: str) -> Callable[[str], float]:
    """Tells how alike another word is to this one, from 0.8 to 1; else 0."""
    matcher = difflib.SequenceMatcher(b=word, autojunk=False)  # it keeps what it learns of `b`

    def closeness(other: str) -> float:
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() < _CLOSE or matcher.quick_ratio() < _CLOSE:
            return 0.0
        ratio = matcher.ratio()
        return ratio if ratio >= _CLOSE else 0.0

    return closeness


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
