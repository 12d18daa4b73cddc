"""Which tensors a model may have: each other kind is refused by its name, with what to do."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.errors import UnsupportedTensor
from pt2hub_workers.inside.builds.compile.weights import load_weights, write_weights
from pt2hub_workers.inside.sources import own_storage
from pt2hub_workers.inside.sources.tensor_checks import MAX_DETAILS, check_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Doubled(torch.Tensor):
    """Computes with twice its values, as quantised weights compute with scaled ones."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]  # torch's own


class Named(nn.Parameter):
    """A parameter with another name, and nothing else of its own."""


class Holding(nn.Module):
    """A model with one buffer below a layer."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.layer = nn.Module()
        self.layer.register_buffer("table", tensor)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.filterwarnings("ignore:.*prototype stage", "ignore:Sparse CSR")
@pytest.mark.parametrize(
    ("make", "what", "hint"),
    [
        (lambda: torch.ones(3, dtype=torch.complex64), "is complex (complex64)", "view_as_real"),
        (lambda: torch.eye(3).to_sparse(), "is not dense (sparse_coo)", "to_dense"),
        (lambda: torch.eye(3).to_sparse_csr(), "is not dense (sparse_csr)", "to_dense"),
        (lambda: torch.ones(3).to_mkldnn(), "is not dense (mkldnn)", "to_dense"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "is not dense (nested)",
            "padded",
        ),
        (
            lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.quint8),
            "is quantised (quint8)",
            "dequantize()",
        ),
        (
            lambda: torch.ones(3).as_subclass(Doubled),
            "test_sources_tensors.Doubled, a subclass of Tensor",
            "run_decompositions",
        ),
        (lambda: torch.ones(3, device="meta"), "has no values: it is on the meta device", "on the CPU"),
        (lambda: torch.empty(3, dtype=torch.uint4), "has dtype uint4", "Convert"),  # type: ignore[attr-defined]  # as it is
        (nn.UninitializedBuffer, "has no shape yet: its layer is lazy", "Call the model once"),
    ],
    ids=["complex", "coo", "csr", "mkldnn", "nested", "quantised", "subclass", "meta", "uint4", "lazy"],
)
def test_a_buffer_that_is_not_dense_real_and_plain_is_refused_by_name(
    make: Callable[[], torch.Tensor], what: str, hint: str
) -> None:
    with pytest.raises(UnsupportedTensor) as caught:
        check_tensors(Holding(make()))

    assert caught.value.message.startswith("layer.table ")
    assert what in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.where == "source"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_packed_weights_of_quantised_layers_are_found_though_they_are_no_parameters() -> None:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})  # type: ignore[no-untyped-call]
    assert not list(model.parameters())

    with pytest.raises(UnsupportedTensor, match=r"0\._packed_params\._packed_params of LinearPackedParams"):
        check_tensors(model)


def test_every_tensor_at_fault_is_listed_up_to_a_number() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2, device="meta") for _ in range(MAX_DETAILS)))

    with pytest.raises(UnsupportedTensor) as caught:
        check_tensors(model)

    assert f"and {2 * MAX_DETAILS - 1} more" in caught.value.message
    assert len(caught.value.details) == MAX_DETAILS


def test_a_parameter_with_nothing_but_a_name_of_its_own_is_taken() -> None:
    model = nn.Linear(2, 2)
    model.weight = Named(torch.ones(2, 2))

    check_tensors(model)


def test_weights_made_in_inference_mode_can_be_loaded_into_and_stay_tied(tmp_path: Path) -> None:
    with torch.inference_mode():
        first, second = nn.Linear(3, 3), nn.Linear(3, 3)
        second.weight = first.weight
        model = nn.Sequential(first, second, nn.BatchNorm1d(3))
    assert first.weight.is_inference()

    own_storage(model.eval())
    write_weights(model, tmp_path / "w.safetensors")
    load_weights(model, tmp_path / "w.safetensors")

    assert not any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers()))
    assert second.weight is first.weight
    assert [name for name, _ in model.named_parameters()][:2] == ["0.weight", "0.bias"]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_weight_that_a_hook_computes_does_not_keep_the_model_from_being_copied() -> None:
    model = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(3, 3)))
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(model)

    twin = copy.deepcopy(own_storage(model.eval())).bfloat16()

    assert twin(torch.ones(1, 3, dtype=torch.bfloat16)).dtype is torch.bfloat16


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_layer_is_not_taken_for_a_quantised_one() -> None:
    check_tensors(nn.Sequential(torch.jit.script(nn.Linear(3, 3))))  # type: ignore[no-untyped-call]
