"""Autotuning: what Inductor timed, when it began to, and where its time ends."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OPTIONS = ("coordinate_descent_tuning", "max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
"""Those of `domain.specs.COMPILE_OPTIONS` that make Inductor choose by timing."""


def asked_for(options: Mapping[str, Any]) -> bool:
    """Whether options turn autotuning on."""
    return any(options.get(name) for name in OPTIONS)


def shaping(options: Mapping[str, Any], budget: int | None) -> dict[str, int]:
    """What the program key says of a budget: code that it cut short is not what it would have become without.

    Args:
        options: Inductor's options.
        budget: Seconds for autotuning, None without an end.
    """
    return {"autotune_seconds": budget} if budget is not None and asked_for(options) else {}


@dataclass(slots=True)
class Tuning:
    """The autotuning of one compile.

    Attributes:
        budget: Seconds it may take in all, None for no end. What has begun then is finished; every further choice
            takes the compiler's default.
        on_begin: Called before anything is timed first.
        choices: One entry per candidate timed, best first within an operation; times in milliseconds.
        made: Choices made by timing.
        skipped: Choices left to the default because the budget was used up.
        seconds: Time used so far.
        begun: Whether anything was timed.
    """

    budget: float | None = None
    on_begin: Callable[[], object] = lambda: None
    choices: list[dict[str, Any]] = field(default_factory=list)
    made: int = 0
    skipped: int = 0
    seconds: float = 0.0
    begun: bool = False
    _since: float | None = None
    _timed: int = 0

    def over(self) -> bool:
        """Whether the budget is used up."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self.budget is not None and self.seconds + running >= self.budget

    def __str__(self) -> str:
        text = f"{self.made} choices made in {self.seconds:.1f} s"
        if not self.skipped:
            return text
        return f"{text}, {self.skipped} left to the default: the budget of {self.budget:g} s was used up"

    def summary(self) -> dict[str, Any] | None:
        """What an artifact's provenance says of it; None where nothing was to be chosen."""
        if not (self.made or self.skipped):
            return None
        return {
            "seconds": round(self.seconds, 3),
            "budget": self.budget,
            "choices": self.made,
            "left_to_default": self.skipped,
        }

    @contextmanager
    def _choosing(self) -> Iterator[None]:
        """Counts the block as a choice, and its time; a block within another is part of it."""
        if self._since is not None:
            yield
            return
        if not self.begun:
            self.begun = True
            self.on_begin()
        self.made += 1
        self._timed = 0
        self._since = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - self._since
            self._since = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, Inductor's autotuning is recorded and kept within the budget."""
        from torch._inductor import select_algorithm
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        selector = select_algorithm.AlgorithmSelectorCache
        with ExitStack() as stack:
            stack.callback(select_algorithm.clear_feedback_savers)
            select_algorithm.add_feedback_saver(self._save)
            stack.callback(select_algorithm.clear_preprocessing_fns)
            select_algorithm.add_preprocessing_fn(self._without_candidates)
            for holder, name, around in (
                (selector, "do_autotuning", self._around_operation),
                (selector, "benchmark_choice", self._around_candidate),
                (CachingAutotuner, "autotune_to_one_config", self._around_kernel),
                (CachingAutotuner, "coordinate_descent_tuning", self._around_descent),
            ):
                stack.enter_context(_wrapped(holder, name, around))
            yield

    def _without_candidates(self, candidates: list[Any]) -> list[Any]:
        """Before an operation's candidates are compiled: with no time left they need not be."""
        if len(candidates) < 2 or not self.over():  # noqa: PLR2004  # one is no choice
            return candidates
        self.skipped += 1
        return [_default(candidates)]

    def _around_operation(self, choose: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # Inductor's
        """Candidates of an operation, compiled and timed; for Triton templates only after all lowering is done."""
        if self.over():
            self.skipped += 1
            candidates = inspect.signature(choose).bind(*args, **kwargs).arguments["choices"]
            return {_default(candidates): 0.0}
        with self._choosing():
            return choose(*args, **kwargs)

    def _around_candidate(self, benchmark: Callable[..., float], *args: Any, **kwargs: Any) -> float:  # noqa: ANN401  # Inductor's
        if self._timed and self.over():
            return math.inf  # as Inductor itself marks those that it could not time
        self._timed += 1
        return benchmark(*args, **kwargs)

    def _around_kernel(self, tune: Callable[..., Any], kernel: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # Inductor's
        """Configurations of one Triton kernel."""
        if self.over():
            self.skipped += 1
            kernel.launchers = kernel.launchers[:1]
            return None
        with self._choosing():
            return tune(kernel, *args, **kwargs)

    def _around_descent(
        self,
        tune: Callable[..., Any],
        kernel: Any,  # noqa: ANN401  # Inductor's
        launcher: Any,  # noqa: ANN401  # Inductor's
        *args: Any,  # noqa: ANN401  # Inductor's
        **kwargs: Any,  # noqa: ANN401  # Inductor's
    ) -> Any:  # noqa: ANN401  # Inductor's
        """Ever better configurations of one Triton kernel, from the one it has."""
        if self.over():
            self.skipped += 1
            return launcher
        with self._choosing():
            return tune(kernel, launcher, *args, **kwargs)

    def _save(self, *arguments: Any) -> None:  # noqa: ANN401  # six of them in 2.11 and 2.13; naming five breaks the compile
        timings, name, nodes = arguments[:3]
        self.choices.extend(_entries(timings, str(name), nodes))


@contextmanager
def _wrapped(holder: type, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """Replaces a method within the block; `around` gets the original before the arguments."""
    before = vars(holder)[name]
    if isinstance(before, classmethod):
        bound = getattr(holder, name)
        setattr(holder, name, staticmethod(functools.partial(around, bound)))
    else:
        setattr(holder, name, functools.partialmethod(_swap, around, before))
    try:
        yield
    finally:
        setattr(holder, name, before)


def _swap(
    self: object,
    around: Callable[..., Any],
    method: Callable[..., Any],
    *args: Any,  # noqa: ANN401  # Inductor's
    **kwargs: Any,  # noqa: ANN401  # Inductor's
) -> Any:  # noqa: ANN401  # Inductor's
    return around(method, self, *args, **kwargs)


def _default(candidates: Sequence[Any]) -> Any:  # noqa: ANN401  # Inductor's
    """The library's kernel; where there is none, the first, as Inductor itself does."""
    from torch._inductor.select_algorithm import ExternKernelCaller

    return next((item for item in candidates if isinstance(item, ExternKernelCaller)), candidates[0])


def _entries(timings: Mapping[Any, float], op: str, nodes: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # Inductor's IR
    timed = [(choice, float(time)) for choice, time in timings.items() if math.isfinite(time)]
    ranked = sorted(timed, key=lambda item: item[1])
    shapes = [[str(size) for size in node.get_size()] for node in nodes]
    dtypes = [str(node.get_dtype()).removeprefix("torch.") for node in nodes]
    return [
        {
            "op": op,
            "shapes": shapes,
            "dtypes": dtypes,
            "candidate": choice.name,
            "milliseconds": milliseconds,
            "rank": rank,
            "chosen": rank == 1,
        }
        for rank, (choice, milliseconds) in enumerate(ranked, start=1)
    ]
