"""Did-you-mean suggestions for misspelled names."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MIN_SIMILARITY = 0.8
"""`difflib`'s ratio: one letter in five may be wrong; resnet18 and resnet34 are two models, not a misspelling."""
_MAX_SUGGESTIONS = 3


def suggest_models(name: str, models: Iterable[str]) -> list[str]:
    """Return the models that may be meant by a name, likeliest first: misspelled, or of another team.

    Team and model are compared separately, since a long team name would make all its models similar.

    Args:
        name: `team/name`, as requested.
    """
    team, _, model = name.partition("/")
    like_model, like_team = _similarity_to(model), _similarity_to(team)
    scored = [(like_model(other.partition("/")[2]), other) for other in models]
    close = [(score, like_team(other.partition("/")[0]), other) for score, other in scored if score]
    ranked = sorted(((-score, -teams, other) for score, teams, other in close if teams or score == 1))
    return [other for _, _, other in ranked[:_MAX_SUGGESTIONS]]


def suggest_words(word: str, words: Iterable[str]) -> list[str]:
    """Return the words that may be meant by another one: misspelled, in another case, or cut off (`prod`, `production`)."""
    lower = word.lower()
    like_word = _similarity_to(lower)
    scored = [(like_word(other.lower()), other) for other in words]
    similar = [(-score, other) for score, other in scored if score or _begins(lower, other.lower())]
    return [other for _, other in sorted(similar)[:_MAX_SUGGESTIONS]]


def _similarity_to(word: str) -> Callable[[str], float]:
    """Return a function that rates the similarity of a word to this one, from 0.8 to 1; else 0."""
    matcher = difflib.SequenceMatcher(b=word, autojunk=False)  # it caches what it computes for `b`

    def similarity(other: str) -> float:
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() < _MIN_SIMILARITY or matcher.quick_ratio() < _MIN_SIMILARITY:
            return 0.0
        ratio = matcher.ratio()
        return ratio if ratio >= _MIN_SIMILARITY else 0.0

    return similarity


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
