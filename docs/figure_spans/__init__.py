"""Figures that the pages quote: `make figures` measures them, and every page takes them from `docs/figures.json`.

Those of a GPU come from `docs/gpu-results.json`, and are empty until they are measured. A quoted figure stands between two marks, which a reader of the page does not see:

    published in <!-- figure: first_publish_s -->58.1 s<!-- /figure -->

A list of lines becomes a block of text. `python -m figure_spans` writes what stands between the marks anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gpu_speed_goals import first_call_text
from pt2hub.rendering.quantities import quantity

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures.json"
GPU_RESULTS = ROOT / "docs" / "gpu-results.json"
_SPAN = re.compile(
    r"(?P<open><!-- figure: (?P<name>\w+) -->)(?P<text>.*?)(?P<close><!-- /figure -->)", re.DOTALL
)
_UNITS = {"s": "s", "ms": "ms", "bytes": "B"}
QUIET_LOAD = 0.5
"""Runnable processes on average, above which a machine is not idle and its figures are said to be those of a busy one."""
_MINUTES_FROM = 120.0
_WHOLE_FROM = 20.0


class UnknownFigure(Exception):
    """A page quotes a figure that is not in `docs/figures.json`."""


def pages() -> list[Path]:
    """Return the pages that may quote figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_figures(path: Path = FIGURES, gpu_results: Path = GPU_RESULTS) -> dict[str, Any]:
    """Return the measured figures by name, and what they were measured on."""
    document = json.loads(path.read_text())
    rows = json.loads(gpu_results.read_text()) if gpu_results.exists() else {}
    load = document["load_average_before"]
    busy = f", busy with other work (load average {load:g})" if load > QUIET_LOAD else ""
    return {
        **document["figures"],
        "figures_date": document["date"],
        "figures_commit": document["commit"],
        "figures_machine": document["machine"]["text"] + busy,
        "gpu_first_call_text": first_call_text(rows),
    }


def rewrite(page: str, figures: dict[str, Any], where: str) -> str:
    """Return a page with every quoted figure as it was measured.

    Args:
        page: The page's text.
        figures: The figures by name.
        where: The page's path, for errors.

    Raises:
        UnknownFigure: The figure does not exist, or a mark is not closed.
    """

    def quoted(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in figures:
            raise UnknownFigure(f"{where} quotes {name}, which docs/figures.json does not have")
        return found["open"] + to_text(name, figures[name]) + found["close"]

    text, count = _SPAN.subn(quoted, page)
    if count != page.count("<!-- figure") or count != page.count("<!-- /figure -->"):
        raise UnknownFigure(f"{where} has a mark of a figure without its other half")
    return text


def without_spans(page: str) -> str:
    """Return a page without its quoted figures."""
    return _SPAN.sub("", page)


def to_text(name: str, value: Any) -> str:
    """Return a figure as pages show it; the end of its name says its unit.

    Args:
        name: Such as `first_publish_s`, `code_bytes`, `warm_compile_times`, `retrained_ratio`.
        value: A number, a text, or lines of text.
    """
    if isinstance(value, list):
        return "\n".join(("\n```text", *value, "```\n"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value)
    unit = name.rpartition("_")[2]
    if unit == "s" and value >= _MINUTES_FROM:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes} min {seconds} s"
    if unit in _UNITS:
        return quantity(float(f"{value:.3g}"), _UNITS[unit])
    if unit == "times":
        return f"{value:.0f}" if value >= _WHOLE_FROM else f"{value:.1f}"
    return f"{value:.2g}" if isinstance(value, float) else str(value)
