"""Times the baselines, eager and torch.compile, together with the published artifact.

Only this role runs the model's source for a measurement. The artifact and the baselines take turns in one process, so
that ratios are comparable across machines.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.client.artifacts.call_contract import call_with
from pt2hub.client.artifacts.loader import LoadedModel, load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.domain.publishing.compile_options import run_dtype
from pt2hub.domain.publishing.spec import Spec, TargetSpec
from pt2hub_workers.inside.builds.compile import weights
from pt2hub_workers.inside.builds.compile.torch_compile import try_torch_compile
from pt2hub_workers.inside.builds.export import adapter, inputs
from pt2hub_workers.inside.builds.export.call import order_arguments
from pt2hub_workers.inside.builds.version_model import build_module, convert_dtype, move_inputs
from pt2hub_workers.inside.performance.timer import make_clock, time_alternating
from pt2hub_workers.inside.sources.source_files import SourceFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.inside.builds.export.inputs import Tensors
    from pt2hub_workers.inside.operations.channel import Channel

MAX_SECONDS = 0.25
"""Time of each implementation's calls: all calls of one process are one observation, however many they are."""


def run_baselines(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Build the model, load its artifact and time both; the device lock is exclusive during the timing only.

    Args:
        job: `spec`; `request`, the target with its overrides; `directory`; `source`, `weights` and `examples` as for a
            build; `factories`; `config`, `code` and `layer` of the artifact.

    Returns:
        `threads`, and `implementations` as `measurements.ImplementationTimes` has them: the artifact first.
    """
    dtype = run_dtype(job["spec"], job["request"])
    spec, request = (
        Spec.from_canonical(job["spec"]),
        TargetSpec.from_stored({**job["request"], "dtype": dtype}),
    )
    config = decode(ArtifactConfig, job["config"])
    channel.send("progress", text="build the model")
    module, example = _build_model(job, spec, request, config, channel)
    channel.send("progress", text="load the artifact")
    artifact = load_artifact(LocalArtifact.from_files(config, Path(job["code"]), Path(job["layer"])))
    compiled, why = None, ""
    if spec.measure.torch_compile:
        channel.send("progress", text="run torch.compile")
        compiled, why = try_torch_compile(module, example)
    if why:
        channel.log(f"torch.compile is not measured: {why}", "warning")
    batch = inputs.batch_size(spec, example)
    channel.ask("device", mode="exclusive")
    channel.send("progress", text="time eager and torch.compile with the artifact")
    measured = time_implementations(
        module, artifact, example, batch=batch, others={"torch_compile": compiled}
    )
    return {"threads": torch.get_num_threads(), "implementations": measured}


def _build_model(
    job: dict[str, Any], spec: Spec, request: TargetSpec, config: ArtifactConfig, channel: Channel
) -> tuple[torch.nn.Module, Tensors]:
    """Return the model with the version's weights, and the example inputs, both converted for the target."""
    device, directory = config.signature.device, Path(job["directory"])
    source = Path(job["source"]) if job["source"] else None
    path = Path(job["weights"])
    modules = Path(job["modules"]) if job.get("modules") else None
    given = SourceFiles(tuple(job["factories"]), source, path, directory / "tmp", device, spec, modules)
    module = build_module(spec, given, channel)
    weights.load_weights(module, path)
    module = module.to(device)
    if request.dtype is not None:
        module = convert_dtype(module, request)
    examples = {name: Path(file) for name, file in job["examples"].items()}
    tensors = inputs.make_inputs(spec, inputs.make_points(spec, {})[0], examples)
    example = move_inputs(tensors, request, device, converted=request.dtype is not None)
    adapter.copy_shared_outputs(module, example)
    return module, example


def time_implementations(
    module: torch.nn.Module,
    artifact: LoadedModel,
    inputs: Tensors,
    *,
    batch: int | None,
    others: Mapping[str, Callable[..., Any] | None],
) -> list[dict[str, Any]]:
    """Time the artifact, the model and other implementations in turns, at the example size.

    Returns:
        Fields of `measurements.ImplementationTimes` for each.
    """
    args, kwargs = order_arguments(module, inputs)  # assembled before, and not timed
    own_call = partial(artifact, **call_with(artifact.config.signature, inputs))
    implementations: dict[str, Callable[[], Any]] = {"artifact": own_call}
    for name, call in {"eager": module, **others}.items():
        if call is not None:  # not by truth value: a compiled module has a length only if the module has one
            implementations[name] = partial(call, *args, **kwargs)
    with torch.inference_mode():
        clock = make_clock(artifact.config.signature.device)
        found = time_alternating(list(implementations.values()), clock, seconds=MAX_SECONDS)
    return [
        {"name": name, "batches": [timed.as_dict(batch)]}
        for name, timed in zip(implementations, found, strict=True)
    ]
