"""Every call that compiled code would read as garbage is refused before it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pt2hub.client.artifacts.call_contract import CallContract, call_with, contract_of
from pt2hub.domain.artifacts import Dim, Signature, TensorInput
from pt2hub.errors import BadCall
from support.artifacts import a_signature

CPU = torch.device("cpu")


def contract(signature: Signature | None = None) -> CallContract:
    return CallContract(signature or a_signature(), model="team/net", device=CPU)


def image(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, 4, 5)


def test_a_right_tensor_passes_as_it_is_by_position_and_by_name() -> None:
    x = image()
    assert contract().bind((x,), {})[0] is x
    assert contract().bind((), {"x": x})[0] is x


@pytest.mark.parametrize("batch", [1, 32])
def test_the_ends_of_the_range_are_inside(batch: int) -> None:
    assert contract().bind((image(batch),), {})[0].shape[0] == batch


REFUSED = {
    "rank": (torch.randn(3, 4, 5), "3 dimensions", "batch 1 to 32, 3, 4, 5"),
    "dtype": (image().double(), "dtype float64", "x.to(torch.float32)"),
    "static size": (torch.randn(2, 3, 4, 6), "shape[3] is 6", "publish it again"),
    "above the range": (image(33), "above the largest size 32", "dims: {batch: {max: 33}}"),
    "empty batch": (image(0), "below the smallest size 1", "Skip the call"),
    "layout": (image().to(memory_format=torch.channels_last), "is not contiguous_format", "x.contiguous()"),
    "expanded": (torch.randn(1, 3, 4, 5).expand(2, -1, -1, -1), "strides (0, 20, 5, 1)", "x.contiguous()"),
    "sliced": (torch.randn(2, 3, 4, 10)[..., ::2], "memory layout", "x.contiguous()"),
    "sparse": (image().to_sparse(), "sparse_coo", "x.to_dense()"),
    "gradient": (image().requires_grad_(), "requires a gradient", "torch.no_grad()"),
    "meta device": (image().to("meta"), "is on meta", 'x.to("cpu")'),
    "list": ([1.0], "list, not a tensor", "torch.Tensor"),
    "nothing": (None, "missing", "float32"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_tensor_outside_the_contract_is_refused_with_what_to_do(case: str) -> None:
    value, what, todo = REFUSED[case]
    with pytest.raises(BadCall) as caught:
        contract().bind((value,), {})
    assert caught.value.where == "x"
    assert what in str(caught.value)
    assert todo in str(caught.value)


def test_a_tensor_that_requires_a_gradient_passes_without_grad_mode() -> None:
    with torch.no_grad():
        assert contract().bind((image().requires_grad_(),), {})


def test_arbitrary_strides_of_a_single_image_are_straightened() -> None:
    odd = torch.randn(3, 4, 5).as_strided((1, 3, 4, 5), (7, 20, 5, 1))
    (bound,) = contract().bind((odd,), {})
    assert bound.stride() == (60, 20, 5, 1)
    assert torch.equal(bound, odd)


def test_a_negative_view_is_resolved_because_its_sign_is_not_in_memory() -> None:
    negative = torch._neg_view(image())
    (bound,) = contract().bind((negative,), {})
    assert not bound.is_neg()
    assert torch.equal(bound, negative)


def test_channels_last_is_the_contract_where_it_was_declared() -> None:
    signature = a_signature(inputs=(TensorInput("x", ("batch", 3, 4, 5), "float32", "channels_last"),))
    x = image().to(memory_format=torch.channels_last)
    assert contract(signature).bind((x,), {})[0] is x
    with pytest.raises(BadCall, match=r"x\.contiguous\(memory_format=torch\.channels_last\)"):
        contract(signature).bind((image(),), {})


def two_inputs() -> Signature:
    return Signature(
        arguments=("ids", "scale", "mask"),
        inputs=(TensorInput("ids", ("n", "seq"), "int64"), TensorInput("mask", ("n", "seq"), "bool")),
        dims={"n": Dim(1, 8), "seq": Dim(2, 16)},
        device="cpu",
        in_spec="",
        out_spec="",
        fixed={"scale": 2.0},
    )


def test_one_dimension_has_one_size_in_a_call() -> None:
    ids, mask = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.bool)
    with pytest.raises(BadCall, match="seq is 4 elsewhere") as caught:
        contract(two_inputs()).bind((ids, 2.0, mask), {})
    assert caught.value.where == "mask"


def test_tensors_come_in_the_order_of_the_compiled_code() -> None:
    ids, mask = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.bool)
    for args, kwargs in [((ids, 2.0, mask), {}), ((ids,), {"mask": mask}), ((), {"mask": mask, "ids": ids})]:
        bound = contract(two_inputs()).bind(args, kwargs)
        assert bound[0] is ids
        assert bound[1] is mask


@pytest.mark.parametrize("scale", [3.0, 2, True, None, "2.0"])
def test_another_value_for_an_exported_argument_is_refused_and_named(scale: object) -> None:
    ids, mask = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.bool)
    with pytest.raises(BadCall, match=r"exported with 2\.0") as caught:
        contract(two_inputs()).bind((ids, scale, mask), {})
    assert caught.value.where == "scale"
    assert f"Given: {scale!r}" in str(caught.value)


def test_arguments_that_do_not_exist_or_come_twice_are_refused() -> None:
    x = image()
    for args, kwargs, words in [
        ((x, x), {}, "2 positional arguments, but there are only 1: x"),
        ((x,), {"y": x}, "Unknown argument y; the arguments are x"),
        ((x,), {"x": x}, "given twice"),
        ((), {}, "missing"),
    ]:
        with pytest.raises(BadCall, match=words):
            contract().bind(args, kwargs)


def test_a_subclass_with_memory_of_its_own_is_refused() -> None:
    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN206  # torch's hook
            return NotImplemented

    wrapped = torch.Tensor._make_wrapper_subclass(Wrapped, (2, 3, 4, 5))
    with pytest.raises(BadCall, match="no plain memory"):
        contract().bind((wrapped,), {})


def test_a_parameter_is_a_plain_tensor() -> None:
    assert contract().bind((torch.nn.Parameter(image(), requires_grad=False),), {})


NESTED = Signature(
    arguments=("batch", "pair", "rest(0)", "rest(1)", "scale"),
    inputs=(
        TensorInput("batch.image", ("n", 3), "float32"),
        TensorInput("batch.more.mask", ("n",), "bool"),
        TensorInput("pair[1]", ("n", "seq"), "int64"),
        TensorInput("rest(0)", (2,), "float32"),
        TensorInput("rest(1)", (2,), "float32"),
    ),
    dims={"n": Dim(1, 8), "seq": Dim(8, 32, 8)},
    device="cpu",
    in_spec="",
    out_spec="",
    fixed={"batch.flag": True, "pair[0]": 3, "scale": None},
)


def nested_call(**changes: Any) -> dict[str, Any]:
    tensors = {
        "batch.image": torch.zeros(2, 3),
        "batch.more.mask": torch.ones(2, dtype=torch.bool),
        "pair[1]": torch.zeros(2, 16, dtype=torch.int64),
        "rest(0)": torch.zeros(2),
        "rest(1)": torch.ones(2),
    }
    return {**call_with(NESTED, tensors), **changes}


def bound(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
    return contract_of(NESTED, model="team/net", device=CPU).bind(args, kwargs)


def test_nested_arguments_are_taken_apart_in_the_order_of_the_compiled_code() -> None:
    given = nested_call()
    batch, pair, rest = given["batch"], given["pair"], given["rest"]
    assert (batch["flag"], pair[0]) == (True, 3)
    right = [batch["image"], batch["more"]["mask"], pair[1], *rest]

    for args, kwargs in [
        ((), given),
        ((batch, pair, *rest), {}),
        ((batch, tuple(pair), *rest, None), {}),
        ((), {**given, "rest": list(rest)}),
        ((), {**given, "batch": {"more": batch["more"], "image": batch["image"]}}),
    ]:
        tensors = bound(*args, **kwargs)
        assert all(one is other for one, other in zip(tensors, right, strict=True))


def test_flat_signatures_keep_the_plain_contract_and_mappings_count_as_dicts() -> None:
    assert type(contract_of(a_signature(), model="team/net", device=CPU)) is CallContract
    from collections import UserDict

    given = nested_call()
    assert bound(**{**given, "batch": UserDict(given["batch"])})[0] is given["batch"]["image"]


IMAGE, MASK, IDS = torch.zeros(2, 3), torch.ones(2, dtype=torch.bool), torch.zeros(2, 16, dtype=torch.int64)
REFUSED_NESTED = {
    "a part that is not there": (
        {"batch": {"image": IMAGE, "more": {"mask": MASK}, "mask": MASK}},
        "batch.mask",
    ),
    "a part that is missing": ({"batch": {"image": IMAGE, "more": {}}}, "batch.more.mask"),
    "a container that is missing": ({"batch": {"image": IMAGE}}, "batch.more"),
    "a tensor for a dict": ({"batch": IMAGE}, "batch"),
    "a list for a dict": ({"batch": {"image": IMAGE, "more": [MASK]}}, "batch.more"),
    "a tensor for a list": ({"pair": IDS}, "pair"),
    "too many items": ({"pair": [3, IDS, IDS]}, "pair"),
    "too few items": ({"rest": (torch.zeros(2),)}, "rest"),
    "another fixed value in a dict": (
        {"batch": {"image": IMAGE, "more": {"mask": MASK}, "flag": False}},
        "batch.flag",
    ),
    "another fixed value in a list": ({"pair": [4, IDS]}, "pair[0]"),
    "a dtype inside": ({"batch": {"image": IMAGE.double(), "more": {"mask": MASK}}}, "batch.image"),
    "another size of one dimension": ({"pair": [3, torch.zeros(3, 16, dtype=torch.int64)]}, "pair[1]"),
    "no multiple": ({"pair": [3, torch.zeros(2, 12, dtype=torch.int64)]}, "pair[1]"),
    "nothing at all": ({"batch": None}, "batch"),
    "a value for a default": ({"scale": 1.0}, "scale"),
}


@pytest.mark.parametrize("case", REFUSED_NESTED)
def test_a_nested_argument_of_another_form_is_refused_at_its_path(case: str) -> None:
    changes, path = REFUSED_NESTED[case]
    with pytest.raises(BadCall) as caught:
        bound(**nested_call(**changes))
    assert caught.value.where == path
    assert caught.value.hint


def test_an_argument_given_by_position_and_by_name_is_refused_inside_too() -> None:
    given = nested_call()
    for args, again in [
        ((given["batch"], given["pair"], torch.zeros(2)), "rest"),
        ((given["batch"],), "batch"),
    ]:
        with pytest.raises(BadCall, match="given twice"):
            bound(*args, **{again: given[again]})


def test_a_size_that_is_no_multiple_is_answered_with_the_next_ones() -> None:
    with pytest.raises(
        BadCall, match=r"is 12, not a multiple of 8\n.*Pad it to 16 or cut it to 8.* seq 8 to 32 by 8"
    ):
        bound(**nested_call(pair=[3, torch.zeros(2, 12, dtype=torch.int64)]))
    assert bound(**nested_call(pair=[3, torch.zeros(2, 32, dtype=torch.int64)]))
    with pytest.raises(BadCall, match="above the largest size 32"):
        bound(**nested_call(pair=[3, torch.zeros(2, 40, dtype=torch.int64)]))
