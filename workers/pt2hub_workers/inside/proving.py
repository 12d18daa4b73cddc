"""The build's half of the publish gate: golden values, reference, and the question to the gate's process."""

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
from pt2hub_workers.inside import comparing, eager, files, inputs, reference, rounding, sizes, statefulness
from pt2hub_workers.inside.allowances import EAGER_FACTOR
from pt2hub_workers.inside.golden import Given, Golden, check_drift, load_golden, make_golden, save_golden
from pt2hub_workers.inside.memory import largest_sizes
from pt2hub_workers.inside.program_checks import RANDOM, check_program
from pt2hub_workers.inside.responses import Unperturbed, responses
from pt2hub_workers.inside.smallest import check_smallest
from pt2hub_workers.inside.trial import EXAMPLE

if TYPE_CHECKING:
    from pt2hub.domain.specs import Spec
    from pt2hub_workers.inside.allowances import Allowance
    from pt2hub_workers.inside.channel import Channel
    from pt2hub_workers.inside.responses import Response


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
        program: The exported program as a module, which runs in eager mode.
        used: Names of the constants that the exported program reads.
        swappable: Names of the constants that the compiled code reads.
        baked: Whether it holds its weights, so that no others can be tried.
        stateful: Whether it writes to its buffers.
        tolerance: Relative to signal.
        notes: What callers should know of the artifact.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    moved: Callable[[inputs.Tensors], inputs.Tensors]
    program: torch.nn.Module
    used: Iterable[str]
    swappable: frozenset[str]
    baked: bool
    stateful: bool
    tolerance: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Golden values before the compile.

    Attributes:
        golden: The version's.
        now: The same as this machine computes them.
        document: Of new ones, to be recorded.
    """

    golden: Golden
    now: Golden
    document: dict[str, Any] | None


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
        self._prepared: _Prepared | None = None

    def prepare(
        self, original: torch.nn.Module, seen: Sequence[Given], stored: dict[str, Any] | None, seconds: float
    ) -> Golden:
        """Computes the golden values, or whether the source still does, before anything is compiled.

        Args:
            original: The model in its own dtype, on the device.
            seen: What it returned already.
            stored: The version's golden document and files; None for the first build.
            seconds: What a call at the example takes.

        Returns:
            The golden values as this machine computes them.

        Raises:
            SourceDrifted: The source does not reproduce the version's golden outputs.
            HiddenState: The model's answer to its example has changed since its first call.
            InputRefused: It fails at its smallest or largest sizes, or between.
            NanOutput: Its output is not finite there.
        """
        self._prepared = self._golden(original, seen, stored, seconds)
        now = self._prepared.now
        device = eager.device_of(original)
        example = {name: tensor.to(device) for name, tensor in self._prepared.golden.inputs[EXAMPLE].items()}
        statefulness.check_later(original, example, now.single[EXAMPLE], within=self._random_within(now))
        return now

    def run(self, subject: Subject, parts: dict[str, Any]) -> dict[str, Any]:
        """Computes the reference and has the gate compare; records golden values that have proven themselves.

        Args:
            subject: The model, after `prepare`.
            parts: The artifact's parts, for the gate.

        Returns:
            The gate's report.

        Raises:
            ProgramDiffers: The artifact is wrong, and so is the program that it was compiled from.
            Pt2hubError: What the gate found.
        """
        if self._prepared is None:
            raise InternalError("the proof was not prepared", where="verify")
        golden, now, document = self._prepared.golden, self._prepared.now, self._prepared.document
        own = self._own(subject, golden, now)
        base = self._allowances(subject, golden, own)
        double = now.double.get(EXAMPLE) if subject.module is subject.original else None
        before = Unperturbed(own[EXAMPLE], double)
        found = self._responses(subject, golden, base[EXAMPLE], before)
        # Two files: what runs the artifact must not know what it should compute.
        reference.save_trial(found, golden, self._room / files.TRIAL)
        again = (
            eager.run_twice(subject.module, subject.moved(golden.inputs[EXAMPLE]))
            if subject.stateful
            else None
        )
        reference.save_expected(found, base, golden, own, self._room / files.EXPECTED, again=again)
        try:
            report: dict[str, Any] = self._channel.ask("verify", parts=parts)
        except ArtifactWrong as error:
            self._blame(subject, golden, own, error)
            raise
        worst = report["relative_error"]
        self._channel.detail(
            "verify", "no power" if worst is None else f"largest error {worst:.2g} of the signal"
        )
        if document:
            # Only now: outputs of a machine whose artifacts fail must not bind every later build.
            self._record(subject, document)
        return {
            **report,
            "tolerance": subject.tolerance,
            "notes": [*golden.notes, *subject.notes, *self._notes, *constant_inputs(golden)],
        }

    def _golden(
        self, original: torch.nn.Module, seen: Sequence[Given], stored: dict[str, Any] | None, seconds: float
    ) -> _Prepared:
        if stored:
            golden = _load(stored)
            self._channel.detail("export", "does the source still compute the golden outputs?")
            return _Prepared(golden, check_drift(golden, original, seen), None)
        self._channel.detail("export", "golden outputs")
        largest, note = largest_sizes(self._spec, original, self._examples)
        between = sizes.between(self._spec, largest, seconds)
        self._notes += [said for said in (note, between.note) if said]
        points = [*inputs.points(self._spec, largest), *between.points]
        given = {point.label: inputs.make(self._spec, point, self._examples) for point in points}
        try:
            golden = make_golden(original, points, given, seen)
        except (InputRefused, NanOutput):
            check_smallest(original, self._spec, self._examples)  # says which dimension it is
            raise
        golden = self._believed(golden, original)
        return _Prepared(golden, golden, save_golden(golden, self._room))

    def _believed(self, golden: Golden, original: torch.nn.Module) -> Golden:
        """Golden values without float64 ones, where rounding does not explain how far eager is from them."""
        own = golden.errors_of(golden.single)
        most = self._explained(original, golden, golden.single, self._spec.checks.tolerance)
        for label, limits in most.items():
            for place, (error, limit) in enumerate(zip(own[label], limits, strict=True)):
                if error > limit:
                    note = (
                        f"no float64 reference, eager serves instead: in float64 output {place} is {error:.3g} away, and "
                        f"rounding explains {limit:.3g}"
                    )
                    return replace(golden, double={}, notes=(*golden.notes, note))
        return golden

    def _explained(
        self,
        original: torch.nn.Module,
        golden: Golden,
        own: Mapping[str, list[torch.Tensor]],
        tolerance: float,
    ) -> dict[str, list[float]]:
        """The most that rounding explains of eager's own error, at the points where it would raise what passes."""
        signals, errors = golden.signals(), golden.errors_of(own)
        found = {}
        for label in golden.double:
            pairs = zip(signals[label], errors[label], strict=True)
            if any(EAGER_FACTOR * error > tolerance * signal for signal, error in pairs):
                device = eager.device_of(original)
                wide = {
                    k: v.to(device) for k, v in eager.converted(golden.inputs[label], torch.float64).items()
                }
                floats = [tensor.dtype for tensor in own[label] if tensor.is_floating_point()]
                eps = max((rounding.unit(dtype, device) for dtype in floats), default=0.0)
                try:
                    moved = rounding.explained(eager.in_double(original), wide, golden.double[label], eps)
                except (
                    Pt2hubError,
                    RuntimeError,
                    TypeError,
                ) as error:  # a number that rounds may be an index
                    moved = [comparing.rounding(tensor) for tensor in own[label]]
                    why = " ".join(str(error).split())[:300]
                    self._channel.log(
                        f"the model does not run with noise in place of rounding at {label}: {why}"
                    )
                found[label] = [rounding.EXPLAINED * distance for distance in moved]
        return found

    def _allowances(
        self, subject: Subject, golden: Golden, own: Mapping[str, list[torch.Tensor]]
    ) -> reference.Allowances:
        explained = self._explained(subject.original, golden, own, subject.tolerance)
        return reference.golden_allowances(golden, own, subject.tolerance, explained)

    def _blame(
        self, subject: Subject, golden: Golden, own: Mapping[str, list[torch.Tensor]], error: ArtifactWrong
    ) -> None:
        """Tells a program that is not the model from code that is not the program.

        Raises:
            ProgramDiffers: The program itself is off, at one of the points.
        """
        points = [
            Given(point.label, subject.moved(golden.inputs[point.label]), own[point.label])
            for point in golden.points
        ]
        try:
            check_program(subject.program, subject.module, points, subject.tolerance)
        except ProgramDiffers as found:
            raise found from error

    def _random_within(self, golden: Golden) -> float:
        """The difference between calls that a spec with random operators accepts."""
        if not any(item.startswith(RANDOM) for item in self._spec.checks.accept):
            return 0.0
        return self._spec.checks.tolerance * max(golden.signals()[EXAMPLE], default=0.0)

    def _own(self, subject: Subject, golden: Golden, now: Golden) -> dict[str, Any]:
        if subject.module is subject.original:
            return now.single
        return {
            label: eager.run_flat(subject.module, subject.moved(given))
            for label, given in golden.inputs.items()
        }

    def _responses(
        self, subject: Subject, golden: Golden, base: list[Allowance], before: Unperturbed
    ) -> list[Response]:
        if subject.baked:
            self._notes.append(BAKED)
            return []
        self._channel.detail("verify", "reference under perturbed constants")
        started = time.monotonic()
        example = subject.moved(golden.inputs[EXAMPLE])
        found = responses(
            subject.module, example, base, subject.used, before=before, in_double=bool(golden.double)
        )
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


def constant_inputs(golden: Golden) -> Iterator[str]:
    """Say which inputs had one value everywhere: a comparison cannot see whether an artifact reads these."""
    for name, example in golden.inputs[EXAMPLE].items():
        value = example.flatten()[:1]
        if value.numel() and all(bool((given[name] == value).all()) for given in golden.inputs.values()):
            yield (
                f"input {name} was {value.item():g} throughout: that outputs follow other values of it is not proven; "
                "generate others to have it tried"
            )


def _load(stored: dict[str, Any]) -> Golden:
    return load_golden(stored["document"], Path(stored["inputs"]), Path(stored["outputs"]))
