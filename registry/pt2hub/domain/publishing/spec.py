"""The spec: the document that describes a version.

The server validates it and workers read it; the light client sends it as text and never imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.digests import DIGEST_PATTERN, Digest, digest_json
from pt2hub.domain.labels import MAX_LABELS
from pt2hub.domain.lineage import MAX_DERIVATION_CHARS, MAX_PARENTS
from pt2hub.domain.names import MODEL_PATTERN
from pt2hub.domain.publishing.compile_options import (
    COMPILE_OPTIONS,
    STORED,
    CompileSpec,
    ExportSpec,
    FloatDtype,
    TargetSpec,
    WeightsForm,
    find_contradiction,
)
from pt2hub.domain.publishing.inputs import DimName, Input
from pt2hub.domain.publishing.paths import NAME_PATTERN, ContradictionError, nest
from pt2hub.domain.publishing.sources import (
    DEFAULT_FACTORIES,
    CodeSource,
    FactorySource,
    ProgramSource,
    Source,
    check_factory,
)
from pt2hub.domain.publishing.spec_base import STRICT, whole
from pt2hub.domain.publishing.spec_files import Files, FileSpec
from pt2hub.domain.publishing.spec_settings import strip_settings
from pt2hub.domain.publishing.target_names import RequestedTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "COMPILE_OPTIONS",
    "DEFAULT_FACTORIES",
    "SPEC_SCHEMA",
    "Checks",
    "CodeSource",
    "CompileSpec",
    "DimSpec",
    "ExportSpec",
    "FactorySource",
    "FileSpec",
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
"""Schema version of the canonical spec, part of every version's identity; raised when the meaning of a field changes."""

_REMOVED = frozenset({"split"})
"""Obsolete fields of `measure` in the specs of older versions."""

ACCEPT_PATTERN = r"no_power|random:[A-Za-z_][\w.]*|unused:[^\s:][^\n]*"
"""Values of `checks.accept`: a failure, or a failure with the name of an operator or input."""

MAX_ELEMENTS = 1 << 31
"""Maximum number of elements of an example input: 8 GiB of float32."""


class _Part(BaseModel):
    model_config = STRICT


class DimSpec(_Part):
    """A dynamic dimension; the client rejects calls outside its range."""

    min: Annotated[int, Field(ge=1, description="Smallest size.", examples=[1])] = 1
    max: Annotated[int, Field(ge=1, le=2**31, description="Largest size, above `min`.", examples=[32])]
    multiple_of: Annotated[
        int,
        Field(
            ge=1,
            le=2**16,
            description="Sizes must be multiples of this, including `min`, `max` and `example`; it is also the default of "
            "`min`.",
            examples=[8],
        ),
    ] = 1
    example: Annotated[
        int,
        Field(
            description="Size used for export and benchmarks, from `min` to `max`; not 1, which "
            "`torch.export` would treat as a constant.",
            examples=[2],
        ),
    ]

    @model_validator(mode="before")
    @classmethod
    def _least(cls, value: Any) -> Any:
        step = value.get("multiple_of") if isinstance(value, dict) else None
        # An invalid multiple_of is reported by its own validation.
        if isinstance(step, int) and step > 0 and "min" not in value:
            return {**value, "min": step}
        return value

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.max <= self.min:
            raise PydanticCustomError(
                "invalid_input",
                "max must be above min, which is {min}; for a fixed size use a number",
                {"min": self.min},
            )
        if not self.min <= self.example <= self.max:
            raise PydanticCustomError(
                "example_out_of_range",
                "example must be between {min} and {max}, got {example}",
                {"example": self.example, "min": self.min, "max": self.max},
            )
        for name in ("min", "max", "example"):
            if getattr(self, name) % self.multiple_of:
                raise _at(
                    name,
                    "the size must be a multiple of multiple_of",
                    getattr(self, name),
                    f"multiples of {self.multiple_of}",
                )
        if self.example == self.multiple_of:
            raise PydanticCustomError(
                "dimension_specialised",
                "example {example} would fix the dimension: torch.export treats sizes 0 and 1 (times multiple_of) as "
                "constants; use an example of {least} or more",
                {"example": self.example, "least": 2 * self.multiple_of},
            )
        return self


class Checks(_Part):
    """Requirements of verification."""

    tolerance: Annotated[
        float,
        Field(
            gt=0,
            le=0.5,
            description="Largest accepted error, relative to how much the outputs change when the inputs change.",
            examples=[0.001],
        ),
    ] = 1.0e-3
    accept: Annotated[
        list[Annotated[str, Field(pattern=whole(ACCEPT_PATTERN), max_length=200)]],
        Field(
            max_length=64,
            description="Failures to accept; the verification report lists them. `no_power` accepts a model that cannot be "
            "verified, `random:aten.rand_like` a program that draws random numbers with this operator, `unused:mask` one "
            "that never reads its input `mask`.",
            examples=[[]],
        ),
    ] = []


class Limits(_Part):
    """Limits of a build."""

    seconds: Annotated[
        int, Field(ge=10, le=86400, description="Time limit of an attempt, in seconds.", examples=[3600])
    ] = 3600
    autotune_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=86400,
            description="Time limit of autotuning, in seconds. Undecided operations then use the compiler's default kernel, and "
            "the build continues; null means that only `seconds` applies.",
            examples=[600],
        ),
    ] = None


class Measure(_Part):
    """Benchmark settings."""

    torch_compile: Annotated[
        bool,
        Field(
            description="Whether `torch.compile` is benchmarked as a baseline, and its first call timed.",
            examples=[True],
        ),
    ] = True
    processes: Annotated[
        int,
        Field(
            ge=0,
            le=30,
            description="Number of fresh processes (replicates) that time the artifact alongside the previous version; calls of "
            "one process are not independent of each other. Fewer than three give measurements quickly but no comparison; "
            "with three or more, as many again are added, at most twice, while noise hides the difference. With 0 a "
            "publication queues no measuring job, and `pt2hub measure` uses five processes.",
            examples=[5],
        ),
    ] = 5
    batches: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(
            max_length=8,
            description="Batch sizes to time: sizes of the first input's first dimension within its range; by default only its "
            "example.",
            examples=[[1, 8], []],
        ),
    ] = []
    seconds: Annotated[
        float,
        Field(
            gt=0,
            le=60,
            description="Time in seconds for the calls of one process at one batch size, per artifact; a few calls are always "
            "made.",
            examples=[0.5],
        ),
    ] = 0.5
    profile: Annotated[
        bool,
        Field(
            description="Whether a few calls are profiled after the last timing, which gives a profile and a trace to "
            "download.",
            examples=[True],
        ),
    ] = True


class Spec(_Part):
    """A model to publish.

    All fields except `targets`, `weights_from`, `labels`, `limits`, `measure`, `compile.debug` and documentation among
    `files` identify the version: submitting the same content again returns the existing version and updates its labels,
    `limits`, `measure`, `compile.debug` and documentation.
    """

    model: Annotated[
        str,
        Field(
            pattern=whole(MODEL_PATTERN),
            max_length=200,
            description="`team/name`: lowercase letters and digits, with single `.`, `_` or `-` between them.",
            examples=["vision/resnet18"],
        ),
    ]
    source: Annotated[
        Source,
        Field(
            description="Where the model comes from; its field `factory`, `code` or `program` selects the kind.",
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
            description="Digest of an uploaded safetensors file with the model's `state_dict`; null for the weights that "
            "the source initializes with its seed. Required for programs.",
            examples=[None],
        ),
    ] = None
    weights_from: Annotated[
        str | None,
        Field(
            max_length=300,
            description="Pinned origin of the weights, such as `hf:team/name@<commit>`; set by `pt2hub publish "
            "--weights NAME`. Recorded, but not part of the version's identity.",
            examples=[None],
        ),
    ] = None
    inputs: Annotated[
        list[Input],
        Field(
            min_length=1,
            max_length=64,
            description="The tensor arguments of the model's `forward`, including those in dicts, lists and tuples; an "
            "example has at most 2^31 elements.",
            examples=[[{"name": "x", "shape": ["batch", 3, 224, 224], "generate": {"normal": {}}}]],
        ),
    ]
    dims: Annotated[
        dict[DimName, DimSpec],
        Field(
            description="Dynamic dimensions by name; each must be used in a shape.",
            examples=[{"batch": {"min": 1, "max": 32, "example": 2}}],
        ),
    ] = {}
    fixed: Annotated[
        dict[Annotated[str, Field(pattern=whole(NAME_PATTERN), max_length=200)], JsonValue],
        Field(
            max_length=64,
            description="Values of non-tensor arguments; the artifact accepts no other values.",
            examples=[{"use_cache": False}, {}],
        ),
    ] = {}
    outputs: Annotated[
        list[Annotated[str, Field(pattern=whole(r"(?:\.[A-Za-z_]\w*|\[\d{1,3}\])+"), max_length=200)]],
        Field(
            max_length=64,
            description="Outputs to keep: `.name` is an attribute or a dict key, `[0]` an index. A single output is returned "
            "as it is, several as a dict with these names without the leading dot; by default everything is kept.",
            examples=[[".last_hidden_state"], []],
        ),
    ] = []
    files: Files = {}
    dtype: Annotated[
        FloatDtype | None,
        Field(
            description="Dtype that the model runs in: floating-point weights and inputs are converted to it; null keeps their "
            "own. The tolerance is then at least 0.01 (`float16`) or 0.05 (`bfloat16`).",
            examples=["bfloat16"],
        ),
    ] = None
    export: Annotated[ExportSpec, Field(description="How the model is exported.")] = ExportSpec()
    compile: Annotated[CompileSpec, Field(description="How the model is compiled.")] = CompileSpec()
    targets: Annotated[
        list[RequestedTarget | TargetSpec],
        Field(
            min_length=1,
            max_length=64,
            description="Targets to build for: names, `auto` for every target with a live worker at "
            "submission, or objects with overrides.",
            examples=[["auto"]],
        ),
    ] = ["auto"]
    checks: Annotated[Checks, Field(description="Requirements of verification.")] = Checks()
    limits: Annotated[Limits, Field(description="Limits of a build.")] = Limits()
    measure: Annotated[Measure, Field(description="Benchmark settings.")] = Measure()
    labels: Annotated[
        dict[str, str],
        Field(
            max_length=MAX_LABELS,
            description="Labels of the version, such as `git.sha`, `license` or `owner`; not part of its identity.",
            examples=[{"owner": "search", "license": "Apache-2.0"}],
        ),
    ] = {}
    derived_from: Annotated[
        list[Annotated[str, Field(max_length=MAX_DERIVATION_CHARS)]],
        Field(
            max_length=MAX_PARENTS,
            description="What the version is derived from, as `relation:parent`; not part of its identity.",
            examples=[["fine-tuned:vision/resnet18@3"], ["quantized:hf:team/name@revision"]],
        ),
    ] = []

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
                raise _at(f"outputs[{place}]", "duplicate output", path)
        for place, kind in enumerate(self.compile.debug):
            if kind in self.compile.debug[:place]:
                raise _at(f"compile.debug[{place}]", "duplicate debug log", kind)
        self._check_batches()
        self._check_targets()
        if wrong := find_contradiction(self.compile, self.targets):
            raise _at(*wrong)
        used = {size for item in self.inputs for size in item.shape if isinstance(size, str)}
        if unused := sorted(set(self.dims) - used):
            raise _at(f"dims.{unused[0]}", "the dimension is not used in any shape", unused[0])
        return self

    @property
    def batch_dim(self) -> str | None:
        """The batch dimension: the first input's first dimension if it is dynamic, else None."""
        first = self.inputs[0].shape[0] if self.inputs[0].shape else None
        return first if isinstance(first, str) else None

    @property
    def example_batch(self) -> int | None:
        """The batch size of the example inputs: the first input's first size; None if it is a scalar."""
        first = self.inputs[0].shape[0] if self.inputs[0].shape else None
        return self.dims[first].example if isinstance(first, str) else first

    def _check_batches(self) -> None:
        """Reject batch sizes that the artifact would not accept."""
        dim = self.dims[self.batch_dim] if self.batch_dim else None
        for place, size in enumerate(self.measure.batches):
            path = f"measure.batches[{place}]"
            if dim is None:
                raise _at(
                    path,
                    "the first input's first dimension is not dynamic, so there is only one batch size",
                    size,
                )
            if not dim.min <= size <= dim.max or size % dim.multiple_of:
                raise _at(path, f"the size is outside the range of {self.batch_dim}", size, _range_of(dim))
            if size in self.measure.batches[:place]:
                raise _at(path, "duplicate batch size", size)

    def _check_targets(self) -> None:
        names = [request.target for request in self.requests()]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise _at(f"targets[{index}]", "duplicate target; a version has one build per target", name)

    def _check_arguments(self) -> None:
        """Reject contradictory argument names."""
        names: dict[str, str] = {}
        given = [(f"inputs[{place}].name", item.name) for place, item in enumerate(self.inputs)]
        for path, name in [*given, *((f"fixed.{name}", name) for name in self.fixed)]:
            if name in names:
                raise _at(path, "the argument is already an input", name)
            names[name] = path
        try:
            nest(names)
        except ContradictionError as exc:
            inside = tuple(f"{exc.name}{step}" for step in ".[(")
            name = exc.name if exc.name in names else next(name for name in names if name.startswith(inside))
            raise _at(names[name], str(exc), name) from exc

    def _check_weights(self) -> None:
        """Reject weights for functions, and programs without weights."""
        if isinstance(self.source, ProgramSource) and self.weights is None:
            raise _at("weights", "the digest of the weights is required for a program", None)
        if isinstance(self.source, CodeSource) and self.source.entry_is == "function" and self.weights:
            raise _at(
                "source.entry_is",
                "weights cannot be given for a function, which has none",
                "function",
                '"builder"',
            )
        if self.weights_from is not None and self.weights is None:
            raise _at("weights_from", "weights_from requires weights, which are not given", self.weights_from)

    def _check_shape(self, path: str, item: Input) -> None:
        elements = 1
        for axis, size in enumerate(item.shape):
            if isinstance(size, str) and size not in self.dims:
                raise _at(
                    f"{path}[{axis}]",
                    "unknown dimension, not declared in dims",
                    size,
                    ", ".join(self.dims) or None,
                )
            elements *= self.dims[size].example if isinstance(size, str) else size
        if elements > MAX_ELEMENTS:
            raise _at(
                path, f"the example has too many elements ({elements})", item.shape, f"at most {MAX_ELEMENTS}"
            )

    @classmethod
    def from_canonical(cls, document: Mapping[str, Any]) -> Self:
        """Create a spec without targets from the result of `canonical`, optionally merged with `settings`."""
        fields = {key: value for key, value in document.items() if key != "schema"}
        if measure := fields.get("measure"):
            fields["measure"] = {name: value for name, value in measure.items() if name not in _REMOVED}
        return cls.model_validate(fields, context={STORED: True})

    def canonical(self) -> dict[str, Any]:
        """Return the fields that identify the version, without defaults, with the schema version.

        Targets, the weights' origin, labels, lineage, documentation and settings are excluded.
        """
        documentation = {name: True for name, file in self.files.items() if file.kind.is_documentation}
        excluded: Any = dict.fromkeys(("targets", "weights_from", "labels", "derived_from"), True)
        excluded |= {"files": documentation}
        document = self.model_dump(mode="json", exclude_defaults=True, exclude=excluded)
        if not document.get("files"):
            document.pop("files", None)
        return {"schema": SPEC_SCHEMA, **strip_settings(document, self.settings())}

    def settings(self) -> dict[str, Any]:
        """Return `limits`, `measure` and `compile.debug` without defaults; they may change for an existing version."""
        given = self.model_dump(
            mode="json",
            exclude_defaults=True,
            include={"limits": True, "measure": True, "compile": {"debug"}},
        )
        return {name: value for name, value in given.items() if value}

    def identity(self) -> Digest:
        """Return the version's identity: the digest of the canonical spec, including weights."""
        return digest_json(self.canonical())

    def requests(self) -> list[TargetSpec]:
        """Return the requested targets with overrides; a mode, weights form or dtype equal to the spec's is dropped."""
        asked = [TargetSpec(target=item) if isinstance(item, str) else item for item in self.targets]
        return [item.model_copy(update=self._repeated(item)) for item in asked]

    def _repeated(self, item: TargetSpec) -> dict[str, None]:
        own = {"mode": self.compile.mode, "weights": self.compile.weights, "dtype": self.dtype}
        return {name: None for name, value in own.items() if getattr(item, name) == value}


def _range_of(dim: DimSpec) -> str:
    steps = f", in steps of {dim.multiple_of}" if dim.multiple_of > 1 else ""
    return f"{dim.min} to {dim.max}{steps}"


def _at(path: str, message: str, given: object, allowed: str | None = None) -> PydanticCustomError:
    """Create a validation error located at one field; pydantic would locate it at the whole model."""
    context = {"text": message, "path": path, "given": given} | ({"allowed": allowed} if allowed else {})
    return PydanticCustomError("invalid_input", "{text}", context)
