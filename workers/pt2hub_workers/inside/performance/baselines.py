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
from pt2hub.domain.publishing.spec import Spec
from pt2hub_workers.inside.builds.compile.torch_compile import try_torch_compile
from pt2hub_workers.inside.builds.export import inputs
from pt2hub_workers.inside.builds.export.call import order_arguments
from pt2hub_workers.inside.operations import files
from pt2hub_workers.inside.performance.baseline_models import build_baseline_model
from pt2hub_workers.inside.performance.first_calls import measure_first_calls
from pt2hub_workers.inside.performance.timer import make_clock, time_alternating

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
            build; `factories`; `config`, `code` and `layer` of the artifact; `profile`, whether calls of torch.compile are
            traced.

    Returns:
        `threads`, and `implementations` as `measurements.ImplementationTimes` has them: the artifact first.
    """
    spec = Spec.from_canonical(job["spec"])
    config = decode(ArtifactConfig, job["config"])
    first = measure_first_calls(job, channel) if spec.measure.torch_compile else {}
    channel.send("progress", text="build the model")
    module, example = build_baseline_model(job, spec, channel, scratch=Path(job["directory"]) / "tmp")
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
    for item in measured:
        if item["name"] == "torch_compile":
            item.update(first)
    found = {"threads": torch.get_num_threads(), "implementations": measured}
    if job.get("profile") and compiled is not None:
        channel.ask("last", figures=found)  # before profiling, so that a failing profiler cannot lose them
        _profile(_bind_example(compiled, module, example), measured[-1], job, channel)
    return found


def _bind_example(call: Callable[..., Any], module: torch.nn.Module, example: Tensors) -> Callable[[], Any]:
    """Return a call with the example inputs, assembled before it is timed."""
    args, kwargs = order_arguments(module, example)
    return partial(call, *args, **kwargs)


def _profile(call: Callable[[], Any], times: dict[str, Any], job: dict[str, Any], channel: Channel) -> None:
    """Trace a few calls of torch.compile."""
    from pt2hub_workers.inside.performance.call_trace import trace_calls

    channel.send("progress", text="trace some calls of torch.compile")
    device = job["config"]["signature"]["device"]
    pace = times["batches"][0]["p50"] / 1000
    with torch.inference_mode():
        into = Path(job["directory"]) / files.TRACE
        why = trace_calls(call, make_clock(device), device=device, pace=pace, into=into)
    if why:
        channel.log(f"calls of torch.compile were not traced: {why}", "warning")


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
    own_call = partial(artifact, **call_with(artifact.config.signature, inputs))
    implementations: dict[str, Callable[[], Any]] = {"artifact": own_call}
    for name, call in {"eager": module, **others}.items():
        if call is not None:  # not by truth value: a compiled module has a length only if the module has one
            implementations[name] = _bind_example(call, module, inputs)
    with torch.inference_mode():
        clock = make_clock(artifact.config.signature.device)
        found = time_alternating(list(implementations.values()), clock, seconds=MAX_SECONDS)
    return [
        {"name": name, "batches": [timed.as_dict(batch)]}
        for name, timed in zip(implementations, found, strict=True)
    ]
