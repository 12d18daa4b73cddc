"""Quoted figures are those of docs/figures.json, which `make figures` wrote."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from figure_spans import FIGURES, ROOT, UnknownFigure, pages, read_figures, rewrite, to_text, without_spans

if TYPE_CHECKING:
    from pathlib import Path

DURATION = re.compile(r"\b\d+(?:\.\d+)? (?:ms|s|min|minutes|times (?:faster|as))\b")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_quoted_figure_is_the_measured_one(page: Path) -> None:
    text = page.read_text()
    assert rewrite(text, read_figures(), page.name) == text, "run make docs"


def test_the_readme_quotes_figures_between_marks_only() -> None:
    prose = FENCE.sub("", without_spans((ROOT / "README.md").read_text()))
    assert DURATION.findall(prose) == []


def test_the_figures_say_when_and_where_they_were_measured() -> None:
    document = json.loads(FIGURES.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"])
    assert re.match(r"[0-9a-f]{10}", document["commit"])
    machine = document["machine"]
    assert {"cpu", "cores", "memory_bytes", "system", "python", "compiler", "torch"} <= set(machine)
    assert str(machine["cores"]) in machine["text"]
    assert document["load_average_before"] >= 0


def test_marks_are_filled_and_everything_around_them_stays() -> None:
    page = (
        "took <!-- figure: demo_s -->old<!-- /figure -->, <!-- figure: demo_lines -->\n<!-- /figure --> end"
    )
    assert rewrite(page, {"demo_s": 150.4, "demo_lines": ["up", "  done"]}, "page") == (
        "took <!-- figure: demo_s -->2 min 30 s<!-- /figure -->, "
        "<!-- figure: demo_lines -->\n```text\nup\n  done\n```\n<!-- /figure --> end"
    )


@pytest.mark.parametrize(
    "page",
    [
        "<!-- figure: latency_s -->1 s<!-- /figure -->",
        "<!-- figure: demo_s -->1 s",
        "1 s<!-- /figure -->",
        "<!-- figure:demo_s -->1 s<!-- /figure -->",
    ],
)
def test_an_unknown_figure_and_half_a_mark_are_refused(page: str) -> None:
    with pytest.raises(UnknownFigure, match="page"):
        rewrite(page, {"demo_s": 1.0}, "page")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("first_publish_s", 36.249, "36.2 s"),
        ("demo_s", 149.96, "2 min 30 s"),
        ("demo_s", 179.7, "3 min 0 s"),
        ("first_inference_artifact_ms", 156.234, "156 ms"),
        ("first_inference_torch_compile_cold_ms", 25281.9, "25.3 s"),
        ("weights_bytes", 46807448, "44.63 MiB"),
        ("cold_compile_times", 163.2, "163"),
        ("warm_compile_times", 12.34, "12.3"),
        ("retrained_ratio", 0.1534, "0.15"),
        ("relative_error", 2.5e-05, "2.5e-05"),
        ("compiler_processes_retrained", 0, "0"),
        ("code_reused", True, "true"),
        ("target", "torch2.13-cpu-x86_64_v4", "torch2.13-cpu-x86_64_v4"),
    ],
)
def test_the_end_of_a_figures_name_says_its_unit(name: str, value: object, text: str) -> None:
    assert to_text(name, value) == text
