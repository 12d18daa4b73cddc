"""Regions in specs: which a spec asks for, what is refused, and the version's identity."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.domain.publishing.compile_notes import explain_options
from pt2hub.domain.publishing.regions import requested_regions
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import InvalidInput
from pt2hub.server.services.publishing.spec_errors import parse_spec
from support.registry import a_spec

CPU = "torch2.13-cpu-x86_64_v4"
ALLOWED = "allowed: auto, none, or a list such as [encoder.layer])"
NAME = "allowed: a module path or class name, such as encoder.layer.3 or BertLayer)"


@pytest.mark.parametrize(
    ("regions", "text"),
    [
        ("auot", f'unknown value; did you mean auto? (given: "auot"; {ALLOWED}'),
        (
            "encoder.layer",
            f'a module path or class name must be in a list (given: "encoder.layer"; {ALLOWED}',
        ),
        (True, f"must be auto, none or a list of module paths and class names (given: true; {ALLOWED}"),
        (None, f"must be auto, none or a list of module paths and class names (given: null; {ALLOWED}"),
        ({"names": ["a"]}, "must be auto, none or a list of module paths and class names (given: {"),
        ([], "too few items (given: []; allowed: at least 1 item)"),
        ([f"layer{number}" for number in range(65)], "too many items (given: "),
    ],
)
def test_regions_that_are_neither_a_choice_nor_a_list_are_refused(regions: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(a_spec(compile={"regions": regions}))
    assert f"compile.regions: {text}" in str(caught.value)


@pytest.mark.parametrize(
    ("regions", "text"),
    [
        (["encoder.layer", "a b"], f'compile.regions[1]: invalid format (given: "a b"; {NAME}'),
        (["encoder..layer"], f'compile.regions[0]: invalid format (given: "encoder..layer"; {NAME}'),
        (["encoder.layer", 3], "compile.regions[1]: must be text (given: 3)"),
        (["x" * 201], "compile.regions[0]: the text is too long"),
        (
            ["BertLayer", "encoder.layer", "BertLayer"],
            'compile.regions[2]: duplicate region (given: "BertLayer")',
        ),
    ],
)
def test_an_invalid_name_of_a_region_is_refused_at_its_place(regions: list[Any], text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(a_spec(compile={"regions": regions}))
    assert text in str(caught.value)
    assert len(caught.value.details) == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"compile": {"regions": ["BertLayer"], "weights": "baked"}},
            (
                "compile.regions: a region's weights are bound per call, which baked weights are not; use "
                'compile.weights: split, or auto or none (given: ["BertLayer"])'
            ),
        ),
        (
            {"compile": {"regions": ["BertLayer"]}, "targets": [{"target": CPU, "weights": "baked"}]},
            (
                "targets[0].weights: compile.regions has names: a region's weights are bound per call, which baked "
                'weights are not; use split (given: "baked")'
            ),
        ),
    ],
)
def test_named_regions_need_split_weights(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(a_spec(**fields))
    assert text in str(caught.value)


@pytest.mark.parametrize("regions", ["auto", "none"])
def test_baked_weights_may_be_given_with_a_choice(regions: str) -> None:
    spec = parse_spec(a_spec(compile={"regions": regions, "weights": "baked"}))
    assert requested_regions(spec.canonical(), {"target": CPU}) == "none"


def test_regions_are_part_of_a_versions_identity_but_their_default_is_not() -> None:
    plain = parse_spec(a_spec())
    auto, none, named = (
        parse_spec(a_spec(compile={"regions": regions})) for regions in ("auto", "none", ["encoder.layer.0"])
    )
    assert auto.identity() == plain.identity()
    assert "compile" not in auto.canonical()
    assert len({spec.identity() for spec in (plain, none, named)}) == 3
    assert named.canonical()["compile"] == {"regions": ["encoder.layer.0"]}
    assert Spec.from_canonical(named.canonical()).identity() == named.identity()


@pytest.mark.parametrize(
    ("compile_fields", "request_fields", "found"),
    [
        ({}, {}, "auto"),
        ({"regions": "none"}, {}, "none"),
        ({"regions": ["encoder.layer", "BertLayer"]}, {}, ("encoder.layer", "BertLayer")),
        ({"weights": "baked"}, {}, "none"),
        ({}, {"weights": "baked"}, "none"),
        ({"mode": "max-autotune"}, {}, "none"),
        ({}, {"mode": "max-autotune-no-cudagraphs"}, "none"),
        ({"mode": "max-autotune"}, {"mode": "reduce-overhead"}, "auto"),
        ({"mode": "max-autotune", "regions": ["BertLayer"]}, {}, ("BertLayer",)),
    ],
)
def test_what_a_build_is_asked_for_depends_on_mode_and_weights(
    compile_fields: dict[str, Any], request_fields: dict[str, Any], found: object
) -> None:
    assert requested_regions({"compile": compile_fields}, {"target": CPU, **request_fields}) == found


def test_nothing_is_noted_at_submission_since_the_graph_is_unknown() -> None:
    spec = parse_spec(a_spec(compile={"regions": ["BertLayer"]}))
    assert explain_options(spec, [{"target": CPU}]) == ()
