"""CUDA graphs by torch: the adapter of `graphs.GraphBackend`."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import torch

from pt2hub.client.artifacts.imports import collector_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_one_capture = threading.Lock()
"""torch allows one capture at a time in a process: a capture holds the device's random generator."""


class CudaGraph:
    """A captured call with its outputs."""

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: list[torch.Tensor]) -> None:
        self.outputs = outputs
        self._graph = graph

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self._graph.replay()


class CudaGraphBackend:
    """Captures calls of one model; its graphs share a memory pool, since they never run at the same time.

    Args:
        device: The GPU, with its index.
        draws_random: Whether the model draws random numbers.
    """

    def __init__(self, device: torch.device, *, draws_random: bool) -> None:
        self._device = device
        self._index = device.index
        self._draws_random = draws_random
        self._last = torch.cuda.current_stream(device)  # on which the weights were copied to the device
        self._last_raw = self._last.cuda_stream
        self._anchor: CudaGraph | None = None  # holds the pool: torch refuses one whose last graph is gone

    def is_capturing(self) -> bool:
        """Return whether the caller is capturing a graph of their own."""
        return torch.cuda.is_current_stream_capturing()

    def join(self) -> None:
        """Let the caller's stream wait for that of the previous call."""
        raw = torch._C._cuda_getCurrentRawStream(self._index)  # noqa: SLF001  # a tenth of current_stream()'s time
        if raw == self._last_raw:
            return
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._last)
        self._last, self._last_raw = current, raw

    def settle(self) -> None:
        """Wait until the device has finished the previous call."""
        self._last.synchronize()

    @contextmanager
    def rewind_random(self) -> Iterator[None]:
        """Restore the state of the random generator at the end of the block."""
        if not self._draws_random:  # other threads may draw meanwhile: their numbers would come twice
            yield
            return
        state = torch.cuda.get_rng_state(self._device)
        try:
            yield
        finally:
            torch.cuda.set_rng_state(state, self._device)

    def capture(self, call: Callable[[], list[torch.Tensor]]) -> CudaGraph:
        """Capture a call; see `graphs.GraphBackend.capture`."""
        with _one_capture, torch.cuda.device(self._device):
            torch.cuda.current_stream().synchronize()
            torch.cuda.empty_cache()  # memory of the warm-up calls, which a capture cannot use
            if self._anchor is None:
                self._renew_pool()
            return self._record(call)

    def _renew_pool(self) -> None:
        # A stream for each pool: matrix products keep a workspace for each stream, in the pool of the first capture on it.
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch's
        self._anchor = self._record(lambda: [torch.zeros(1, device=self._device)])

    def _record(self, call: Callable[[], list[torch.Tensor]]) -> CudaGraph:
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[self._index]
        random = generator.clone_state()
        # Objects that a collection frees meanwhile may call CUDA in ways that no capture survives.
        with collector_paused(), torch.cuda.stream(self._stream):
            # thread_local: what other threads do with the device neither fails nor ends the capture.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = call()
                graph.capture_end()
            except BaseException:
                self._abandon(graph, generator, random)
                raise
        return CudaGraph(graph, outputs)

    def _abandon(
        self, graph: torch.cuda.CUDAGraph, generator: torch.Generator, random: torch.Generator
    ) -> None:
        """End a capture that failed. Where CUDA made it invalid, torch would stay in it: allocator and generator."""
        self._anchor = None  # so that the pool's memory is given to calls without a graph
        try:
            graph.capture_end()
        except RuntimeError:
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(self._index, self._pool)  # noqa: SLF001  # as in capture_end
            with suppress(RuntimeError):
                torch._C._cuda_releasePool(self._index, self._pool)  # noqa: SLF001  # as in reset
            generator.graphsafe_set_state(random)
