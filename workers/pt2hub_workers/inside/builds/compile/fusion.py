"""Records the operations of the exported graph that each generated kernel holds.

Inductor's own `trace.provenance_tracking_level` gives the same, but writes comments into the generated wrapper, whose
line numbers are in the machine code, and a file with paths into the package. The functions that it calls for every kernel
run at level 0 too, so they are wrapped instead, and the code stays the same to the byte.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json
from pt2hub.domain.fusion import (
    FUSION_SCHEMA,
    MAX_FUSION_BYTES,
    MAX_KERNELS,
    MAX_NODES,
    FusedKernel,
    Fusion,
)
from pt2hub.domain.performance.profiles import fit_name
from pt2hub_workers.inside.builds.compile.inductor_hooks import wrap
from pt2hub_workers.inside.builds.export.exported_graph import describe_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import torch

_log = logging.getLogger(__name__)
_RESOURCES = {"registers": "n_regs", "shared_bytes": "shared", "spills": "n_spills"}
"""Attributes of a Triton kernel's launcher, by field of `FusedKernel`."""


@dataclass(slots=True)
class _Call:
    """A call of a kernel in the generated code.

    Attributes:
        operations: Names in the graph that was given to Inductor.
        lowered: Names in the graph that kernels are generated from.
    """

    kernel: str
    operations: set[str]
    lowered: list[str]


@dataclass(slots=True)
class _Code:
    """The calls in the code of one graph: the program's, or one of its branches."""

    graph: object
    wrapper: object
    calls: list[_Call] = field(default_factory=list)


class FusionRecorder:
    """The kernels of one compile; a failure to record is logged and leaves them out."""

    def __init__(self) -> None:
        self._codes: dict[int, _Code] = {}
        self._calls: list[_Call] = []
        self._resources: dict[str, dict[str, int]] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the kernels that Inductor generates within the block."""
        from torch._inductor import debug
        from torch._inductor.codegen import cpp, triton
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        with ExitStack() as stack:
            # The two generators import the function by name; others take it from its module at each call.
            for holder in (debug, cpp, triton):
                stack.enter_context(
                    wrap(holder, "set_kernel_post_grad_provenance_tracing", self._around_kernel)
                )
            stack.enter_context(wrap(CachingAutotuner, "save_gpu_kernel", self._around_binary))
            try:
                yield
            finally:
                self._calls = [call for code in self._codes.values() for call in code.calls]
                self._codes.clear()  # they hold the compiler's graphs

    def kernels(self, program: torch.export.ExportedProgram) -> list[FusedKernel]:
        """Return the kernels of a program, in the order of their first calls."""
        places = {node.name: place for place, node in enumerate(program.graph.nodes)}
        calls: dict[str, list[_Call]] = {}
        for call in self._calls:
            calls.setdefault(call.kernel, []).append(call)
        return [self._kernel(name, own, places) for name, own in calls.items()]

    def document(self, program: torch.export.ExportedProgram) -> Fusion:
        """Return the graph and the kernels, within the limits of the document."""
        return fusion_document(program, self.kernels(program))

    def _kernel(self, name: str, calls: list[_Call], places: dict[str, int]) -> FusedKernel:
        operations = {item for call in calls for item in call.operations if item in places}
        lowered = dict.fromkeys(item for call in calls for item in call.lowered)
        return FusedKernel(
            fit_name(name),
            len(calls),
            tuple(sorted(operations, key=places.__getitem__)),
            tuple(map(fit_name, lowered)),
            **self._resources.get(name, {}),
        )

    def _around_kernel(
        self, track: Callable[..., Any], nodes: Any, kernel: str | None, *args: Any, **kwargs: Any
    ) -> Any:
        """Record a kernel's call while the wrapper is generated."""
        try:
            if kernel:
                self._record(nodes, kernel)
        except Exception as error:  # noqa: BLE001  # for people only: it must not end a compile
            _log.warning("the operations of the kernel %s are not recorded: %s", kernel, error)
        return track(nodes, kernel, *args, **kwargs)

    def _record(self, nodes: Any, kernel: str) -> None:
        from torch._inductor import debug
        from torch._inductor.virtualized import V

        graph, wrapper = V.graph, V.graph.wrapper_code
        code = self._codes.get(id(graph))
        if code is None or code.wrapper is not wrapper:  # code may be generated twice; the last one stays
            code = self._codes[id(graph)] = _Code(graph, wrapper)
        before = getattr(debug, "_pre_grad_graph_id", None)
        origins = list(dict.fromkeys(_origins(nodes)))
        operations = {name for node in origins for name in _ancestors(node.meta.get("from_node"), before)}
        code.calls.append(_Call(kernel, operations, sorted(node.name for node in origins)))

    def _around_binary(self, save: Callable[..., Any], kernel: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the resources of a Triton kernel when its binary is saved for the package."""
        launcher = args[-1] if args else kwargs.get("launcher")
        found = {name: getattr(launcher, own, None) for name, own in _RESOURCES.items()}
        name = str(getattr(kernel, "inductor_meta", {}).get("kernel_name"))
        self._resources[name] = {key: value for key, value in found.items() if type(value) is int}
        return save(kernel, *args, **kwargs)


def fusion_document(program: torch.export.ExportedProgram, kernels: Sequence[FusedKernel]) -> Fusion:
    """Return a program's graph and the kernels of its code, within the limits of the document."""
    graph = describe_graph(program)
    left_out = max(0, len(graph) - MAX_NODES) + max(0, len(kernels) - MAX_KERNELS)
    return Fusion(FUSION_SCHEMA, graph[:MAX_NODES], tuple(kernels[:MAX_KERNELS]), left_out)


def write_fusion(make: Callable[[], Fusion], path: Path) -> None:
    """Write a document; nothing if the program cannot be described."""
    try:
        path.write_bytes(_fit(make()))
    except Exception as error:  # noqa: BLE001  # for people only: it must not end a build
        _log.warning("the kernels of the code are not recorded: %s", error)


def _origins(nodes: Any) -> Iterator[torch.fx.Node]:
    """Yield the graph's nodes that a kernel is generated from.

    Args:
        nodes: Scheduled nodes, among them marks without an operation; or the call of a library.
    """
    if not isinstance(nodes, list):
        yield from [nodes.origin_node] if nodes.origin_node is not None else nodes.origins
        return
    for scheduled in nodes:
        yield from getattr(getattr(scheduled, "node", None), "origins", ())


def _ancestors(sources: Iterable[Any] | None, graph: object) -> Iterator[str]:
    """Yield the names of a node's ancestors in a graph, which is given by its id."""
    waiting = list(sources or ())
    while waiting:
        source = waiting.pop()
        if source.graph_id == graph:
            yield source.name
        waiting += source.from_node


def _fit(found: Fusion) -> bytes:
    """Return the document's bytes, with nodes left out at the end where it is too large."""
    while len(data := canonical_json(encode(found))) > MAX_FUSION_BYTES:
        nodes, kernels = found.graph[: len(found.graph) // 2], found.kernels[: len(found.kernels) // 2]
        left = len(found.graph) - len(nodes) + len(found.kernels) - len(kernels)
        found = replace(found, graph=nodes, kernels=kernels, left_out=found.left_out + left)
    return data
