"""The spec: what a team publishes.

Validated by the server and read by the worker; the light client sends it as text and never imports this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.compiling import COMPILE_OPTIONS, CompileSpec, ExportSpec, TargetSpec, WeightsForm
from pt2hub.domain.digests import DIGEST_PATTERN, Digest, digest_json
from pt2hub.domain.inputs import DimName, Input
from pt2hub.domain.names import MODEL_PATTERN
from pt2hub.domain.parts import STRICT, whole
from pt2hub.domain.paths import NAME_PATTERN, ContradictionError, nest
from pt2hub.domain.sources import (
    DEFAULT_FACTORIES,
    CodeSource,
    FactorySource,
    ProgramSource,
    Source,
    check_factory,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "COMPILE_OPTIONS",
    "DEFAULT_FACTORIES",
    "SETTINGS",
    "SPEC_SCHEMA",
    "Checks",
    "CodeSource",
    "CompileSpec",
    "DimSpec",
    "ExportSpec",
    "FactorySource",
    "Input",
    "Limits",
    "Measure",
    "ProgramSource",
    "Source",
    "Spec",
    "TargetSpec",
    "WeightsForm",
    "check_factory",
]

SPEC_SCHEMA = 1
"""Part of every version's identity; a change of meaning gets a new number."""

SETTINGS = frozenset({"limits", "measure"})
"""Fields that say how a version is built and measured, and are no part of what it is."""

_REMOVED = frozenset({"split"})
"""Fields of `measure` that specs of older versions still hold, and that mean nothing any more."""

ACCEPT_PATTERN = r"no_power|random:[A-Za-z_][\w.]*|unused:[^\s:][^\n]*"
"""What `checks.accept` takes: a verdict, an operator's name, an input's."""

MAX_ELEMENTS = 1 << 31
"""Elements of one example input: 8 GiB of float32."""


class _Part(BaseModel):
    model_config = STRICT


class DimSpec(_Part):
    """A dynamic dimension: the declared range is the contract, and the client refuses a call outside it."""

    min: Annotated[int, Field(ge=1, description="Smallest size.", examples=[1])] = 1
    max: Annotated[int, Field(ge=1, le=2**31, description="Largest size, above `min`.", examples=[32])]
    multiple_of: Annotated[
        int,
        Field(
            ge=1,
            le=2**16,
            description="Every size is a multiple of this; `min`, `max` and `example` too, and `min` is this where it is "
            "left out.",
            examples=[8],
        ),
    ] = 1
    example: Annotated[
        int,
        Field(
            description="Size of the export and the measurements, from `min` to `max`; not 1, which "
            "`torch.export` would fix.",
            examples=[2],
        ),
    ]

    @model_validator(mode="before")
    @classmethod
    def _least(cls, value: Any) -> Any:  # noqa: ANN401  # whatever was given
        step = value.get("multiple_of") if isinstance(value, dict) else None
        # A step that is no size is refused for itself.
        if isinstance(step, int) and step > 0 and "min" not in value:
            return {**value, "min": step}
        return value

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.max <= self.min:
            raise PydanticCustomError(
                "invalid_input",
                "max must be above min, which is {min}; for one size write the number",
                {"min": self.min},
            )
        if not self.min <= self.example <= self.max:
            raise PydanticCustomError(
                "example_out_of_range",
                "example {example} lies outside {min} to {max}",
                {"example": self.example, "min": self.min, "max": self.max},
            )
        for name in ("min", "max", "example"):
            if getattr(self, name) % self.multiple_of:
                raise _at(
                    name,
                    "the size is no multiple of multiple_of",
                    getattr(self, name),
                    f"multiples of {self.multiple_of}",
                )
        if self.example == self.multiple_of:
            raise PydanticCustomError(
                "dimension_specialised",
                "example {example} would fix the dimension: torch.export treats sizes 0 and 1 (times multiple_of) as "
                "constants; give an example of {least} or more",
                {"example": self.example, "least": 2 * self.multiple_of},
            )
        return self


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
        list[Annotated[str, Field(pattern=whole(ACCEPT_PATTERN), max_length=200)]],
        Field(
            max_length=64,
            description="Failures to publish in spite of; the report says so. `no_power` takes a model that the gate cannot "
            "prove, `random:aten.rand_like` a program that draws random numbers by this operator, `unused:mask` one that "
            "never reads its input `mask`.",
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
    processes: Annotated[
        int,
        Field(
            ge=0,
            le=30,
            description="Fresh processes in which the artifact is timed, beside the version before it: calls of one process "
            "are not independent of each other. Fewer than three give figures soon, and no verdict; of three or more as many "
            "again are added, at most twice, while the noise hides the difference. With 0 a publication queues no measuring "
            "job, and `pt2hub measure` takes five processes.",
            examples=[5],
        ),
    ] = 5
    batches: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(
            max_length=8,
            description="Sizes of the first input's first dimension to time at, each within its range; by default its "
            "example alone.",
            examples=[[1, 8], []],
        ),
    ] = []
    seconds: Annotated[
        float,
        Field(
            gt=0,
            le=60,
            description="Time that the calls of one process at one batch size take, per artifact; a few calls are made in "
            "any case.",
            examples=[0.5],
        ),
    ] = 0.5
    profile: Annotated[
        bool,
        Field(
            description="Whether a few calls are watched by a profiler after the last timing: where a call's time goes, and "
            "a trace to download.",
            examples=[True],
        ),
    ] = True


class Spec(_Part):
    """A model to publish.

    All fields but `targets`, `weights_from`, `limits` and `measure` make the version: the same content again answers the
    version there is, which takes over the `limits` and `measure` that it was submitted with last.
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
    source: Annotated[
        Source,
        Field(
            description="Where the model comes from; told by its field `factory`, `code` or `program`.",
            examples=[
                {"factory": "transformers:BertModel", "config": {"num_hidden_layers": 4}},
                {"factory": "timm:create_model", "kwargs": {"model_name": "vit_tiny_patch16_224"}},
                {"code": "sha256:" + 64 * "0", "entry": "net:build", "requirements": ["timm>=1.0"]},
                {"program": "sha256:" + 64 * "0"},
                {"factory": "torchvision.models:resnet18", "kwargs": {"num_classes": 10}, "seed": 0},
            ],
        ),
    ]
    weights: Annotated[
        Annotated[str, Field(pattern=whole(DIGEST_PATTERN))] | None,
        Field(
            description="Digest of an uploaded safetensors file with the model's `state_dict`; null for what "
            "the source builds under its seed. A program needs it.",
            examples=[None],
        ),
    ] = None
    weights_from: Annotated[
        str | None,
        Field(
            max_length=300,
            description="Where the weights were fetched from, pinned, such as `hf:team/name@<commit>`; `pt2hub publish "
            "--weights NAME` writes it. Said of the version, and no part of what makes it.",
            examples=[None],
        ),
    ] = None
    inputs: Annotated[
        list[Input],
        Field(
            min_length=1,
            max_length=64,
            description="The tensor arguments of the model's `forward`, also those inside dicts, lists and tuples; an "
            "example has at most 2^31 elements.",
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
    fixed: Annotated[
        dict[Annotated[str, Field(pattern=whole(NAME_PATTERN), max_length=200)], JsonValue],
        Field(
            max_length=64,
            description="Arguments that are no tensors, and their values; the artifact takes no others.",
            examples=[{"use_cache": False}, {}],
        ),
    ] = {}
    outputs: Annotated[
        list[Annotated[str, Field(pattern=whole(r"(?:\.[A-Za-z_]\w*|\[\d{1,3}\])+"), max_length=200)]],
        Field(
            max_length=64,
            description="What is kept of what the model returns: `.name` is an attribute or a dict's key, `[0]` a place. "
            "One is returned alone, several as a dict by these names without the first dot; by default everything is kept.",
            examples=[[".last_hidden_state"], []],
        ),
    ] = []
    export: Annotated[ExportSpec, Field(description="How the model is traced.")] = ExportSpec()
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
        self._check_arguments()
        self._check_weights()
        for place, path in enumerate(self.outputs):
            if path in self.outputs[:place]:
                raise _at(f"outputs[{place}]", "the output is named before", path)
        self._check_batches()
        used = {size for item in self.inputs for size in item.shape if isinstance(size, str)}
        if unused := sorted(set(self.dims) - used):
            raise _at(f"dims.{unused[0]}", "no shape uses this dimension", unused[0])
        return self

    @property
    def batch_dim(self) -> str | None:
        """The dimension that batches are sizes of: the first input's first one, where it is dynamic."""
        first = self.inputs[0].shape[0] if self.inputs[0].shape else None
        return first if isinstance(first, str) else None

    @property
    def example_batch(self) -> int | None:
        """The batch size of the example inputs: the first input's first size; None where it has none."""
        first = self.inputs[0].shape[0] if self.inputs[0].shape else None
        return self.dims[first].example if isinstance(first, str) else first

    def _check_batches(self) -> None:
        """Refuses batch sizes that the artifact would refuse."""
        dim = self.dims[self.batch_dim] if self.batch_dim else None
        for place, size in enumerate(self.measure.batches):
            path = f"measure.batches[{place}]"
            if dim is None:
                raise _at(
                    path, "the first input's first dimension is not dynamic, so there is one batch size", size
                )
            if not dim.min <= size <= dim.max or size % dim.multiple_of:
                raise _at(
                    path, f"the artifact does not take this size of {self.batch_dim}", size, _range_of(dim)
                )
            if size in self.measure.batches[:place]:
                raise _at(path, "the batch size is named before", size)

    def _check_arguments(self) -> None:
        """Refuses names that cannot stand in one call."""
        names: dict[str, str] = {}
        given = [(f"inputs[{place}].name", item.name) for place, item in enumerate(self.inputs)]
        for path, name in [*given, *((f"fixed.{name}", name) for name in self.fixed)]:
            if name in names:
                raise _at(path, "the argument is an input already", name)
            names[name] = path
        try:
            nest(names)
        except ContradictionError as exc:
            inside = tuple(f"{exc.name}{step}" for step in ".[(")
            name = exc.name if exc.name in names else next(name for name in names if name.startswith(inside))
            raise _at(names[name], str(exc), name) from exc

    def _check_weights(self) -> None:
        """Refuses weights where the source can have none, and their want where it has none itself."""
        if isinstance(self.source, ProgramSource) and self.weights is None:
            raise _at("weights", "a program needs the digest of its weights", None)
        if isinstance(self.source, CodeSource) and self.source.entry_is == "function" and self.weights:
            raise _at(
                "source.entry_is",
                "a function has no weights, and `weights` gives it some",
                "function",
                '"builder"',
            )
        if self.weights_from is not None and self.weights is None:
            raise _at(
                "weights_from", "it tells where `weights` are from, which are not given", self.weights_from
            )

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
        """Return the spec that `canonical` wrote, with the `settings` merged into it or without; it has no targets."""
        fields = {key: value for key, value in document.items() if key != "schema"}
        if measure := fields.get("measure"):
            fields["measure"] = {name: value for name, value in measure.items() if name not in _REMOVED}
        return cls.model_validate(fields)

    def canonical(self) -> dict[str, Any]:
        """Return the fields that make the version, without defaults, with the schema's number.

        Targets, the weights' origin, limits and what is measured are left out.
        """
        left_out = {"targets", "weights_from", *SETTINGS}
        document = self.model_dump(mode="json", exclude_defaults=True, exclude=left_out)
        return {"schema": SPEC_SCHEMA, **document}

    def settings(self) -> dict[str, Any]:
        """Return `limits` and `measure` without defaults: what may change while the version stays the same."""
        return self.model_dump(mode="json", exclude_defaults=True, include=set(SETTINGS))

    def identity(self) -> Digest:
        """The version's identity: the digest of the canonical spec, weights included."""
        return digest_json(self.canonical())

    def requests(self) -> list[TargetSpec]:
        """The targets asked for, each with its overrides; weights as `compile` has them are none."""
        asked = [TargetSpec(target=item) if isinstance(item, str) else item for item in self.targets]
        return [
            item.model_copy(update={"weights": None}) if item.weights == self.compile.weights else item
            for item in asked
        ]


def _range_of(dim: DimSpec) -> str:
    steps = f", in steps of {dim.multiple_of}" if dim.multiple_of > 1 else ""
    return f"{dim.min} to {dim.max}{steps}"


def _at(path: str, message: str, given: object, allowed: str | None = None) -> PydanticCustomError:
    """An error about several fields together, at the one to change: pydantic itself knows only the whole."""
    context = {"text": message, "path": path, "given": given} | ({"allowed": allowed} if allowed else {})
    return PydanticCustomError("invalid_input", "{text}", context)
