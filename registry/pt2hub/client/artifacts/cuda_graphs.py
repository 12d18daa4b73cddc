"""CUDA graphs by torch: the adapter of `graphs.GraphBackend`."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import torch

from pt2hub.client.artifacts.imports import collector_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_one_capture = threading.Lock()
"""torch allows one capture at a time in a process: a capture holds the device's random generator."""
UNREPAIRED = "Random numbers on this device and other CUDA graphs may fail until the process ends: the capture could not be ended."


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
        self._cell = torch.zeros(1, device=device)  # so that ending a failed capture needs no memory
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
        # Objects that a collection frees meanwhile may call CUDA in ways that no capture survives.
        with collector_paused(), torch.cuda.stream(self._stream):
            begun = False
            try:
                # thread_local: what other threads do with the device neither fails nor ends the capture.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                begun = True
                outputs = call()
                graph.capture_end()
            except BaseException as exc:
                self._abandon(graph, exc, begun=begun)
                raise
        return CudaGraph(graph, outputs)

    def _abandon(self, graph: torch.cuda.CUDAGraph, error: BaseException, *, begun: bool) -> None:
        """End a capture that failed.

        Raises:
            RuntimeError: The error, where torch cannot be brought out of the capture.
        """
        self._anchor = None  # so that the pool's memory is given to calls without a graph
        if isinstance(error, torch.OutOfMemoryError) and not begun:
            keep_forever(
                graph
            )  # memory for random numbers is the first that a capture asks for: there is nothing to end
            return
        try:
            graph.capture_end()
        except RuntimeError:  # CUDA made the capture invalid: torch leaves allocator and generator in it
            keep_forever(graph)
            with suppress(RuntimeError):
                graph.reset()  # gives the pool back if only the last step failed
            with suppress(RuntimeError):  # as in capture_end and reset; never the second without the first
                torch._C._cuda_endAllocateToPool(self._index, self._pool)  # noqa: SLF001
                torch._C._cuda_releasePool(self._index, self._pool)  # noqa: SLF001
            if not self._free_generator() and isinstance(error, Exception):
                message = f"{error} {UNREPAIRED}"
                raise RuntimeError(message) from error

    def _free_generator(self) -> bool:
        """Bring the random generator out of a capture that failed: a whole capture ends with that.

        Another state object for the generator would do so for it alone: graphs of other models stay with the former.
        """
        graph = torch.cuda.CUDAGraph(keep_graph=True)  # never instantiated: that takes memory
        try:
            with torch.cuda.stream(torch.cuda.Stream(self._device)):  # type: ignore[no-untyped-call]  # torch's
                graph.capture_begin(capture_error_mode="thread_local")
                self._cell.zero_()  # torch warns of empty graphs
                graph.capture_end()
        except RuntimeError:
            keep_forever(graph)
            return False
        return True


def keep_forever(graph: object) -> None:
    """Never free a graph whose capture torch did not begin or end, not even when the process ends.

    Where memory runs out while it is registered with the random generator, its destructor throws, and C++ aborts the
    process. torch's allocators may also ask it later which stream it captures. It is small: it holds no memory of the device.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(graph))
