"""The story's artifacts: configs, manifests and what refers to them, with digests of layers that there never were."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain import artifacts as oci
from pt2hub.domain.artifacts import (
    KEY_SCHEMA,
    ArtifactConfig,
    Constants,
    Descriptor,
    Manifest,
    ProgramKey,
    SingleFile,
    StepTiming,
    VersionIdentity,
)
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.domain.measurements import MeasurementRun
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.demo import kernels, profiles
from pt2hub.server.demo.figures import Baseline, error_of, measured_run
from pt2hub.server.demo.logs import lines
from pt2hub.server.demo.models import MARK, chance
from pt2hub.server.demo.plan import Build, Version, made_up
from pt2hub.server.services.log_blobs import as_json_lines

if TYPE_CHECKING:
    from pt2hub.domain.builds import LogLine
    from pt2hub.server.demo.plan import Attempt

_EMPTY = b"{}"
_NO_CONSTANTS = Constants("", 0, ())
_BEFORE_GATE = frozenset(("fetch", "export", "key", "compile", "reuse", "pack", "verify"))
_KEY_FIELDS = ("torch", "triton", "cuda", "compiler", "pt2hub")


class Bytes:
    """What is to be stored, by its key.

    Attributes:
        found: The bytes.
    """

    def __init__(self) -> None:
        self.found: dict[StorageKey, bytes] = {}

    def blob(self, data: bytes, media_type: str, title: str | None = None) -> Descriptor:
        """Takes a blob."""
        digest = digest_bytes(data)
        self.found[StorageKey.blob(digest)] = data
        return Descriptor(media_type, digest, len(data), {oci.TITLE: title} if title else {})

    def manifest(self, manifest: Manifest) -> Manifest:
        """Takes a manifest."""
        self.found[StorageKey.manifest(manifest.digest)] = manifest.as_bytes()
        return manifest

    def log(self, lines: list[LogLine]) -> Descriptor:
        """Takes a log."""
        return self.blob(b"".join(as_json_lines(lines)), oci.LOG_TYPE, "log.jsonl")

    def refer(
        self, subject: Manifest, layer: Descriptor, annotations: dict[str, str] | None = None
    ) -> Manifest:
        """Makes a manifest that says something about another one."""
        return self.manifest(
            Manifest(
                artifactType=layer.mediaType,
                config=self.blob(_EMPTY, oci.EMPTY_TYPE),
                layers=(layer,),
                subject=Descriptor(oci.MANIFEST_TYPE, subject.digest, len(subject.as_bytes())),
                annotations=annotations or {},
            )
        )


@dataclass(frozen=True, slots=True)
class Made:
    """An artifact of the story.

    Attributes:
        version: Of what.
        build: On which target.
        manifest: Its manifest.
        config: Its config.
        referrers: What belongs to it, its log left out.
        autotune: What the compiler timed.
        run: What was measured.
    """

    version: Version
    build: Build
    manifest: Manifest
    config: ArtifactConfig
    referrers: tuple[Manifest, ...]
    autotune: list[dict[str, Any]]
    run: MeasurementRun

    @property
    def baseline(self) -> Baseline:
        """The same as what the next version runs beside."""
        return Baseline(self.version, self.build, self.manifest.digest)


def make(version: Version, build: Build, before: Made | None, into: Bytes) -> Made:
    """The artifact of a build that went well.

    Args:
        version: Of what.
        build: On which target.
        before: The artifact of an earlier version on that target.
        into: Takes what pages read.
    """
    error = error_of(version, build)
    config = _config(version, build, error)
    manifest = into.manifest(_manifest(version, build, config, into))
    sizes = {
        "code_bytes": float(manifest.layers[0].size),
        "weights_bytes": float(manifest.layers[1].size),
        "package_bytes": float(config.single_file.size),
    }
    run = measured_run(version, build, sizes, error, before.baseline if before else None)
    tables = kernels.autotune(version, build)
    measured = into.blob(canonical_json(encode(run)), oci.MEASUREMENT_RUN_TYPE, "measurements.json")
    referrers = [into.refer(manifest, measured)]
    if tables:
        told = into.blob(canonical_json(tables), oci.AUTOTUNE_TYPE, "autotune.json")
        referrers.append(into.refer(manifest, told))
    if not build.reuses:
        told = into.blob(_sources(version, build), oci.SOURCES_TYPE, "sources.zip")
        referrers.append(into.refer(manifest, told))
    spent, trace = profiles.profile(version, build, run)
    for data, kind, title in (
        (canonical_json(encode(spent)), oci.PROFILE_TYPE, "profile.json"),
        (trace, oci.TRACE_TYPE, "trace.json.gz"),
    ):
        referrers.append(into.refer(manifest, into.blob(data, kind, title)))
    return Made(version, build, manifest, config, tuple(referrers), tables, run)


def put_log(version: Version, build: Build, attempt: Attempt, into: Bytes) -> tuple[Descriptor, int] | None:
    """The log of an attempt, put away.

    Returns:
        Its blob and how many lines it has; None where it has none.
    """
    told = list(lines(version, build, attempt))
    if not told:
        return None
    return into.log(told), len(told)


def _sources(version: Version, build: Build) -> bytes:
    model, program = version.model, version.model.program(version.number)
    names = tuple(kernels.kernel_names(model, program))
    return kernels.sources(model.name, f"program {program}", build.target, build.arch, names)


def _config(version: Version, build: Build, error: float) -> ArtifactConfig:
    model, attempt = version.model, build.attempts[-1]
    dtype = build.request.get("dtype")
    table = kernels.constants(model.name, model.tensors, dtype or "float32")
    files = kernels.members(model, build, model.program(version.number), table.blob_size)
    inside = sum(member.size + 2 * len(member.name) + 128 for member in files)
    return ArtifactConfig(
        schema=oci.CONFIG_SCHEMA,
        version=VersionIdentity(
            model.name,
            version.number,
            version.identity,
            version.spec,
            version.pins,
            version.weights,
            version.golden,
        ),
        target=build.machine.target,
        toolchain=build.machine.toolchain,
        environment=build.machine.environment,
        signature=kernels.signature(version, build),
        constants=table,
        native=kernels.native(build),
        key=ProgramKey(build.key, _key_fields(version, build)),
        single_file=SingleFile(made_up(f"single file of {build.id}"), inside, files),
        steps=tuple(StepTiming(name, took) for name, took in attempt.steps if name in _BEFORE_GATE),
        verification=_report(build, error),
        provenance=_provenance(version, build, attempt),
        dtype=dtype,
    )


def _document(config: ArtifactConfig) -> dict[str, Any]:
    """The config as JSON; the long table of constants is written once for all of a model's artifacts."""
    short: dict[str, Any] = encode(replace(config, constants=_NO_CONSTANTS))
    return short | {"constants": kernels.constants_document(config.constants)}


def _key_fields(version: Version, build: Build) -> dict[str, Any]:
    model = version.model
    program = model.program(version.number)
    toolchain = encode(build.machine.toolchain)
    return {
        "schema": KEY_SCHEMA,
        "graph": made_up(f"graph of {model.name}, {program}"),
        "signature": made_up(f"signature of {model.name}"),
        "constants": made_up(f"constants of {model.name}"),
        "literals": {},
        "options": {"max_autotune": True, "epilogue_fusion": True},
        "threads": build.machine.environment.cores,
        "settings": {"float32_matmul_precision": "highest"},
        "target": build.target,
        "toolchain": {name: toolchain[name] for name in _KEY_FIELDS},
    }


def _report(build: Build, error: float) -> dict[str, Any]:
    """What the gate found."""
    tolerance = {"bfloat16": 0.05, "float16": 0.01}.get(build.request.get("dtype", ""), 0.001)
    luck = chance(build.id, "gate")
    groups = [None, None, None, *(f"layer.{place}" for place in range(0, 6, 2))]
    points = ["example", "smallest", "largest", "example", "example", "example"]
    signal = round(luck.uniform(2.0, 6.0), 3)
    rows = [
        {
            "point": point,
            "threads": 1 if point == "smallest" else 8,
            "group": group,
            "error": float(f"{error * signal * (1 if place == 0 else luck.uniform(0.4, 0.98)):.4g}"),
            "output": 0,
            "signal": signal,
            "eager_error": float(f"{signal * 4e-7:.3g}"),
            "allowed": float(f"{tolerance * signal:.4g}"),
        }
        for place, (point, group) in enumerate(zip(points, groups, strict=True))
    ]
    return {
        "passed": True,
        "verdict": "passed",
        "comparisons": rows,
        "no_power": [],
        "relative_error": error,
        "tolerance": tolerance,
        "notes": [MARK],
    }


def _provenance(version: Version, build: Build, attempt: Attempt) -> dict[str, Any]:
    choices, seconds = kernels.tuning(version.model, build)
    tuning = {"seconds": seconds, "budget": None, "choices": choices, "left_to_default": 0}
    return {
        oci.MADE_UP: MARK,
        "build": build.id,
        "attempt": attempt.number,
        "worker": attempt.worker,
        "isolation": "sandbox",
        "isolation_profile": made_up("profile of the sandbox"),
        "code_reused_from": made_up(f"code of {build.key}") if build.reuses else None,
        "key_schema": KEY_SCHEMA,
        "operators": [],
        "never_reused": None,
        "compiler_processes": [] if build.reuses else ["g++", "g++", "ld"],
        "autotuning": tuning,
        "request": build.request,
        "image": f"registry.example.com/pt2hub/worker:{build.target}",
    }


def _manifest(version: Version, build: Build, config: ArtifactConfig, into: Bytes) -> Manifest:
    model = version.model
    half = 0.5 if build.request.get("dtype") else 1.0
    weights = version.weights if half == 1.0 else made_up(f"weights of {model.name}@{version.number}, halved")
    blob = config.constants.blob_size
    code = sum(member.size for member in config.single_file.members) - blob
    layers = (
        Descriptor(oci.CODE_TYPE, made_up(f"code of {build.key}"), code, {oci.TITLE: oci.CODE_NAME}),
        Descriptor(
            oci.WEIGHTS_TYPE, weights, round(model.weights_bytes * half), {oci.TITLE: oci.WEIGHTS_NAME}
        ),
    )
    return Manifest(
        artifactType=oci.ARTIFACT_TYPE,
        config=into.blob(canonical_json(_document(config)), oci.CONFIG_TYPE),
        layers=layers,
        annotations={
            oci.CREATED: build.finished.isoformat(timespec="seconds"),
            oci.MODEL: model.name,
            oci.VERSION: str(version.number),
            oci.TARGET: build.target,
            oci.BUILD: build.id,
        },
    )


def run_again(made: Made, run: MeasurementRun, into: Bytes) -> Manifest:
    """A later run as a referrer of the artifact that it measured."""
    measured = into.blob(canonical_json(encode(run)), oci.MEASUREMENT_RUN_TYPE, "measurements.json")
    return into.refer(made.manifest, measured)


def log_referrer(artifact: Made, log: Descriptor, count: int, into: Bytes) -> Manifest:
    """The manifest by which an artifact's log belongs to it, as `LogService` writes it."""
    ended = artifact.build.finished.isoformat().replace("+00:00", "Z")
    annotations = {oci.CREATED: ended, oci.BUILD: artifact.build.id, oci.LINES: str(count)}
    return into.refer(artifact.manifest, log, annotations)
