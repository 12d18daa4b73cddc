"""What is timed, and beside what: artifacts out of the storage, and whether two of them take the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.artifacts import CODE_TYPE, WEIGHTS_TYPE, ArtifactConfig
from pt2hub.domain.digests import Digest
from pt2hub.domain.specs import Spec
from pt2hub.errors import BadResponse, Pt2hubError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.documents import read_config, read_manifest
from pt2hub_workers.figures import BASELINE
from pt2hub_workers.outages import persisting

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import Dim, Signature, TensorInput
    from pt2hub.server.container import Container
    from pt2hub_workers.halting import Halt

DEFAULT_PROCESSES = 5
"""Of who asks for a measurement where the spec wants none after a publication."""
MAX_NOTE = 300
"""Characters of an error in a run's note."""
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Subject:
    """An artifact that is timed. Its files are out of reach of the process that made them.

    Attributes:
        name: `artifact` or `baseline`.
        config: Its config.
        code: Its code layer.
        weights: Its weights layer.
        digest: Its manifest's digest; None for one that is not published yet.
        code_digest: Its code layer's; None likewise.
    """

    name: str
    config: ArtifactConfig
    code: Path
    weights: Path
    digest: Digest | None = None
    code_digest: Digest | None = None

    @property
    def request(self) -> dict[str, Any]:
        """The target that its build was asked for, with its overrides; older configs tell the dtype alone."""
        told = self.config.provenance.get("request")
        if isinstance(told, dict):
            return told
        return {"target": self.config.target.name, "dtype": self.config.dtype}

    def runs_the_code_of(self, other: Subject) -> bool:
        """Return whether no kernel can differ: code, what it calls by name and toolchain are the same."""
        same = self.code_digest is not None and self.code_digest == other.code_digest
        own, theirs = self.config, other.config
        return same and own.toolchain == theirs.toolchain and own.key.binds_kernels_with(theirs.key)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be timed.

    Attributes:
        spec: The version's: its inputs, and what it asks for in `measure`.
        examples: Files of uploaded example tensors by input name.
        artifact: What the figures are of.
        baseline: What it is timed beside; None without one.
        note: Why there is no baseline, or None.
        profile: Whether a trace of its calls is of use, where the spec does not forbid it.
        brief: Whether one process suffices, since the code is that of the version before.
    """

    spec: Spec
    examples: Mapping[str, Path]
    artifact: Subject
    baseline: Subject | None = None
    note: str | None = None
    profile: bool = False
    brief: bool = False

    @property
    def wanted(self) -> int:
        """How many fresh processes are asked for."""
        return 1 if self.brief else self.spec.measure.processes or DEFAULT_PROCESSES


def differing_inputs(plan: Plan) -> str | None:
    """Why artifact and baseline cannot be called with the same inputs; None where they can.

    Args:
        plan: With both.
    """
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
            if why := _unfit(item, theirs[item.name], at, other):
                return why
    return None


def _unfit(
    own: TensorInput, other: TensorInput, sizes: Mapping[str, int], signature: Signature
) -> str | None:
    """Why the baseline does not take an input of the artifact."""
    if ("float" in own.dtype) != (
        "float" in other.dtype
    ):  # widths may differ: each has the values as it takes them
        return f"{own.name} was {other.dtype}"
    shape = [sizes.get(size, 0) if isinstance(size, str) else size for size in own.shape]
    fits = len(shape) == len(other.shape) and all(
        _takes(signature.dims[wanted], size) if isinstance(wanted, str) else wanted == size
        for wanted, size in zip(other.shape, shape, strict=False)
    )
    return None if fits else f"{own.name} was {list(other.shape)}"


def _takes(dim: Dim, size: int) -> bool:
    return dim.min <= size <= dim.max and size % dim.multiple_of == 0


def with_baseline(plan: Plan, container: Container, *, into: Path, halt: Halt) -> Plan:
    """A plan with the baseline that there is, or with the reason why there is none; it never fails for one.

    Args:
        plan: Without one.
        container: The server's services.
        into: As for `fetch_baseline`.
        halt: Likewise.

    Raises:
        Halted: It was told to stop.
    """
    version, target = plan.artifact.config.version, plan.artifact.config.target.name
    try:
        found = fetch_baseline(
            container, model=version.model, number=version.number, target=target, into=into, halt=halt
        )
    except (Pt2hubError, OSError) as error:
        _log.warning("no baseline", error=str(error))
        said = error.message if isinstance(error, Pt2hubError) else str(error)
        return replace(plan, note=f"no baseline: it cannot be fetched: {said[:MAX_NOTE]}")
    return replace(plan, baseline=found)


def fetch_baseline(
    container: Container, *, model: str, number: int, target: str, into: Path, halt: Halt
) -> Subject | None:
    """The artifact to time a version's artifact beside: of the newest earlier version that has one for the target.

    Args:
        container: The server's services.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        into: A directory of the worker's own for its files, which are called `baseline-code.zip` and
            `baseline-weights.safetensors`.
        halt: Ends the wait for a storage or a database that is away.

    Returns:
        It, or None where there is none.

    Raises:
        NotFound: It is gone.
        BadResponse: Its manifest or config is damaged.
    """
    digest = persisting(lambda: container.performance.baseline(model, number, target), halt)
    return None if digest is None else fetch_subject(container, digest, name=BASELINE, into=into, halt=halt)


def fetch_subject(container: Container, digest: Digest, *, name: str, into: Path, halt: Halt) -> Subject:
    """An artifact out of the storage.

    Args:
        container: The server's services.
        digest: Of its manifest.
        name: `artifact` or `baseline`; its files are called after it.
        into: As for `fetch_baseline`.
        halt: Likewise.

    Raises:
        NotFound: It is gone.
        BadResponse: Its manifest or config is damaged.
    """
    storage = container.storage
    manifest = persisting(lambda: read_manifest(storage, digest), halt)
    config = persisting(lambda: read_config(storage, manifest), halt)
    paths, digests = {}, {}
    for kind, file in ((CODE_TYPE, "code.zip"), (WEIGHTS_TYPE, "weights.safetensors")):
        layer = manifest.layer(kind)
        if layer is None:
            raise BadResponse(f"the manifest has no layer {kind}", where=digest)
        path = paths[kind] = into / f"{name}-{file}"
        digests[kind] = layer.digest
        key = StorageKey.blob(layer.digest)
        persisting(partial(storage.fetch, key, path), halt)
    return Subject(name, config, paths[CODE_TYPE], paths[WEIGHTS_TYPE], digest, digests[CODE_TYPE])
