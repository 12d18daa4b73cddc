"""Records Inductor's autotuning and keeps it within its time budget."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pt2hub.domain.publishing.inductor_options import is_autotuned
from pt2hub.rendering.quantities import format_count
from pt2hub_workers.inside.builds.compile import autotune_kernels
from pt2hub_workers.inside.builds.compile.autotune_candidates import (
    BUDGET_REASON,
    Operation,
    describe_failure,
)
from pt2hub_workers.inside.builds.compile.inductor_hooks import wrap
from pt2hub_workers.inside.builds.compile.known_times import KnownTimes, Times, inputs_key
from pt2hub_workers.inside.builds.compile.tuning_progress import TuningProgress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def key_settings(options: Mapping[str, Any], budget: int | None) -> dict[str, int]:
    """Return the settings for the program key: a budget may change the code by ending autotuning early.

    Args:
        budget: Seconds for autotuning, None for no limit.
    """
    return {"autotune_seconds": budget} if budget is not None and is_autotuned(options) else {}


@dataclass(slots=True)
class Tuning:
    """The autotuning of one compile.

    Attributes:
        budget: Seconds for all choices, None for no limit. A choice that has begun is finished; every further choice
            takes the compiler's default.
        known: Times of earlier builds; what they decide is not timed again.
        on_begin: Called before anything is timed.
        progress: Reports each operation.
        reused: Number of operations that known times decided.
    """

    budget: float | None = None
    on_begin: Callable[[], object] = lambda: None
    known: KnownTimes = field(default_factory=KnownTimes)
    progress: TuningProgress = field(default_factory=TuningProgress)
    operations: list[Operation] = field(default_factory=list)
    made: int = 0
    reused: int = 0
    skipped: int = 0
    seconds: float = 0.0
    begun: bool = False
    _since: float | None = None
    _timed: int = 0
    _failures: dict[int, tuple[Any, str]] = field(default_factory=dict)

    @property
    def choices(self) -> list[dict[str, Any]]:
        """Entries of all candidates: fields of `domain.performance.autotune.AutotuneChoice`."""
        return [entry for operation in self.operations for entry in operation.choices_made()]

    def is_over_budget(self) -> bool:
        """Return whether the budget is used up."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self.budget is not None and self.seconds + running >= self.budget

    def __str__(self) -> str:
        text = f"{format_count(self.made, 'choice')} made in {self.seconds:.1f} s"
        text += f", {self.reused} known from earlier builds" if self.reused else ""
        if not self.skipped:
            return text
        return f"{text}, {self.skipped} skipped in favour of the default: the budget of {self.budget:g} s was used up"

    def summary(self) -> dict[str, Any] | None:
        """Return the summary for the artifact's provenance; None if there were no choices."""
        if not (self.made or self.reused or self.skipped):
            return None
        return {
            "seconds": round(self.seconds, 3),
            "budget": self.budget,
            "choices": self.made + self.reused,
            **({"known": self.reused} if self.reused else {}),
            "left_to_default": self.skipped,
        }

    @contextmanager
    def _count_choice(self) -> Iterator[None]:
        """Count the block as one choice, with its time; nested blocks belong to the outer one."""
        if self._since is not None:
            yield
            return
        self._begin()
        self.made += 1
        self._timed = 0
        self._since = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - self._since
            self._since = None

    def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            self.on_begin()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record Inductor's autotuning within the block and keep it within the budget."""
        from torch._inductor import ir, select_algorithm
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        selector = select_algorithm.AlgorithmSelectorCache
        self.known.install()
        with ExitStack() as stack:
            stack.callback(select_algorithm.clear_preprocessing_fns)
            select_algorithm.add_preprocessing_fn(self._without_candidates)
            for holder, name, around in (
                (selector, "do_autotuning", self._around_operation),
                (selector, "benchmark_choice", self._around_candidate),
                (select_algorithm, "_log_autotune_exceptions", self._around_failures),
                (select_algorithm.TritonTemplateCaller, "precompile", self._around_precompile),
                (ir.MultiTemplateBuffer, "finalize_as_triton_caller", self._around_decision),
                (ir.MultiTemplateBuffer, "finalize_as_triton_callers", self._around_decision),
                (CachingAutotuner, "autotune_to_one_config", self._around_kernel),
                (CachingAutotuner, "benchmark_all_configs", self._around_configurations),
                (CachingAutotuner, "coordinate_descent_tuning", self._around_descent),
            ):
                stack.enter_context(wrap(holder, name, around))
            yield

    def _without_candidates(self, candidates: list[Any]) -> list[Any]:
        """Reduce an operation's candidates to the default before they are compiled if no time is left."""
        if len(candidates) < 2 or not self.is_over_budget():  # noqa: PLR2004  # a single candidate leaves no choice
            return candidates
        self.skipped += 1
        return [_default_choice(candidates)]

    def _around_operation(self, choose: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time the candidates of an operation; for Triton templates this happens after all lowering."""
        bound = inspect.signature(choose).bind(*args, **kwargs)
        candidates = bound.arguments["choices"]
        if (times := self._known_times(bound.arguments)) is not None:
            return self._reuse(times, bound, choose)
        if self.is_over_budget():
            self.skipped += 1
            return {_default_choice(candidates): 0.0}
        operation = self._operation(bound.arguments)
        self.progress.begin(operation)
        if "precompile_fn" in bound.arguments:
            bound.arguments["precompile_fn"] = _Timed(bound.arguments["precompile_fn"], operation)
        with self._count_choice():  # may wait for the device, which does not count as the operation's time
            began = time.monotonic()
            try:
                times = choose(*bound.args, **bound.kwargs)
                operation.times = dict(times or {})
            finally:
                operation.benchmark_seconds = time.monotonic() - began - operation.precompile_seconds
                self._collect_failures(operation)
        self.known.add(*_identity(bound.arguments), operation.times, operation.reasons, operation.choices)
        self.progress.end(operation)
        return times

    def _known_times(self, given: Mapping[str, Any]) -> Times | None:
        """Return an operation's times of earlier builds; None where one is missing."""
        return self.known.find(*_identity(given), given["choices"])

    def _reuse(self, known: Times, bound: inspect.BoundArguments, choose: Callable[..., Any]) -> Any:
        """Let Inductor choose by the known times, which it finds in its cache."""
        operation = self._operation(bound.arguments)
        operation.reasons = {
            id(item): text for item in operation.choices if isinstance(text := known[item.hash_key()], str)
        }
        self.reused += 1
        times = choose(*bound.args, **bound.kwargs)
        operation.times = dict(times or {})
        return times

    def _collect_failures(self, operation: Operation) -> None:
        for choice in operation.choices:
            if id(choice) in self._failures:
                operation.reasons[id(choice)] = self._failures[id(choice)][1]

    def _record_failure(self, choice: Any, reason: str) -> None:
        self._failures[id(choice)] = (choice, reason)  # keeping the object keeps its id unique

    def _operation(self, given: Mapping[str, Any]) -> Operation:
        """Add the operation to decide; it records the candidate that Inductor chooses."""
        nodes, choices = list(given.get("input_nodes") or ()), list(given["choices"])
        operation = Operation(len(self.operations) + 1, str(given.get("name", "")), nodes, choices)
        self.operations.append(operation)
        for choice in choices:
            _record_output_node(choice, operation)
        return operation

    def _around_candidate(self, benchmark: Callable[..., float], *args: Any, **kwargs: Any) -> float:
        choice = args[0] if args else kwargs.get("choice")
        if self._timed and self.is_over_budget():
            self._record_failure(choice, BUDGET_REASON)
            return math.inf  # Inductor's own mark for candidates that could not be timed
        self._timed += 1
        self._begin()
        self.progress.time_candidate()
        try:
            return benchmark(*args, **kwargs)
        except Exception as error:  # for most errors Inductor drops only this candidate
            self._record_failure(choice, describe_failure(error))
            raise

    def _around_failures(self, log: Callable[..., Any], exceptions: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the candidates that could not be compiled, with their errors."""
        for choice, error in exceptions:
            self._record_failure(choice, describe_failure(error))
        return log(exceptions, *args, **kwargs)

    def _around_precompile(
        self,
        precompile: Callable[..., Any],
        choice: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Compile one candidate in this process, and record its failure."""
        try:
            return precompile(choice, *args, **kwargs)
        except Exception as error:  # Inductor drops only this candidate
            self._record_failure(choice, describe_failure(error))
            raise

    def _around_decision(
        self,
        finalize: Callable[..., Any],
        buffer: Any,
        callers: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Record the template that is chosen after fusion: not always the fastest one alone."""
        for choice in callers.values() if isinstance(callers, dict) else (callers,):
            for operation in self.operations:
                if any(choice is item for item in operation.choices):
                    operation.chosen = choice
        return finalize(buffer, callers, *args, **kwargs)

    def _around_kernel(self, tune: Callable[..., Any], kernel: Any, *args: Any, **kwargs: Any) -> Any:
        """Choose the configuration of one Triton kernel."""
        if self.is_over_budget():
            self.skipped += 1
            kernel.launchers = kernel.launchers[:1]
            return None
        with self._count_choice():
            return tune(kernel, *args, **kwargs)

    def _around_configurations(
        self, benchmark: Callable[..., Any], kernel: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Time the configurations of one Triton kernel, and record those of a kernel of the model."""
        began = time.monotonic()
        times = benchmark(kernel, *args, **kwargs)
        if autotune_kernels.is_users(kernel):
            number, seconds = len(self.operations) + 1, time.monotonic() - began
            self.operations.append(
                autotune_kernels.describe_tuning(
                    number, kernel, times, (*args, *kwargs.values()), seconds=seconds
                )
            )
        return times

    def _around_descent(
        self,
        tune: Callable[..., Any],
        kernel: Any,
        launcher: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Improve the configuration of one Triton kernel by coordinate descent."""
        if self.is_over_budget():
            self.skipped += 1
            return launcher
        with self._count_choice():
            return tune(kernel, launcher, *args, **kwargs)


@dataclass(slots=True)
class _Timed:
    """Wrapper of Inductor's function that waits for compilers; it counts the seconds."""

    wait: Any
    operation: Operation

    def __call__(self) -> Any:
        began = time.monotonic()
        try:
            return self.wait()
        finally:
            self.operation.precompile_seconds += time.monotonic() - began

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wait, name)


def _identity(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return an operation's name and inputs as Inductor's cache has them."""
    return str(given.get("name", "")), inputs_key(given)


def _record_output_node(choice: Any, operation: Operation) -> None:
    """Record a candidate as chosen when Inductor requests its output node."""
    make = getattr(choice, "output_node", None)
    if make is None:
        return

    def output_node() -> Any:
        operation.chosen = choice
        return make()

    choice.output_node = output_node


def _default_choice(candidates: Sequence[Any]) -> Any:
    """Return the library's kernel, or else the first candidate, as Inductor itself does."""
    from torch._inductor.select_algorithm import ExternKernelCaller

    return next((item for item in candidates if isinstance(item, ExternKernelCaller)), candidates[0])
