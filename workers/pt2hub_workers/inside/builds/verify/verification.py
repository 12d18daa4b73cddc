"""The build's part of verification: golden values, the reference, and the request to run and compare the artifact."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.errors import (
    ArtifactWrong,
    InputRefused,
    InternalError,
    NanOutput,
    ProgramDiffers,
    Pt2hubError,
)
from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export import eager, inputs, statefulness
from pt2hub_workers.inside.builds.export.smallest_sizes import check_smallest
from pt2hub_workers.inside.builds.verify import intermediate_sizes, reference, rounding_error
from pt2hub_workers.inside.builds.verify.eager_responses import Unperturbed, compute_responses
from pt2hub_workers.inside.builds.verify.golden import (
    Golden,
    GoldenInputs,
    check_drift,
    load_golden,
    make_golden,
    save_golden,
)
from pt2hub_workers.inside.builds.verify.largest_sizes import choose_largest_sizes
from pt2hub_workers.inside.builds.verify.program_checks import RANDOM_PREFIX, check_program
from pt2hub_workers.inside.builds.verify.run_order import EXAMPLE
from pt2hub_workers.inside.builds.verify.tolerances import EAGER_FACTOR
from pt2hub_workers.inside.operations import files

if TYPE_CHECKING:
    from pt2hub.domain.publishing.spec import Spec
    from pt2hub_workers.inside.builds.verify.eager_responses import Response
    from pt2hub_workers.inside.builds.verify.tolerances import Allowance
    from pt2hub_workers.inside.operations.channel import Channel


BAKED_NOTE = (
    "weights are baked: the artifact accepts no others, so it was compared on different inputs with its own weights, and "
    "not with perturbed ones"
)
"""Note in the report of an artifact whose weights cannot be perturbed."""


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """The model whose artifact is verified.

    Attributes:
        module: In the target's dtype; the same object if the target does not override the dtype.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    move: Callable[[inputs.Tensors], inputs.Tensors]
    program: torch.nn.Module
    used: Iterable[str]
    swappable: frozenset[str]
    is_baked: bool
    is_stateful: bool
    tolerance: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Golden values before the compile."""

    golden: Golden
    now: Golden
    document: dict[str, Any] | None


class BuildVerification:
    """Verification of one artifact."""

    def __init__(self, spec: Spec, examples: dict[str, Path], channel: Channel, directory: Path) -> None:
        self._spec = spec
        self._examples = examples
        self._channel = channel
        self._workspace = directory
        self._notes: list[str] = []
        self._prepared: _Prepared | None = None

    def prepare(
        self,
        original: torch.nn.Module,
        seen: Sequence[GoldenInputs],
        stored: dict[str, Any] | None,
        seconds: float,
    ) -> Golden:
        """Compute the golden values, or check that the source reproduces them, before anything is compiled.

        Raises:
            SourceDrifted: The source does not reproduce the version's golden outputs.
            HiddenState: The model's outputs on its example have changed since its first call.
            InputRefused: The model fails at its smallest or largest sizes, or between.
            NanOutput: An output is not finite there.
        """
        self._prepared = self._prepare_golden(original, seen, stored, seconds)
        now = self._prepared.now
        device = eager.find_device(original)
        example = {name: tensor.to(device) for name, tensor in self._prepared.golden.inputs[EXAMPLE].items()}
        statefulness.check_repeatable(
            original, example, now.single[EXAMPLE], within=self._random_difference(now)
        )
        return now

    def run(self, model: VerifiedModel, parts: dict[str, Any]) -> dict[str, Any]:
        """Compute the reference, request the comparison, and record golden values if it passes.

        Raises:
            ProgramDiffers: The artifact is wrong because the program that it was compiled from is.
        """
        if self._prepared is None:
            raise InternalError("the verification was not prepared", where="verify")
        golden, now, document = self._prepared.golden, self._prepared.now, self._prepared.document
        own = self._own_outputs(model, golden, now)
        base = self._compute_allowances(model, golden, own)
        double = now.double.get(EXAMPLE) if model.module is model.original else None
        before = Unperturbed(own[EXAMPLE], double)
        found = self._compute_responses(model, golden, base[EXAMPLE], before)
        # Two files: the process that runs the artifact must not know the expected outputs.
        reference.save_verification_inputs(found, golden, self._workspace / files.VERIFICATION_INPUTS)
        again = (
            eager.run_twice(model.module, model.move(golden.inputs[EXAMPLE])) if model.is_stateful else None
        )
        reference.save_expected(
            found, base, golden, own, self._workspace / files.EXPECTED_OUTPUTS, again=again
        )
        try:
            report: dict[str, Any] = self._channel.ask("verify", parts=parts)
        except ArtifactWrong as error:
            self._check_program(model, golden, own, error)
            raise
        worst = report["relative_error"]
        self._channel.detail(
            "verify", "no power" if worst is None else f"largest error {worst:.2g} of the signal"
        )
        if document:
            # Only now: outputs of a machine with failing artifacts must not bind every later build.
            self._record_golden(model, document)
        return {
            **report,
            "tolerance": model.tolerance,
            "notes": [*golden.notes, *model.notes, *self._notes, *describe_constant_inputs(golden)],
        }

    def _prepare_golden(
        self,
        original: torch.nn.Module,
        seen: Sequence[GoldenInputs],
        stored: dict[str, Any] | None,
        seconds: float,
    ) -> _Prepared:
        if stored:
            golden = _load_stored(stored)
            self._channel.detail("export", "check that the source reproduces the golden outputs")
            return _Prepared(golden, check_drift(golden, original, seen), None)
        self._channel.detail("export", "golden outputs")
        largest, note = choose_largest_sizes(self._spec, original, self._examples)
        between = intermediate_sizes.choose_sizes(self._spec, largest, seconds)
        self._notes += [text for text in (note, between.note) if text]
        points = [*inputs.make_points(self._spec, largest), *between.points]
        given = {point.label: inputs.make_inputs(self._spec, point, self._examples) for point in points}
        try:
            golden = make_golden(original, points, given, seen)
        except (InputRefused, NanOutput):
            check_smallest(original, self._spec, self._examples)  # names the dimension
            raise
        golden = self._without_float64(golden, original)
        return _Prepared(golden, golden, save_golden(golden, self._workspace))

    def _without_float64(self, golden: Golden, original: torch.nn.Module) -> Golden:
        """Drop the float64 outputs if rounding does not explain how far eager is from them."""
        own = golden.errors_of(golden.single)
        most = self._rounding_share(original, golden, golden.single, self._spec.checks.tolerance)
        for label, limits in most.items():
            for index, (error, limit) in enumerate(zip(own[label], limits, strict=True)):
                if error > limit:
                    note = (
                        f"no float64 reference, eager is used instead: output {index} differs by {error:.3g} in float64, and "
                        f"rounding explains {limit:.3g}"
                    )
                    return replace(golden, double={}, notes=(*golden.notes, note))
        return golden

    def _rounding_share(
        self,
        original: torch.nn.Module,
        golden: Golden,
        own: Mapping[str, list[torch.Tensor]],
        tolerance: float,
    ) -> dict[str, list[float]]:
        """Return the largest error of eager that rounding explains, at the points where it would raise the allowance."""
        signals, errors = golden.signals(), golden.errors_of(own)
        found = {}
        for label in golden.double:
            pairs = zip(signals[label], errors[label], strict=True)
            if any(EAGER_FACTOR * error > tolerance * signal for signal, error in pairs):
                device = eager.find_device(original)
                wide = {
                    k: v.to(device)
                    for k, v in eager.convert_inputs(golden.inputs[label], torch.float64).items()
                }
                floats = [tensor.dtype for tensor in own[label] if tensor.is_floating_point()]
                eps = max((rounding_error.rounding_unit(dtype, device) for dtype in floats), default=0.0)
                try:
                    moved = rounding_error.rounding_bound(
                        eager.to_double(original), wide, golden.double[label], eps
                    )
                except (
                    Pt2hubError,
                    RuntimeError,
                    TypeError,
                ) as error:  # a number that rounds may be an index
                    moved = [differences.rounding_limit(tensor) for tensor in own[label]]
                    why = " ".join(str(error).split())[:300]
                    self._channel.log(
                        f"the model does not run with simulated rounding noise at {label}: {why}"
                    )
                found[label] = [rounding_error.NOISE_FACTOR * distance for distance in moved]
        return found

    def _compute_allowances(
        self, model: VerifiedModel, golden: Golden, own: Mapping[str, list[torch.Tensor]]
    ) -> reference.Allowances:
        explained = self._rounding_share(model.original, golden, own, model.tolerance)
        return reference.compute_allowances(golden, own, model.tolerance, explained)

    def _check_program(
        self,
        model: VerifiedModel,
        golden: Golden,
        own: Mapping[str, list[torch.Tensor]],
        error: ArtifactWrong,
    ) -> None:
        """Raise ProgramDiffers if the exported program, not the compiled code, is wrong."""
        points = [
            GoldenInputs(point.label, model.move(golden.inputs[point.label]), own[point.label])
            for point in golden.points
        ]
        try:
            check_program(model.program, model.module, points, model.tolerance)
        except ProgramDiffers as found:
            raise found from error

    def _random_difference(self, golden: Golden) -> float:
        """Return the accepted difference between two calls: 0 unless the spec accepts random operators."""
        if not any(item.startswith(RANDOM_PREFIX) for item in self._spec.checks.accept):
            return 0.0
        return self._spec.checks.tolerance * max(golden.signals()[EXAMPLE], default=0.0)

    def _own_outputs(self, model: VerifiedModel, golden: Golden, now: Golden) -> dict[str, Any]:
        if model.module is model.original:
            return now.single
        return {
            label: eager.run_flat(model.module, model.move(given)) for label, given in golden.inputs.items()
        }

    def _compute_responses(
        self, model: VerifiedModel, golden: Golden, base: list[Allowance], before: Unperturbed
    ) -> list[Response]:
        if model.is_baked:
            self._notes.append(BAKED_NOTE)
            return []
        self._channel.detail("verify", "reference under perturbed constants")
        started = time.monotonic()
        example = model.move(golden.inputs[EXAMPLE])
        found = compute_responses(
            model.module, example, base, model.used, before=before, in_double=bool(golden.double)
        )
        self._channel.log(f"reference of {len(found)} perturbations in {time.monotonic() - started:.2f} s")
        return [item for item in found if self._is_conclusive(item, model)]

    def _is_conclusive(self, response: Response, model: VerifiedModel) -> bool:
        """Return whether a group is compared; one that correctly has no effect becomes a note.

        This applies to groups that the compiler removed as dead code, and to groups of buffers alone (such as a call
        counter, or a mask with significant zeros): parameters without effect remain suspicious.
        """
        if response.has_power:
            return True
        name, members = response.group.name, set(response.group.members)
        buffers = {name for name, _ in model.module.named_buffers(remove_duplicate=False)}
        if members <= buffers or not members & model.swappable:
            self._notes.append(f"constants {name} move no output and are not verified separately")
            return False
        return True

    def _record_golden(self, model: VerifiedModel, document: dict[str, Any]) -> None:
        winner = self._channel.ask("golden", document=document)
        if winner["document"] != document:
            self._channel.log("another build of this version recorded its golden outputs first")
            check_drift(_load_stored(winner), model.original)


def describe_constant_inputs(golden: Golden) -> Iterator[str]:
    """Yield a note for each input with the same value everywhere: a comparison cannot show that an artifact reads it."""
    for name, example in golden.inputs[EXAMPLE].items():
        value = example.flatten()[:1]
        if value.numel() and all(bool((given[name] == value).all()) for given in golden.inputs.values()):
            yield (
                f"input {name} was {value.item():g} throughout: it is not proven that outputs follow other values; generate "
                "different values to test this"
            )


def _load_stored(stored: dict[str, Any]) -> Golden:
    return load_golden(stored["document"], Path(stored["inputs"]), Path(stored["outputs"]))
