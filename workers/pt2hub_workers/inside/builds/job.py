"""The job of a build's process, and its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pt2hub.domain.artifacts import Toolchain
from pt2hub.domain.codec import decode
from pt2hub.domain.publishing.compile_options import run_dtype, weights_form
from pt2hub.domain.publishing.spec import Spec, TargetSpec
from pt2hub.domain.targets import Target


@dataclass(frozen=True, slots=True)
class Job:
    """A build job from the parent.

    Attributes:
        request: The target, with the dtype that the model runs in.
        directory: The workspace as this process sees it; results go to its `out`.
    """

    spec: Spec
    request: TargetSpec
    target: Target
    toolchain: Toolchain
    directory: Path
    source: Path | None
    weights: Path | None
    golden: dict[str, Any] | None
    examples: dict[str, Path]
    host_flags: frozenset[str]
    factories: tuple[str, ...]
    modules: Path | None = None

    @classmethod
    def read(cls, message: dict[str, Any]) -> Job:
        """Decode the job from the parent's message."""
        dtype = run_dtype(message["spec"], message["request"])
        return cls(
            spec=Spec.from_canonical(message["spec"]),
            request=TargetSpec.from_stored({**message["request"], "dtype": dtype}),
            target=decode(Target, message["target"]),
            toolchain=decode(Toolchain, message["toolchain"]),
            directory=Path(message["directory"]),
            source=Path(message["source"]) if message["source"] else None,
            modules=Path(message["modules"]) if message.get("modules") else None,
            weights=Path(message["weights"]) if message["weights"] else None,
            golden=message["golden"],
            examples={name: Path(path) for name, path in message["examples"].items()},
            host_flags=frozenset(message["host_flags"]),
            factories=tuple(message["factories"]),
        )

    @property
    def is_baked(self) -> bool:
        """Whether the weights are baked into the code."""
        return weights_form(self.spec.canonical(), self.request.model_dump()) == "baked"

    @property
    def out(self) -> Path:
        """Directory of the results."""
        return self.directory / "out"


@dataclass(slots=True)
class Model:
    """The model as the version defines it, and as the target runs it.

    Attributes:
        module: In the target's dtype; the same object if the target does not override the dtype.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    weights_layer: Path
