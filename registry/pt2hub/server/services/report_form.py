"""The form of a report: figures that others took, and where they took them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.measurements import Measurement
from pt2hub.server.services.report_problems import refusal
from pt2hub.server.services.report_values import (
    ArtifactName,
    Figure,
    Key,
    MetricName,
    Moment,
    SubjectName,
    TargetName,
    TorchRelease,
    Unit,
    Words,
    check_figures,
    check_samples,
    check_unit,
)
from pt2hub.server.services.spec_errors import Form, explained

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ITEMS = 5000
MOST_ENVIRONMENTS = 100
"""Different machines that one report may name."""
MOST_REPLICATES = 200
MOST_SAMPLES = 1000
"""Single calls kept of one figure: forty of each of twenty-five processes."""
MAX_REPORT_BYTES = 8 << 20
_MOST_BATCH = 2**31 - 1
_MOST_PROCESSORS = 1 << 16
_MOST_MHZ = 100_000
_MOST_WATTS = 100_000
_MOST_MEMORY = 1 << 50

_Level = Literal["x86_64", "x86_64_v2", "x86_64_v3", "x86_64_v4"]


class _Part(BaseModel):
    # Strict: "3.1" is no number, and true is not 1.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ReportedEnvironment(_Part):
    """A machine, as `pt2hub.environment()` describes it; what is left out or null is not known."""

    cpu_model: Annotated[Words, Field(description="As /proc/cpuinfo names it.")]
    cores: Annotated[int, Field(ge=1, le=_MOST_PROCESSORS, description="Logical processors of the process.")]
    torch: Annotated[TorchRelease, Field(description="Its full version, such as 2.13.0+cpu.")]
    cpu_level: Annotated[_Level | None, Field(description="psABI level.")] = None
    memory_bytes: Annotated[int | None, Field(ge=1, le=_MOST_MEMORY, description="Physical memory.")] = None
    gpu: Annotated[Words | None, Field(description="As torch names it; needed for CUDA targets.")] = None
    driver: Annotated[Words | None, Field(description="Of the GPU; needed for CUDA targets.")] = None
    cuda: Annotated[Words | None, Field(description="CUDA release of torch, such as 13.0.")] = None
    triton: Annotated[Words | None, Field(description="Its version.")] = None
    threads: Annotated[
        int | None, Field(ge=1, le=_MOST_PROCESSORS, description="OpenMP threads of the process.")
    ] = None
    governor: Annotated[Words | None, Field(description="The CPU's, such as performance.")] = None
    cpu_max_mhz: Annotated[int | None, Field(ge=1, le=_MOST_MHZ, description="Highest clock.")] = None
    gpu_power_limit_w: Annotated[int | None, Field(ge=1, le=_MOST_WATTS, description="Of the GPU.")] = None
    gpu_max_mhz: Annotated[int | None, Field(ge=1, le=_MOST_MHZ, description="Highest clock of the GPU.")] = (
        None
    )
    container: Annotated[
        Literal["docker", "kubernetes", "podman", "none"] | None, Field(description="What it ran in.")
    ] = None
    isolation: Annotated[
        Literal["sandbox", "process", "none"] | None, Field(description="How pt2hub confined it, if it did.")
    ] = None

    def fingerprint(self) -> Environment:
        """The machine as everywhere else."""
        return Environment(**self.model_dump())


class ReportedFigure(_Part):
    """A figure."""

    key: Annotated[
        Key,
        Field(
            description="Your name for this figure. The same key with the same content again is a duplicate."
        ),
    ]
    artifact: Annotated[
        ArtifactName,
        Field(description="Manifest digest, team/name@sha256:..., or team/name@3 with a target."),
    ]
    metric: Annotated[MetricName, Field(description="A known metric, or a name of your own.")]
    value: Annotated[Figure, Field(description="The figure.")]
    unit: Annotated[Unit, Field(description="Its unit; that of the metric where pt2hub knows it.")]
    environment: Annotated[
        str | ReportedEnvironment, Field(description="A name among `environments`, or a machine.")
    ]
    target: Annotated[
        TargetName | None, Field(description="Which of a version's artifacts, where it has several.")
    ] = None
    batch: Annotated[int | None, Field(ge=1, le=_MOST_BATCH, description="Batch size.")] = None
    subject: Annotated[
        SubjectName,
        Field(description="artifact, or what was measured beside it: eager, torch_compile and such."),
    ] = "artifact"
    replicates: Annotated[
        list[Figure] | None,
        Field(min_length=1, max_length=MOST_REPLICATES, description="The figure of each fresh process."),
    ] = None
    samples: Annotated[
        list[Annotated[list[Figure], Field(max_length=MOST_SAMPLES)]] | None,
        Field(
            max_length=MOST_REPLICATES,
            description=f"Single calls, a list of each process; {MOST_SAMPLES} numbers at most.",
        ),
    ] = None
    measured_at: Annotated[
        Moment | None, Field(description="ISO 8601 with its zone; when the report came where omitted.")
    ] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_unit(self.metric, self.unit)
        check_figures(self.metric, self.value, self.replicates)
        check_samples(self.samples, MOST_SAMPLES)
        return self

    def measurement(self) -> Measurement:
        """The figure as everywhere else."""
        return Measurement(
            self.metric,
            self.value,
            self.unit,
            self.subject,
            batch=self.batch,
            samples=self.samples,
            replicates=self.replicates,
        )


class Report(_Part):
    """Figures that others took: all of them are kept, or none."""

    measurements: Annotated[list[ReportedFigure], Field(min_length=1, max_length=MOST_ITEMS)]
    environments: Annotated[
        dict[Words, ReportedEnvironment],
        Field(
            max_length=MOST_ENVIRONMENTS,
            description="Machines by a name of yours, said once for many figures.",
        ),
    ] = {}


_FORM = Form(
    "report",
    Report,
    "The whole form is described at POST /measurements of /api/v1/docs.",
)


_BARE = re.compile(r"measurements\[\d+\]\.environment")
_OF_PLACE = (
    "Say where the figures were taken: `pt2hub report FILE --environment auto` says it was this machine, in Python "
    "client.report(figures, environment=pt2hub.environment()). "
)


def parse_report(document: Mapping[str, Any]) -> Report:
    """Reads a report.

    Args:
        document: The report as JSON values.

    Raises:
        InvalidInput: Fields are wrong; at most 20 are named, and the others counted.
        UnknownMetric: Nothing but metrics' names and units is wrong.
    """
    try:
        return Report.model_validate(dict(document))
    except ValidationError as exc:
        error = explained(exc, document, _FORM)
        items = {item["loc"][:2] for item in exc.errors(include_url=False, include_context=False)}
        bare = any(_BARE.fullmatch(item.path) and item.given is None for item in error.details)
        hint = f"{_OF_PLACE if bare else ''}{error.hint or ''}"
        raise refusal(type(error), error.details, len(items), hint=hint) from exc
