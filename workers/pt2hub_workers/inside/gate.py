"""The publish gate's process: loads the packed artifact as a client would, and compares.

Everything is announced before it is done, so that a crash or a hang is reported with what it was at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import torch
from torch.utils import _pytree as pytree

from pt2hub.client.loader import load_artifact
from pt2hub.client.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.errors import ArtifactWrong, Detail, NoPower, ToleranceMissed
from pt2hub_workers.inside import comparing
from pt2hub_workers.inside.inputs import EXAMPLE
from pt2hub_workers.inside.perturbing import Group, perturb

if TYPE_CHECKING:
    from pt2hub.client.loader import LoadedModel
    from pt2hub_workers.inside.channel import Channel

NEAR_MISS = 4.0
"""An error within this many times what is allowed counts as a missed tolerance, beyond it as a wrong artifact."""
OTHER_THREADS = (1, 8)
"""OpenMP thread counts tried besides the default: code built for two threads crashed on eight (facts, section 2)."""

Outputs = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Reference:
    """What the build's process wrote for the gate.

    Attributes:
        document: Points, allowances and groups.
        tensors: Inputs and outputs by `kind/label/name`.
    """

    document: dict[str, Any]
    tensors: dict[str, torch.Tensor]

    @classmethod
    def read(cls, path: Path) -> Reference:
        """Reads the file of `reference.save_responses`."""
        with safetensors.safe_open(path, framework="pt") as file:
            document = json.loads(file.metadata()["reference"])
            return cls(document, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  # no mapping

    def outputs(self, kind: str, label: str | int) -> Outputs:
        """The outputs of a point (`golden`) or a group (`group`)."""
        prefix = f"{kind}/{label}/"
        found = {int(k.removeprefix(prefix)): v for k, v in self.tensors.items() if k.startswith(prefix)}
        return [found[index] for index in sorted(found)]

    def inputs(self, label: str) -> dict[str, torch.Tensor]:
        """The inputs of a point."""
        prefix = f"input/{label}/"
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


def check(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Runs the gate.

    Args:
        job: `config`, `code`, `weights`, `reference` (paths and JSON) and `accept` (verdicts the spec allows).
        channel: For progress.

    Returns:
        The report: verdict, every comparison, what had no power.

    Raises:
        ArtifactWrong: A comparison is far off.
        ToleranceMissed: A comparison is just off.
        NoPower: The gate could not have failed, and the spec does not accept that.
    """
    reference = Reference.read(Path(job["reference"]))
    powerless = _powerless(reference.document)
    if powerless and "no_power" not in job["accept"]:
        raise NoPower(
            "the gate cannot tell a right artifact from a wrong one on this model",
            where="checks",
            details=tuple(powerless),
            hint="Give weights at which the output depends on inputs and layers (a trained file instead of a "
            "random initialisation), or write checks: {accept: [no_power]} to publish unproven.",
        )
    channel.send("progress", text="load")
    artifact = LocalArtifact.from_files(
        decode(ArtifactConfig, job["config"]), Path(job["code"]), Path(job["weights"])
    )
    candidate = _Candidate(load_artifact(artifact), reference, job["config"]["signature"], channel)
    rows = candidate.golden_rows()
    rows += candidate.group_rows()
    _judge(rows)
    return {
        "verdict": "no_power" if powerless else "passed",
        "comparisons": rows,
        "no_power": [item.path + ": " + item.message for item in powerless],
        "relative_error": max(
            (r["error"] / r["signal"] for r in rows if r["signal"] and not r["group"]), default=None
        ),
    }


class _Candidate:
    """The loaded artifact beside its reference."""

    def __init__(
        self, model: LoadedModel, reference: Reference, signature: dict[str, Any], channel: Channel
    ) -> None:
        self._model = model
        self._reference = reference
        self._signature = signature
        self._channel = channel
        self._device = torch.device(signature["device"])
        self._default_threads = torch.get_num_threads()

    def golden_rows(self) -> list[dict[str, Any]]:
        """Comparisons at every point with the default threads, at the example and the smallest with others too."""
        document = self._reference.document
        rows = []
        for threads in self._thread_counts():
            torch.set_num_threads(threads)
            for point in document["points"]:
                label = f"{point['name']}.{point['draw']}"
                if threads != self._default_threads and label not in (EXAMPLE, "smallest.0"):
                    continue
                self._channel.send("progress", text=f"run {label} {_sizes(point)} on {threads} threads")
                self._model.reset()  # a model with mutable buffers starts every run from the same state
                found = self._run(self._reference.inputs(label))
                expected = self._reference.outputs("golden", label)
                rows += self._compare(found, expected, document["base"][label], at=(label, threads, None))
        torch.set_num_threads(self._default_threads)
        return rows

    def group_rows(self) -> list[dict[str, Any]]:
        """Comparisons under each group of perturbed constants, at the example."""
        rows = []
        self._model.reset()  # the runs before have written to mutable buffers
        original = {name: tensor.cpu() for name, tensor in self._model.constants().items()}
        label = self._reference.document["example"]
        inputs = self._reference.inputs(label)
        for number, item in enumerate(self._reference.document["groups"]):
            group = Group(**{**item["group"], "members": tuple(item["group"]["members"])})
            self._channel.send("progress", text=f"run with perturbed {group.name}")
            # A member that the code does not know was baked into it: then the code will not follow.
            known = replace(group, members=tuple(name for name in group.members if name in original))
            moved = {k: v.to(self._device) for k, v in perturb(original, known).items()}
            self._model.swap_constants({**self._model.constants(), **moved})
            found = self._run(inputs)
            self._model.reset()
            expected = self._reference.outputs("group", number)
            at = (label, self._default_threads, group.name)
            rows += self._compare(found, expected, item["allowances"], at=at)
        return rows

    def _thread_counts(self) -> list[int]:
        others = OTHER_THREADS if self._device.type == "cpu" else ()
        return [self._default_threads, *(n for n in others if n != self._default_threads)]

    def _run(self, inputs: dict[str, torch.Tensor]) -> Outputs:
        declared = {item["name"]: item for item in self._signature["inputs"]}
        given = {name: self._as_declared(tensor, declared[name]) for name, tensor in inputs.items()}
        leaves, _ = pytree.tree_flatten(self._model(**given))
        return [leaf.cpu() for leaf in leaves]

    def _as_declared(self, tensor: torch.Tensor, declared: dict[str, Any]) -> torch.Tensor:
        layout: torch.memory_format = getattr(torch, declared["memory_format"])
        return tensor.to(device=self._device, dtype=getattr(torch, declared["dtype"])).contiguous(
            memory_format=layout
        )

    def _compare(
        self,
        found: Outputs,
        expected: Outputs,
        allowances: list[dict[str, Any]],
        *,
        at: tuple[str, int, str | None],
    ) -> list[dict[str, Any]]:
        label, threads, group = at
        if len(found) != len(expected):
            raise ArtifactWrong(
                f"{len(found)} outputs at {label}, the model has {len(expected)}", where=label
            )
        rows = []
        for left, right, allowance in zip(found, expected, allowances, strict=True):
            if left.shape != right.shape:
                raise ArtifactWrong(
                    f"output of shape {list(left.shape)} instead of {list(right.shape)}", where=label
                )
            if left.is_floating_point() != right.is_floating_point():
                raise ArtifactWrong(f"output of dtype {left.dtype} instead of {right.dtype}", where=label)
            error = comparing.difference(left, right)
            rows.append({"point": label, "threads": threads, "group": group, "error": error, **allowance})
        return rows


def _powerless(document: dict[str, Any]) -> list[Detail]:
    base = [comparing.Allowance(**item) for item in document["base"][document["example"]]]
    lively = any(item.powerful for item in base)
    found = [
        Detail(
            f"outputs[{item.output}]",
            f"moves by {item.signal:.3g} when the inputs change, and differences up to {item.allowed:.3g} would pass",
        )
        for item in base
        # A constant beside lively outputs (anchors, a mask) is compared exactly and needs no power of its own.
        if not item.powerful and not (lively and item.signal == item.allowed == 0)
    ]
    for entry in document["groups"]:
        allowances = [comparing.Allowance(**item) for item in entry["allowances"]]
        if not any(item.powerful for item in allowances):
            largest = max((item.signal for item in allowances), default=0.0)
            name = entry["group"]["name"]
            found.append(
                Detail(f"constants {name}", f"moves no output by more than {largest:.3g} when perturbed")
            )
    return found


def _judge(rows: list[dict[str, Any]]) -> None:
    missed = [row for row in rows if not row["error"] <= row["allowed"]]
    if not missed:
        return
    worst = max(missed, key=lambda row: row["error"] / (row["allowed"] or 1e-300))
    under = f" with perturbed {worst['group']}" if worst["group"] else ""
    text = (
        f"output {worst['output']} at {worst['point']} on {worst['threads']} threads{under} is off by "
        f"{worst['error']:.3g}; allowed {worst['allowed']:.3g} (signal {worst['signal']:.3g}, eager's own error "
        f"{worst['eager_error']:.3g})"
    )
    if worst["group"] is None and worst["error"] <= NEAR_MISS * worst["allowed"]:
        raise ToleranceMissed(
            text, where="verify", hint="Raise checks.tolerance if this error is acceptable to you."
        )
    raise ArtifactWrong(
        text,
        where="verify",
        hint="The compiled code computes something else than the model. This is a defect of the compiler or of "
        "pt2hub: please report it with the build's log and sources.",
        context={"comparisons": missed[:20]},
    )


def _sizes(point: dict[str, Any]) -> str:
    return " ".join(f"{name}={size}" for name, size in point["sizes"].items()) or "fixed sizes"
