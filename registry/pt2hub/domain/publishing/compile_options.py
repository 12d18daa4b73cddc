"""Compile and export options of specs, and targets with their overrides."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.debug_logs import DEBUG_LOGS, DebugLogKind, suggest_kind
from pt2hub.domain.publishing.compile_modes import DEFAULT_MODE, CompileMode, contradictions
from pt2hub.domain.publishing.inductor_options import OPTION_TYPES, describe_options, suggest_option
from pt2hub.domain.publishing.spec_base import STRICT, whole
from pt2hub.domain.publishing.target_names import RequestedTarget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FloatDtype = Literal["float32", "float16", "bfloat16"]
Options = dict[str, bool | int | float | str]
STORED = "stored"
"""Key of pydantic's context for specs that were accepted earlier: values of options are not checked again."""
WeightsForm = Literal["split", "baked"]
DEFAULT_REGIONS: Literal["auto"] = "auto"
_CHOICES = ("auto", "none")
_ModuleName = Annotated[str, Field(pattern=whole(r"\w+(?:\.\w+)*"), max_length=200)]
# By the type: errors of a list's names would otherwise come with that of a text that is neither auto nor none.
Regions = Annotated[
    Annotated[Literal["auto", "none"], Tag("choice")]
    | Annotated[list[_ModuleName], Field(min_length=1, max_length=64), Tag("names")],
    Discriminator(lambda value: "names" if isinstance(value, list) else "choice"),
]

COMPILE_OPTIONS = frozenset(OPTION_TYPES)
"""Names of the Inductor options that a spec may set."""

_OPTIONS = f"Inductor options: {describe_options()}."
_MODE_DESCRIPTION = (
    "torch's name for a set of options: `max-autotune` and `max-autotune-no-cudagraphs` set `max_autotune` and "
    "`coordinate_descent_tuning`; `reduce-overhead` and `max-autotune` make CUDA graphs the default of `pt2hub.load` on "
    "a GPU."
)

_NOT_BAKED = "a region's weights are bound per call, which baked weights are not; use"


_DEBUG_DESCRIPTION = (
    f"Torch's logs of the compile to keep with the artifact: {'; '.join(f'`{name}`, {text}' for name, text in DEBUG_LOGS.items())}. "
    "They do not change the code, and are recorded only where code is compiled, not where it is reused."
)


class _Part(BaseModel):
    model_config = STRICT


def _check_debug_log(value: Any) -> Any:
    """Refuse an unknown debug log, with a suggestion."""
    if not isinstance(value, str) or value in DEBUG_LOGS:
        return value
    text = "; ".join(filter(None, ("unknown debug log", suggest_kind(value))))
    raise PydanticCustomError("invalid_input", "{text}", {"text": text, "allowed": ", ".join(DEBUG_LOGS)})


class CompileSpec(_Part):
    """How the model is compiled."""

    mode: Annotated[CompileMode, Field(description=_MODE_DESCRIPTION, examples=["max-autotune"])] = (
        DEFAULT_MODE
    )
    options: Annotated[Options, Field(description=_OPTIONS, examples=[{"max_autotune": True}])] = {}
    weights: Annotated[
        WeightsForm,
        Field(
            description="`split`: code and weights are separate, so a retrained model reuses the code; `baked`: the "
            "compiler freezes the weights into the code, which is often faster but works with these weights only.",
            examples=["split"],
        ),
    ] = "split"
    regions: Annotated[
        Regions,
        Field(
            description="Blocks that are compiled once and called several times. `auto`: repeated blocks become regions "
            "where that at least halves what is compiled, unless the mode is `max-autotune` or "
            "`max-autotune-no-cudagraphs`; `none`: the model is compiled as a whole; or a list of module paths "
            "(`encoder.layer` stands for its children) and class names (`BertLayer`), which needs `weights: split`.",
            examples=[["encoder.layer"]],
            json_schema_extra=lambda schema: schema.update(
                anyOf=schema.pop("oneOf")
            ),  # the choices are no objects
        ),
    ] = DEFAULT_REGIONS
    debug: Annotated[
        list[Annotated[DebugLogKind, BeforeValidator(_check_debug_log)]],
        Field(max_length=len(DEBUG_LOGS), description=_DEBUG_DESCRIPTION, examples=[["fusion", "graph"], []]),
    ] = []

    @field_validator("options")
    @classmethod
    def _check_options(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        _check_options(value, info)
        return value

    @field_validator("regions", mode="before")
    @classmethod
    def _check_regions(cls, value: Any) -> Any:
        if isinstance(value, list) or value in _CHOICES:
            return value
        raise PydanticCustomError(
            "invalid_input",
            "{text}",
            {"text": _refuse_regions(value), "allowed": "auto, none, or a list such as [encoder.layer]"},
        )


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
            description="As the spec's `dtype`, for this target only; null keeps that.",
            examples=["bfloat16"],
        ),
    ] = None
    mode: Annotated[
        CompileMode | None,
        Field(
            description="As in `compile`, for this target only; null keeps it.",
            examples=["max-autotune"],
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
    def _check_options(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        _check_options(value, info)
        return value

    @classmethod
    def from_stored(cls, document: Mapping[str, Any]) -> Self:
        """Read the request of a build, whose options may have values that older releases took."""
        return cls.model_validate(document, context={STORED: True})


def find_contradiction(
    compile_spec: CompileSpec, targets: Sequence[RequestedTarget | TargetSpec]
) -> tuple[str, str, object] | None:
    """Return path, text and given value of the first field that another one contradicts; None if there is none."""
    if found := _find_wrong_regions(compile_spec, targets):
        return found
    if wrong := contradictions(compile_spec.mode, compile_spec.options):
        return _contradiction("compile.options", compile_spec.mode, wrong, compile_spec.options)
    for place, item in enumerate(targets):
        if not isinstance(item, TargetSpec):
            continue
        mode = item.mode or compile_spec.mode
        if wrong := contradictions(mode, item.options):
            return _contradiction(f"targets[{place}].options", mode, wrong, item.options)
        if wrong := contradictions(mode, compile_spec.options | item.options):
            name, value = next(iter(wrong.items()))
            text = f"the mode sets {name} to {str(value).lower()}, which compile.options.{name} contradicts"
            return f"targets[{place}].mode", text, mode
    return None


def _contradiction(
    path: str, mode: str, wrong: Mapping[str, bool], options: Mapping[str, Any]
) -> tuple[str, str, object]:
    name, value = next(iter(wrong.items()))
    text = f"the option contradicts mode {mode}, which sets it to {str(value).lower()}"
    return f"{path}.{name}", text, options[name]


def _find_wrong_regions(
    compile_spec: CompileSpec, targets: Sequence[RequestedTarget | TargetSpec]
) -> tuple[str, str, object] | None:
    """Return path, text and given value of a duplicate region, or of baked weights in spite of regions."""
    names = compile_spec.regions
    if not isinstance(names, list):
        return None
    for place, name in enumerate(names):
        if name in names[:place]:
            return f"compile.regions[{place}]", "duplicate region", name
    if compile_spec.weights == "baked":
        return "compile.regions", f"{_NOT_BAKED} compile.weights: split, or auto or none", names
    for place, item in enumerate(targets):
        if isinstance(item, TargetSpec) and item.weights == "baked":
            return f"targets[{place}].weights", f"compile.regions has names: {_NOT_BAKED} split", item.weights
    return None


def weights_form(spec: Mapping[str, Any], request: Mapping[str, Any]) -> WeightsForm:
    """Return the weights form of an artifact.

    Args:
        spec: The version's canonical spec.
        request: The `TargetSpec` as JSON.
    """
    form: WeightsForm = request.get("weights") or spec.get("compile", {}).get("weights", "split")
    return form


def run_dtype(spec: Mapping[str, Any], request: Mapping[str, Any]) -> FloatDtype | None:
    """Return the dtype that a model is converted to; None if it keeps its own.

    Args:
        spec: The version's canonical spec.
        request: The `TargetSpec` as JSON.
    """
    dtype: FloatDtype | None = request.get("dtype") or spec.get("dtype")
    return dtype


def _check_options(options: dict[str, Any], info: ValidationInfo) -> None:
    """Refuse unknown options and values of other types; stored specs may hold values that older releases took."""
    if unknown := sorted(set(options) - COMPILE_OPTIONS):
        raise PydanticCustomError(
            "invalid_input",
            "{text}",
            {"text": _refuse_names(unknown), "allowed": ", ".join(sorted(COMPILE_OPTIONS))},
        )
    if info.context and info.context.get(STORED):
        return
    for name, value in options.items():
        if not OPTION_TYPES[name].accepts(value):
            context = {"path": name, "given": value, "allowed": OPTION_TYPES[name].text}
            raise PydanticCustomError("invalid_input", "invalid value", context)


def _refuse_regions(value: object) -> str:
    """Return the text of an error about regions that are neither a choice nor a list."""
    if not isinstance(value, str):
        return "must be auto, none or a list of module paths and class names"
    if similar := difflib.get_close_matches(value, _CHOICES, n=1):
        return f"unknown value; did you mean {similar[0]}?"
    return "a module path or class name must be in a list"


def _refuse_names(names: Sequence[str]) -> str:
    """Return the text of an error about unknown options, with suggestions."""
    known = [f"{name}: {text}" for name in names if (text := suggest_option(name))]
    advice = f" ({'; '.join(known)})" if known else ""
    return f"{'option' if len(names) == 1 else 'options'} {', '.join(names)} cannot be set{advice}"
