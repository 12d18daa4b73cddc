"""`python -m gpu_results_page` with docs/ on the path: writes docs/gpu-results.md from docs/gpu-results.json.

`make gpu-results` measures the file, on a GPU; its rows may be of several days and commits, which the page says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_speed_goals import best_of_artifact, best_of_compile, find_goals
from pt2hub.rendering.quantities import format_bytes, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).resolve().parent
RESULTS, PAGE = DOCS / "gpu-results.json", DOCS / "gpu-results.md"
INTRODUCTION = """# GPU results

What pt2hub itself publishes, verifies, loads and measures on a GPU. This page is written by `make docs` from
`docs/gpu-results.json`, which `make gpu-results` writes ([how to run it](how-to/gpu-machine.md#the-gpu-results)).
"""


def write_page(rows: dict[str, dict[str, Any]]) -> str:
    """Return the page's text.

    Args:
        rows: The file's rows, by name.
    """
    sections = (
        _goals(rows),
        _published(rows),
        _timed(rows),
        _first_calls(rows),
        _autotuning(rows),
        _refused(rows),
        _runs(rows),
    )
    return "\n".join((INTRODUCTION, *(section for section in sections if section)))


def _goals(rows: dict[str, dict[str, Any]]) -> str:
    body: list[tuple[str, ...]] = []
    for goal in find_goals(rows):
        stated = (goal.what, f"{goal.bound} {goal.value:,g}")
        body += [
            (
                *stated,
                item.of,
                f"{float(f'{item.value:.3g}'):,g}",
                "yes" if goal.is_reached(item) else "no",
                item.basis,
            )
            for item in goal.figures
        ] or [(*stated, "", "not measured", "", "")]
    return _section("Goals", ("what", "goal", "model", "figure", "reached", "from"), body)


def _published(rows: dict[str, dict[str, Any]]) -> str:
    built: dict[str, dict[str, Any]] = {}
    for row in rows.values():
        if "error" not in row:
            built.setdefault(row["model"], row)  # a version that is measured in two rows was built once
    body = [
        (
            row["title"],
            _seconds(row["steps"].get("compile")) or "reused",
            _seconds(row["steps"].get("verify")),
            _seconds(sum(row["steps"].values())),
            format_bytes(row["code_bytes"]),
            format_bytes(row["weights_bytes"]),
        )
        for row in built.values()
    ]
    return _section("Published", ("model", "compile", "verify", "all steps", "code", "weights"), body)


def _timed(rows: dict[str, dict[str, Any]]) -> str:
    body = []
    for row in rows.values():
        if not (timed := row.get("timed")):
            continue
        p50 = timed["p50_ms"]
        best, own = best_of_compile(timed), best_of_artifact(timed)[1]
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
    headings = (
        "model",
        "artifact",
        "with CUDA graph",
        "ratio",
        "eager",
        "best of torch.compile",
        "artifact / best",
    )
    text = _section("Latency", headings, body)
    if text:
        text += (
            "\np50 of calls that are waited for, all kinds in one process and taking turns. `artifact / best` takes the faster"
            " way of calling\nthe artifact. torch.compile has a fixed batch, the artifact the whole range of its spec.\n"
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


def _autotuning(rows: dict[str, dict[str, Any]]) -> str:
    body = []
    for row in rows.values():
        if found := (row.get("provenance") or {}).get("autotuning"):
            counts = (found["choices"], found.get("known", 0), found["left_to_default"])
            body.append(
                (
                    row["title"],
                    _seconds(found["seconds"]),
                    _seconds(found["budget"]) or "none",
                    *map(str, counts),
                    _seconds(row["steps"].get("compile")),
                )
            )
    headings = (
        "model",
        "autotuned for",
        "budget",
        "choices",
        "known before",
        "left to the default",
        "compile step",
    )
    return _section("Autotuning", headings, body)


def _refused(rows: dict[str, dict[str, Any]]) -> str:
    body = [
        (
            row["title"],
            f"`{row['error']['code']}`",
            _code(": ".join(filter(None, (row["error"].get("where"), row["error"]["message"])))),
            _code(row["error"].get("hint") or ""),
        )
        for row in rows.values()
        if "error" in row
    ]
    return _section("Refused", ("model", "code", "message", "hint"), body)


def _code(text: str) -> str:
    """Return text of an error as code in a table: it may have brackets, bars and line ends."""
    plain = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else ""


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
