"""The page of GPU results is written from the file that was measured, and says what it cannot compare."""

from __future__ import annotations

import json
from typing import Any

import gpu_results_page as page

DEVICE = {
    "gpu": "H100",
    "cpu_model": "c",
    "driver": "5",
    "cuda": "13.0",
    "torch": "2.11",
    "triton": "3.6",
    "cores": 16,
}


def row(title: str, compiled: float | None, **fields: Any) -> dict[str, Any]:
    steps = {"export": 1.0, "verify": 2.0} | ({} if compiled is None else {"compile": compiled})
    base = {
        "title": title,
        "date": "2026-11-24",
        "commit": "abc",
        "beside": 1,
        "device": DEVICE,
        "steps": steps,
    }
    return base | {"code_bytes": 1024, "weights_bytes": 2048} | fields


def test_the_page_is_that_of_the_measured_file() -> None:
    if not page.RESULTS.exists():
        assert not page.PAGE.exists()
        return
    assert page.PAGE.read_text() == page.write_page(json.loads(page.RESULTS.read_text())), "run make docs"


def test_ratios_are_those_of_the_graph_over_the_best_mode_and_of_compile_steps() -> None:
    p50 = {
        "artifact": 2.0,
        "artifact_graph": 1.0,
        "eager": 4.0,
        "compile default": 3.0,
        "compile max-autotune": 1.25,
    }
    rows = {
        "deep-regions": row(
            "by regions", 5.0, timed={"p50_ms": {"artifact": 1.0, "artifact_graph": 1.02, "eager": 1.0}}
        ),
        "deep-whole": row(
            "whole", 50.0, timed={"p50_ms": {"artifact": 1.0, "artifact_graph": 1.0, "eager": 1.0}}
        ),
        "resnet18": row("resnet18", None, timed={"p50_ms": p50}),
        "silu-plain": row("plain", None, error={"code": "kernel_not_traced", "message": "two\nlines"}),
    }

    text = page.write_page(rows)

    assert "| resnet18 | 2 ms | 1 ms | 0.5 | 4 ms | 1.25 ms (max-autotune) | 0.8 |" in text
    assert "| by regions | by regions | 5 s | 50 s | 10 | 1.02 |" in text
    assert "| resnet18 | reused | 2 s | 3 s | 1 KiB | 2 KiB |" in text
    assert "| plain | `kernel_not_traced` | two lines |" in text
    assert "| 2026-11-24 | abc | H100, driver 5, CUDA 13.0, torch 2.11, Triton 3.6, 16 cores | 1 |" in text
