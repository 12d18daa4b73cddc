"""The build's half of the publish gate: golden values, reference, and the question to the gate's process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub_workers.inside import eager, files, inputs, reference
from pt2hub_workers.inside.golden import Golden, check_drift, load_golden, make_golden, save_golden
from pt2hub_workers.inside.memory import largest_sizes
from pt2hub_workers.inside.trial import EXAMPLE

if TYPE_CHECKING:
    from pt2hub.domain.specs import Spec
    from pt2hub_workers.inside.channel import Channel
    from pt2hub_workers.inside.reference import Response


BAKED = (
    "weights are baked: the artifact takes no others, so it was compared at its own, on different inputs, and not "
    "under perturbed ones"
)
"""What a report says where the gate could not have seen code that ignores its weights, because there is none other."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The model whose artifact is to be proven.

    Attributes:
        original: In its own dtype, on the device: computes the golden outputs.
        module: In the target's dtype; the same object where nothing is overridden.
        moved: Turns inputs into what the target takes (device, dtype, memory format).
        used: Names of the constants that the exported program reads.
        swappable: Names of the constants that the compiled code reads.
        baked: Whether it holds its weights, so that no others can be tried.
        tolerance: Relative to signal.
        notes: What callers should know of the artifact.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    moved: Callable[[inputs.Tensors], inputs.Tensors]
    used: Iterable[str]
    swappable: frozenset[str]
    baked: bool
    tolerance: float
    notes: tuple[str, ...] = ()


class Proof:
    """One artifact's way through the gate."""

    def __init__(self, spec: Spec, examples: dict[str, Path], channel: Channel, directory: Path) -> None:
        """Prepares the proof.

        Args:
            spec: For the points.
            examples: Uploaded example tensors by input name.
            channel: To the parent.
            directory: The build's room; where golden values and references are written.
        """
        self._spec = spec
        self._examples = examples
        self._channel = channel
        self._room = directory
        self._notes: list[str] = []

    def run(self, subject: Subject, parts: dict[str, Any], stored: dict[str, Any] | None) -> dict[str, Any]:
        """Computes the reference and has the gate compare; records golden values that have proven themselves.

        Args:
            subject: The model.
            parts: The artifact's parts, for the gate.
            stored: The version's golden document and files; None for the first build.

        Returns:
            The gate's report.

        Raises:
            SourceDrifted: The source does not reproduce the version's golden outputs.
            Pt2hubError: What the gate found.
        """
        golden, now, document = self._golden(subject, stored)
        own = self._own(subject, golden, now)
        base = reference.golden_allowances(golden, own, subject.tolerance)
        found = self._responses(subject, golden, base[EXAMPLE])
        # Two files: what runs the artifact must not know what it should compute.
        reference.save_trial(found, golden, self._room / files.TRIAL)
        reference.save_expected(found, base, golden, own, self._room / files.EXPECTED)
        report: dict[str, Any] = self._channel.ask("verify", parts=parts)
        error = report["relative_error"]
        self._channel.detail(
            "verify", "no power" if error is None else f"largest error {error:.2g} of the signal"
        )
        if document:
            # Only now: outputs of a machine whose artifacts fail must not bind every later build.
            self._record(subject, document)
        return {
            **report,
            "tolerance": subject.tolerance,
            "notes": [*golden.notes, *subject.notes, *self._notes],
        }

    def _golden(
        self, subject: Subject, stored: dict[str, Any] | None
    ) -> tuple[Golden, Golden, dict[str, Any] | None]:
        """The version's golden values, the same as this machine computes them, and their document if new."""
        if stored:
            golden = _load(stored)
            self._channel.detail("verify", "does the source still compute the golden outputs?")
            return golden, check_drift(golden, subject.original), None
        self._channel.detail("verify", "golden outputs")
        largest, note = largest_sizes(self._spec, subject.original, self._examples)
        self._notes += [note] if note else []
        points = inputs.points(self._spec, largest)
        given = {point.label: inputs.make(self._spec, point, self._examples) for point in points}
        golden = make_golden(subject.original, points, given)
        return golden, golden, save_golden(golden, self._room)

    def _own(self, subject: Subject, golden: Golden, now: Golden) -> dict[str, Any]:
        if subject.module is subject.original:
            return now.single
        return {
            label: eager.run_flat(subject.module, subject.moved(given))
            for label, given in golden.inputs.items()
        }

    def _responses(self, subject: Subject, golden: Golden, base: list[Any]) -> list[Response]:
        if subject.baked:
            self._notes.append(BAKED)
            return []
        self._channel.detail("verify", "reference under perturbed constants")
        started = time.monotonic()
        example = subject.moved(golden.inputs[EXAMPLE])
        found = reference.responses(subject.module, example, base, subject.used)
        self._channel.log(f"reference of {len(found)} perturbations in {time.monotonic() - started:.2f} s")
        return [item for item in found if self._counts(item, subject)]

    def _counts(self, response: Response, subject: Subject) -> bool:
        """Whether a group belongs into the verdict; one that rightly has no effect becomes a note.

        That is a group the compiler removed as dead, and one of buffers alone (a mask of which only the zeros
        count, a call counter): parameters without effect stay a reason to doubt.
        """
        if response.powerful:
            return True
        name, members = response.group.name, set(response.group.members)
        buffers = {name for name, _ in subject.module.named_buffers(remove_duplicate=False)}
        if members <= buffers or not members & subject.swappable:
            self._notes.append(f"constants {name} move no output, and are not proven one by one")
            return False
        return True

    def _record(self, subject: Subject, document: dict[str, Any]) -> None:
        winner = self._channel.ask("golden", document=document)
        if winner["document"] != document:
            self._channel.log("another build of this version recorded its golden outputs first")
            check_drift(_load(winner), subject.original)


def _load(stored: dict[str, Any]) -> Golden:
    return load_golden(stored["document"], Path(stored["inputs"]), Path(stored["outputs"]))
