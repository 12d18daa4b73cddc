"""The publish gate's process: loads the packed artifact as a client would, and runs it. It knows no expected outputs.

Everything is announced before it is done, so that a crash or a hang is reported with what it was at.
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

from pt2hub.client.contract import call_with
from pt2hub.client.loader import load_artifact
from pt2hub.client.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig, TensorInput
from pt2hub.domain.codec import decode
from pt2hub_workers.inside.perturbing import Group, perturb
from pt2hub_workers.inside.tensors import as_declared, dtype_name, storable
from pt2hub_workers.inside.trial import FOUND, TRIAL, Run, plan

if TYPE_CHECKING:
    from pt2hub.client.loader import LoadedModel
    from pt2hub_workers.inside.channel import Channel


def run(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Runs the artifact at every point and under every group of perturbed constants.

    Args:
        job: `config`, `code`, `weights`, `trial` (paths and JSON), and `found`, where the outputs are written.
        channel: For progress.

    Returns:
        `threads`, the default number of them, and `runs`, in the order of the outputs.
    """
    trial = Path(job["trial"])
    with safetensors.safe_open(trial, framework="pt") as file:
        document = json.loads(file.metadata()[TRIAL])
    channel.send("progress", text="load")
    artifact = LocalArtifact.from_files(
        decode(ArtifactConfig, job["config"]), Path(job["code"]), Path(job["weights"])
    )
    candidate = _Candidate(load_artifact(artifact), trial, document, job["config"]["signature"], channel)
    threads = torch.get_num_threads()
    groups = [item["name"] for item in document["groups"]]
    device = job["config"]["signature"]["device"]
    runs = plan([p["label"] for p in document["points"]], groups, threads=threads, device=device)
    _write({number: candidate.run(item) for number, item in enumerate(runs)}, Path(job["found"]))
    torch.set_num_threads(threads)
    return {"threads": threads, "runs": [asdict(item) for item in runs]}


class _Candidate:
    """The loaded artifact and what it is run on."""

    def __init__(
        self,
        model: LoadedModel,
        trial: Path,
        document: dict[str, Any],
        signature: dict[str, Any],
        channel: Channel,
    ) -> None:
        self._model = model
        self._trial = trial
        self._groups = [Group(**{**item, "members": tuple(item["members"])}) for item in document["groups"]]
        self._sizes = {item["label"]: _described(item["sizes"]) for item in document["points"]}
        self._declared = {item["name"]: decode(TensorInput, item) for item in signature["inputs"]}
        self._device = torch.device(signature["device"])
        self._channel = channel

    def run(self, item: Run) -> list[torch.Tensor]:
        """The outputs of one run."""
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
        # A member that the code does not know was baked into it: then the code will not follow.
        known = replace(group, members=tuple(name for name in group.members if name in constants))
        moved = perturb({name: constants[name].cpu() for name in known.members}, known)
        self._model.swap_constants({**constants, **{k: v.to(self._device) for k, v in moved.items()}})

    def _call(self, label: str) -> dict[str, Any]:
        prefix = f"input/{label}/"
        with safetensors.safe_open(self._trial, framework="pt") as file:
            given = {k.removeprefix(prefix): file.get_tensor(k) for k in file.keys() if k.startswith(prefix)}  # noqa: SIM118  # no mapping
        tensors = {
            name: as_declared(tensor, self._declared[name], self._device) for name, tensor in given.items()
        }
        return call_with(self._model.config.signature, tensors)


def _write(outputs: dict[int, list[torch.Tensor]], path: Path) -> None:
    named = {f"{n}/{index}": tensor for n, tensors in outputs.items() for index, tensor in enumerate(tensors)}
    dtypes = {name: dtype_name(tensor) for name, tensor in named.items()}
    safetensors.torch.save_file(
        {name: storable(tensor) for name, tensor in named.items()}, path, metadata={FOUND: json.dumps(dtypes)}
    )


def _described(sizes: dict[str, Any]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed sizes"
