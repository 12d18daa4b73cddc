"""The plot of the demo's year: models, machines, and what became of their versions. All of it is data."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.targets import parse_target
from pt2hub_workers.operations.machine import Machine

DAYS = 365.0
"""Length of the story; its last day is today."""
OLDER, NEWER = "2.11", "2.13"
"""Lines of torch. A model moves from one to the other on its day `upgraded`."""
ORDERED = "torch2.13-cu130-sm100"
"""The target of GPUs that nobody has yet."""
_RELEASES = {OLDER: ("2.11.0", "3.6.0"), NEWER: ("2.13.0", "3.8.0")}
"""torch and triton."""
_XEON = Environment(
    "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "x86_64_v4", 8, 32 << 30, threads=8, isolation="sandbox"
)
_MACHINES = {
    "sm80": ("gpu-a100", replace(_XEON, gpu="NVIDIA A100-SXM4-80GB")),
    "sm89": ("gpu-l4", replace(_XEON, gpu="NVIDIA L4")),
    "sm90": ("gpu-h100", replace(_XEON, gpu="NVIDIA H100 80GB HBM3")),
    "x86_64_v4": ("cpu-xeon", _XEON),
}


def chance(*names: object) -> random.Random:
    """Return a random source that depends on these names alone: the story is the same each time."""
    return random.Random(" ".join(map(str, names)))


def is_gpu(arch: str) -> bool:
    """Return whether an architecture is a GPU's."""
    return arch.startswith("sm")


@cache
def machine(arch: str, line: str) -> Machine:
    """Return what builds for an architecture with a line of torch; its `device` is the worker's name too."""
    host, environment = _MACHINES[arch]
    release, triton = _RELEASES[line]
    platform = "cu130" if is_gpu(arch) else "cpu"
    versions: dict[str, Any] = {"torch": f"{release}+{platform}"}
    if is_gpu(arch):
        versions |= {"driver": "580.95.05", "cuda": "13.0", "triton": triton}
    return Machine(
        target=parse_target(f"torch{line}-{platform}-{arch}"),
        toolchain=Toolchain(
            python="3.12.7", compiler="g++ 14.2.0", libc="glibc 2.41", pt2hub="0.1.0", **versions
        ),
        environment=replace(environment, **versions),
        packages={"torch": versions["torch"], "torchvision": "0.28.0", "timm": "1.0.19"},
        cpu_flags=("avx2", "fma"),
        device=f"{host}-{line}",
    )


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the story.

    Attributes:
        speeds: Milliseconds of a call and of each further sample, by architecture.
        began: Day of its first version.
        changes: Versions with another program, each with the ratio of its call time to that before, by architecture
            (empty: all). Other versions are retrained ones, which reuse the code.
        failures: How builds end badly (a name of `failures.FAILURES`, `waits`, `runs` or `cancelled`), by version and
            architecture.
        upgraded: Day from which it is built with the newer torch.
        rolled_back: Why `prod` left a version soon, by its number.
    """

    name: str
    source: dict[str, Any]
    inputs: list[dict[str, Any]]
    speeds: Mapping[str, tuple[float, float]]
    versions: int
    began: float
    batches: tuple[int, ...] = (1, 8)
    changes: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    failures: Mapping[tuple[int, str], str] = field(default_factory=dict)
    upgraded: float = 215.0
    rolled_back: Mapping[int, str] = field(default_factory=dict)

    def day(self, number: int) -> float:
        """Return the day on which a version is submitted."""
        jitter = chance(self.name, number).uniform(0.0, 0.6)
        return self.began + (DAYS - 0.3 - self.began) * (number - jitter) / self.versions

    def program(self, number: int) -> int:
        """Return which of its programs a version runs, from 1."""
        return 1 + sum(changed <= number for changed in self.changes)

    def level(self, number: int, arch: str) -> float:
        """Return the call time of a version relative to the first version's."""
        ratio = 1.0
        for changed, ratios in self.changes.items():
            ratio *= ratios.get(arch, ratios.get("", 1.0)) if changed <= number else 1.0
        return ratio

    def machine(self, number: int, arch: str) -> Machine:
        """Return what builds a version for an architecture."""
        return machine(arch, NEWER if self.day(number) >= self.upgraded else OLDER)


def _images(side: int) -> list[dict[str, Any]]:
    return [{"name": "x", "shape": ["batch", 3, side, side], "generate": {"normal": {}}}]


def _features(width: int) -> list[dict[str, Any]]:
    return [{"name": "features", "shape": ["batch", width], "generate": {"normal": {}}}]


def _tokens(length: int) -> list[dict[str, Any]]:
    tokens = {"shape": ["batch", length], "dtype": "int64"}
    return [
        {"name": "input_ids", **tokens, "generate": {"randint": {"high": 30_000}}},
        {"name": "attention_mask", **tokens, "generate": {"constant": 1}},
    ]


def _timm(name: str) -> dict[str, Any]:
    return {"factory": "timm:create_model", "kwargs": {"model_name": name}}


RESNET = "demo-vision/resnet50-classifier"
RANKER = "demo-ranking/feed-ranker-dcn"
EMBEDDER = "demo-text/minilm-l6-embedder"
KEYWORDS = "demo-audio/keyword-spotter"
_SLOWER = {"sm80": 1.19, "sm89": 1.13, "x86_64_v4": 1.16}
MODELS = (
    Model(
        RESNET,
        {"factory": "torchvision.models:resnet50", "kwargs": {"num_classes": 1204}},
        _images(224),
        {"sm80": (1.05, 0.086), "sm89": (1.1, 0.21), "sm90": (0.92, 0.052), "x86_64_v4": (1.9, 7.4)},
        versions=20,
        began=4,
        changes={
            4: {},
            10: _SLOWER,
            11: {arch: 1 / ratio for arch, ratio in _SLOWER.items()},
            16: {"": 0.9},
            20: {"sm90": 1.12},
        },
        failures={(6, "sm90"): "storage", (8, "sm89"): "handed_back", (13, "x86_64_v4"): "cancelled"},
        upgraded=120,
        rolled_back={10: "p50 on the A100s is 19 % slower: channels_last was lost on the way"},
    ),
    Model(
        "demo-vision/detr-layout",
        _timm("detr_layout"),
        _images(640),
        {"sm89": (6.4, 8.8)},
        versions=5,
        began=96,
        batches=(4,),
        changes={2: {}, 4: {"": 0.79}},
        failures={(1, "sm89"): "data_dependent"},
    ),
    Model(
        "demo-vision/product-attribute-multi-label-classifier-for-marketplace-listings",
        {"factory": "torchvision.models:resnet101", "kwargs": {"num_classes": 63}},
        _images(224),
        {"x86_64_v4": (3.2, 13.9)},
        versions=2,
        began=270,
    ),
    Model(
        "demo-text/bert-base-ner",
        _timm("bert_ner"),
        _tokens(128),
        {"sm89": (2.1, 0.44), "x86_64_v4": (5.2, 9.8)},
        versions=6,
        began=30,
        changes={3: {"": 0.93}, 6: {"sm89": 1.14}},
        rolled_back={6: "slower on the L4s, and no better on the complaints of spring"},
    ),
    Model(
        EMBEDDER,
        _timm("minilm_l6"),
        _tokens(64),
        {"x86_64_v4": (1.6, 0.9)},
        versions=6,
        began=72,
        batches=(1, 32),
        changes={5: {"": 1.09}},
        failures={(3, "x86_64_v4"): "wrong"},
    ),
    Model(
        KEYWORDS,
        _timm("wav2vec2_keywords"),
        _features(16_000),
        {"x86_64_v4": (2.4, 1.1)},
        versions=3,
        began=190,
        failures={(3, "x86_64_v4"): "runs"},
    ),
    Model(
        RANKER,
        _timm("dcn_v2"),
        _features(512),
        {"sm89": (0.31, 0.004), "x86_64_v4": (0.42, 0.021)},
        versions=8,
        began=20,
        batches=(1, 64),
        changes={4: {"": 0.9}, 7: {}},
        failures={(8, "sm89"): "waits"},
    ),
    Model(
        "demo-ranking/two-tower-items",
        _timm("two_tower"),
        _features(256),
        {"x86_64_v4": (0.28, 0.012)},
        versions=4,
        began=140,
        changes={3: {"": 1.21}},
    ),
)
