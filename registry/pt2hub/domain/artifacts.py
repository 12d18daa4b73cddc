"""What an artifact is: its manifest, its config, and the names OCI tools see.

Digests are immutable, so every media type and annotation key here is fixed for good: add, never change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest, canonical_json, digest_bytes
from pt2hub.domain.targets import Target

ARTIFACT_TYPE = "application/vnd.pt2hub.package.v1"
CONFIG_TYPE = "application/vnd.pt2hub.config.v1+json"
CODE_TYPE = "application/vnd.pt2hub.code.v1+zip"
WEIGHTS_TYPE = "application/vnd.pt2hub.weights.v1+safetensors"
MODEL_TYPE = "application/vnd.pt2hub.model.v1+zip"
"""The single-file form, one `model.pt2` layer."""
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

SOURCES_TYPE = "application/vnd.pt2hub.sources.v1+zip"
"""Referrer: generated wrapper and kernels, for people to read."""
AUTOTUNE_TYPE = "application/vnd.pt2hub.autotune.v2+json"
"""Fields of `AutotuneChoice`."""
OLD_AUTOTUNE_TYPE = "application/vnd.pt2hub.autotune.v1+json"
"""Likewise, without parameters and failed candidates; still read."""
MEASUREMENTS_TYPE = "application/vnd.pt2hub.measurements.v1+json"
"""Referrer of older artifacts: rows without the machine they were taken on, which is the config's."""
MEASUREMENT_RUN_TYPE = "application/vnd.pt2hub.measurement-run.v1+json"
"""Referrer: a `MeasurementRun`, of the build or of a later measuring job."""
TRACE_TYPE = "application/vnd.pt2hub.trace.v1+gzip"
"""Referrer: a profiler's trace of some calls, as chrome://tracing and Perfetto read it. The suffix names the outermost
encoding (RFC 8460; OCI's own layers are `tar+gzip`): who knows no more than that can unpack it, and JSON, which every
viewer takes packed, is inside."""
PROFILE_TYPE = "application/vnd.pt2hub.profile.v1+json"
"""Referrer: a `domain.profiles.Profile`, the table of the same calls."""
LOG_TYPE = "application/vnd.pt2hub.log.v1+jsonl"
"""Referrer: the log of the attempt that published it, a JSON object a line."""

TITLE = "org.opencontainers.image.title"
"""File name of a layer, as `oras pull` writes it."""
CREATED = "org.opencontainers.image.created"
MODEL = "io.pt2hub.model"
VERSION = "io.pt2hub.version"
TARGET = "io.pt2hub.target"
BUILD = "io.pt2hub.build"
LINES = "io.pt2hub.lines"
"""How many lines a log has."""

CODE_NAME = "code.zip"
"""Never `.pt2`: without its weights any stock loader crashes on the first call (facts/aoti.md, section 16)."""
WEIGHTS_NAME = "weights.safetensors"
NO_TENSORS = b"\x08\0\0\0\0\0\0\0{}      "
"""A safetensors file without tensors: the weights layer of every artifact with baked weights."""
CONFIG_SCHEMA = 1
MADE_UP = "made_up"
"""Field of the provenance that artifacts of `pt2hub admin seed-demo` have; its value says so in words."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob as an OCI manifest names it.

    Attributes:
        mediaType: What the bytes are.
        digest: Their digest.
        size: Their length in bytes.
        annotations: Free strings; `TITLE` gives the file name.
    """

    mediaType: str  # noqa: N815  # the OCI specification's spelling
    digest: Digest
    size: int
    annotations: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The descriptor as OCI writes it."""
        document: dict[str, Any] = {"mediaType": self.mediaType, "digest": self.digest, "size": self.size}
        return document | ({"annotations": self.annotations} if self.annotations else {})


@dataclass(frozen=True, slots=True)
class Manifest:
    """An OCI image manifest: an artifact, or a referrer of one.

    Attributes:
        artifactType: What it is.
        config: The config blob.
        layers: The payload.
        subject: The artifact a referrer belongs to.
        annotations: Free strings.
    """

    artifactType: str  # noqa: N815  # the OCI specification's spelling
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: dict[str, str] = field(default_factory=dict)

    def as_bytes(self) -> bytes:
        """The manifest's bytes; their digest is the artifact's identity."""
        document: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": self.artifactType,
            "config": self.config.as_json(),
            "layers": [layer.as_json() for layer in self.layers],
        }
        if self.subject:
            document["subject"] = self.subject.as_json()
        if self.annotations:
            document["annotations"] = self.annotations
        return canonical_json(document)

    @property
    def digest(self) -> Digest:
        """The artifact's identity."""
        return digest_bytes(self.as_bytes())

    def layer(self, media_type: str) -> Descriptor | None:
        """The first layer of a media type, or None."""
        return next((item for item in self.layers if item.mediaType == media_type), None)


@dataclass(frozen=True, slots=True)
class Dim:
    """A dynamic dimension.

    Attributes:
        min: Smallest size the artifact accepts.
        max: Largest.
        multiple_of: Every size is a multiple of this.
    """

    min: int
    max: int
    multiple_of: int = 1


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor argument.

    Attributes:
        name: The argument's name in the model's forward, with the way into it where it is nested (`domain.paths`).
        shape: Sizes; a string names a dynamic dimension.
        dtype: As torch prints it without the prefix (`float32`).
        memory_format: `contiguous_format` or `channels_last`; strides are part of the contract, since
            compiled code reads other layouts as garbage (facts/aoti.md, section 16).
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    memory_format: str = "contiguous_format"


@dataclass(frozen=True, slots=True)
class Signature:
    """How the artifact is called.

    Attributes:
        arguments: Every argument of the model's forward that the export fixed or traced, in order.
        inputs: The tensors among them, in the order the compiled code takes them.
        dims: The dynamic dimensions by name.
        fixed: Non-tensor arguments by path and the values that were exported; others are refused.
        device: `cpu` or `cuda`.
        in_spec: torch's tree specification of (args, kwargs), as JSON.
        out_spec: torch's tree specification of the result, as JSON.
    """

    arguments: tuple[str, ...]
    inputs: tuple[TensorInput, ...]
    dims: dict[str, Dim]
    device: str
    in_spec: str
    out_spec: str
    fixed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor the compiled code reads.

    Attributes:
        fqn: Its name in the model (`layer1.0.conv1.weight`).
        shape: Sizes.
        stride: Strides in elements.
        dtype: As torch prints it without the prefix.
        offset: Where it begins in the compiler's blob, bytes.
        size: Its length there, bytes, padding not counted.
        source: `weights` (the weights layer) or `extra` (a literal in the code layer).
        mutated: Whether the model writes to it; such a constant is copied before it is given to the code.
        stored: Its name in the weights layer where it has another one there: a file from elsewhere may call a tied
            tensor by any of its names, and the code does not depend on which.
    """

    fqn: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    offset: int
    size: int
    source: str = "weights"
    mutated: bool = False
    stored: str | None = None

    @property
    def name_in_file(self) -> str:
        """Its name in the safetensors file that holds it."""
        return self.stored or self.fqn


@dataclass(frozen=True, slots=True)
class Constants:
    """The table of constants and the proved layout of the compiler's blob.

    Attributes:
        blob_member: Path of the blob inside the single file.
        blob_size: Its length in bytes, padding included.
        table: The constants, in the order of the blob.
        baked: Whether the weights are in the code layer: then there is neither blob nor table, and the weights layer
            holds no tensors.
        mutated: Of baked code, the constants that the model writes to; otherwise the table says it.
    """

    blob_member: str
    blob_size: int
    table: tuple[Constant, ...]
    baked: bool = False
    mutated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside the single `model.pt2`, as `unzip -l` lists it.

    Attributes:
        name: Path in the archive.
        size: Length in bytes.
        digest: Digest of its bytes.
    """

    name: str
    size: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class SingleFile:
    """The assembled `model.pt2`: the same for ever, since its digest is in the config.

    Attributes:
        digest: Digest of the whole file.
        size: Its length in bytes.
        members: The archive's listing.
    """

    digest: Digest
    size: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class NativeCode:
    """What the shared libraries of the code layer need from the machine.

    Attributes:
        cpu_level: The psABI level the compiler was pinned to.
        cpu_flags: Every `-m` instruction-set flag of the real compile command, without the `-m`.
        needed: NEEDED libraries.
        aoti_symbols: `aoti_torch_*` symbols that libtorch must export.
        glibc: Newest GLIBC symbol version asked for, such as `2.34`.
        glibcxx: Newest GLIBCXX symbol version asked for, or an empty string.
    """

    cpu_level: str
    cpu_flags: tuple[str, ...]
    needed: tuple[str, ...]
    aoti_symbols: tuple[str, ...]
    glibc: str
    glibcxx: str


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The versions that shaped the code.

    Attributes:
        torch: Full version with local part (`2.13.0+cpu`).
        python: Interpreter of the worker.
        compiler: First line of the C++ compiler's `--version`.
        libc: C library of the worker (`glibc 2.36`).
        pt2hub: Version of this tool.
        triton: Version or None.
        cuda: CUDA release torch was built for, or None.
        driver: GPU driver of the worker, or None.
    """

    torch: str
    python: str
    compiler: str
    libc: str
    pt2hub: str
    triton: str | None = None
    cuda: str | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """What makes two timings comparable: a machine's fingerprint. None is not known, or not there.

    Attributes:
        cpu_model: As /proc/cpuinfo names it.
        cpu_level: psABI level.
        cores: Logical processors the worker may use.
        memory_bytes: Physical memory.
        torch: Full version.
        gpu: GPU name or None.
        driver: GPU driver or None.
        cuda: CUDA release or None.
        triton: Version or None.
        threads: OpenMP threads of a process by default.
        governor: The CPU's frequency governor, such as `performance`.
        cpu_max_mhz: Highest clock that the CPU may take.
        gpu_power_limit_w: Power that the GPU may take.
        gpu_max_mhz: Highest clock that its multiprocessors may take.
        container: `docker`, `kubernetes`, `podman` or `none`.
        isolation: How what is measured is confined: `sandbox`, `process` or `none`.
    """

    cpu_model: str | None = None
    cpu_level: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    torch: str | None = None
    gpu: str | None = None
    driver: str | None = None
    cuda: str | None = None
    triton: str | None = None
    threads: int | None = None
    governor: str | None = None
    cpu_max_mhz: int | None = None
    gpu_power_limit_w: int | None = None
    gpu_max_mhz: int | None = None
    container: str | None = None
    isolation: str | None = None


KEY_SCHEMA = 2
"""Number of the program key's schema: it rises when the key names something that it did not name before, and no code
of an older schema is reused (decision 0049)."""
WHOLE_PROGRAM = "("
"""Begins the name of a key's entry that covers all operators, not one."""


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """Digest of everything that shapes the code, kept field by field so that a miss can be explained.

    Attributes:
        digest: Same digest, same code.
        fields: The values behind it.
    """

    digest: Digest
    fields: dict[str, Any]

    @property
    def schema(self) -> int:
        """The schema by which it was made."""
        schema = self.fields.get("schema")
        return schema if isinstance(schema, int) else 1

    @property
    def never_reused(self) -> tuple[str, ...]:
        """Why code with this key is never reused; empty where it may be."""
        reuse = self.fields.get("reuse")
        reasons = reuse.get("never") if isinstance(reuse, dict) else None
        return tuple(map(str, reasons)) if isinstance(reasons, list) else ()

    @property
    def operators(self) -> tuple[str, ...]:
        """The program's operators that are not torch's own, by name."""
        named = self.fields.get("operators")
        return (
            tuple(name for name in named if not name.startswith(WHOLE_PROGRAM))
            if isinstance(named, dict)
            else ()
        )

    def binds_kernels_with(self, other: ProgramKey) -> bool:
        """Return whether programs of both keys run the same kernels where their code is the same.

        Code calls operators that are not torch's own by name, so that it stays the same where one of them changes.
        """
        if min(self.schema, other.schema) < KEY_SCHEMA or self.never_reused or other.never_reused:
            return False
        return self.digest == other.digest or not (self.operators or other.operators)


@dataclass(frozen=True, slots=True)
class StepTiming:
    """A finished step of a build.

    Attributes:
        name: One of `builds.STEPS`.
        seconds: Wall time.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class VersionIdentity:
    """What the artifact was built from; enough to rebuild the SQL rows from the storage.

    Attributes:
        model: The model's name.
        number: The version's number.
        identity: Digest of the canonical spec and the uploaded weights.
        spec: The canonical spec.
        pins: What the submission resolved to digests and versions.
        weights: Digest of the version's weights blob.
        golden: Digest of the golden inputs and outputs.
    """

    model: str
    number: int
    identity: Digest
    spec: dict[str, Any]
    pins: dict[str, Any]
    weights: Digest
    golden: Digest


@dataclass(frozen=True, slots=True)
class ArtifactConfig:
    """The config blob of an artifact.

    Attributes:
        schema: `CONFIG_SCHEMA`.
        version: What it was built from.
        target: What it runs on.
        toolchain: The versions that shaped the code.
        environment: The worker it was built and measured on.
        signature: How it is called.
        constants: The table of constants.
        native: What its libraries need.
        key: The program key.
        single_file: The assembled form.
        steps: Timings up to the gate.
        verification: The gate's report.
        provenance: Build id, attempt, isolation, compiler processes started, reuse.
        dtype: dtype override of the target, or None.
    """

    schema: int
    version: VersionIdentity
    target: Target
    toolchain: Toolchain
    environment: Environment
    signature: Signature
    constants: Constants
    native: NativeCode
    key: ProgramKey
    single_file: SingleFile
    steps: tuple[StepTiming, ...]
    verification: dict[str, Any]
    provenance: dict[str, Any]
    dtype: str | None = None

    @property
    def made_up(self) -> bool:
        """Whether there never were such layers: `pt2hub admin seed-demo` wrote the config, for pages to show."""
        return MADE_UP in self.provenance
