"""The config.pbtxt of Triton Inference Server, from call signatures."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils import _pytree as pytree

from pt2hub.client.exports.triton import explain_release, name_inputs, name_outputs, render_config
from pt2hub.domain.artifacts import Dim, Signature, TensorInput
from pt2hub.errors import InvalidInput
from support.artifacts import a_config


def spec_of(value: object) -> str:
    return pytree.treespec_dumps(pytree.tree_structure(value))


T = torch.zeros(1)
NESTED = Signature(
    arguments=("x", "batch", "pair", "mask"),
    inputs=(
        TensorInput("x", ("n", 3), "float32"),
        TensorInput("batch.ids", ("n", 8), "int64"),
        TensorInput("pair[0]", (2,), "bfloat16"),
        TensorInput("pair[1](0)", (), "bool"),
        TensorInput("mask", ("n",), "float16"),
    ),
    dims={"n": Dim(1, 16)},
    device="cuda",
    in_spec=spec_of(((T, {"ids": T}, [T, (T,)]), {"mask": T})),
    out_spec=spec_of({"logits": T, "states": (T, T)}),
)


def test_inputs_have_the_names_of_their_place_in_the_call() -> None:
    found = name_inputs(NESTED)
    assert [item.name for item in found] == [
        "ARGS[0]",
        "ARGS[1][ids]",
        "ARGS[2][0]",
        "ARGS[2][1][0]",
        "KWARGS[mask]",
    ]
    assert [item.dims for item in found] == [(-1, 3), (-1, 8), (2,), (), (-1,)]


def test_outputs_have_the_names_of_their_place_in_the_result() -> None:
    forms = [((-1, 10), "float32"), ((2,), "float32"), ((3,), "int64")]
    names = [item.name for item in name_outputs(NESTED.out_spec, forms)]
    assert names == ["RESULT[logits]", "RESULT[states][0]", "RESULT[states][1]"]
    assert [item.name for item in name_outputs(spec_of(T), forms[:1])] == ["RESULT"]
    with pytest.raises(InvalidInput, match="Triton returns tensors only"):
        name_outputs(NESTED.out_spec, forms[:2])


def test_the_config_says_everything_because_triton_completes_nothing() -> None:
    config = replace(a_config(), signature=NESTED)
    outputs = name_outputs(spec_of(T), [((-1, 10), "float32")])
    text = render_config("net", config, outputs)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].startswith(f"# {config.version.model}@{config.version.number} for ")
    wanted = ('name: "net"', 'backend: "pytorch"', 'platform: "torch_aoti"', "max_batch_size: 0")
    assert set(wanted) <= set(lines)
    assert [line for line in lines if line.startswith("data_type")] == [
        f"data_type: TYPE_{kind}" for kind in ("FP32", "INT64", "BF16", "BOOL", "FP16", "FP32")
    ]
    assert "dims: [ -1, 3 ]" in lines
    assert lines[lines.index("dims: [ 1 ]") + 1] == "reshape: { shape: [ ] }"
    assert "instance_group [ { kind: KIND_GPU } ]" in lines


def test_what_triton_cannot_pass_is_refused() -> None:
    with pytest.raises(InvalidInput, match="tensors only, and the model takes flag"):
        name_inputs(replace(NESTED, fixed={"flag": True}))
    odd = replace(NESTED, inputs=(replace(NESTED.inputs[0], dtype="complex64"),))
    with pytest.raises(InvalidInput, match="no type for complex64"):
        render_config("net", replace(a_config(), signature=odd), [])


@pytest.mark.parametrize(
    ("torch_release", "words"),
    [("2.12.1+cu130", "which the container 26.04"), ("2.13.0+cpu", "use a container .* with torch 2.13")],
)
def test_the_release_that_fits_is_named_where_it_is_known(torch_release: str, words: str) -> None:
    config = a_config()
    changed = replace(config, toolchain=replace(config.toolchain, torch=torch_release))
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(explain_release(changed))
