"""The model in eager mode and as torch.compile makes it, timed beside its published artifact.

Only this role runs the model's source to measure something. The artifact takes turns with the model in one process, so
that ratios survive a change of machine.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.client.contract import call_with
from pt2hub.client.loader import LoadedModel, load_artifact
from pt2hub.client.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.domain.specs import Spec, TargetSpec
from pt2hub_workers.inside import adapting, inputs, weights
from pt2hub_workers.inside.calling import in_order
from pt2hub_workers.inside.model import build_module, in_dtype, moved
from pt2hub_workers.inside.sources.building import Given
from pt2hub_workers.inside.timing import alternate, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.inside.channel import Channel
    from pt2hub_workers.inside.inputs import Tensors
    from pt2hub_workers.inside.timing import Timed

BUDGET_SECONDS = 0.25
"""Of each subject: it is one process, whose calls are one observation however many they are."""


def run(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Build the model, load its artifact and time both; the device is held alone for the timing only.

    Args:
        job: `spec`; `request`, the target with its overrides; `directory`; `source`, `weights` and `examples` as for a
            build; `factories`; `config`, `code` and `layer` of the artifact.
        channel: For progress, and for the device.

    Returns:
        `measurements`, each with the fields of `Measurement`.
    """
    spec, request = Spec.from_canonical(job["spec"]), TargetSpec.model_validate(job["request"])
    config = decode(ArtifactConfig, job["config"])
    channel.send("progress", text="build the model")
    module, example = _model(job, spec, request, config, channel)
    channel.send("progress", text="load the artifact")
    artifact = load_artifact(LocalArtifact.from_files(config, Path(job["code"]), Path(job["layer"])))
    compiled, why = None, ""
    if spec.measure.torch_compile:
        channel.send("progress", text="run torch.compile")
        compiled, why = compiled_or_why(module, example)
    if why:
        channel.log(f"torch.compile is not measured: {why}", "warning")
    batch = inputs.batch_of(spec, example)
    channel.ask("device", mode="exclusive")
    channel.send("progress", text="time eager and torch.compile beside the artifact")
    measured = measure(module, artifact, example, batch=batch, others={"torch_compile": compiled})
    return {"measurements": measured}


def _model(
    job: dict[str, Any], spec: Spec, request: TargetSpec, config: ArtifactConfig, channel: Channel
) -> tuple[torch.nn.Module, Tensors]:
    """The model with the version's weights, and the example inputs, both as the target takes them."""
    device, directory = config.signature.device, Path(job["directory"])
    source = Path(job["source"]) if job["source"] else None
    path = Path(job["weights"])
    module = build_module(
        spec, Given(tuple(job["factories"]), source, path, directory / "tmp", device, spec), channel
    )
    weights.load_weights(module, path)
    module = module.to(device)
    if request.dtype is not None:
        module = in_dtype(module, request)
    examples = {name: Path(file) for name, file in job["examples"].items()}
    tensors = inputs.make(spec, inputs.points(spec, {})[0], examples)
    example = moved(tensors, request, device, converted=request.dtype is not None)
    adapting.settle(module, example)
    return module, example


def compiled_or_why(module: torch.nn.Module, inputs: Tensors) -> tuple[Callable[..., Any] | None, str]:
    """Return the model as torch.compile makes it, run once; or None and why it failed."""
    try:
        compiled: Callable[..., Any] = torch.compile(module)
        args, kwargs = in_order(module, inputs)
        with torch.inference_mode():
            compiled(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  # Dynamo, Inductor and the C++ compiler each raise their own
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return compiled, ""


def measure(
    module: torch.nn.Module,
    artifact: LoadedModel,
    inputs: Tensors,
    *,
    batch: int | None,
    others: Mapping[str, Callable[..., Any] | None],
) -> list[dict[str, Any]]:
    """Time the artifact, the model and what else takes part, in turns, at the example size.

    Args:
        module: The model in eager mode, on the device.
        artifact: The artifact, loaded.
        inputs: Example inputs on the device.
        batch: Their batch size.
        others: What else takes part, by its subject, such as the model as torch.compile made it.

    Returns:
        Fields of `Measurement`: the median of everything but the artifact, and how many times the artifact's own it is.
    """
    args, kwargs = in_order(module, inputs)  # put together before, and not timed
    own_call = partial(artifact, **call_with(artifact.config.signature, inputs))
    subjects: dict[str, Callable[[], Any]] = {"artifact": own_call}
    for name, call in {"eager": module, **others}.items():
        if call is not None:  # a compiled module has a length only where the module has
            subjects[name] = partial(call, *args, **kwargs)
    with torch.inference_mode():
        clock = clock_of(artifact.config.signature.device)
        own, *found = alternate(list(subjects.values()), clock, seconds=BUDGET_SECONDS)
    names = list(subjects)[1:]
    return [
        row
        for name, timed in zip(names, found, strict=True)
        for row in _rows(name, timed, own.quantile(0.5), batch)
    ]


def _rows(subject: str, timed: Timed, own: float, batch: int | None) -> list[dict[str, Any]]:
    median = timed.quantile(0.5)
    latency = {"metric": "latency_p50", "value": median, "unit": "ms", "samples": [timed.thinned()]}
    speedup = {"metric": "speedup", "value": median / own, "unit": "1", "samples": None}
    return [
        {**row, "subject": subject, "batch": batch, "replicates": [row["value"]]}
        for row in (latency, speedup)
    ]
