"""The page of GPU results is written from the file that was measured, and says what it cannot compare."""

from __future__ import annotations

import json
from typing import Any

import gpu_results_page as page
import gpu_speed_goals as goals

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
        "model": title,
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


P50 = {
    "artifact": 2.0,
    "artifact_graph": 1.0,
    "eager": 4.0,
    "compile default": 3.0,
    "compile max-autotune": 1.25,
}


def timed(**fields: Any) -> dict[str, Any]:
    return {"p50_ms": {"artifact": 1.0, "eager": 1.0}, "failed": {}, **fields}


def test_tables_show_what_was_published_timed_and_refused() -> None:
    rows = {
        "resnet18": row("resnet18", None, timed=timed(p50_ms=P50), model="m@1"),
        "resnet18-first-calls": row("in fresh processes", 9.0, model="m@1"),
        "silu-plain": row(
            "plain",
            None,
            error={
                "code": "kernel_not_traced",
                "message": "two |\nlines",
                "where": "source",
                "hint": "a[cure](x)",
            },
        ),
        "resnet18-tuned": row(
            "tuned",
            90.0,
            model="n@1",
            provenance={
                "autotuning": {"seconds": 71.5, "budget": 60, "choices": 9, "known": 2, "left_to_default": 3}
            },
        ),
    }

    text = page.write_page(rows)

    assert "| resnet18 | 2 ms | 1 ms | 0.5 | 4 ms | 1.25 ms (max-autotune) | 0.8 |" in text
    assert "| resnet18 | reused | 2 s | 3 s | 1 KiB | 2 KiB |" in text
    assert "| in fresh processes |" not in text, "one version has one line"
    assert "| plain | `kernel_not_traced` | `source: two \\| lines` | `a[cure](x)` |" in text
    assert "| tuned | 71.5 s | 60 s | 9 | 2 | 3 | 90 s |" in text
    assert "| 2026-11-24 | abc | H100, driver 5, CUDA 13.0, torch 2.11, Triton 3.6, 16 cores | 1 |" in text


def test_every_goal_is_on_the_page_before_it_is_measured() -> None:
    text = page.write_page({})

    assert text.count("not measured") == len(goals.find_goals({})) == 7
    assert goals.first_call_text({}) == ""


def test_goals_are_computed_from_rows() -> None:
    first = {"artifact": 0.003, "compile default": 7.5, "compile max-autotune": 90.0}
    layers = {
        f"{name}-{form}": row(
            f"{name} {form}",
            seconds,
            timed=timed(p50_ms={"artifact": 1.0, "artifact_graph": ms, "eager": 2.0}),
        )
        for name in ("deep", "encoder")
        for form, seconds, ms in (("regions", 4.0, 1.03), ("whole", 40.0, 1.0))
    }
    left = {"autotuning": {"seconds": 100, "budget": 100, "choices": 9, "left_to_default": 2}}
    rows = {
        "resnet18": row("resnet18", 20.0, timed=timed(p50_ms=P50, first_call_s=first)),
        "bert-base-again": row("again", 40.0),
        "resnet18-first-calls": row(
            "fresh",
            20.0,
            first_calls={
                "first_ms": {"artifact": {"median": 50.0}, "torch_compile_warm": {"median": 9000.0}},
                "process_ms": {"artifact": {"median": 5000.0}, "torch_compile_warm": {"median": 16000.0}},
            },
        ),
        "bert-base": row(
            "bert",
            120.0,
            provenance=left,
            timed=timed(
                p50_ms={"artifact": 1.0, "eager": 2.0, "compile default": 0.9},
                failed={"compile max-autotune": "TimeoutError"},
            ),
        ),
        **layers,
    }

    text = page.write_page(rows)

    for line in (
        "| at least 2,000 | resnet18 | 2,500 | yes | 7.50 s over 3 ms, in one process |",
        "| at most 0.25 | fresh | 0.312 | no | 5 s over 16 s |",
        "| at most 0.67 | resnet18 | 0.5 | yes | batch 1 |",
        "| at most 1.02 | resnet18 | 0.8 | yes | graph over max-autotune |",
        "| at most 1.02 | bert | 1.11 | no | plain over default; without max-autotune |",
        "| at least 8 | deep regions | 10 | yes | 40 s over 4 s |",
        "| at least 8 | encoder regions | 10 | yes | 40 s over 4 s |",
        "| at most 1.05 | deep regions | 1.03 | yes | taking turns in one process |",
        "| at least 2 | again | 3 | yes | 120 s over 40 s; its budget left out 2 choices |",
    ):
        assert line in text
    assert "not measured" not in text


def test_the_readme_gets_its_sentence_from_the_first_calls_of_resnet18() -> None:
    first = {"artifact": 0.00302, "compile default": 6.874}
    rows = {"resnet18": row("resnet18", 20.0, timed=timed(first_call_s=first))}

    assert goals.first_call_text(rows) == (
        "\n* **The first call of a loaded resnet18 takes 3.02 ms on an H100.**\n"
        "  That of `torch.compile` takes 6.87 s, 2,280 times as long ([GPU results](docs/gpu-results.md)).\n"
    )


def test_a_row_without_a_build_has_no_compile_step_to_compare() -> None:
    rows = {
        "deep-regions": row("refused", None, error={"code": "invalid", "message": "m", "hint": None}),
        "deep-whole": row("whole", 40.0),
    }

    assert "| at least 8 |  | not measured |" in page.write_page(rows)
