"""Calls as CUDA graphs: one graph for each combination of input shapes, captured at the first call with them.

A graph reads and writes fixed memory. So a call's inputs are copied into the graph's own, and its outputs are copied out:
they belong to the caller, as without a graph. What only CUDA knows is behind `GraphBackend`.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from pt2hub.errors import CudaGraphUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    Tensors: TypeAlias = list[torch.Tensor]
    Run: TypeAlias = Callable[[Tensors], Tensors]
    Shapes: TypeAlias = tuple[torch.Size, ...]

WARM_UP_CALLS = 3
"""Before a capture: kernels and libraries load at their first calls, which no capture allows."""
MAX_FAILURES = 256
"""Shapes that are remembered as not capturable."""


class CudaGraphWarning(UserWarning):
    """Calls run without a CUDA graph, or graphs are replaced faster than they pay."""


class Graph(Protocol):
    """A captured call.

    Attributes:
        outputs: What the call returned; each replay overwrites them.
    """

    outputs: Tensors

    def replay(self) -> None:
        """Run the call again, on what lies in its inputs now."""


class GraphBackend(Protocol):
    """Captures calls on one device, and keeps replays of several streams in order."""

    def is_capturing(self) -> bool:
        """Return whether the caller is capturing a graph of their own."""

    def join(self) -> None:
        """Let the caller's stream wait for that of the previous call."""

    def settle(self) -> None:
        """Wait until the device has finished the previous call."""

    def rewind_random(self) -> AbstractContextManager[None]:
        """Restore the state of the random generator at the end of the block."""

    def capture(self, call: Callable[[], Tensors]) -> Graph:
        """Capture a call, which is not executed.

        Raises:
            RuntimeError: The call cannot be captured. Calls without a graph still work.
        """


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A graph that is held.

    Attributes:
        shapes: Shapes of the inputs, by name.
        replays: Calls that it served.
        capture_s: Duration of its warm-up calls and capture, in seconds.
    """

    shapes: dict[str, tuple[int, ...]]
    replays: int
    capture_s: float


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """State of a model's CUDA graphs.

    Attributes:
        limit: Largest number of graphs that are held at a time.
        captured: The graphs that are held, the least recently used first.
        evictions: Graphs that made room for others.
        failures: Why shapes are called without a graph.
    """

    limit: int
    captured: tuple[CapturedGraph, ...]
    evictions: int
    failures: tuple[CudaGraphUnavailable, ...]


class GraphCache:
    """The graphs of one model; the least recently used one makes room for another.

    Calls of several threads take turns.

    Args:
        names: Names of the inputs.
        limit: Largest number of graphs that are held at a time.
        where: The model, for warnings.
    """

    def __init__(self, backend: GraphBackend, *, names: Sequence[str], limit: int, where: str) -> None:
        self._backend = backend
        self._names = tuple(names)
        self._limit = limit
        self._where = where
        self._lock = threading.Lock()
        self._graphs: OrderedDict[Shapes, _StaticCall] = OrderedDict()
        self._failures: dict[Shapes, CudaGraphUnavailable] = {}
        self._evictions = 0

    def call(self, run: Run, tensors: Tensors, written: Sequence[torch.Tensor]) -> Tensors:
        """Replay the graph of these shapes; capture it first if there is none.

        Shapes that cannot be captured are called without a graph, and a warning says why.

        Args:
            run: Calls the compiled code without a graph. It takes the list's tensors away.
            tensors: Checked inputs.
            written: Tensors that the code writes to beside its outputs. Warm-up calls leave them as they were.

        Returns:
            Outputs that the next call does not overwrite.
        """
        with self._lock:
            if self._backend.is_capturing():  # the caller's own graph takes the kernels in
                return run(tensors)
            self._backend.join()
            shapes = tuple([tensor.shape for tensor in tensors])
            graph = self._graphs.get(shapes)
            if graph is not None:
                self._graphs.move_to_end(shapes)
                return graph.replay(tensors)
            if shapes in self._failures:
                return run(tensors)
            return self._first_call(shapes, run, tensors, written)

    def clear(self) -> None:
        """Drop all graphs: they read tensors that are about to be replaced."""
        with self._lock:
            self._drop()
            self._failures.clear()

    def refill(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Give tensors that the graphs read other values, between two calls.

        Args:
            pairs: Each tensor with its value.
        """
        with self._lock:
            self._backend.join()
            _fill(pairs)

    @property
    def limit(self) -> int:
        """Largest number of graphs that are held at a time."""
        return self._limit

    def info(self) -> GraphInfo:
        """Return what is held now."""
        with self._lock:
            captured = tuple(
                CapturedGraph(self._by_name(shapes), graph.replays, graph.capture_s)
                for shapes, graph in self._graphs.items()
            )
            return GraphInfo(self._limit, captured, self._evictions, tuple(self._failures.values()))

    def _first_call(
        self, shapes: Shapes, run: Run, tensors: Tensors, written: Sequence[torch.Tensor]
    ) -> Tensors:
        self._make_room()
        made = self._try_capture(run, tensors, written)
        if isinstance(made, _StaticCall):
            self._graphs[shapes] = made
            return made.replay(tensors)
        outputs = run(
            tensors
        )  # if the inputs are at fault this raises, and the shapes stay as good as others
        self._remember_failure(shapes, made)
        return outputs

    def _try_capture(self, run: Run, tensors: Tensors, written: Sequence[torch.Tensor]) -> _StaticCall | str:
        """Return a graph, or why there is none: as text, since the error would keep memory of the attempt alive."""
        try:
            return self._capture(run, tensors, written)
        except RuntimeError as exc:
            return str(exc).strip() or type(exc).__name__

    def _capture(self, run: Run, tensors: Tensors, written: Sequence[torch.Tensor]) -> _StaticCall:
        began = time.perf_counter()
        inputs = [_copy_of_its_own(tensor) for tensor in tensors]
        kept = [(tensor, tensor.clone()) for tensor in written]
        with self._backend.rewind_random():
            try:
                for _ in range(WARM_UP_CALLS):
                    run(list(inputs))
                graph = self._record(run, inputs)
            finally:
                _fill(kept)
        for index, output in enumerate(graph.outputs):
            if tensors and output.device != tensors[0].device:
                message = f"output {index} is computed on {output.device}, where a replay computes nothing"
                raise RuntimeError(message)
        return _StaticCall(inputs, graph, time.perf_counter() - began)

    def _record(self, run: Run, inputs: Tensors) -> Graph:
        try:
            return self._backend.capture(lambda: run(list(inputs)))
        except RuntimeError:  # mostly for lack of memory, and graphs hold some that no other call can use
            self._drop()
            raise

    def _drop(self) -> None:
        self._backend.settle()
        self._graphs.clear()

    def _make_room(self) -> None:
        if len(self._graphs) < self._limit:
            return
        self._backend.settle()
        self._graphs.popitem(last=False)
        self._evictions += 1
        if self._evictions == self._limit:
            warnings.warn(
                f"{self._where}: {self._evictions} CUDA graphs made room for other shapes. Each capture takes longer "
                f"than several calls: raise max_cuda_graphs (now {self._limit}), or pad inputs to fewer shapes.",
                CudaGraphWarning,
                stacklevel=2,
            )

    def _remember_failure(self, shapes: Shapes, reason: str) -> None:
        sizes = ", ".join(f"{name} {shape}" for name, shape in self._by_name(shapes).items())
        error = CudaGraphUnavailable(
            f"Calls with {sizes} run without a CUDA graph: {reason}",
            where=self._where,
            hint="They are right and slower. A graph needs memory of its own beside that of calls without one: free "
            "some, or lower max_cuda_graphs. Code that waits for the device cannot be captured at all.",
        )
        if len(self._failures) >= MAX_FAILURES:
            self._failures.pop(next(iter(self._failures)))
        self._failures[shapes] = error
        warnings.warn(f"{error} [{error.code}]", CudaGraphWarning, stacklevel=2)

    def _by_name(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return {name: tuple(shape) for name, shape in zip(self._names, shapes, strict=True)}


class _StaticCall:
    """A graph with the memory of its inputs."""

    def __init__(self, inputs: Tensors, graph: Graph, capture_s: float) -> None:
        self._inputs = inputs
        self._graph = graph
        self.capture_s = capture_s
        self.replays = 0

    def replay(self, tensors: Tensors) -> Tensors:
        for own, given in zip(self._inputs, tensors, strict=True):
            own.copy_(given)
        self._graph.replay()
        self.replays += 1
        return [output.clone() for output in self._graph.outputs]


def _fill(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.inference_mode():  # tensors that were made in it take copies only in it
        for tensor, value in pairs:
            tensor.copy_(value)


def _copy_of_its_own(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(mode=False):  # tensors of inference mode refuse later copies outside of it
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor.detach())
