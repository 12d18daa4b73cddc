"""Bad input to a build: each is refused before anything is compiled, with a code, a place and a way on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

from pt2hub import errors
from support.workbench import Workbench, tiny_spec

if TYPE_CHECKING:
    from pathlib import Path


def _source(factory: str, **kwargs: Any) -> dict[str, Any]:
    return {"factory": factory, "kwargs": kwargs, "seed": 0}


TINY = "support.tiny_models"
IMAGES = {"inputs": [{"name": "image", "shape": ["batch", 3, 8, 8], "generate": {"normal": {}}}]}
CASES: list[tuple[str, dict[str, Any], type[errors.Pt2hubError], str, str]] = [
    (
        "a function that the package lacks",
        {"source": _source("torchvision.models:resnet19")},
        errors.UnknownFactory,
        "source.factory",
        "resnet18",
    ),
    (
        "a module outside the list",
        {"source": _source("os:system")},
        errors.UnknownFactory,
        "source.factory",
        "torchvision.models",
    ),
    (
        "a factory that raises",
        {"source": _source(f"{TINY}:failing")},
        errors.FactoryFailed,
        "source.factory",
        "shell",
    ),
    (
        "a factory of nothing",
        {"source": _source(f"{TINY}:nothing")},
        errors.NotAModule,
        "source.factory",
        "Return the module",
    ),
    (
        "arguments the factory lacks",
        {"source": _source(f"{TINY}:Mlp", depth=3)},
        errors.FactoryArguments,
        "source.kwargs",
        "width",
    ),
    (
        "arguments that the factory only passes on",
        {"source": _source("torchvision.models:resnet18", nclass=10)},
        errors.FactoryArguments,
        "source.kwargs",
        "weights",
    ),
    (
        "an input the model lacks",
        {"inputs": [{"name": "y", "shape": [2, 8], "generate": {"normal": {}}}], "dims": {}},
        errors.UnknownInput,
        "inputs.y",
        "x",
    ),
    (
        "a shape the model refuses",
        {"inputs": [{"name": "x", "shape": ["batch", 9], "generate": {"normal": {}}}]},
        errors.InputRefused,
        "inputs",
        "[2, 9]",
    ),
    (
        "ids outside the vocabulary",
        {
            "source": _source(f"{TINY}:Embedding"),
            "inputs": [
                {
                    "name": "ids",
                    "shape": ["batch", 8],
                    "dtype": "int64",
                    "generate": {"randint": {"high": 5000}},
                }
            ],
        },
        errors.IndexOutOfRange,
        "inputs.ids",
        "num_embeddings",
    ),
    (
        "a dimension that the model fixes",
        {"source": _source(f"{TINY}:FixedBatch")},
        errors.DimensionSpecialised,
        "dims.batch",
        "batch",
    ),
    (
        "a branch on values",
        {"source": _source(f"{TINY}:Branching")},
        errors.DataDependent,
        "source",
        "if x.mean() > limit: (x = float32[batch, 8], limit = 0.5)",
    ),
    (
        "an input that the model writes to",
        {"source": _source(f"{TINY}:Overwriting")},
        errors.InputMutated,
        "inputs.x",
        "clone",
    ),
    (
        "complex outputs",
        {"source": _source(f"{TINY}:Waves")},
        errors.UnsupportedOutput,
        "source",
        "complex64",
    ),
    (
        "an output that is not there",
        {"source": _source(f"{TINY}:Convnet"), "outputs": [".features", ".logits"], **IMAGES},
        errors.UnsupportedOutput,
        "outputs[1]",
        ".pooled (float32[2, 8])",
    ),
    (
        "a nested input that the model lacks",
        {"inputs": [{"name": "batch.x", "shape": ["batch", 8], "generate": {"normal": {}}}]},
        errors.UnknownInput,
        "inputs.batch.x",
        "forward(x)",
    ),
    (
        "dropout that stays on",
        {"source": _source(f"{TINY}:Noisy")},
        errors.NondeterministicModel,
        "source",
        "eval",
    ),
    (
        "text among the outputs",
        {"source": _source(f"{TINY}:Wordy")},
        errors.UnsupportedOutput,
        "source",
        "tensor",
    ),
    ("NaN in eager", {"source": _source(f"{TINY}:NotANumber")}, errors.NanOutput, "outputs[0]", "weights"),
    ("an output that never moves", {"source": _source(f"{TINY}:Zero")}, errors.NoPower, "checks", "accept"),
]


@pytest.mark.parametrize(
    ("fields", "kind", "where", "hint"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_faulty_model_is_refused_before_anything_is_compiled(
    bench: Workbench, fields: dict[str, Any], kind: type[errors.Pt2hubError], where: str, hint: str
) -> None:
    bench.events.clear()

    with pytest.raises(kind) as caught:
        bench.build(tiny_spec(**fields))

    assert caught.value.where == where
    assert hint in str(caught.value)
    assert "compile" not in bench.steps


def test_a_weights_file_that_does_not_fit_is_refused_with_every_tensor(
    bench: Workbench, tmp_path: Path
) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = {"first.weight": torch.zeros(16, 8), "first.bias": torch.zeros(3), "extra": torch.zeros(1)}
    safetensors.torch.save_file(tensors, path)

    with pytest.raises(errors.WeightsMismatch) as caught:
        bench.build(tiny_spec(), weights=path)

    said = {detail.path: detail.message for detail in caught.value.details}
    assert said == {
        "second.weight": "missing from the file",
        "second.bias": "missing from the file",
        "extra": "not in the model",
        "first.bias": "another shape or dtype",
    }


def test_a_weights_file_that_is_no_safetensors_is_refused(bench: Workbench, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"PK\x03\x04 not this")

    with pytest.raises(errors.WeightsMismatch, match="safetensors"):
        bench.build(tiny_spec(), weights=path)


def test_a_weights_file_larger_than_the_memory_is_refused_before_the_model_is_built(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.safetensors"
    with path.open("wb") as file:
        file.truncate(2 << 20)
    monkeypatch.setenv("PT2HUB_OWN_MEMORY", str(1 << 20))

    with pytest.raises(errors.LimitExceeded, match="The weights file needs more memory") as caught:
        bench.build(tiny_spec(source=_source(f"{TINY}:failing")), weights=path)

    assert caught.value.where == "weights"
