"""A model's way to a program that is believed: its first calls, the export, and what both compute, before any compile."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pt2hub.client.tracing.unread import unread_inputs
from pt2hub.domain.specs import ProgramSource, TargetSpec
from pt2hub_workers.inside import caches, eager, program_checks, statefulness, weights
from pt2hub_workers.inside.exporting import export
from pt2hub_workers.inside.golden import Given
from pt2hub_workers.inside.inputs import Tensors
from pt2hub_workers.inside.sizes import BETWEEN
from pt2hub_workers.inside.trial import EXAMPLE, OTHER, SMALLEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from pt2hub.domain.specs import Spec
    from pt2hub_workers.inside.channel import Channel
    from pt2hub_workers.inside.exporting import Exported
    from pt2hub_workers.inside.proving import Proof

_FIRST_BETWEEN = f"{BETWEEN}.0"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is to be exported.

    Attributes:
        original: In its own dtype, on the device, never called.
        module: In the target's dtype, never called; the same object where nothing is overridden.
        moved: Turns inputs into what the target takes.
        example: Inputs of the example, as the target takes them.
        other: Others of the same sizes, likewise.
        request: The target's overrides.
        device: `cpu` or `cuda`.
        tolerance: Relative to signal.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    moved: Callable[[Tensors], Tensors]
    example: Tensors
    other: Tensors
    request: TargetSpec
    device: str
    tolerance: float


class Examination:
    """Exports a model, and refuses what no artifact can be right about."""

    def __init__(self, spec: Spec, channel: Channel, scratch: Path) -> None:
        """Prepares.

        Args:
            spec: How the model is called, and what of it is accepted.
            channel: To the parent.
            scratch: A directory for temporary files.
        """
        self._spec = spec
        self._channel = channel
        self._scratch = scratch
        self._accept: list[str] = list(spec.checks.accept)

    def export(self, candidate: Candidate, proof: Proof, stored: dict[str, Any] | None) -> Exported:
        """Makes the model's first calls, exports it and compares the program with it.

        Args:
            candidate: The model.
            proof: Computes the golden values.
            stored: The version's golden document and files; None for the first build.

        Raises:
            Pt2hubError: The model, or what torch.export made of it, is at fault; see what each check says.
        """
        module, accept = candidate.module, self._accept
        random = any(item.startswith(program_checks.RANDOM) for item in accept)
        with self._timed("first calls"):
            began = time.monotonic()
            seen = statefulness.observe(
                module,
                candidate.example,
                candidate.other,
                scratch=self._scratch,
                within=candidate.tolerance if random else 0.0,
            )
            seconds = (time.monotonic() - began) / 3  # of three calls, beside those of the fresh copy
        given = [Given(EXAMPLE, candidate.example, seen.example), Given(OTHER, candidate.other, seen.other)]
        with self._timed("torch.export"):
            exported = export(module, candidate.example, self._spec, candidate.request, candidate.device)
            caches.check_unread(exported.program, seen.kept)
        notes = self._read(exported, candidate, given[0])
        if "no_power" not in accept:
            eager.check_moves(seen.example, seen.other)
        own = candidate.original is module
        with self._timed("golden outputs"):
            golden = proof.prepare(candidate.original, given if own else [], stored, seconds)
        if own:
            some = [label for label in (SMALLEST, _FIRST_BETWEEN) if label in golden.single]
            given += [Given(name, candidate.moved(golden.inputs[name]), golden.single[name]) for name in some]
        with self._timed("the program beside the model"):
            runs = program_checks.program_module(exported.program)
            program_checks.check_program(runs, module, given, candidate.tolerance)
        return self._finished(exported, module, (*seen.notes, *notes))

    def _read(self, exported: Exported, candidate: Candidate, given: Given) -> tuple[str, ...]:
        """Checks what the program draws and reads."""
        notes = program_checks.check_random(exported.program, self._accept)
        order = [item.name for item in exported.signature.inputs]
        is_program = isinstance(self._spec.source, ProgramSource)
        ignored = program_checks.check_inputs(
            unread_inputs(exported.program, order),
            self._accept,
            module=None if is_program else candidate.module,
            given=given,
            other=candidate.other,
        )
        return (*notes, *ignored)

    def _finished(self, exported: Exported, module: torch.nn.Module, notes: tuple[str, ...]) -> Exported:
        renamed = weights.name_by_last(exported.program, module)
        mutated = frozenset(renamed.get(name, name) for name in exported.mutated)
        found = replace(exported, mutated=mutated, notes=(*notes, *exported.notes))
        for note in found.notes:
            self._channel.log(note)
        return found

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Says how long a part took: a retrained version waits for nothing but these."""
        began = time.monotonic()
        yield
        self._channel.log(f"{what}: {time.monotonic() - began:.2f} s")
