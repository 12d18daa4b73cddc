from __future__ import annotations

import time
from typing import Any

import pytest

from pt2hub.errors import (
    DimensionSpecialised,
    ExampleOutOfRange,
    InvalidInput,
    Pt2hubError,
)
from pt2hub.server.services.publishing.spec_errors import parse_spec
from support.registry import a_spec

DIGEST = f"sha256:{'0' * 64}"


def refusal(document: dict[str, Any]) -> Pt2hubError:
    with pytest.raises(Pt2hubError) as caught:
        parse_spec(document)
    return caught.value


def an_input(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "shape": ["batch", 3], "dtype": "float32", "generate": {"normal": {}}} | changes


def test_a_right_spec_is_read() -> None:
    assert parse_spec(a_spec()).model == "vision/resnet18"


@pytest.mark.parametrize(
    ("changes", "expected", "path"),
    [
        ({"source": {"factory": "resnet18"}}, InvalidInput, "source.factory"),
        ({"dims": {"batch": {"min": 1, "max": 32, "example": 40}}}, ExampleOutOfRange, "dims.batch"),
        ({"dims": {"batch": {"min": 1, "max": 32, "example": 1}}}, DimensionSpecialised, "dims.batch"),
        ({"dims": {"batch": {"min": 8, "max": 8, "example": 8}}}, InvalidInput, "dims.batch"),
        ({"model": "Resnet"}, InvalidInput, "model"),
        ({"weights": "sha256:12"}, InvalidInput, "weights"),
        ({"inputs": []}, InvalidInput, "inputs"),
        ({"inputs": [an_input(shape=["batch", -3])]}, InvalidInput, "inputs[0].shape[1]"),
        ({"inputs": [an_input(shape=["Batch!", 3])], "dims": {}}, InvalidInput, "inputs[0].shape[0]"),
        ({"inputs": [an_input(dtype="floaty")]}, InvalidInput, "inputs[0].dtype"),
        (
            {"inputs": [an_input(generate={"normal": {"std": 0}})]},
            InvalidInput,
            "inputs[0].generate.normal.std",
        ),
        (
            {"inputs": [an_input(generate={"normal": {}, "uniform": {}})]},
            InvalidInput,
            "inputs[0].generate",
        ),
        ({"inputs": [an_input(), an_input()]}, InvalidInput, "inputs[1].name"),
        ({"inputs": [an_input(shape=["batch", "width"])]}, InvalidInput, "inputs[0].shape[1]"),
        ({"inputs": [an_input(shape=[2, 3])]}, InvalidInput, "dims.batch"),
        ({"inputs": [an_input(shape=["batch", 2**31])]}, InvalidInput, "inputs[0].shape"),
        (
            {"inputs": [an_input(dtype="uint8", generate={"randint": {"high": 257}})]},
            InvalidInput,
            "inputs[0].generate",
        ),
        (
            {"inputs": [an_input(dtype="int64", generate={"constant": 1.5})]},
            InvalidInput,
            "inputs[0].generate",
        ),
        (
            {"inputs": [an_input(generate={"uniform": {"low": 2, "high": 1}})]},
            InvalidInput,
            "inputs[0].generate.uniform",
        ),
        (
            {"source": {"factory": "torchvision.models:resnet18", "seed": 10**5000}},
            InvalidInput,
            "source.seed",
        ),
        ({"compile": {"options": {"cxx": "/bin/false"}}}, InvalidInput, "compile.options"),
        (
            {"targets": ["auto", {"target": "torch2.13-cpu-x86_64", "dtype": "float8"}]},
            InvalidInput,
            "targets[1].dtype",
        ),
        ({"targets": [7]}, InvalidInput, "targets[0]"),
        ({"checks": {"tolerance": 2}}, InvalidInput, "checks.tolerance"),
        ({"source": ["timm"]}, InvalidInput, "source"),
        ({"source": {"code": "net.zip", "entry": "net:build"}}, InvalidInput, "source.code"),
        ({"source": {"code": DIGEST, "entry": "net"}}, InvalidInput, "source.entry"),
        (
            {"source": {"code": DIGEST, "entry": "net:build", "entry_is": "x"}},
            InvalidInput,
            "source.entry_is",
        ),
        (
            {"source": {"code": DIGEST, "entry": "net:build", "requirements": ["a @ b"]}},
            InvalidInput,
            "source.requirements[0]",
        ),
        ({"source": {"program": "m.pt2"}, "weights": DIGEST}, InvalidInput, "source.program"),
        (
            {"source": {"factory": "torchvision.models:resnet18", "config": []}},
            InvalidInput,
            "source.config",
        ),
        ({"compile": {"weights": "backed"}}, InvalidInput, "compile.weights"),
        ({"targets": [{"target": "auto", "weights": "both"}]}, InvalidInput, "targets[0].weights"),
        ({"export": {"strict": "maybe"}}, InvalidInput, "export.strict"),
        ({"measure": {"profile": "x"}}, InvalidInput, "measure.profile"),
        ({"fixed": {"use cache": 1}}, InvalidInput, "fixed.use cache"),
        ({"fixed": [1]}, InvalidInput, "fixed"),
        ({"outputs": ".logits"}, InvalidInput, "outputs"),
        ({"outputs": ["logits"]}, InvalidInput, "outputs[0]"),
        ({"inputs": [an_input(name="batch.0")]}, InvalidInput, "inputs[0].name"),
        (
            {"dims": {"batch": {"max": 32, "example": 4, "multiple_of": 3}}},
            InvalidInput,
            "dims.batch.max",
        ),
        (
            {"dims": {"batch": {"max": 32, "example": 9, "multiple_of": 8}}},
            InvalidInput,
            "dims.batch.example",
        ),
        (
            {"dims": {"batch": {"max": 32, "example": 8, "multiple_of": 0}}},
            InvalidInput,
            "dims.batch.multiple_of",
        ),
        (
            {"dims": {"batch": {"max": 32, "example": 8, "multiple_of": 8}}},
            DimensionSpecialised,
            "dims.batch",
        ),
    ],
)
def test_a_wrong_field_is_answered_with_code_and_path(
    changes: dict[str, Any], expected: type[Pt2hubError], path: str
) -> None:
    error = refusal(a_spec(**changes))
    assert type(error) is expected
    assert [item.path for item in error.details] == [path]
    assert error.where == path
    assert error.hint


def test_what_was_given_and_what_is_allowed_are_said() -> None:
    (detail,) = refusal(a_spec(inputs=[an_input(shape=["batch", -3])])).details
    assert (detail.given, detail.allowed) == ("-3", "at least 0")
    (detail,) = refusal(a_spec(dims={"batch": {"min": 1, "max": 32, "example": 40}})).details
    assert detail.allowed == "1 to 32"
    (detail,) = refusal(a_spec(inputs=[an_input(shape=["batch", "width"])])).details
    assert (detail.given, detail.allowed) == ('"width"', "batch")
    (detail,) = refusal(a_spec(inputs=[an_input(dtype="int8", generate={"constant": 128})])).details
    assert detail.allowed == "-128 to 127"
    (detail,) = refusal(a_spec(inputs=[an_input(dtype="floaty")])).details
    assert detail.given == '"floaty"'
    assert (detail.allowed or "").startswith('"float32", "float16"')


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"inputs": [an_input(shape=["batch", -3])]},
            "inputs[0].shape[1]: the number is out of range (given: -3; allowed: at least 0)",
        ),
        (
            {"targets": [{"target": "auto", "dtype": "float8"}]},
            'targets[0].dtype: unknown value (given: "float8"; allowed: "float32", "float16" or "bfloat16")',
        ),
        ({"model": "Net"}, 'model: invalid format (given: "Net"; allowed: team/name in'),
        (
            {"compile": {"options": {"cxx": True}}},
            'compile.options: option cxx cannot be set (given: {"cxx": true}; allowed: aot_inductor.emit',
        ),
        (
            {"source": None},
            "source: must be an object (given: null; allowed: an object with one of factory, code, program)",
        ),
        (
            {"source": {"factory": "timm:create_model", "code": DIGEST}},
            'source: give exactly one of factory, code, program (given: ["factory", "code"])',
        ),
        (
            {"source": {"code": DIGEST, "entry": "net"}},
            'source.entry: invalid format (given: "net"; allowed: module:function, such as net:build)',
        ),
        (
            {"outputs": ["logits"]},
            'outputs[0]: invalid format (given: "logits"; allowed: a path to a value, such as .last_hidden',
        ),
        (
            {"inputs": [an_input(name="pair[x]")]},
            'inputs[0].name: invalid format (given: "pair[x]"; allowed: an argument, such as x, or a path',
        ),
        (
            {"fixed": {"a b": 1}},
            'fixed.a b: invalid format (given: "a b"; allowed: an argument, such as x, or a path into one',
        ),
        (
            {"dims": {"batch": {"max": 32, "example": 9, "multiple_of": 8}}},
            "dims.batch.example: the size must be a multiple of multiple_of (given: 9; allowed: multiples of 8)",
        ),
    ],
)
def test_one_wrong_field_is_read_once_and_its_value_as_it_was_written(
    changes: dict[str, Any], line: str
) -> None:
    error = refusal(a_spec(**changes))
    first, *rest = str(error).splitlines()
    assert first.startswith(line)
    assert rest == [f"  {error.hint}"]
    assert error.as_dict()["details"][0]["path"] == error.where


def test_several_wrong_fields_are_read_one_on_a_line() -> None:
    error = refusal(a_spec(model="Net", inputs=[an_input(dtype="floaty")]))
    first, *rest = str(error).splitlines()
    assert first == "spec: 2 fields of the spec are invalid"
    assert [line.strip().partition(":")[0] for line in rest[:2]] == ["model", "inputs[0].dtype"]


@pytest.mark.parametrize(
    ("changes", "path", "first"),
    [
        ({"target": ["auto"]}, "target", "targets"),
        ({"source": {"factory": "torchvision.models:resnet18", "sed": 1}}, "source.sed", "seed"),
        ({"dims": {"batch": {"max": 32, "exampel": 2, "example": 2}}}, "dims.batch.exampel", "example"),
        ({"inputs": [an_input(shpe=[1])]}, "inputs[0].shpe", "shape"),
        ({"targets": [{"target": "auto", "dtyp": "float16"}]}, "targets[0].dtyp", "dtype"),
        ({"source": {"fctory": "timm:create_model"}}, "source.fctory", "factory"),
        ({"source": {"factory": "timm:create_model", "cofnig": {}}}, "source.cofnig", "config"),
        ({"source": {"code": DIGEST, "entry": "net:build", "entri": "x"}}, "source.entri", "entry"),
        ({"source": {"program": DIGEST, "kwargs": {}}, "weights": DIGEST}, "source.kwargs", "program"),
        ({"compile": {"wieghts": "baked"}}, "compile.wieghts", "weights"),
        ({"export": {"strct": True}}, "export.strct", "strict"),
        (
            {"dims": {"batch": {"max": 32, "example": 2, "multipleof": 2}}},
            "dims.batch.multipleof",
            "multiple_of",
        ),
    ],
)
def test_a_misspelt_field_is_answered_with_the_fields_there_are_the_likeliest_first(
    changes: dict[str, Any], path: str, first: str
) -> None:
    (detail,) = refusal(a_spec(**changes)).details
    assert detail.path == path
    assert (detail.allowed or "").split(", ")[0] == first


def test_a_missing_field_is_named_though_it_is_not_in_the_document() -> None:
    document = a_spec()
    del document["source"]
    del document["inputs"][0]["name"]
    error = refusal(document)
    assert {item.path for item in error.details} == {"source", "inputs[0].name"}
    assert {item.given for item in error.details} == {None}


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"weights": "hf:team/name@main"}, "pt2hub publish --weights NAME"),
        ({"weights": "model.safetensors", "model": "Net"}, "pt2hub publish --weights NAME"),
        ({"source": {"code": "./net", "entry": "net:build"}}, "pt2hub publish --code FOLDER"),
        ({"source": {"program": "model.pt2"}, "weights": DIGEST}, "pt2hub publish --program FILE"),
        ({"source": {"program": DIGEST}}, "pt2hub publish --program FILE"),
    ],
)
def test_a_name_where_a_digest_belongs_is_answered_with_the_command_that_writes_it(
    changes: dict[str, Any], command: str
) -> None:
    hint = refusal(a_spec(**changes)).hint or ""
    assert command in hint
    assert hint.count("pt2hub publish") == 1
    assert "/api/v1/spec.schema.json" in hint


def test_several_problems_of_one_code_keep_that_code_and_mixed_ones_do_not() -> None:
    wrong = {"min": 1, "max": 32, "example": 40}
    inputs = [an_input(shape=["batch", "width"])]
    error = refusal(a_spec(inputs=inputs, dims={"batch": wrong, "width": wrong}))
    assert type(error) is ExampleOutOfRange
    assert len(error.details) == 2
    mixed = refusal(a_spec(source={"factory": "resnet18"}, dims={"batch": wrong}))
    assert type(mixed) is InvalidInput
    assert {item.path for item in mixed.details} == {"source.factory", "dims.batch"}


def test_a_very_long_value_is_shortened() -> None:
    (detail,) = refusal(a_spec(model="x" * 10_000)).details
    assert len(detail.given or "") == 80


@pytest.mark.parametrize(
    ("dtype", "generate"),
    [
        ("uint8", {"randint": {"high": 256}}),
        ("int8", {"randint": {"low": -128, "high": 128}}),
        ("bool", {"randint": {"high": 2}}),
        ("bool", {"constant": True}),
        ("int64", {"constant": 2.0}),
    ],
)
def test_the_whole_range_of_a_dtype_may_be_drawn(dtype: str, generate: dict[str, Any]) -> None:
    parse_spec(a_spec(inputs=[an_input(dtype=dtype, generate=generate)]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", "a\x00b"])
def test_values_without_a_canonical_form_are_refused(value: object) -> None:
    error = refusal(a_spec(source={"factory": "torchvision.models:resnet18", "kwargs": {"k": value}}))
    assert type(error) is InvalidInput


def test_tens_of_thousands_of_wrong_fields_are_answered_in_time_with_the_first_of_them() -> None:
    began = time.monotonic()
    with pytest.raises(InvalidInput, match="100 or more fields of the spec are invalid") as caught:
        parse_spec({f"field{place}": 1 for place in range(20_000)})
    assert len(caught.value.details) == 100
    assert time.monotonic() - began < 10.0
