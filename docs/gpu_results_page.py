"""`python -m gpu_results_page` with docs/ on the path: writes docs/gpu-results.md from docs/gpu-results.json.

`make gpu-results` measures the file, on a GPU; its rows may be of several days and commits, which the page says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.rendering.quantities import format_bytes, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).resolve().parent
RESULTS, PAGE = DOCS / "gpu-results.json", DOCS / "gpu-results.md"
INTRODUCTION = """# GPU results

What pt2hub itself publishes, verifies, loads and measures on a GPU. This page is written by `make docs` from
`docs/gpu-results.json`, which `make gpu-results` writes ([how to run it](how-to/gpu-machine.md#the-gpu-results)).
"""
PAIRS = {
    "by regions": (("deep-regions", "deep-whole"), ("bert-base-regions", "bert-base-whole")),
    "with the times of an earlier build": (("resnet18-tuned-again", "resnet18-tuned"),),
}
"""Rows whose compile steps are compared: the second one with the first one's compile step as the unit."""
_BEST = "best of torch.compile"


def write_page(rows: dict[str, dict[str, Any]]) -> str:
    """Return the page's text.

    Args:
        rows: The file's rows, by name.
    """
    sections = (_published(rows), _timed(rows), _first_calls(rows), _pairs(rows), _refused(rows), _runs(rows))
    return "\n".join((INTRODUCTION, *(section for section in sections if section)))


def best_of_compile(timed: dict[str, Any]) -> tuple[str, float] | None:
    """Return the fastest mode of `torch.compile` and its p50 in milliseconds; None if it was not compared."""
    modes = {
        name.removeprefix("compile "): ms
        for name, ms in timed["p50_ms"].items()
        if name.startswith("compile ")
    }
    return min(modes.items(), key=lambda item: item[1]) if modes else None


def _published(rows: dict[str, dict[str, Any]]) -> str:
    built = [row for row in rows.values() if "error" not in row]
    body = [
        (
            row["title"],
            _seconds(row["steps"].get("compile")) or "reused",
            _seconds(row["steps"].get("verify")),
            _seconds(sum(row["steps"].values())),
            format_bytes(row["code_bytes"]),
            format_bytes(row["weights_bytes"]),
        )
        for row in built
    ]
    return _section("Published", ("model", "compile", "verify", "all steps", "code", "weights"), body)


def _timed(rows: dict[str, dict[str, Any]]) -> str:
    body = []
    for row in rows.values():
        if not (timed := row.get("timed")):
            continue
        p50 = timed["p50_ms"]
        best, own = best_of_compile(timed), p50.get("artifact_graph", p50["artifact"])
        body.append(
            (
                row["title"],
                _ms(p50["artifact"]),
                _ms(p50.get("artifact_graph")),
                _ratio(p50.get("artifact_graph"), p50["artifact"]),
                _ms(p50["eager"]),
                f"{_ms(best[1])} ({best[0]})" if best else "",
                _ratio(own, best[1]) if best else "",
            )
        )
    headings = ("model", "artifact", "with CUDA graph", "ratio", "eager", _BEST, "artifact / best")
    text = _section("Latency", headings, body)
    if text:
        text += (
            "\np50 of calls that are waited for, all kinds in one process and taking turns. `artifact / best` is that of"
            " the artifact with CUDA\ngraph. torch.compile has a fixed batch, the artifact the whole range of its spec.\n"
        )
    return text


def _first_calls(rows: dict[str, dict[str, Any]]) -> str:
    body = []
    for row in rows.values():
        if found := row.get("first_calls"):
            body += [
                (
                    row["title"],
                    name.replace("_", " "),
                    _ms(found["first_ms"][name]["median"]),
                    _ms(whole["median"]),
                )
                for name, whole in found["process_ms"].items()
            ]
    headings = ("model", "what", "load and first call", "whole process")
    return _section("First calls in fresh processes", headings, body)


def _pairs(rows: dict[str, dict[str, Any]]) -> str:
    body = []
    for label, pairs in PAIRS.items():
        for one, other in pairs:
            if one in rows and other in rows and "error" not in rows[one] and "error" not in rows[other]:
                mine, base = (rows[name]["steps"].get("compile") for name in (one, other))
                graphs = [
                    (rows[name].get("timed") or {"p50_ms": {}})["p50_ms"].get("artifact_graph")
                    for name in (one, other)
                ]
                body.append(
                    (
                        rows[one]["title"],
                        label,
                        _seconds(mine),
                        _seconds(base),
                        _ratio(base, mine),
                        _ratio(*graphs),
                    )
                )
    headings = ("model", "compiled", "compile step", "without", "times faster", "p50 with CUDA graph, ratio")
    return _section("Compiles that have something to build on", headings, body)


def _refused(rows: dict[str, dict[str, Any]]) -> str:
    body = [
        (row["title"], f"`{row['error']['code']}`", " ".join(str(row["error"]["message"]).split()))
        for row in rows.values()
        if "error" in row
    ]
    return _section("Refused", ("model", "code", "message"), body)


def _runs(rows: dict[str, dict[str, Any]]) -> str:
    runs: dict[tuple[str, ...], list[str]] = {}
    for row in rows.values():
        runs.setdefault((row["date"], row["commit"], _device(row["device"]), str(row["beside"])), []).append(
            row["title"]
        )
    body = [(*key, "; ".join(titles)) for key, titles in sorted(runs.items())]
    headings = ("date", "commit", "measured on", "published beside each other", "rows")
    return _section("Where and when", headings, body)


def _device(found: dict[str, Any]) -> str:
    return (
        f"{found['gpu'] or found['cpu_model']}, driver {found['driver']}, CUDA {found['cuda']}, torch {found['torch']},"
        f" Triton {found['triton']}, {found['cores']} cores"
    )


def _section(title: str, headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    if not body:
        return ""
    lines = ["| " + " | ".join(line) + " |" for line in (headings, ["---"] * len(headings), *body)]
    return "\n".join((f"## {title}", "", *lines, ""))


def _seconds(value: float | None) -> str:
    return "" if value is None else quantity(float(f"{value:.3g}"), "s")


def _ms(value: float | None) -> str:
    return "" if value is None else quantity(float(f"{value:.3g}"), "ms")


def _ratio(value: float | None, base: float | None) -> str:
    return "" if not value or not base else f"{value / base:.3g}"


if __name__ == "__main__" and RESULTS.exists():
    PAGE.write_text(write_page(json.loads(RESULTS.read_text())))
