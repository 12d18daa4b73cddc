"""Times of autotuning's candidates and configurations of Triton kernels that earlier builds of the team measured.

Inductor keeps both in its cache directory, which every build has to itself: the times of matrix product and convolution
candidates in one JSON file for the device (`torch._inductor.codecache.PersistentCache`), and the chosen configuration of
every other Triton kernel in a JSON file beside its source (`AutotuneCache`, torch 2.11 to 2.13). A build gets those of
earlier builds before it compiles, and hands over what it measured. They only say which candidate is taken: no code passes
from build to build, and verification follows.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Times = dict[str, float | str]
"""Milliseconds of candidates by their hash; the reason in place of a time for one that failed."""

OPERATIONS, KERNELS = "operations", "kernels"
CONFIG_SUFFIX = ".best_config"
"""Suffix of Inductor's files with the chosen configuration of a Triton kernel."""
_TRANSIENT = (
    *("budget", "skipped", "timed out", "timeout"),
    *("out of memory", "cannot allocate memory", "no space left", "resource temporarily unavailable"),
)
"""Parts of reasons that say nothing about the next build: operations with such a candidate are measured again."""


@dataclass(slots=True)
class KnownTimes:
    """Known times of one compile, and those that it adds.

    Attributes:
        operations: Times by operation, inputs and precision, as Inductor nests them.
        kernels: Configurations by the path of their file in Inductor's cache.
        added: New entries of `operations`.
    """

    operations: dict[str, dict[str, dict[str, Times]]] = field(default_factory=dict)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    added: dict[str, dict[str, dict[str, Times]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> KnownTimes:
        """Read a table that the worker checked."""
        document = json.loads(path.read_bytes())
        return cls(document[OPERATIONS], document[KERNELS])

    def install(self) -> None:
        """Write the table into Inductor's cache, in its own formats."""
        from torch._inductor.codecache import CacheBase
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        if self.operations:
            times = _map_times(self.operations, lambda time: time if isinstance(time, float) else math.inf)
            path = CacheBase.get_local_cache_path()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"system": CacheBase.get_system(), "cache": times}))
        for name, config in self.kernels.items():
            path = Path(cache_dir(), name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(config))

    def find(self, operation: str, inputs: str, candidates: Iterable[Any]) -> Times | None:
        """Return the times of an operation's candidates; None unless all are known."""
        known = self.operations.get(operation, {}).get(inputs, {}).get(_precision(), {})
        hashes = [_hash(item) for item in candidates]
        return known if known and all(item in known for item in hashes) else None

    def add(
        self,
        operation: str,
        inputs: str,
        times: Mapping[Any, float],
        reasons: Mapping[int, str],
        candidates: Iterable[Any],
    ) -> None:
        """Add the measured times of an operation's candidates.

        Args:
            reasons: Why candidates failed, by the candidate's `id`.
        """
        found: Times = {}
        for item in candidates:
            time, name = times.get(item, math.inf), _hash(item)
            if name is None:
                return
            found[name] = float(time) if math.isfinite(time) else reasons.get(id(item), "skipped")
        reasons_given = [text.lower() for text in found.values() if isinstance(text, str)]
        if not any(part in text for text in reasons_given for part in _TRANSIENT):
            self.added.setdefault(operation, {}).setdefault(inputs, {})[_precision()] = found

    def write(self, path: Path) -> bool:
        """Write what this compile measured; return whether there is anything."""
        kernels = {name: config for name, config in _read_configs() if self.kernels.get(name) != config}
        if self.added or kernels:
            path.write_text(json.dumps({OPERATIONS: self.added, KERNELS: kernels}))
        return bool(self.added or kernels)


def inputs_key(arguments: Mapping[str, Any]) -> str:
    """Return the key of an operation's inputs in Inductor's cache, from the arguments of `do_autotuning`."""
    hint, key = arguments.get("hint_override"), str(arguments.get("inputs_key"))
    return key if hint is None else f"{key}_{hint}"


def _hash(candidate: Any) -> str | None:
    try:
        return str(candidate.hash_key())
    except (AttributeError, NotImplementedError):
        return None


def _precision() -> str:
    import torch

    return torch.get_float32_matmul_precision()


def _map_times(
    operations: Mapping[str, Mapping[str, Mapping[str, Times]]], change: Callable[[float | str], float]
) -> dict[str, Any]:
    return {
        operation: {
            inputs: {
                precision: {name: change(time) for name, time in times.items()}
                for precision, times in precisions.items()
            }
            for inputs, precisions in by_inputs.items()
        }
        for operation, by_inputs in operations.items()
    }


def _read_configs() -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the configurations in Inductor's cache that consist of plain values."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    root = Path(cache_dir())
    for path in sorted(root.glob(f"*/*{CONFIG_SUFFIX}")):
        config = json.loads(path.read_text())
        # Where Triton keeps the compiled kernel is another place in every build.
        config.pop("triton_cache_hash", None)
        if all(isinstance(value, bool | int | float | str) or value is None for value in config.values()):
            yield str(path.relative_to(root)), config
