"""Schema of reports: measurements taken outside pt2hub, with their environments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.names import Reference
from pt2hub.domain.performance.measurements import Measurement
from pt2hub.domain.performance.metrics import METRIC_PATTERN, METRICS
from pt2hub.domain.publishing.target_names import TargetName
from pt2hub.errors import InvalidInput, UnknownMetric
from pt2hub.server.services.publishing.spec_errors import Form, explain_validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    class Keyed(Protocol):
        """An item of a report."""

        @property
        def key(self) -> str:
            """Name that its reporter gave it."""


MAX_REPORT_BYTES = 8 << 20
_MAX_MEASUREMENTS = 5000
_MAX_ENVIRONMENTS = 100
"""Different environments in one report."""
_MAX_REPLICATES = 200
_MAX_SAMPLES = 1000
"""Single calls per measurement: forty from each of twenty-five processes."""
_MAX_VALUE = 1e100
"""Ratios and squares of such values are still finite; no measurement comes near."""
_DAY_S = 86_400
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BOUNDS = {
    "ms": (1e-6, _DAY_S * 1e3),
    "s": (1e-9, 30 * _DAY_S),
    "1/s": (1e-9, 1e12),
    "B": (0, 2**50),
    "1": (0, 1e9),
}
"""Bounds of known metrics by unit. Times and rates of 0 come from a clock that did not move and have no ratios."""
_MIN_SPEEDUP = 1e-9
_ROUNDING = 0.01
"""How far a value may lie outside its replicates, since people round."""


def _check_readable(text: str) -> str:
    """Refuse invisible characters, which would make equal-looking names differ."""
    if not text.isprintable() or text != text.strip():
        raise invalid("must have visible characters only, without surrounding blanks")
    return text


def _check_artifact(text: str) -> str:
    """Accept a digest, or a reference that always names the same artifact."""
    allowed = "sha256:<64 digits>, team/name@sha256:<64 digits>, or team/name@3 with a target"
    try:
        wanted = Reference.parse(text if "@" in text else f"any/model@{text}")
    except InvalidInput as exc:
        raise invalid("invalid artifact", given=text, allowed=allowed) from exc
    if not (wanted.digest or (wanted.number and "@" in text)):
        raise invalid("aliases move, and short digests are ambiguous", given=text, allowed=allowed)
    return text


def check_key(name: str, items: Sequence[Keyed], index: int, first: dict[str, int]) -> None:
    """Refuse an item with the key of an earlier one and other content.

    Args:
        name: Field of the report with the items.
        first: Index of the first item of each key so far.
    """
    key = items[index].key
    before = first.setdefault(key, index)
    if items[index] != items[before]:
        message = f"{name}[{before}] has the same key with different content"
        raise invalid(message, f"{name}[{index}].key", given=key)


_Count = Annotated[int, Field(ge=1, le=1 << 50)]
Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_readable)]
Number = Annotated[float, Field(ge=-_MAX_VALUE, le=_MAX_VALUE, allow_inf_nan=False)]


class _Part(BaseModel):
    # Strict: "3.1" is not a number, and true is not 1.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ReportedEnvironment(_Part):
    """An environment, as `pt2hub.environment()` describes it; omitted or null fields are unknown."""

    cpu_model: Annotated[Text, Field(description="As /proc/cpuinfo names it.")]
    cores: Annotated[_Count, Field(description="Logical processors of the process.")]
    torch: Annotated[
        str, Field(max_length=64, pattern=r"^\d+\.\d+[0-9A-Za-z.+_-]*$", description="Full version.")
    ]
    cpu_level: Literal["x86_64", "x86_64_v2", "x86_64_v3", "x86_64_v4"] | None = None
    memory_bytes: _Count | None = None
    gpu: Annotated[Text | None, Field(description="As torch names it; required for CUDA targets.")] = None
    driver: Annotated[Text | None, Field(description="Of the GPU; required for CUDA targets.")] = None
    cuda: Annotated[Text | None, Field(description="CUDA release of torch, such as 13.0.")] = None
    triton: Text | None = None
    threads: Annotated[_Count | None, Field(description="OpenMP threads of the process.")] = None
    governor: Annotated[Text | None, Field(description="The CPU's, such as performance.")] = None
    cpu_max_mhz: _Count | None = None
    gpu_power_limit_w: _Count | None = None
    gpu_max_mhz: _Count | None = None
    container: Literal["docker", "kubernetes", "podman", "none"] | None = None
    isolation: Literal["sandbox", "process", "none"] | None = None

    def environment(self) -> Environment:
        """Return the fingerprint of the environment."""
        return Environment(**self.model_dump())


def check_iso(value: Any) -> Any:
    """Refuse numbers, in text too: pydantic would take them for seconds or milliseconds since 1970."""
    if not (isinstance(value, str) and _DATE.match(value)):
        raise PydanticCustomError("invalid_input", "must be text such as 2026-11-22T10:00:00+00:00")
    return value


class ReportedMeasurement(_Part):
    """A reported measurement."""

    key: Annotated[
        Text, Field(description="Your name for it; the same key and content again is a duplicate.")
    ]
    artifact: Annotated[
        str,
        Field(
            max_length=400, description="Manifest digest, team/name@sha256:..., or team/name@3 with a target."
        ),
        AfterValidator(_check_artifact),
    ]
    metric: Annotated[
        str, Field(pattern=f"^{METRIC_PATTERN}$", description="A known metric, or a name of your own.")
    ]
    value: Number
    unit: Annotated[Text, Field(max_length=16, description="For known metrics, the metric's unit.")]
    environment: Annotated[
        str | ReportedEnvironment, Field(description="A name in `environments`, or an environment.")
    ]
    target: Annotated[
        TargetName | None,
        Field(description="The artifact's target, if the version has several artifacts."),
    ] = None
    batch: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="Batch size.")] = None
    implementation: Annotated[
        str,
        Field(
            pattern="^[a-z_]{1,32}$", description="artifact, or a baseline: eager, torch_compile and such."
        ),
    ] = "artifact"
    replicates: Annotated[
        list[Number] | None,
        Field(min_length=1, max_length=_MAX_REPLICATES, description="The value of each fresh process."),
    ] = None
    samples: Annotated[
        list[Annotated[list[Number], Field(max_length=_MAX_SAMPLES)]] | None,
        Field(
            max_length=_MAX_REPLICATES,
            description=f"Single calls, a list per process; at most {_MAX_SAMPLES} numbers.",
        ),
    ] = None
    measured_at: Annotated[
        Annotated[AwareDatetime, BeforeValidator(check_iso)] | None,
        Field(strict=False, description="ISO 8601 with its zone; default: when the report arrives."),
    ] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if known := METRICS.get(self.metric):
            if self.unit != known.unit:
                message = f"wrong unit for {self.metric}; convert the value, or use a metric of your own"
                raise invalid(message, "unit", code=UnknownMetric.code, given=self.unit, allowed=known.unit)
            low, high = _BOUNDS[known.unit]
            low = _MIN_SPEEDUP if self.metric == "speedup" else low
            self._check_within("value", self.value, low, high)
            for index, value in enumerate(self.replicates or ()):
                self._check_within(f"replicates[{index}]", value, low, high)
        if self.replicates:
            low, high = min(self.replicates), max(self.replicates)
            slack = _ROUNDING * max(abs(low), abs(high))
            if not low - slack <= self.value <= high + slack:
                allowed = f"{low:g} to {high:g}, such as their median"
                raise invalid(
                    "the value is outside the range of its replicates",
                    "value",
                    given=self.value,
                    allowed=allowed,
                )
        if (count := sum(map(len, self.samples or ()))) > _MAX_SAMPLES:
            raise invalid("too many samples", "samples", given=count, allowed=f"at most {_MAX_SAMPLES}")
        return self

    def _check_within(self, path: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            allowed = f"{low:g} to {high:g} {self.unit}"
            raise invalid(f"{self.metric} is out of range", path, given=value, allowed=allowed)

    def measurement(self) -> Measurement:
        """Return the measurement without its key, artifact and environment."""
        return Measurement(
            self.metric,
            self.value,
            self.unit,
            self.implementation,
            batch=self.batch,
            samples=self.samples,
            replicates=self.replicates,
        )


class Report(_Part):
    """Measurements taken outside pt2hub: all of a report are kept, or none."""

    measurements: Annotated[list[ReportedMeasurement], Field(min_length=1, max_length=_MAX_MEASUREMENTS)]
    environments: Annotated[
        dict[Text, ReportedEnvironment],
        Field(
            max_length=_MAX_ENVIRONMENTS,
            description="Environments by a name of your own, to share between measurements.",
        ),
    ] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        first: dict[str, int] = {}
        for index, item in enumerate(self.measurements):
            if isinstance(item.environment, str) and item.environment not in self.environments:
                allowed = ", ".join(sorted(self.environments)) or "an object: the report has no environments"
                path = f"measurements[{index}].environment"
                raise invalid("unknown environment", path, given=item.environment, allowed=allowed)
            check_key("measurements", self.measurements, index, first)
        if (count := len({self.machine(item) for item in self.measurements})) > _MAX_ENVIRONMENTS:
            allowed = f"at most {_MAX_ENVIRONMENTS}; send several reports"
            raise invalid("too many different environments", "measurements", given=count, allowed=allowed)
        return self

    def machine(self, item: ReportedMeasurement) -> ReportedEnvironment:
        """Return the environment of a measurement."""
        return self.environments[item.environment] if isinstance(item.environment, str) else item.environment


FORM = Form(
    "report",
    Report,
    "Nothing was stored: correct the report and send all of it again. The schema is under "
    "POST /measurements in /api/v1/docs; `--environment auto` of pt2hub report, and environment=pt2hub.environment() "
    "in Python, describe the machine they run on.",
)


def parse_report(document: Mapping[str, Any]) -> Report:
    """Read a report.

    Raises:
        InvalidInput: Fields are invalid; at most 100 are listed.
        UnknownMetric: Only units of metrics are wrong.
    """
    try:
        return Report.model_validate(dict(document))
    except ValidationError as exc:
        raise explain_validation_error(exc, document, FORM) from exc


def invalid(
    message: str,
    path: str = "",
    *,
    code: str = InvalidInput.code,
    given: object = None,
    allowed: str | None = None,
) -> PydanticCustomError:
    """Return the error of a value.

    Args:
        path: The field to change, relative to the error's path.
    """
    context = {"message": message, "path": path, "given": given, "allowed": allowed}
    return PydanticCustomError(code, "{message}", {name: value for name, value in context.items() if value})
