"""Goals of speed on a GPU, with the figures of `docs/gpu-results.json` beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.rendering.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Rows = dict[str, dict[str, Any]]
"""The file's rows, by name."""
LAYERS = ("deep", "encoder", "bert-base")
"""Models of equal layers, each with a row by regions and one whole."""
AGAIN = ("bert-base", "bert-base-again")
"""A build that autotunes, and one that has its times."""
_COMPILED = "compile "
_COLD_MODE = "default"
"""The first mode of `torch.compile` in its process: its caches are empty, the next ones find some of its code."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that a goal is about.

    Attributes:
        of: Title of the row, or of its model.
        value: The figure.
        basis: What it was computed from.
    """

    of: str
    value: float
    basis: str


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, and what was measured of it.

    Attributes:
        what: What is compared with what.
        bound: `at least` or `at most`.
    """

    what: str
    bound: str
    value: float
    figures: tuple[Figure, ...]

    def is_reached(self, figure: Figure) -> bool:
        """Return whether a figure reaches the goal."""
        return figure.value >= self.value if self.bound == "at least" else figure.value <= self.value


def find_goals(rows: Rows) -> list[Goal]:
    """Return the goals with the figures that the rows have."""

    def collect(figures: Callable[[Rows], Iterator[Figure]]) -> tuple[Figure, ...]:
        return tuple(figures(rows))

    return [
        Goal(
            "torch.compile's first call, over that of the loaded artifact",
            "at least",
            2000.0,
            collect(_first_calls),
        ),
        Goal(
            "from the start of a process to its first answer, over torch.compile with warm caches",
            "at most",
            0.25,
            collect(_processes),
        ),
        Goal("p50 with CUDA graph, over the plain artifact's", "at most", 0.67, collect(_graphs)),
        Goal("p50 of the artifact, over the best of torch.compile", "at most", 1.02, collect(_best_modes)),
        Goal("compile step of the whole model, over that by regions", "at least", 8.0, collect(_regions)),
        Goal(
            "p50 with CUDA graph by regions, over that of the whole", "at most", 1.05, collect(_region_calls)
        ),
        Goal(
            "compile step of a first build, over one that has its autotuning times",
            "at least",
            2.0,
            collect(_again),
        ),
    ]


def best_of_compile(timed: dict[str, Any]) -> tuple[str, float] | None:
    """Return the fastest mode of `torch.compile` and its p50 in milliseconds; None if it was not compared."""
    return _fastest(
        {k.removeprefix(_COMPILED): v for k, v in timed["p50_ms"].items() if k.startswith(_COMPILED)}
    )


def best_of_artifact(timed: dict[str, Any]) -> tuple[str, float]:
    """Return the faster way of calling the artifact, and its p50 in milliseconds."""
    names = {"artifact": "plain", "artifact_graph": "graph"}
    found = _fastest({names[name]: ms for name, ms in timed["p50_ms"].items() if name in names})
    return found or ("plain", timed["p50_ms"]["artifact"])


def first_call(rows: Rows) -> tuple[float, float] | None:
    """Return the seconds of resnet18's first calls: that of the loaded artifact, and torch.compile's with cold caches."""
    found = _timed(rows, "resnet18").get("first_call_s", {})
    own, other = found.get("artifact"), found.get(f"{_COMPILED}{_COLD_MODE}")
    return (own, other) if own and other else None


def first_call_text(rows: Rows) -> str:
    """Return the item of a list that says how long resnet18's first calls take; empty if they were not measured."""
    if (found := first_call(rows)) is None:
        return ""
    own, other = found
    return (
        f"\n* **The first call of a loaded resnet18 takes {quantity(float(f'{own * 1000:.3g}'), 'ms')} on an "
        f"{rows['resnet18']['device']['gpu']}.**\n  That of `torch.compile` takes "
        f"{quantity(float(f'{other:.3g}'), 's')}, {float(f'{other / own:.3g}'):,.0f} times as long ([GPU results](docs/gpu-results.md)).\n"
    )


def _pair(rows: Rows, name: str, other: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return two rows if both were built."""
    found = [rows.get(item, {"error": {}}) for item in (name, other)]
    return None if any("error" in row for row in found) else (found[0], found[1])


def _first_calls(rows: Rows) -> Iterator[Figure]:
    if found := first_call(rows):
        own, other = found
        yield Figure(
            rows["resnet18"]["title"], other / own, f"{other:.2f} s over {own * 1000:.3g} ms, in one process"
        )


def _processes(rows: Rows) -> Iterator[Figure]:
    for row in rows.values():
        if found := row.get("first_calls"):
            own, warm = (found["process_ms"][kind]["median"] for kind in ("artifact", "torch_compile_warm"))
            yield Figure(row["title"], own / warm, f"{own / 1000:.3g} s over {warm / 1000:.3g} s")


def _graphs(rows: Rows) -> Iterator[Figure]:
    for name in ("resnet18", "bert-base"):
        p50 = _timed(rows, name).get("p50_ms", {})
        if "artifact_graph" in p50:
            yield Figure(rows[name]["title"], p50["artifact_graph"] / p50["artifact"], "batch 1")


def _best_modes(rows: Rows) -> Iterator[Figure]:
    for row in rows.values():
        timed = row.get("timed")
        if timed and (best := best_of_compile(timed)):
            how, own = best_of_artifact(timed)
            yield Figure(row["title"], own / best[1], f"{how} over {best[0]}{_without(timed)}")


def _without(timed: dict[str, Any]) -> str:
    """Name the modes of `torch.compile` that have no time."""
    left_out = [
        name.removeprefix(_COMPILED) for name in timed.get("failed", {}) if name.startswith(_COMPILED)
    ]
    return f"; without {', '.join(left_out)}" if left_out else ""


def _regions(rows: Rows) -> Iterator[Figure]:
    for name in LAYERS:
        if found := _pair(rows, f"{name}-regions", f"{name}-whole"):
            yield from _compile_ratio(*found)


def _again(rows: Rows) -> Iterator[Figure]:
    if found := _pair(rows, *AGAIN[::-1]):
        yield from _compile_ratio(*found)


def _compile_ratio(faster: dict[str, Any], slower: dict[str, Any]) -> Iterator[Figure]:
    own, other = (row["steps"].get("compile") for row in (faster, slower))
    if own and other:
        yield Figure(faster["title"], other / own, f"{other:.3g} s over {own:.3g} s{_left_out(slower)}")


def _left_out(row: dict[str, Any]) -> str:
    """Say how many operations the autotuning budget left to the default; the next build times those."""
    count = ((row.get("provenance") or {}).get("autotuning") or {}).get("left_to_default")
    return f"; its budget left out {count} choices" if count else ""


def _region_calls(rows: Rows) -> Iterator[Figure]:
    for name in LAYERS:
        found = [
            _timed(rows, f"{name}-{form}").get("p50_ms", {}).get("artifact_graph")
            for form in ("regions", "whole")
        ]
        if found[0] and found[1]:
            yield Figure(rows[f"{name}-regions"]["title"], found[0] / found[1], "taking turns in one process")


def _timed(rows: Rows, name: str) -> dict[str, Any]:
    return rows.get(name, {}).get("timed") or {}


def _fastest(times: dict[str, float]) -> tuple[str, float] | None:
    return min(times.items(), key=lambda item: item[1]) if times else None
