"""Implementations to benchmark: artifacts from storage, and whether two of them take the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.client.artifacts.graph_options import is_graph_default
from pt2hub.domain.artifacts import CODE_TYPE, WEIGHTS_TYPE, ArtifactConfig
from pt2hub.domain.digests import Digest
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import BadResponse, Pt2hubError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_config, read_manifest
from pt2hub_workers.operations.retries import retry_outage
from pt2hub_workers.performance.measurements import BASELINE

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import Dim, Signature, TensorInput
    from pt2hub.server.container import Container
    from pt2hub_workers.operations.cancellation import CancellationToken

DEFAULT_PROCESSES = 5
"""Processes of a requested benchmark if the spec sets none."""
MAX_NOTE = 300
"""Characters of an error in the note of a run."""
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Implementation:
    """Artifact to time. Its files are out of reach of the process that wrote them.

    Attributes:
        digest: Digest of its manifest; None before it is published.
    """

    name: str
    config: ArtifactConfig
    code: Path
    weights: Path
    digest: Digest | None = None
    code_digest: Digest | None = None

    @property
    def request(self) -> dict[str, Any]:
        """Requested target of its build, with its overrides."""
        return self.config.request

    def runs_the_code_of(self, other: Implementation) -> bool:
        """Return whether no kernel can differ: code, toolchain and the kernels called by name are equal."""
        same = self.code_digest is not None and self.code_digest == other.code_digest
        own, theirs = self.config, other.config
        called_alike = is_graph_default(own) == is_graph_default(theirs)
        return (
            same
            and called_alike
            and own.toolchain == theirs.toolchain
            and own.key.binds_kernels_with(theirs.key)
        )


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """Plan of a benchmark.

    Attributes:
        profiled: The implementations whose calls are traced: `artifact`, `torch_compile`.
        single_process: Whether one process suffices, because the previous version has the same code.
    """

    spec: Spec
    examples: Mapping[str, Path]
    artifact: Implementation
    baseline: Implementation | None = None
    note: str | None = None
    profiled: frozenset[str] = frozenset()
    single_process: bool = False

    @property
    def wanted(self) -> int:
        """Requested number of fresh processes."""
        return 1 if self.single_process else self.spec.measure.processes or DEFAULT_PROCESSES


def differing_inputs(plan: BenchmarkPlan) -> str | None:
    """Return why artifact and baseline cannot be called with the same inputs; None if they can."""
    if plan.baseline is None:
        return None
    own, other = plan.artifact.config.signature, plan.baseline.config.signature
    if own.device != other.device:
        return f"one runs on {other.device}"
    theirs = {item.name: item for item in other.inputs}
    if set(theirs) != {item.name for item in own.inputs}:
        return f"the baseline takes {', '.join(theirs)}"
    spec = plan.spec
    sizes = {name: dim.example for name, dim in spec.dims.items()}
    for at in [{**sizes, str(spec.batch_dim): batch} for batch in spec.measure.batches] or [sizes]:
        for item in own.inputs:
            if why := _mismatch(item, theirs[item.name], at, other):
                return why
    return None


def _mismatch(
    own: TensorInput, other: TensorInput, sizes: Mapping[str, int], signature: Signature
) -> str | None:
    """Return why the baseline does not take an input of the artifact; None if it does."""
    if ("float" in own.dtype) != (
        "float" in other.dtype
    ):  # widths may differ: each gets the values in its own dtype
        return f"{own.name} was {other.dtype}"
    shape = [sizes.get(size, 0) if isinstance(size, str) else size for size in own.shape]
    fits = len(shape) == len(other.shape) and all(
        _takes(signature.dims[wanted], size) if isinstance(wanted, str) else wanted == size
        for wanted, size in zip(other.shape, shape, strict=False)
    )
    return None if fits else f"{own.name} was {list(other.shape)}"


def _takes(dim: Dim, size: int) -> bool:
    return dim.min <= size <= dim.max and size % dim.multiple_of == 0


def with_baseline(
    plan: BenchmarkPlan, container: Container, *, into: Path, token: CancellationToken
) -> BenchmarkPlan:
    """Return a plan with its baseline, the artifact of the newest earlier version for the same target.

    A missing baseline is not an error: the plan's note gives the reason.
    """
    version, target = plan.artifact.config.version, plan.artifact.config.target.name
    newest = partial(container.performance.baseline, version.model, version.number, target)
    try:
        digest = retry_outage(newest, token)
        found = (
            fetch_implementation(container, digest, name=BASELINE, into=into, token=token) if digest else None
        )
    except (Pt2hubError, OSError) as error:
        _log.warning("no baseline", error=str(error))
        reason = error.message if isinstance(error, Pt2hubError) else str(error)
        return replace(plan, note=f"no baseline: it cannot be fetched: {reason[:MAX_NOTE]}")
    return replace(plan, baseline=found)


def fetch_implementation(
    container: Container, digest: Digest, *, name: str, into: Path, token: CancellationToken
) -> Implementation:
    """Fetch an artifact from storage.

    Args:
        name: `artifact` or `baseline`; also the prefix of its files below `into`.

    Raises:
        BadResponse: The manifest or config is damaged.
    """
    storage = container.storage
    manifest = retry_outage(lambda: read_manifest(storage, digest), token)
    config = retry_outage(lambda: read_config(storage, manifest), token)
    paths, digests = {}, {}
    for kind, file in ((CODE_TYPE, "code.zip"), (WEIGHTS_TYPE, "weights.safetensors")):
        layer = manifest.layer(kind)
        if layer is None:
            raise BadResponse(f"the manifest has no layer {kind}", where=digest)
        path = paths[kind] = into / f"{name}-{file}"
        digests[kind] = layer.digest
        key = StorageKey.blob(layer.digest)
        retry_outage(partial(storage.fetch, key, path), token)
    return Implementation(name, config, paths[CODE_TYPE], paths[WEIGHTS_TYPE], digest, digests[CODE_TYPE])
