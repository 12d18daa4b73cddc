"""Autotuning's measurements, as Inductor really reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from pt2hub_workers.inside.compiling import compile_program
from support.tiny_models import Mlp

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.compiles
def test_every_candidate_is_recorded_with_its_time_and_the_chosen_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    program = torch.export.export(Mlp(64).eval().requires_grad_(False), (torch.randn(32, 8),))
    options = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,CPP"}

    choices = compile_program(program, options, tmp_path / "package.pt2")

    by_operation: dict[str, list[dict[str, object]]] = {}
    for choice in choices:
        by_operation.setdefault(f"{choice['op']}{choice['shapes']}", []).append(choice)
    assert by_operation
    for candidates in by_operation.values():
        assert [c["rank"] for c in candidates] == list(range(1, len(candidates) + 1))
        assert [c["chosen"] for c in candidates] == [True] + [False] * (len(candidates) - 1)
        assert all(float(str(c["milliseconds"])) > 0 for c in candidates)
        assert all(str(c["dtypes"]).count("float32") >= 2 for c in candidates)
