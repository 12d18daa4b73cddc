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

from pt2hub_workers.inside.candidates import TOO_LATE, Operation, failure

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
        operations: Those whose candidates were compared, in the order of the compile.
        made: Choices made by timing.
        skipped: Choices left to the default because the budget was used up.
        seconds: Time used so far.
        begun: Whether anything was timed.
    """

    budget: float | None = None
    on_begin: Callable[[], object] = lambda: None
    operations: list[Operation] = field(default_factory=list)
    made: int = 0
    skipped: int = 0
    seconds: float = 0.0
    begun: bool = False
    _since: float | None = None
    _timed: int = 0
    _failures: dict[int, tuple[Any, str]] = field(default_factory=dict)

    @property
    def choices(self) -> list[dict[str, Any]]:
        """One entry per candidate: fields of `domain.publications.AutotuneChoice`."""
        return [entry for operation in self.operations for entry in operation.entries()]

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
        from torch._inductor import ir, select_algorithm
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        selector = select_algorithm.AlgorithmSelectorCache
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
        bound = inspect.signature(choose).bind(*args, **kwargs)
        candidates = bound.arguments["choices"]
        if self.over():
            self.skipped += 1
            return {_default(candidates): 0.0}
        operation = self._operation(bound.arguments)
        if "precompile_fn" in bound.arguments:
            bound.arguments["precompile_fn"] = _Timed(bound.arguments["precompile_fn"], operation)
        with self._choosing():  # may wait for the device, which is no part of the operation's time
            began = time.monotonic()
            try:
                times = choose(*bound.args, **bound.kwargs)
                operation.times = dict(times or {})
            finally:
                operation.benchmark_seconds = time.monotonic() - began - operation.precompile_seconds
                self._explain(operation)
        return times

    def _explain(self, operation: Operation) -> None:
        for choice in operation.choices:
            if id(choice) in self._failures:
                operation.reasons[id(choice)] = self._failures[id(choice)][1]

    def _fail(self, choice: Any, reason: str) -> None:  # noqa: ANN401  # Inductor's
        self._failures[id(choice)] = (
            choice,
            reason,
        )  # the object keeps its id from being given to another one

    def _operation(self, given: Mapping[str, Any]) -> Operation:
        """The operation that is being decided; it is told which of its candidates Inductor takes."""
        nodes, choices = list(given.get("input_nodes") or ()), list(given["choices"])
        operation = Operation(len(self.operations) + 1, str(given.get("name", "")), nodes, choices)
        self.operations.append(operation)
        for choice in choices:
            _listen(choice, operation)
        return operation

    def _around_candidate(self, benchmark: Callable[..., float], *args: Any, **kwargs: Any) -> float:  # noqa: ANN401  # Inductor's
        choice = args[0] if args else kwargs.get("choice")
        if self._timed and self.over():
            self._fail(choice, TOO_LATE)
            return math.inf  # as Inductor itself marks those that it could not time
        self._timed += 1
        try:
            return benchmark(*args, **kwargs)
        except Exception as error:  # most of them Inductor takes for the end of this candidate alone
            self._fail(choice, failure(error))
            raise

    def _around_failures(self, log: Callable[..., Any], exceptions: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # Inductor's
        """Candidates that could not be compiled, each with its error."""
        for choice, error in exceptions:
            self._fail(choice, failure(error))
        return log(exceptions, *args, **kwargs)

    def _around_precompile(
        self,
        precompile: Callable[..., Any],
        choice: Any,  # noqa: ANN401  # Inductor's
        *args: Any,  # noqa: ANN401  # Inductor's
        **kwargs: Any,  # noqa: ANN401  # Inductor's
    ) -> Any:  # noqa: ANN401  # Inductor's
        """One candidate that is compiled in this process."""
        try:
            return precompile(choice, *args, **kwargs)
        except Exception as error:  # Inductor takes it for the end of this candidate alone
            self._fail(choice, failure(error))
            raise

    def _around_decision(
        self,
        finalize: Callable[..., Any],
        buffer: Any,  # noqa: ANN401  # Inductor's
        callers: Any,  # noqa: ANN401  # Inductor's
        *args: Any,  # noqa: ANN401  # Inductor's
        **kwargs: Any,  # noqa: ANN401  # Inductor's
    ) -> Any:  # noqa: ANN401  # Inductor's
        """The template that is taken once it is known what is fused into it: not always the quickest by itself."""
        for choice in callers.values() if isinstance(callers, dict) else (callers,):
            for operation in self.operations:
                if any(choice is item for item in operation.choices):
                    operation.chosen = choice
        return finalize(buffer, callers, *args, **kwargs)

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


@dataclass(slots=True)
class _Timed:
    """Inductor's function that waits for compilers, which counts its seconds."""

    wait: Any
    operation: Operation

    def __call__(self) -> Any:  # noqa: ANN401  # Inductor's
        began = time.monotonic()
        try:
            return self.wait()
        finally:
            self.operation.precompile_seconds += time.monotonic() - began

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # such as `precompile_key`
        return getattr(self.wait, name)


def _listen(choice: Any, operation: Operation) -> None:  # noqa: ANN401  # Inductor's
    """Has an operation know the candidate whose output node Inductor asks for: the one that it takes."""
    make = getattr(choice, "output_node", None)
    if make is None:
        return

    def output_node() -> Any:  # noqa: ANN401  # Inductor's
        operation.chosen = choice
        return make()

    choice.output_node = output_node


@contextmanager
def _wrapped(holder: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:  # noqa: ANN401  # a class or a module
    """Replaces a method or function within the block; `around` gets the original before the arguments.

    One that this torch does not have stays away: what it would tell is left out.
    """
    before = vars(holder).get(name)
    if before is None:
        yield
        return
    if not isinstance(holder, type):
        setattr(holder, name, functools.partial(around, before))
    elif isinstance(before, classmethod):
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
