"""Compile and export options of specs, and targets with their overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.publishing.spec_base import STRICT
from pt2hub.domain.publishing.target_names import RequestedTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

FloatDtype = Literal["float32", "float16", "bfloat16"]
Options = dict[str, bool | int | float | str]
WeightsForm = Literal["split", "baked"]

COMPILE_OPTIONS = frozenset(
    {
        "coordinate_descent_tuning",
        "epilogue_fusion",
        "max_autotune",
        "max_autotune_gemm",
        "max_autotune_gemm_backends",
        "max_autotune_pointwise",
        "shape_padding",
    }
)
"""Inductor options that a spec may set. Others are fixed by the recipe or would name programs to run."""

_OPTIONS = f"Inductor options; allowed are {', '.join(f'`{name}`' for name in sorted(COMPILE_OPTIONS))}"


class _Part(BaseModel):
    model_config = STRICT


class CompileSpec(_Part):
    """How the model is compiled."""

    options: Annotated[Options, Field(description=f"{_OPTIONS}.", examples=[{"max_autotune": True}])] = {}
    weights: Annotated[
        WeightsForm,
        Field(
            description="`split`: code and weights are separate, so a retrained model reuses the code; `baked`: the "
            "compiler freezes the weights into the code, which is often faster but works with these weights only.",
            examples=["split"],
        ),
    ] = "split"

    @field_validator("options")
    @classmethod
    def _check_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_options(value)
        return value


class ExportSpec(_Part):
    """How `torch.export` traces the model."""

    strict: Annotated[
        bool,
        Field(
            description="Whether TorchDynamo analyzes the Python code, which captures more of it; by default the code is "
            "executed and traced, which supports more models.",
            examples=[False],
        ),
    ] = False


class TargetSpec(_Part):
    """A target with its overrides of dtype, options, memory format and weights form."""

    target: Annotated[
        RequestedTarget,
        Field(
            description="`torch<x.y>-cpu-<level>` or `torch<x.y>-cu<release>-sm<capability>`; `auto` for every "
            "target with a live worker.",
            examples=["torch2.11-cu130-sm90"],
        ),
    ]
    dtype: Annotated[
        FloatDtype | None,
        Field(
            description="Dtype to which floating-point weights and inputs are converted; null keeps them. The tolerance "
            "is then at least 0.01 (`float16`) or 0.05 (`bfloat16`).",
            examples=["bfloat16"],
        ),
    ] = None
    options: Annotated[
        Options,
        Field(
            description="As in `compile`, for this target only; overrides those of `compile`.",
            examples=[{"max_autotune": True}],
        ),
    ] = {}
    memory_format: Annotated[
        Literal["contiguous_format", "channels_last"],
        Field(
            description="Memory format of four-dimensional inputs, which callers must then use; weights stay unchanged.",
            examples=["channels_last"],
        ),
    ] = "contiguous_format"
    weights: Annotated[
        WeightsForm | None,
        Field(description="As in `compile`, for this target only; null keeps it.", examples=["baked"]),
    ] = None

    @field_validator("options")
    @classmethod
    def _check_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_options(value)
        return value


def weights_form(spec: Mapping[str, Any], request: Mapping[str, Any]) -> WeightsForm:
    """Return the weights form of an artifact.

    Args:
        spec: The version's canonical spec.
        request: The `TargetSpec` as JSON.
    """
    form: WeightsForm = request.get("weights") or spec.get("compile", {}).get("weights", "split")
    return form


def _check_options(options: dict[str, Any]) -> None:
    if unknown := sorted(set(options) - COMPILE_OPTIONS):
        raise PydanticCustomError(
            "invalid_input",
            "options {names} cannot be set; allowed: {allowed}",
            {"names": ", ".join(unknown), "allowed": ", ".join(sorted(COMPILE_OPTIONS))},
        )
