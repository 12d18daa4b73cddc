"""Exports a model and checks the program against it before anything is compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pt2hub.client.publishing.live_models.unread_inputs import unread_inputs
from pt2hub.domain.publishing.spec import ProgramSource, TargetSpec
from pt2hub_workers.inside.builds.compile import weights
from pt2hub_workers.inside.builds.export import attribute_state, eager, statefulness
from pt2hub_workers.inside.builds.export.export import export
from pt2hub_workers.inside.builds.export.inputs import Tensors
from pt2hub_workers.inside.builds.verify import program_checks
from pt2hub_workers.inside.builds.verify.golden import GoldenInputs
from pt2hub_workers.inside.builds.verify.intermediate_sizes import BETWEEN
from pt2hub_workers.inside.builds.verify.run_order import EXAMPLE, OTHER, SMALLEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from pt2hub.domain.publishing.spec import Spec
    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.builds.verify.verification import BuildVerification
    from pt2hub_workers.inside.operations.channel import Channel

_FIRST_BETWEEN = f"{BETWEEN}.0"


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A model to export.

    Attributes:
        original: In its own dtype, on the device, never called.
        module: In the target's dtype, never called; the same object if the target does not override the dtype.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    move: Callable[[Tensors], Tensors]
    example: Tensors
    other: Tensors
    request: TargetSpec
    device: str
    tolerance: float


class CheckedExport:
    """Export of a model with all checks that need no compiler."""

    def __init__(self, spec: Spec, channel: Channel, scratch: Path) -> None:
        self._spec = spec
        self._channel = channel
        self._scratch = scratch
        self._accept: list[str] = list(spec.checks.accept)

    def export(
        self, candidate: ExportRequest, verification: BuildVerification, stored: dict[str, Any] | None
    ) -> ExportResult:
        """Make the model's first calls, export it and compare the program with it."""
        module, accept = candidate.module, self._accept
        random = any(item.startswith(program_checks.RANDOM_PREFIX) for item in accept)
        with self._timed_part("first calls"):
            began = time.monotonic()
            seen = statefulness.observe_calls(
                module,
                candidate.example,
                candidate.other,
                scratch=self._scratch,
                within=candidate.tolerance if random else 0.0,
            )
            seconds = (time.monotonic() - began) / 3  # of three calls, in addition to those of the fresh copy
        given = [
            GoldenInputs(EXAMPLE, candidate.example, seen.example),
            GoldenInputs(OTHER, candidate.other, seen.other),
        ]
        with self._timed_part("torch.export"):
            exported = export(module, candidate.example, self._spec, candidate.request, candidate.device)
            attribute_state.check_unread(exported.program, seen.kept)
        notes = self._check_reads(exported, candidate, given[0])
        if "no_power" not in accept:
            eager.check_depends_on_inputs(seen.example, seen.other)
        own = candidate.original is module
        with self._timed_part("golden outputs"):
            golden = verification.prepare(candidate.original, given if own else [], stored, seconds)
        if own:
            some = [label for label in (SMALLEST, _FIRST_BETWEEN) if label in golden.single]
            given += [
                GoldenInputs(name, candidate.move(golden.inputs[name]), golden.single[name]) for name in some
            ]
        with self._timed_part("comparison of the program with the model"):
            runs = program_checks.program_module(exported.program)
            program_checks.check_program(runs, module, given, candidate.tolerance)
        return self._add_notes(exported, module, (*seen.notes, *notes))

    def _check_reads(
        self, exported: ExportResult, candidate: ExportRequest, given: GoldenInputs
    ) -> tuple[str, ...]:
        """Check random operators and unread inputs; return the notes."""
        notes = program_checks.check_random(exported.program, self._accept)
        order = [item.name for item in exported.signature.inputs]
        is_program = isinstance(self._spec.source, ProgramSource)
        ignored = program_checks.check_unused_inputs(
            unread_inputs(exported.program, order),
            self._accept,
            module=None if is_program else candidate.module,
            given=given,
            other=candidate.other,
        )
        return (*notes, *ignored)

    def _add_notes(
        self, exported: ExportResult, module: torch.nn.Module, notes: tuple[str, ...]
    ) -> ExportResult:
        renamed = weights.rename_tied(exported.program, module)
        mutated = frozenset(renamed.get(name, name) for name in exported.mutated)
        found = replace(exported, mutated=mutated, notes=(*notes, *exported.notes))
        for note in found.notes:
            self._channel.log(note)
        return found

    @contextmanager
    def _timed_part(self, what: str) -> Iterator[None]:
        """Log the duration of a part: a retrained version consists mainly of these."""
        began = time.monotonic()
        yield
        self._channel.log(f"{what}: {time.monotonic() - began:.2f} s")
