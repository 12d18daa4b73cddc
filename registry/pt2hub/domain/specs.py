"""The spec: what a team publishes.

Validated by the server and read by the worker; the light client sends it as text and never imports this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.digests import DIGEST_PATTERN, Digest, digest_json
from pt2hub.domain.inputs import STRICT, DimName, Input, whole
from pt2hub.domain.names import MODEL_PATTERN
from pt2hub.errors import Detail, UnknownFactory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "COMPILE_OPTIONS",
    "DEFAULT_FACTORIES",
    "SPEC_SCHEMA",
    "Checks",
    "CompileSpec",
    "DimSpec",
    "FactorySource",
    "Input",
    "Limits",
    "Measure",
    "Spec",
    "TargetSpec",
    "check_factory",
]

SPEC_SCHEMA = 1
"""Part of every version's identity; a change of meaning gets a new number."""

FloatDtype = Literal["float32", "float16", "bfloat16"]
Options = dict[str, bool | int | float | str]

DEFAULT_FACTORIES = ("torchvision.models",)
"""Modules of installed packages whose factories a spec may name; the operator may list others
(`PT2HUB_FACTORIES`). Importing a module runs its code, so the list is the operator's and not the spec's."""

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
"""Inductor options a spec may set. Others are fixed by the recipe, or would name programs to run."""

MAX_ELEMENTS = 1 << 31
"""Elements of one example input: 8 GiB of float32."""


class _Part(BaseModel):
    model_config = STRICT


class FactorySource(_Part):
    """A function of an installed package that builds the module."""

    factory: Annotated[
        str,
        Field(
            pattern=whole(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"),
            max_length=200,
            description="`module:function`; the module is on the operator's list (`PT2HUB_FACTORIES`) and "
            "installed on the worker.",
            examples=["torchvision.models:resnet18"],
        ),
    ]
    kwargs: Annotated[
        dict[str, JsonValue],
        Field(description="Keyword arguments of the call, JSON values.", examples=[{"num_classes": 10}]),
    ] = {}
    seed: Annotated[
        int,
        Field(
            ge=0,
            lt=2**63,
            description="Seed of torch's generator before the call; decides the initial weights.",
            examples=[0],
        ),
    ] = 0

    @property
    def module(self) -> str:
        """The module the factory lives in."""
        return self.factory.partition(":")[0]


class DimSpec(_Part):
    """A dynamic dimension: the declared range is the contract, and the client refuses a call outside it."""

    min: Annotated[int, Field(ge=1, description="Smallest size.", examples=[1])] = 1
    max: Annotated[int, Field(ge=1, le=2**31, description="Largest size, above `min`.", examples=[32])]
    example: Annotated[
        int,
        Field(
            description="Size of the export and the measurements, from `min` to `max`; not 1, which "
            "`torch.export` would fix.",
            examples=[2],
        ),
    ]

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.max <= self.min:
            raise PydanticCustomError("invalid_input", "max must be above min; for one size write the number")
        if not self.min <= self.example <= self.max:
            raise PydanticCustomError(
                "example_out_of_range",
                "example {example} lies outside {min} to {max}",
                {"example": self.example, "min": self.min, "max": self.max},
            )
        if self.example == 1:
            raise PydanticCustomError(
                "dimension_specialised",
                "example 1 would fix the dimension: torch.export treats sizes 0 and 1 as constants; "
                "give an example of 2 or more",
            )
        return self


_OPTIONS = f"Options of Inductor, of {', '.join(f'`{name}`' for name in sorted(COMPILE_OPTIONS))}"


class CompileSpec(_Part):
    """How the model is compiled."""

    options: Annotated[Options, Field(description=f"{_OPTIONS}.", examples=[{"max_autotune": True}])] = {}

    @field_validator("options")
    @classmethod
    def _allowed(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_options(value)
        return value


class TargetSpec(_Part):
    """A target with its own dtype, options or memory format."""

    target: Annotated[
        str,
        Field(
            description="`torch<x.y>-cpu-<level>` or `torch<x.y>-cu<release>-sm<capability>`; `auto` for every "
            "target that has a live worker.",
            examples=["torch2.11-cu130-sm90"],
        ),
    ]
    dtype: Annotated[
        FloatDtype | None,
        Field(
            description="What floating point weights and inputs are converted to; null keeps them. The gate "
            "then allows at least 0.01 (`float16`) or 0.05 (`bfloat16`).",
            examples=["bfloat16"],
        ),
    ] = None
    options: Annotated[
        Options,
        Field(
            description="As in `compile`, for this target alone, over those of `compile`.",
            examples=[{"max_autotune": True}],
        ),
    ] = {}
    memory_format: Annotated[
        Literal["contiguous_format", "channels_last"],
        Field(
            description="Of weights and of inputs with four dimensions, which callers must then pass so.",
            examples=["channels_last"],
        ),
    ] = "contiguous_format"

    @field_validator("options")
    @classmethod
    def _allowed(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_options(value)
        return value


class Checks(_Part):
    """What the publish gate asks for."""

    tolerance: Annotated[
        float,
        Field(
            gt=0,
            le=0.5,
            description="Largest error, relative to how far the outputs move when the inputs change.",
            examples=[0.001],
        ),
    ] = 1.0e-3
    accept: Annotated[
        list[Literal["no_power"]],
        Field(
            description="Failures to publish in spite of: `no_power` takes a model that the gate cannot prove, "
            "and the report says so.",
            examples=[[]],
        ),
    ] = []


class Limits(_Part):
    """When a build is stopped."""

    seconds: Annotated[
        int, Field(ge=10, le=86400, description="Time one attempt at a build has.", examples=[3600])
    ] = 3600
    autotune_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=86400,
            description="Time autotuning has. What is not decided by then takes the compiler's default kernel, and "
            "the build goes on; null leaves it to `seconds`.",
            examples=[600],
        ),
    ] = None


class Measure(_Part):
    """What is timed beside the artifact."""

    torch_compile: Annotated[
        bool, Field(description="Whether `torch.compile` is timed for comparison.", examples=[True])
    ] = True


class Spec(_Part):
    """A model to publish.

    All fields but `targets` make the version: the same content again answers the version there is.
    """

    model: Annotated[
        str,
        Field(
            pattern=whole(MODEL_PATTERN),
            max_length=200,
            description="`team/name`: lower-case letters and digits, with single `.`, `_` or `-` between them.",
            examples=["vision/resnet18"],
        ),
    ]
    source: Annotated[FactorySource, Field(description="Where the model comes from.")]
    weights: Annotated[
        Annotated[str, Field(pattern=whole(DIGEST_PATTERN))] | None,
        Field(
            description="Digest of an uploaded safetensors file with the model's `state_dict`; null for what "
            "the factory builds under its seed.",
            examples=[None],
        ),
    ] = None
    inputs: Annotated[
        list[Input],
        Field(
            min_length=1,
            max_length=64,
            description="The tensor arguments of the model's `forward`; an example has at most 2^31 elements.",
            examples=[[{"name": "x", "shape": ["batch", 3, 224, 224], "generate": {"normal": {}}}]],
        ),
    ]
    dims: Annotated[
        dict[DimName, DimSpec],
        Field(
            description="The dynamic dimensions, by the names that shapes use; each is used by a shape.",
            examples=[{"batch": {"min": 1, "max": 32, "example": 2}}],
        ),
    ] = {}
    compile: Annotated[CompileSpec, Field(description="How the model is compiled.")] = CompileSpec()
    targets: Annotated[
        list[str | TargetSpec],
        Field(
            min_length=1,
            max_length=64,
            description="What to build for: names, `auto` for every target that has a live worker at "
            "submission, or objects with overrides.",
            examples=[["auto"]],
        ),
    ] = ["auto"]
    checks: Annotated[Checks, Field(description="What the publish gate asks for.")] = Checks()
    limits: Annotated[Limits, Field(description="When a build is stopped.")] = Limits()
    measure: Annotated[Measure, Field(description="What is timed beside the artifact.")] = Measure()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names: set[str] = set()
        for place, item in enumerate(self.inputs):
            if item.name in names:
                raise _at(f"inputs[{place}].name", "two inputs have the same name", item.name)
            names.add(item.name)
            self._check_shape(f"inputs[{place}].shape", item)
        used = {size for item in self.inputs for size in item.shape if isinstance(size, str)}
        if unused := sorted(set(self.dims) - used):
            raise _at(f"dims.{unused[0]}", "no shape uses this dimension", unused[0])
        return self

    def _check_shape(self, path: str, item: Input) -> None:
        elements = 1
        for axis, size in enumerate(item.shape):
            if isinstance(size, str) and size not in self.dims:
                raise _at(f"{path}[{axis}]", "dims lacks this dimension", size, ", ".join(self.dims) or None)
            elements *= self.dims[size].example if isinstance(size, str) else size
        if elements > MAX_ELEMENTS:
            raise _at(
                path, f"an example would have {elements} elements", item.shape, f"at most {MAX_ELEMENTS}"
            )

    @classmethod
    def from_canonical(cls, document: Mapping[str, Any]) -> Self:
        """The spec that `canonical` wrote; targets are not part of it."""
        return cls.model_validate({key: value for key, value in document.items() if key != "schema"})

    def canonical(self) -> dict[str, Any]:
        """The fields that make the version: as given, defaults and targets left out, with the schema's number."""
        document = self.model_dump(mode="json", exclude_defaults=True, exclude={"targets"})
        return {"schema": SPEC_SCHEMA, **document}

    def identity(self) -> Digest:
        """The version's identity: the digest of the canonical spec, weights included."""
        return digest_json(self.canonical())

    def requests(self) -> list[TargetSpec]:
        """The targets asked for, each with its overrides."""
        return [TargetSpec(target=item) if isinstance(item, str) else item for item in self.targets]


def _at(path: str, message: str, given: object, allowed: str | None = None) -> PydanticCustomError:
    """An error about several fields together, at the one to change: pydantic itself knows only the whole."""
    context = {"text": message, "path": path, "given": given} | ({"allowed": allowed} if allowed else {})
    return PydanticCustomError("invalid_input", "{text}", context)


def _check_options(options: dict[str, Any]) -> None:
    if unknown := sorted(set(options) - COMPILE_OPTIONS):
        raise PydanticCustomError(
            "invalid_input",
            "options {names} cannot be set; allowed: {allowed}",
            {"names": ", ".join(unknown), "allowed": ", ".join(sorted(COMPILE_OPTIONS))},
        )


def check_factory(source: FactorySource, allowed: Sequence[str]) -> None:
    """Refuses factories outside the operator's list.

    Raises:
        UnknownFactory: The module is not on the list.
    """
    if source.module not in allowed:
        message, names = f"module {source.module} is not on the list of factories", ", ".join(allowed)
        raise UnknownFactory(
            message,
            where="source.factory",
            hint=f"Allowed: {names}. The operator adds installed modules with PT2HUB_FACTORIES.",
            details=(Detail("source.factory", message, given=source.factory, allowed=names),),
            context={"given": source.factory, "allowed": list(allowed)},
        )
