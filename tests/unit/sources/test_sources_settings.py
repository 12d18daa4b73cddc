"""What a source changes of its process: said, kept where it shapes code, put back where the build needs it."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pt2hub_workers.inside.builds.key.settings import watch_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEPT = "it is part of the program key"
PUT_BACK = "which is restored: the build relies on it"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    threads, dtype, precision = (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "0")
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision(precision)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: torch.set_default_dtype(torch.float64), "default_dtype from torch.float32 to torch.float64"),
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "num_threads from "),
        (lambda: torch.set_float32_matmul_precision("medium"), "matmul_precision from highest to medium"),
        (
            lambda: os.environ.update(TORCHINDUCTOR_MAX_AUTOTUNE="1"),
            "environment.TORCHINDUCTOR_MAX_AUTOTUNE from 0 to 1",
        ),
        (
            lambda: os.environ.pop("TORCHINDUCTOR_MAX_AUTOTUNE"),
            "environment.TORCHINDUCTOR_MAX_AUTOTUNE from 0 to nothing",
        ),
    ],
    ids=["dtype", "threads", "precision", "variable", "variable gone"],
)
def test_what_shapes_code_is_said_with_both_values(change: Callable[[], object], said: str) -> None:
    with watch_settings() as lines:
        change()

    assert any(line.startswith(f"the source changed {said}") and line.endswith(KEPT) for line in lines), lines


@pytest.mark.parametrize(
    ("compiler", "name"), [("inductor", "max_fusion_size"), ("dynamo", "recompile_limit")]
)
def test_a_changed_compiler_configuration_is_said(compiler: str, name: str) -> None:
    config = importlib.import_module(f"torch._{compiler}.config")
    before = getattr(config, name)
    try:
        with watch_settings() as lines:
            setattr(config, name, before + 1)
    finally:
        setattr(config, name, before)

    assert lines == [f"the source changed {compiler}.{name} from {before} to {before + 1}: {KEPT}"]


def test_what_the_build_rests_on_is_put_back_and_said() -> None:
    folder, inside = Path.cwd(), os.environ["TMPDIR"]
    with watch_settings() as lines:
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        mode = torch.inference_mode()
        mode.__enter__()
        os.chdir("/")
        os.environ["TMPDIR"] = "/nowhere"
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]
        warnings.simplefilter("error")

    assert torch.ones(1).device.type == "cpu"
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert (Path.cwd(), os.environ["TMPDIR"]) == (folder, inside)
    assert [line.removesuffix(f", {PUT_BACK}").removeprefix("the source changed ") for line in lines] == [
        "the default device (to meta)",
        "the gradient mode",
        "the working directory",
        "TORCHINDUCTOR_CACHE_DIR",
        "TMPDIR",
    ]


def test_a_source_that_changes_nothing_is_not_mentioned() -> None:
    with watch_settings() as lines:
        torch.nn.Linear(2, 2)

    assert lines == []
