"""Artifacts: manifest, config, media types and annotation keys.

Digests are immutable, so existing media types and annotation keys never change; new ones may be added.
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
"""The single-file form with one `model.pt2` layer."""
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

SOURCES_TYPE = "application/vnd.pt2hub.sources.v1+zip"
"""Referrer: generated wrapper and kernel sources."""
FUSION_TYPE = "application/vnd.pt2hub.fusion.v1+json"
"""Referrer: a `domain.fusion.Fusion`, the exported graph and the operations of each kernel."""
DEBUG_LOGS_TYPE = "application/vnd.pt2hub.debug-logs.v1+zip"
"""Referrer: torch's logs of the compile, one text file for each requested kind (`domain.debug_logs`)."""
AUTOTUNE_TYPE = "application/vnd.pt2hub.autotune.v2+json"
"""Fields of `AutotuneChoice`."""
MEASUREMENT_RUN_TYPE = "application/vnd.pt2hub.measurement-run.v1+json"
"""Referrer: a `MeasurementRun` from the build or a later measuring job."""
TRACE_TYPE = "application/vnd.pt2hub.trace.v1+gzip"
"""Referrer: a profiler trace of some calls for chrome://tracing and Perfetto. The suffix names the outermost encoding
(RFC 8460; OCI layers use `tar+gzip`); the content is gzipped JSON, which every viewer opens directly."""
PROFILE_TYPE = "application/vnd.pt2hub.profile.v1+json"
"""Referrer: a `domain.performance.profiles.Profile` of the calls in the trace."""
BASELINE_PROFILE_TYPE = "application/vnd.pt2hub.baseline-profile.v1+json"
"""Referrer: a `domain.performance.profiles.Profile` of a baseline's calls (`torch_compile`), made beside the artifact's."""
LOG_TYPE = "application/vnd.pt2hub.log.v1+jsonl"
"""Referrer: the log of the attempt that published the artifact, one JSON object per line."""

DOCUMENTATION_TYPE = "application/vnd.pt2hub.documentation.v1"
"""Manifest of a version's documentation since it was last changed; its layers are all of its documentation files."""
DOCUMENT_LAYER_TYPE = "application/vnd.cncf.model.doc.v1.raw"
"""Layer of an attached file for people. The type is that of CNCF ModelPack, which other OCI tools for models read."""
CONFIG_LAYER_TYPE = "application/vnd.cncf.model.weight.config.v1.raw"
"""Layer of an attached file for programs, such as a tokenizer; also ModelPack's."""

TITLE = "org.opencontainers.image.title"
"""File name under which `oras pull` writes a layer."""
CREATED = "org.opencontainers.image.created"
MODEL = "io.pt2hub.model"
VERSION = "io.pt2hub.version"
TARGET = "io.pt2hub.target"
BUILD = "io.pt2hub.build"
LINES = "io.pt2hub.lines"
"""Number of lines of a log."""
FILE_PATH = "org.cncf.model.filepath"
"""Name of an attached file, as in ModelPack."""
FILE_KIND = "io.pt2hub.file.kind"
FILE_MEDIA_TYPE = "io.pt2hub.file.media-type"
IDENTITY = "io.pt2hub.version.identity"
"""Identity of the version that a documentation manifest belongs to."""
REVISION = "io.pt2hub.documentation.revision"
CHANGED_BY = "io.pt2hub.documentation.changed-by"
"""Who changed the documentation, a principal as JSON."""

CODE_NAME = "code.zip"
"""Never `.pt2`: without the weights a stock loader crashes on the first call (docs/facts/aoti.md#code-without-its-weights)."""
WEIGHTS_NAME = "weights.safetensors"
NO_TENSORS = b"\x08\0\0\0\0\0\0\0{}      "
"""A safetensors file without tensors: the weights layer of artifacts with baked weights."""
CONFIG_SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An OCI descriptor of a blob.

    Attributes:
        mediaType: Media type of the content.
        digest: Digest of the content.
        size: Size in bytes.
        annotations: Arbitrary strings; `TITLE` is the file name.
    """

    mediaType: str  # noqa: N815  # the OCI specification's spelling
    digest: Digest
    size: int
    annotations: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the descriptor as OCI JSON values."""
        document: dict[str, Any] = {"mediaType": self.mediaType, "digest": self.digest, "size": self.size}
        return document | ({"annotations": self.annotations} if self.annotations else {})


@dataclass(frozen=True, slots=True)
class Manifest:
    """An OCI image manifest of an artifact or a referrer.

    Attributes:
        artifactType: Media type of the artifact.
        config: The config blob.
        layers: The payload.
        subject: The artifact that a referrer belongs to.
        annotations: Arbitrary strings.
    """

    artifactType: str  # noqa: N815  # the OCI specification's spelling
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: dict[str, str] = field(default_factory=dict)

    def as_bytes(self) -> bytes:
        """Return the manifest's bytes, whose digest identifies the artifact."""
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
        """The manifest's digest, which identifies the artifact."""
        return digest_bytes(self.as_bytes())

    def layer(self, media_type: str) -> Descriptor | None:
        """Return the first layer of a media type, or None."""
        return next((item for item in self.layers if item.mediaType == media_type), None)

    @property
    def files(self) -> tuple[Descriptor, ...]:
        """The layers that are attached files (`domain.attached_files`)."""
        return tuple(item for item in self.layers if FILE_KIND in item.annotations)


@dataclass(frozen=True, slots=True)
class Dim:
    """A dynamic dimension.

    Attributes:
        min: Smallest size that the artifact accepts.
        max: Largest size that the artifact accepts.
        multiple_of: Sizes must be multiples of this.
    """

    min: int
    max: int
    multiple_of: int = 1


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor argument.

    Attributes:
        name: The argument's name in the model's forward, with its path if nested (`domain.publishing.paths`).
        shape: Sizes; a string names a dynamic dimension.
        dtype: Torch dtype without the prefix (`float32`).
        memory_format: `contiguous_format` or `channels_last`; strides are part of the contract, since
            compiled code misreads other layouts (docs/facts/aoti.md#what-a-call-checks).
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    memory_format: str = "contiguous_format"


@dataclass(frozen=True, slots=True)
class Signature:
    """Call signature of an artifact.

    Attributes:
        arguments: All arguments of the model's forward that the export fixed or traced, in order.
        inputs: The tensors among the arguments, in the order that the compiled code expects.
        dims: Dynamic dimensions by name.
        fixed: Exported values of non-tensor arguments, by path; other values are rejected.
        device: `cpu` or `cuda`.
        in_spec: Torch's tree spec of (args, kwargs), as JSON.
        out_spec: Torch's tree spec of the result, as JSON.
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
    """A constant tensor of the compiled code.

    Attributes:
        fqn: Fully qualified name in the model (`layer1.0.conv1.weight`).
        shape: Sizes.
        stride: Strides in elements.
        dtype: Torch dtype without the prefix.
        offset: Offset in the compiler's blob, in bytes.
        size: Size in the blob in bytes, without padding.
        source: `weights` (the weights layer) or `extra` (a literal in the code layer).
        mutated: Whether the model writes to it; mutated constants are copied before the code receives them.
        stored: Name in the weights layer if it differs: an uploaded file may contain a tied tensor under any of its
            names, and the code is independent of the choice.
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
        """The constant's name in the safetensors file."""
        return self.stored or self.fqn


@dataclass(frozen=True, slots=True)
class Constants:
    """The table of constants and the verified layout of the compiler's blob.

    Attributes:
        blob_member: Path of the blob inside the single file.
        blob_size: Size of the blob in bytes, padding included.
        table: The constants, in the order of the blob.
        baked: Whether the weights are in the code layer; then blob and table are empty, and the weights layer
            contains no tensors.
        mutated: For baked weights, the constants that the model writes to; otherwise the table has this.
    """

    blob_member: str
    blob_size: int
    table: tuple[Constant, ...]
    baked: bool = False
    mutated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the single-file `model.pt2`.

    Attributes:
        name: Path in the archive.
        size: Size in bytes.
        digest: Digest of the content.
    """

    name: str
    size: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class SingleFile:
    """The assembled `model.pt2`; its digest is in the config, so it is always reproduced exactly.

    Attributes:
        digest: Digest of the whole file.
        size: Size in bytes.
        members: Members of the archive.
    """

    digest: Digest
    size: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class NativeCode:
    """Requirements of the code layer's shared libraries on a machine.

    Attributes:
        cpu_level: The psABI level that the code was compiled for.
        cpu_flags: All `-m` instruction-set flags of the actual compile command, without the `-m`.
        needed: NEEDED libraries.
        aoti_symbols: `aoti_torch_*` symbols that libtorch must export.
        glibc: Newest required GLIBC symbol version, such as `2.34`.
        glibcxx: Newest required GLIBCXX symbol version, or an empty string.
        is_multi_arch: Whether every GPU kernel also comes as intermediate code (PTX), which the driver compiles for newer
            GPUs.
        shared_memory_bytes: Most shared memory that a block of one of its GPU kernels requests.
        operators: Operators that are not torch's own, such as `torchvision::nms`, which the code calls by name.
        operator_libraries: Versions of the Python packages that registered them on the worker, by the operators'
            namespace.
    """

    cpu_level: str
    cpu_flags: tuple[str, ...]
    needed: tuple[str, ...]
    aoti_symbols: tuple[str, ...]
    glibc: str
    glibcxx: str
    is_multi_arch: bool = False
    shared_memory_bytes: int = 0
    operators: tuple[str, ...] = ()
    operator_libraries: dict[str, str] = field(default_factory=dict)

    @property
    def operator_namespaces(self) -> tuple[str, ...]:
        """Namespaces of the operators, which are the names of the Python packages that register them."""
        return tuple(sorted({name.partition("::")[0] for name in self.operators}))


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Versions of the tools that produced the code.

    Attributes:
        torch: Full torch version with local part (`2.13.0+cpu`).
        python: Python version of the worker.
        compiler: First line of the C++ compiler's `--version`.
        libc: C library of the worker (`glibc 2.36`).
        pt2hub: pt2hub version.
        triton: Triton version, or None.
        cuda: CUDA release that torch was built for, or None.
        driver: GPU driver version of the worker, or None.
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
    """Fingerprint of a machine: timings from equal environments are comparable. None means unknown or absent.

    Attributes:
        cpu_model: CPU model from /proc/cpuinfo.
        cpu_level: psABI level.
        cores: Logical processors that the worker may use.
        memory_bytes: Physical memory.
        torch: Full torch version.
        gpu: GPU name, or None.
        driver: GPU driver version, or None.
        cuda: CUDA release, or None.
        triton: Triton version, or None.
        threads: Default number of OpenMP threads of a process.
        governor: CPU frequency governor, such as `performance`.
        cpu_max_mhz: Maximum clock of the CPU.
        gpu_power_limit_w: Power limit of the GPU.
        gpu_max_mhz: Maximum clock of the GPU's multiprocessors.
        container: `docker`, `kubernetes`, `podman` or `none`.
        isolation: Isolation of the measured process: `sandbox`, `process` or `none`.
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
"""Version of the program key's schema. It is raised when the key covers something new; code with keys of older schemas
is not reused (decision 0049)."""
WHOLE_PROGRAM = "("
"""Prefix of key entries that cover the whole program instead of one operator."""


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """Digest of everything that shapes the code, with its fields, so that a miss can be explained.

    Attributes:
        digest: Equal digests mean equal code.
        fields: The values that the digest covers.
    """

    digest: Digest
    fields: dict[str, Any]

    @property
    def schema(self) -> int:
        """The schema version of the key."""
        schema = self.fields.get("schema")
        return schema if isinstance(schema, int) else 1

    @property
    def never_reused(self) -> tuple[str, ...]:
        """Reasons why code with this key is never reused; empty if it may be reused."""
        reuse = self.fields.get("reuse")
        reasons = reuse.get("never") if isinstance(reuse, dict) else None
        return tuple(map(str, reasons)) if isinstance(reasons, list) else ()

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the program's custom operators (those that are not part of torch)."""
        named = self.fields.get("operators")
        return (
            tuple(name for name in named if not name.startswith(WHOLE_PROGRAM))
            if isinstance(named, dict)
            else ()
        )

    def binds_kernels_with(self, other: ProgramKey) -> bool:
        """Return whether equal code means equal kernels for both keys.

        Code calls custom operators by name, so it stays the same when an operator's implementation changes.
        """
        if min(self.schema, other.schema) < KEY_SCHEMA or self.never_reused or other.never_reused:
            return False
        return self.digest == other.digest or not (self.operators or other.operators)


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the model with code of its own, which an artifact compiled by regions calls once or several times.

    Attributes:
        key: Program key of the part. Equal keys within a team reuse its code, also between models.
        members: Its files in the code layer, the library first.
        constants: The table of one call's constants, with the names that the code uses; `blob_member` is empty.
        native: Requirements of its library.
        modules: Paths of the modules that are these calls, in the order of the calls; empty for a part between them.
        calls: Number of calls.
        code_reused_from: Code layer that its files were taken from; None if they were compiled for this artifact.
    """

    key: ProgramKey
    members: tuple[str, ...]
    constants: Constants
    native: NativeCode
    modules: tuple[str, ...]
    calls: int
    code_reused_from: Digest | None = None


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Duration of a finished build step.

    Attributes:
        name: One of `builds.STEPS`.
        seconds: Wall time.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class VersionIdentity:
    """The version that an artifact was built from; enough to rebuild the SQL rows from the storage.

    Attributes:
        model: The model's name.
        number: The version's number.
        identity: Digest of the canonical spec and the uploaded weights.
        spec: The canonical spec.
        pins: Digests and versions that the submission was resolved to.
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
        version: The version it was built from.
        target: The target it runs on.
        toolchain: Versions of the tools that produced the code.
        environment: The machine it was built and measured on.
        signature: The call signature.
        constants: The table of constants.
        native: Requirements of its shared libraries.
        key: The program key.
        single_file: The assembled form.
        steps: Durations of the steps up to verification.
        verification: The verification report.
        provenance: Build id, attempt, isolation, compiler processes started, reuse.
        dtype: The target's dtype override, or None.
        regions: Parts with code of their own; empty for a model that was compiled as a whole.
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
    regions: tuple[Region, ...] = ()

    @property
    def request(self) -> dict[str, Any]:
        """Requested target of its build, with its overrides; provenance that lacks it leaves target and dtype."""
        found = self.provenance.get("request")
        if isinstance(found, dict):
            return found
        return {"target": self.target.name} | ({"dtype": self.dtype} if self.dtype else {})
