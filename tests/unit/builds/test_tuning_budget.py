"""The budget of autotuning: in the spec, not in the version's identity, in the program key, and used up."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import InvalidInput
from pt2hub.server.services.publishing.spec_errors import parse_spec
from pt2hub_workers.inside.builds.compile.autotune import Tuning, key_settings
from support.registry import a_spec


def test_a_spec_without_a_budget_keeps_the_identity_it_had() -> None:
    plain, named = parse_spec(a_spec()), parse_spec(a_spec(limits={"autotune_seconds": None}))
    assert "limits" not in plain.canonical()
    assert named.identity() == plain.identity()


def test_a_budget_is_a_setting_of_the_version_and_makes_no_other_one() -> None:
    spec = parse_spec(a_spec(limits={"autotune_seconds": 600}))
    assert spec.settings()["limits"] == {"autotune_seconds": 600}
    assert "limits" not in spec.canonical()
    assert spec.identity() == parse_spec(a_spec()).identity()
    merged = {**spec.canonical(), **spec.settings()}
    assert Spec.from_canonical(merged).limits.autotune_seconds == 600


@pytest.mark.parametrize("value", [0, -1, 1.5, "soon", 86401])
def test_a_budget_that_is_none_is_refused_at_its_place(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(a_spec(limits={"autotune_seconds": value}))
    assert caught.value.where == "limits.autotune_seconds"


@pytest.mark.parametrize(
    ("options", "budget", "said"),
    [
        ({"max_autotune": True}, 600, {"autotune_seconds": 600}),
        ({"coordinate_descent_tuning": True}, 600, {"autotune_seconds": 600}),
        ({"max_autotune": False, "epilogue_fusion": True}, 600, {}),
        ({"max_autotune": True}, None, {}),
    ],
)
def test_the_program_key_names_the_budget_where_autotuning_is_on(
    options: dict[str, Any], budget: int | None, said: dict[str, int]
) -> None:
    assert key_settings(options, budget) == said


def test_provenance_says_what_was_left_to_the_default() -> None:
    assert Tuning(budget=600).summary() is None
    tuning = Tuning(budget=600, made=12, skipped=3, seconds=601.23456)
    assert tuning.summary() == {"seconds": 601.235, "budget": 600, "choices": 12, "left_to_default": 3}
    assert (
        str(tuning)
        == "12 choices made in 601.2 s, 3 skipped in favour of the default: the budget of 600 s was used up"
    )
    assert tuning.is_over_budget()
    assert not Tuning(seconds=1e9).is_over_budget()
