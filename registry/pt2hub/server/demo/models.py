"""What a made-up model is: how it is called, how large it is, how quick it is where, and what became of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEAM_PREFIX = "demo-"
"""Every team of the demo begins so, and no team of a person should."""
MARK = "Made up by pt2hub admin seed-demo; nothing of it can be pulled."
DAYS = 365.0
"""Length of the story; its last day is today."""
_SEED = 8400


def chance(*names: object) -> random.Random:
    """A source of chance that gives the same for the same names, whatever was asked before."""
    return random.Random(" ".join(map(str, (_SEED, *names))))  # noqa: S311  # no secret: it must repeat


@dataclass(frozen=True, slots=True)
class Speed:
    """How long a call takes.

    Attributes:
        call: Milliseconds of a call, whatever its batch.
        sample: Further milliseconds of each sample of it.
    """

    call: float
    sample: float

    def of(self, batch: int) -> float:
        """Milliseconds of a call with so many samples."""
        return self.call + self.sample * batch


@dataclass(frozen=True, slots=True)
class Effect:
    """A version that made something better or worse.

    Attributes:
        ratio: After over before.
        first: The first version that has it.
        last: The last one that has it, None where it stayed.
        arch: Where; empty for everywhere.
        metric: What: `latency`, `relative_error`, `memory` or `load_time`.
    """

    ratio: float
    first: int
    last: int | None = None
    arch: str = ""
    metric: str = "latency"

    def holds(self, number: int, arch: str, metric: str) -> bool:
        """Whether it shows in a figure of a version."""
        return (
            self.metric == metric
            and self.first <= number <= (self.last or number)
            and self.arch in ("", arch)
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Builds of a version that ended badly.

    Attributes:
        number: The version.
        kind: A name of `failures.KINDS`, or `cancelled`.
        arch: Where; empty for all targets.
    """

    number: int
    kind: str
    arch: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """A made-up model.

    Attributes:
        name: `team/name`.
        text: What it is, for people.
        source: The spec's.
        inputs: The spec's.
        dims: The spec's; the first input's first dimension is the batch.
        batches: Sizes that are measured.
        tensors: Name and shape of each weight.
        speeds: By architecture; what is not in here it is not built for.
        versions: How many there are.
        began: Day of the first one.
        code_bytes: Size of its code.
        halves: Whether it runs in half precision on GPUs.
        changed: Versions that changed the program and not only the weights, beside the first.
        upgraded: Day from which it is built with the newer torch.
        joined: Day from which it is built for an architecture, where not from the beginning.
        error: Usual error relative to signal.
        effects: What became better or worse.
        failures: What failed.
        rolled_back: Why `prod` went back from a version, by its number.
        promoted: `prod` follows every so many versions.
        weights_from: Where its weights were fetched from, or None.
        extra: Further fields of the spec.
    """

    name: str
    text: str
    source: dict[str, Any]
    inputs: list[dict[str, Any]]
    dims: dict[str, dict[str, int]]
    batches: tuple[int, ...]
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    speeds: Mapping[str, Speed]
    versions: int
    began: float
    code_bytes: int
    halves: bool = False
    changed: tuple[int, ...] = ()
    upgraded: float = 220.0
    joined: Mapping[str, float] = field(default_factory=dict)
    error: float = 2e-6
    effects: tuple[Effect, ...] = ()
    failures: tuple[Failure, ...] = ()
    rolled_back: Mapping[int, str] = field(default_factory=dict)
    promoted: int = 2
    weights_from: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name without the team."""
        return self.name.partition("/")[2]

    @property
    def weights_bytes(self) -> int:
        """Size of its weights file, header included."""
        elements = 0
        for _, shape in self.tensors:
            count = 1
            for size in shape:
                count *= size
            elements += count
        return 4 * elements + 96 * len(self.tensors) + 8

    def program(self, number: int) -> int:
        """Which of its programs a version runs, from 1."""
        return 1 + sum(changed <= number for changed in self.changed)

    def level(self, number: int, arch: str, metric: str) -> float:
        """What all effects together make of a figure of a version."""
        ratio = 1.0
        for effect in self.effects:
            ratio *= effect.ratio if effect.holds(number, arch, metric) else 1.0
        return ratio

    def failure(self, number: int, arch: str) -> str | None:
        """How a version's build failed, None where it did not."""
        found = (item.kind for item in self.failures if item.number == number and item.arch in ("", arch))
        return next(found, None)


def images(side: int = 224) -> list[dict[str, Any]]:
    """A batch of images."""
    return [{"name": "x", "shape": ["batch", 3, side, side], "generate": {"normal": {}}}]


def tokens(length: int | str, vocabulary: int) -> list[dict[str, Any]]:
    """A batch of token ids with their mask."""
    return [
        {
            "name": "input_ids",
            "shape": ["batch", length],
            "dtype": "int64",
            "generate": {"randint": {"high": vocabulary}},
        },
        {
            "name": "attention_mask",
            "shape": ["batch", length],
            "dtype": "int64",
            "generate": {"constant": 1},
        },
    ]


def batch(most: int, example: int) -> dict[str, dict[str, int]]:
    """The batch dimension."""
    return {"batch": {"max": most, "example": example}}
