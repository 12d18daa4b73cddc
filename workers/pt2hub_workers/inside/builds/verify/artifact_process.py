"""The artifact's process: loads the packed artifact as a client would, and runs it without knowing the expected outputs.

Each action is announced before it starts, so that a crash or a hang is reported with the action.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from torch.utils import _pytree as pytree

from pt2hub.client.artifacts.call_contract import call_with
from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig, TensorInput
from pt2hub.domain.codec import decode
from pt2hub_workers.inside.builds.verify.perturbation import Group, perturb
from pt2hub_workers.inside.builds.verify.run_order import INPUTS_KEY, OUTPUTS_KEY, VerificationRun, plan_runs
from pt2hub_workers.inside.builds.verify.tensor_conversions import (
    convert_to_declared,
    dtype_name,
    to_storable,
)

if TYPE_CHECKING:
    from pt2hub.client.artifacts.loader import LoadedModel
    from pt2hub_workers.inside.operations.channel import Channel


def run_artifact(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Run the artifact at every point and with every group of perturbed constants.

    Args:
        job: `config`, `code`, `weights`, `inputs` (paths and JSON), and `found`, the path of its outputs.

    Returns:
        `threads`, the default number, and `runs`, in the order of the outputs.
    """
    inputs = Path(job["inputs"])
    with safetensors.safe_open(inputs, framework="pt") as file:
        document = json.loads(file.metadata()[INPUTS_KEY])
    channel.send("progress", text="load")
    artifact = LocalArtifact.from_files(
        decode(ArtifactConfig, job["config"]), Path(job["code"]), Path(job["weights"])
    )
    candidate = _LoadedArtifact(
        load_artifact(artifact, cuda_graph=False), inputs, document, job["config"]["signature"], channel
    )
    threads = torch.get_num_threads()
    groups = [item["name"] for item in document["groups"]]
    device = job["config"]["signature"]["device"]
    runs = plan_runs([p["label"] for p in document["points"]], groups, threads=threads, device=device)
    _write_outputs({number: candidate.run(item) for number, item in enumerate(runs)}, Path(job["found"]))
    torch.set_num_threads(threads)
    return {"threads": threads, "runs": [asdict(item) for item in runs]}


class _LoadedArtifact:
    """The loaded artifact with its inputs and perturbations."""

    def __init__(
        self,
        model: LoadedModel,
        inputs: Path,
        document: dict[str, Any],
        signature: dict[str, Any],
        channel: Channel,
    ) -> None:
        self._model = model
        self._inputs = inputs
        self._groups = [Group(**{**item, "members": tuple(item["members"])}) for item in document["groups"]]
        self._sizes = {item["label"]: _sizes_text(item["sizes"]) for item in document["points"]}
        self._declared = {item["name"]: decode(TensorInput, item) for item in signature["inputs"]}
        self._device = torch.device(signature["device"])
        self._channel = channel

    def run(self, item: VerificationRun) -> list[torch.Tensor]:
        """Return the outputs of one run."""
        under = f"with perturbed {item.group}" if item.group else f"{item.point} {self._sizes[item.point]}"
        under += " a second time" if item.call > 1 else ""
        self._channel.send("progress", text=f"run {under} on {item.threads} threads")
        torch.set_num_threads(item.threads)
        self._model.reset()  # a model with mutable buffers starts every run from the same state
        if item.group is not None:
            self._perturb(self._groups[item.number])
        for _ in range(item.call - 1):
            self._model(**self._call(item.point))
        leaves, _ = pytree.tree_flatten(self._model(**self._call(item.point)))
        return [leaf.cpu() for leaf in leaves]

    def _perturb(self, group: Group) -> None:
        constants = self._model.constants()
        # A member that the code does not know was baked into it: then the code will not follow the perturbation.
        known = replace(group, members=tuple(name for name in group.members if name in constants))
        moved = perturb({name: constants[name].cpu() for name in known.members}, known)
        self._model.swap_constants({**constants, **{k: v.to(self._device) for k, v in moved.items()}})

    def _call(self, label: str) -> dict[str, Any]:
        prefix = f"input/{label}/"
        with safetensors.safe_open(self._inputs, framework="pt") as file:
            given = {k.removeprefix(prefix): file.get_tensor(k) for k in file.keys() if k.startswith(prefix)}  # noqa: SIM118  # no mapping
        tensors = {
            name: convert_to_declared(tensor, self._declared[name], self._device)
            for name, tensor in given.items()
        }
        return call_with(self._model.config.signature, tensors)


def _write_outputs(outputs: dict[int, list[torch.Tensor]], path: Path) -> None:
    named = {f"{n}/{index}": tensor for n, tensors in outputs.items() for index, tensor in enumerate(tensors)}
    dtypes = {name: dtype_name(tensor) for name, tensor in named.items()}
    safetensors.torch.save_file(
        {name: to_storable(tensor) for name, tensor in named.items()},
        path,
        metadata={OUTPUTS_KEY: json.dumps(dtypes)},
    )


def _sizes_text(sizes: dict[str, Any]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed sizes"
