"""The spec: what a team publishes.

Validated by the server and read by the worker; the light client sends it as text and never imports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.digests import DIGEST_PATTERN, Digest, digest_json
from pt2hub.domain.names import MODEL_PATTERN
from pt2hub.errors import Detail, UnknownFactory

SPEC_SCHEMA = 1
"""Part of every version's identity; a change of meaning gets a new number."""

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
FLOATS = ("float32", "float16", "bfloat16", "float64")
Dtype = Literal[
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"
]
FloatDtype = Literal["float32", "float16", "bfloat16"]

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


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"  # pydantic searches; every pattern here means the whole text


class Model(BaseModel):
    """Every part of a spec refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FactorySource(Model):
    """A function of an installed package that builds the module."""

    factory: Annotated[str, Field(pattern=_whole(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"), max_length=200)]
    kwargs: dict[str, JsonValue] = {}
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @property
    def module(self) -> str:
        """The module the factory lives in."""
        return self.factory.partition(":")[0]


class Normal(Model):
    """Parameters of a normal distribution."""

    mean: float = 0.0
    std: Annotated[float, Field(gt=0)] = 1.0


class Uniform(Model):
    """Bounds of a uniform distribution."""

    low: float = 0.0
    high: float = 1.0


class Randint(Model):
    """Bounds of uniformly drawn integers, `high` excluded."""

    low: int = 0
    high: int

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high <= self.low:
            raise PydanticCustomError("invalid_input", "high must be above low")
        return self


class Generate(Model):
    """How example values are drawn; exactly one field."""

    normal: Normal | None = None
    uniform: Uniform | None = None
    randint: Randint | None = None
    constant: float | int | bool | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError(
                "invalid_input", "give exactly one of normal, uniform, randint, constant"
            )
        return self


DimName = Annotated[str, Field(pattern=_whole(r"[a-z_][a-z0-9_]{0,31}"))]
Size = Annotated[int, Field(ge=0, le=2**31)]


class Input(Model):
    """One tensor argument of the model's forward."""

    name: Annotated[str, Field(pattern=_whole(r"[A-Za-z_]\w{0,63}"))]
    shape: Annotated[list[Size | DimName], Field(max_length=16)]
    dtype: Dtype = "float32"
    generate: Generate | None = None
    example: Annotated[str, Field(pattern=_whole(DIGEST_PATTERN))] | None = None

    @model_validator(mode="after")
    def _filled(self) -> Self:
        if (self.generate is None) == (self.example is None):
            raise PydanticCustomError("invalid_input", "give either generate or example")
        floating = self.dtype in FLOATS
        if self.generate and not floating and (self.generate.normal or self.generate.uniform):
            raise PydanticCustomError(
                "invalid_input", "normal and uniform draw floating point numbers; use randint or constant"
            )
        return self


class DimSpec(Model):
    """A dynamic dimension: the declared range is the contract."""

    min: Annotated[int, Field(ge=1)] = 1
    max: Annotated[int, Field(ge=1, le=2**31)]
    example: int

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


class CompileSpec(Model):
    """How the model is compiled."""

    options: dict[str, bool | int | float | str] = {}

    @field_validator("options")
    @classmethod
    def _allowed(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_options(value)
        return value


class TargetSpec(Model):
    """A target with its own dtype, options or memory format."""

    target: str
    dtype: FloatDtype | None = None
    options: dict[str, bool | int | float | str] = {}
    memory_format: Literal["contiguous_format", "channels_last"] = "contiguous_format"

    @field_validator("options")
    @classmethod
    def _allowed(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_options(value)
        return value


class Checks(Model):
    """What the publish gate asks for."""

    tolerance: Annotated[float, Field(gt=0, le=0.5)] = 1.0e-3
    accept: list[Literal["no_power"]] = []


class Limits(Model):
    """When a build is stopped."""

    seconds: Annotated[int, Field(ge=10, le=86400)] = 3600


class Measure(Model):
    """What is timed beside the artifact."""

    torch_compile: bool = True


class Spec(Model):
    """A model to publish."""

    model: Annotated[str, Field(pattern=_whole(MODEL_PATTERN), max_length=200)]
    source: FactorySource
    weights: Annotated[str, Field(pattern=_whole(DIGEST_PATTERN))] | None = None
    inputs: Annotated[list[Input], Field(min_length=1, max_length=64)]
    dims: dict[DimName, DimSpec] = {}
    compile: CompileSpec = CompileSpec()
    targets: Annotated[list[str | TargetSpec], Field(min_length=1, max_length=64)] = ["auto"]
    checks: Checks = Checks()
    limits: Limits = Limits()
    measure: Measure = Measure()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [item.name for item in self.inputs]
        if len(set(names)) != len(names):
            raise PydanticCustomError("invalid_input", "two inputs have the same name")
        used = {size for item in self.inputs for size in item.shape if isinstance(size, str)}
        if unknown := sorted(used - set(self.dims)):
            raise PydanticCustomError(
                "invalid_input", "dims lacks {names}, which a shape uses", {"names": ", ".join(unknown)}
            )
        if unused := sorted(set(self.dims) - used):
            raise PydanticCustomError(
                "invalid_input", "dims names {names}, which no shape uses", {"names": ", ".join(unused)}
            )
        return self

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
