"""Inputs of specs and how example values are generated."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.publishing.paths import NAME_PATTERN
from pt2hub.domain.publishing.spec_base import STRICT, whole

FLOATS = ("float32", "float16", "bfloat16", "float64")
Dtype = Literal[
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"
]
_BITS = {"int64": 63, "int32": 31, "int16": 15, "int8": 7}


class _Part(BaseModel):
    model_config = STRICT


class Normal(_Part):
    """Parameters of a normal distribution."""

    mean: Annotated[float, Field(description="Mean.", examples=[0.0])] = 0.0
    std: Annotated[float, Field(gt=0, description="Standard deviation.", examples=[1.0])] = 1.0


class Uniform(_Part):
    """Bounds of a uniform distribution."""

    low: Annotated[float, Field(description="Lower bound.", examples=[0.0])] = 0.0
    high: Annotated[float, Field(description="Upper bound, above `low`.", examples=[1.0])] = 1.0

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.high <= self.low:
            raise PydanticCustomError("invalid_input", "high must be above low")
        return self


Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Randint(_Part):
    """Bounds of uniformly distributed integers, `high` excluded."""

    low: Annotated[Int64, Field(description="Smallest integer.", examples=[0])] = 0
    high: Annotated[Int64, Field(description="One above the largest integer.", examples=[30522])]

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.high <= self.low:
            raise PydanticCustomError("invalid_input", "high must be above low")
        return self


class Generate(_Part):
    """Generator of example values; exactly one field must be set."""

    normal: Annotated[
        Normal | None, Field(description="Normal distribution, for floating-point dtypes.", examples=[{}])
    ] = None
    uniform: Annotated[
        Uniform | None,
        Field(
            description="Uniform distribution, for floating-point dtypes.",
            examples=[{"low": 0.0, "high": 1.0}],
        ),
    ] = None
    randint: Annotated[
        Randint | None,
        Field(
            description="Uniformly distributed integers within the range of the dtype.",
            examples=[{"high": 30522}],
        ),
    ] = None
    constant: Annotated[
        float | int | bool | None, Field(description="The same value for every element.", examples=[1])
    ] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError(
                "invalid_input", "give exactly one of normal, uniform, randint, constant"
            )
        return self


DimName = Annotated[str, Field(pattern=whole(r"[a-z_][a-z0-9_]{0,31}"))]
Size = Annotated[int, Field(ge=0, le=2**31)]


class Input(_Part):
    """One tensor argument of the model's forward.

    Give either `generate` or `example`; the values are used for export, verification and benchmarks.
    """

    name: Annotated[
        str,
        Field(
            pattern=whole(NAME_PATTERN),
            max_length=200,
            description="Unique name of the argument; for a nested tensor its path: `batch.image` in a dict, `pair[0]` in a "
            "list, `state(0)` in a tuple.",
            examples=["x"],
        ),
    ]
    shape: Annotated[
        list[Size | DimName],
        Field(
            max_length=16,
            description="Sizes; a name refers to a dynamic dimension declared in `dims`.",
            examples=[["batch", 3, 224, 224]],
        ),
    ]
    dtype: Annotated[Dtype, Field(description="The tensor's dtype.", examples=["float32"])] = "float32"
    generate: Annotated[
        Generate | None, Field(description="How example values are generated.", examples=[{"normal": {}}])
    ] = None
    example: Annotated[
        Annotated[str, Field(pattern=whole(DIGEST_PATTERN))] | None,
        Field(
            description="Digest of an uploaded safetensors file with the values.",
            examples=["sha256:" + 64 * "0"],
        ),
    ] = None

    @model_validator(mode="after")
    def _fill_defaults(self) -> Self:
        if (self.generate is None) == (self.example is None):
            raise PydanticCustomError("invalid_input", "give either generate or example")
        floating = self.dtype in FLOATS
        if self.generate and not floating and (self.generate.normal or self.generate.uniform):
            raise PydanticCustomError(
                "invalid_input", "normal and uniform require a floating-point dtype; use randint or constant"
            )
        if self.generate and not floating:
            self._check_integers(self.generate)
        return self

    def _check_integers(self, generate: Generate) -> None:
        """Refuse numbers that the dtype cannot hold: torch would cut or wrap them without a word."""
        low, high = _range_of(self.dtype)
        drawn = generate.randint
        ends = (drawn.low, drawn.high - 1) if drawn else (generate.constant or 0,)
        if not all(low <= end <= high and int(end) == end for end in ends):
            raise PydanticCustomError(
                "invalid_input",
                "{dtype} cannot hold these values",
                {"dtype": self.dtype, "path": "generate", "min": low, "max": high},
            )


def _range_of(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer dtype."""
    bits = _BITS.get(dtype)
    if bits is None:
        return 0, 1 if dtype == "bool" else 255
    return -(1 << bits), (1 << bits) - 1
