"""Fresh processes of `pt2hub demo`: `python -m pt2hub_workers.performance.demonstration WHAT REF ...` prints a JSON object."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.domain.publishing.spec import FactorySource

MODEL_SEED = "1"
"""Seed of the weights of the retrained model."""


def main(what: str, reference: str, *rest: str) -> dict[str, Any]:
    """Run a demonstration.

    Args:
        what: `artifact` or `retrain`.
        *rest: For `artifact` its inputs' shapes as JSON; for `retrain` the file to write, and a seed.
    """
    import torch

    if what == "retrain":
        return retrain(reference, Path(rest[0]), int((*rest, MODEL_SEED)[1]))
    return {**first_call(first_artifact(reference, *rest)), "threads": torch.get_num_threads()}


def first_artifact(reference: str, shapes: str) -> Callable[[], Any]:
    """Return a function that imports the client, loads the artifact with all checks and calls it once."""
    import torch

    inputs = {name: torch.randn(shape) for name, shape in json.loads(shapes).items()}
    if torch.cuda.is_available():
        inputs = {name: tensor.cuda() for name, tensor in inputs.items()}

    def run() -> Any:
        import pt2hub
        from pt2hub.domain.publishing.paths import nest

        return pt2hub.load(reference)(**nest(inputs))

    return run


def first_call(run: Callable[[], Any]) -> dict[str, Any]:
    """Time one call, without gradients."""
    import torch

    with torch.inference_mode():
        started = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return {"milliseconds": (time.perf_counter() - started) * 1000}


def retrain(reference: str, out: Path, seed: int) -> dict[str, Any]:
    """Write weights of the same model with another seed, as a training run would."""
    import pt2hub
    from pt2hub_workers.inside.builds.compile.weights import write_weights

    source = read_spec(pt2hub.pull(reference)).source
    write_weights(build_model(source.model_copy(update={"seed": seed})), out)
    return {"path": str(out), "bytes": out.stat().st_size}


def read_spec(local: LocalArtifact) -> Any:
    """Return the spec of an artifact's version."""
    from pt2hub.domain.publishing.spec import Spec

    return Spec.from_canonical(local.config.version.spec)


def build_model(source: FactorySource) -> torch.nn.Module:
    """Build a factory's model."""
    from pt2hub_workers.inside.sources import build_model
    from pt2hub_workers.inside.sources.source_files import SourceFiles

    return build_model(source, SourceFiles((source.module,), None, None, Path(tempfile.gettempdir())))


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
