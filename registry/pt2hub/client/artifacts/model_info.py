"""What a loaded model is, as values."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.client.artifacts.graphs import GraphInfo
from pt2hub.renderable import Renderable, Sheet


@dataclass(frozen=True, slots=True, repr=False)
class ModelInfo(Renderable):
    """A loaded model.

    Attributes:
        model: The model's name.
        number: The version's number.
        target: The target that it was built for.
        device: Where it runs.
        mutated: Buffers that it writes to.
        cuda_graphs: Its CUDA graphs, None if it was loaded without.
        files: Names of the attached files that were pulled with it.
    """

    model: str
    number: int
    target: str
    device: str
    mutated: tuple[str, ...]
    cuda_graphs: GraphInfo | None
    files: tuple[str, ...] = ()

    __repr__ = Renderable.__str__

    def _sheet(self) -> Sheet:
        name = f"{self.model}@{self.number} {self.target} on {self.device}"
        graphs = self.cuda_graphs
        if graphs is None:
            return Sheet(name, (), ("No CUDA graphs.",))
        rows = tuple(
            (
                ", ".join(f"{item} {shape}" for item, shape in graph.shapes.items()),
                f"{graph.replays} replays",
                f"captured in {1000 * graph.capture_s:.0f} ms",
            )
            for graph in graphs.captured
        )
        held = f"{len(graphs.captured)} of at most {graphs.limit} CUDA graphs, {graphs.evictions} evicted."
        return Sheet(name, rows, (held, *(error.message for error in graphs.failures)))
