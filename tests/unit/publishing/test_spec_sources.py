"""The kinds of source, and what belongs to them."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.domain.publishing.spec import CodeSource, FactorySource, ProgramSource, Spec
from pt2hub.errors import InvalidInput
from pt2hub.server.services.publishing.spec_errors import parse_spec
from support.registry import V4, a_spec

DIGEST = f"sha256:{'0' * 64}"
OTHER = f"sha256:{'f' * 64}"
CODE = {"code": DIGEST, "entry": "net:build"}
BERT: dict[str, Any] = {
    "model": "text/bert",
    "source": {"factory": "transformers:BertModel", "kwargs": {"add_pooling_layer": False}, "seed": 7},
    "weights": f"sha256:{'a' * 64}",
    "inputs": [
        {
            "name": "input_ids",
            "shape": ["batch", "length"],
            "dtype": "int64",
            "generate": {"randint": {"high": 30522}},
        },
        {
            "name": "attention_mask",
            "shape": ["batch", "length"],
            "dtype": "int64",
            "generate": {"constant": 1},
        },
        {"name": "scale", "shape": [1], "example": f"sha256:{'b' * 64}"},
    ],
    "dims": {"batch": {"max": 8, "example": 2}, "length": {"min": 2, "max": 512, "example": 16}},
    "compile": {"options": {"max_autotune": True}},
    "targets": [{"target": "auto", "dtype": "bfloat16"}],
    "checks": {"tolerance": 0.01, "accept": ["no_power"]},
    "limits": {"seconds": 600, "autotune_seconds": 60},
    "measure": {"torch_compile": False},
}


@pytest.mark.parametrize(
    ("document", "identity"),
    [
        (a_spec(), "sha256:6eec70eb8e44d10220cc4b4c8df957ae1442d6f76906c0745aff98009c1e8a28"),
        (BERT, "sha256:1687c9e6ae878d137dff3b37d3b7fc798952147b6a56cd713782e6a7cabc4709"),
    ],
    ids=["short", "long"],
)
def test_specs_of_before_there_were_kinds_of_source_keep_their_identity(
    document: dict[str, Any], identity: str
) -> None:
    """The digests are those that commit ee126ea gives these specs, the long one without `limits` and `measure`."""
    assert parse_spec(document).identity() == identity


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"source": {"factory": "torchvision.models:resnet18"}}, FactorySource),
        ({"source": {"factory": "transformers:BertModel", "config": {"hidden_size": 8}}}, FactorySource),
        ({"source": CODE}, CodeSource),
        ({"source": {**CODE, "kwargs": {"width": 4}, "seed": 1, "requirements": ["timm>=1.0"]}}, CodeSource),
        ({"source": {**CODE, "entry_is": "function"}}, CodeSource),
        ({"source": {"program": DIGEST}, "weights": OTHER}, ProgramSource),
    ],
)
def test_each_kind_is_told_by_its_field_and_comes_back_from_its_canonical_form(
    changes: dict[str, Any], kind: type
) -> None:
    spec = parse_spec(a_spec(**changes))
    assert type(spec.source) is kind
    assert spec.canonical()["source"] == changes["source"]
    assert Spec.from_canonical(spec.canonical()).identity() == spec.identity()
    assert Spec.model_validate({**a_spec(**changes), "source": spec.source}) == spec


def test_what_an_older_version_measures_is_read_without_fields_that_are_gone() -> None:
    stored = parse_spec(a_spec()).canonical() | {"measure": {"split": False, "processes": 3}}
    assert Spec.from_canonical(stored).measure.processes == 3


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ({"entry": "net:build"}, "entry belongs to code: `pt2hub publish --code FOLDER`"),
        ({}, "--program FILE"),
    ],
)
def test_a_source_of_no_kind_comes_with_how_to_give_one(source: dict[str, str], advice: str) -> None:
    with pytest.raises(InvalidInput, match="give exactly one of") as caught:
        parse_spec(a_spec(source=source))
    assert advice in str(caught.value.hint)


@pytest.mark.parametrize(
    ("changes", "path", "problem"),
    [
        ({"source": {}}, "source", "give exactly one of factory, code, program"),
        ({"source": {**CODE, "program": DIGEST}}, "source", "give exactly one of factory, code, program"),
        ({"source": {"code": DIGEST}}, "source.entry", "required field is missing"),
        ({"source": {"program": DIGEST}}, "weights", "the digest of the weights is required for a program"),
        (
            {"source": {**CODE, "entry_is": "function", "kwargs": {"a": 1}}},
            "source.kwargs",
            "move its other",
        ),
        (
            {"source": {**CODE, "entry_is": "function"}, "weights": OTHER},
            "source.entry_is",
            "weights cannot be given for a function",
        ),
        ({"weights_from": "hf:team/name@main"}, "weights_from", "which are not given"),
        ({"outputs": [".a", "[0]", ".a"]}, "outputs[2]", "duplicate output"),
        ({"fixed": {"x": 1}}, "fixed.x", "the argument is already an input"),
        ({"fixed": {"x.mode": 1}}, "fixed.x.mode", "x.mode contradicts an earlier name"),
        ({"fixed": {"pair[1]": 1}}, "fixed.pair[1]", "pair has no index 0"),
    ],
)
def test_what_makes_no_sense_together_is_refused_at_the_field_to_change(
    changes: dict[str, Any], path: str, problem: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(a_spec(**changes))
    assert [item.path for item in caught.value.details] == [path]
    assert problem in caught.value.message


def test_inputs_inside_one_argument_are_listed_one_by_one_and_contradictions_named() -> None:
    def document(*names: str) -> dict[str, Any]:
        inputs = [{"name": name, "shape": ["batch"], "generate": {"normal": {}}} for name in names]
        return a_spec(inputs=inputs)

    spec = parse_spec(document("batch.image", "batch.mask", "pair[1]", "pair[0]", "state(0)"))
    assert [item.name for item in spec.inputs][:2] == ["batch.image", "batch.mask"]
    with pytest.raises(InvalidInput, match="batch is given twice") as caught:
        parse_spec(document("pair", "batch.image", "batch"))
    assert caught.value.where == "inputs[2].name"
    with pytest.raises(InvalidInput, match="pair has no index 0") as caught:
        parse_spec(document("pairs[0]", "pair[1]"))
    assert caught.value.where == "inputs[1].name"


def test_a_step_of_sizes_is_also_their_smallest_one() -> None:
    dims = {"batch": {"max": 32, "example": 16, "multiple_of": 8}}
    spec = parse_spec(a_spec(dims=dims))
    assert spec.dims["batch"].min == 8
    dims["batch"]["min"] = 8
    assert parse_spec(a_spec(dims=dims)).identity() == spec.identity()


def test_where_weights_are_from_is_no_part_of_what_makes_a_version() -> None:
    named = parse_spec(a_spec(weights=DIGEST, weights_from="hf:team/name@0123"))
    assert named.weights_from == "hf:team/name@0123"
    assert named.identity() == parse_spec(a_spec(weights=DIGEST)).identity()
    assert "weights_from" not in named.canonical()


def test_an_override_that_says_what_holds_anyway_is_none() -> None:
    targets = [{"target": V4, "weights": "split"}, {"target": "auto", "weights": "baked"}]
    split, baked = parse_spec(a_spec(targets=targets)).requests()
    assert (split.weights, baked.weights) == (None, "baked")
    of_baked = parse_spec(a_spec(targets=targets, compile={"weights": "baked"})).requests()
    assert [request.weights for request in of_baked] == ["split", None]
