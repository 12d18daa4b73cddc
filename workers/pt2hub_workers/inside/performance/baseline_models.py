"""The version's model as its baselines run it: with the version's weights, converted for the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.publishing.compile_options import run_dtype
from pt2hub.domain.publishing.spec import Spec, TargetSpec
from pt2hub_workers.inside.builds.compile import weights
from pt2hub_workers.inside.builds.export import adapter, inputs
from pt2hub_workers.inside.builds.version_model import build_module, convert_dtype, move_inputs
from pt2hub_workers.inside.sources.source_files import SourceFiles

if TYPE_CHECKING:
    import torch

    from pt2hub_workers.inside.builds.export.inputs import Tensors
    from pt2hub_workers.inside.builds.version_model import Log


def build_baseline_model(
    job: dict[str, Any], spec: Spec, log: Log, *, scratch: Path
) -> tuple[torch.nn.Module, Tensors]:
    """Return the model with the version's weights, and the example inputs, both converted for the target.

    Args:
        job: As for `baselines.run_baselines`.
        scratch: Where the source is unpacked.
    """
    dtype, device = run_dtype(job["spec"], job["request"]), job["config"]["signature"]["device"]
    request = TargetSpec.from_stored({**job["request"], "dtype": dtype})
    source = Path(job["source"]) if job["source"] else None
    path = Path(job["weights"])
    modules = Path(job["modules"]) if job.get("modules") else None
    given = SourceFiles(tuple(job["factories"]), source, path, scratch, device, spec, modules)
    module = build_module(spec, given, log)
    weights.load_weights(module, path)
    module = module.to(device)
    if request.dtype is not None:
        module = convert_dtype(module, request)
    examples = {name: Path(file) for name, file in job["examples"].items()}
    tensors = inputs.make_inputs(spec, inputs.make_points(spec, {})[0], examples)
    example = move_inputs(tensors, request, device, converted=request.dtype is not None)
    adapter.copy_shared_outputs(module, example)
    return module, example
