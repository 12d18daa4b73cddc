"""Specs of every form of call, and a model's way through adapting and exporting without a build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.publishing.spec import Spec, TargetSpec
from pt2hub_workers.inside.builds.export import adapter, inputs
from pt2hub_workers.inside.builds.export import export as exporting

if TYPE_CHECKING:
    from torch import nn

    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.builds.export.inputs import Tensors

BATCH = {"batch": {"min": 1, "max": 16, "example": 2}}


def tensor(name: str, shape: list[int | str] | None = None, dtype: str = "float32") -> dict[str, Any]:
    """An input of a spec; floating point values are drawn, ids are small, booleans all true."""
    drawn = {"float32": {"normal": {}}, "int64": {"randint": {"high": 5}}, "bool": {"constant": True}}[dtype]
    return {"name": name, "shape": shape or ["batch", 4], "dtype": dtype, "generate": drawn}


def spec_of(*tensors: dict[str, Any], **fields: Any) -> Spec:
    """A spec of these inputs; its source is not looked at."""
    return Spec.model_validate(
        {
            "model": "tiny/form",
            "source": {"factory": "support.tiny_models:Mlp"},
            "inputs": list(tensors),
            "dims": BATCH,
            **fields,
        }
    )


def adapted(model: nn.Module, spec: Spec) -> tuple[nn.Module, Tensors]:
    """The model as the spec calls it, and the example's inputs."""
    made = inputs.make_inputs(spec, inputs.make_points(spec, {})[0], {})
    return adapter.adapt_model(model.eval().requires_grad_(False), spec), made


def exported(model: nn.Module, spec: Spec) -> tuple[ExportResult, tuple[str, ...]]:
    """The model exported at the example, and the notes on its outputs."""
    module, made = adapted(model, spec)
    notes = adapter.copy_shared_outputs(module, made).notes
    return exporting.export(module, made, spec, TargetSpec(target="auto"), "cpu"), notes


EVERY_FORM: dict[str, Any] = {
    "source": {"factory": "support.tiny_models:EveryForm", "seed": 3},
    "inputs": [
        tensor("mask", ["batch", "seq"], "bool"),
        tensor("pair[1]"),
        tensor("batch.image"),
        tensor("state(0)", [2, 3]),
        tensor("ids", ["batch", "seq"], "int64"),
    ],
    "dims": {
        "batch": {"min": 1, "max": 8, "example": 2},
        "seq": {"min": 8, "max": 32, "example": 16, "multiple_of": 8},
    },
    "fixed": {"pair[0]": 3, "batch.keep": True, "scale": 2.0},
}
