"""What compiled code raises in a call becomes our error, and other numeric settings are pointed out at load."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from pt2hub.client.artifacts.loader import LoadedModel
from pt2hub.client.artifacts.numerics import NumericSettingsWarning, warn_of_settings
from pt2hub.domain.artifacts import Constants, ProgramKey
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BadCall, InternalError, WeightsMismatch
from support.artifacts import a_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.artifacts import ArtifactConfig

GPU = "torch2.11-cu130-sm90"


class Code:
    """Compiled code that raises what it is told to, and has no constants."""

    mutated = ("calls",)

    def __init__(self, error: RuntimeError) -> None:
        self._error = error

    def pristine(self) -> dict[str, torch.Tensor]:
        return {}

    def load_constants(self, *args: object) -> None:
        assert args

    def boxed_run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        assert tensors
        raise self._error


def a_model(error: RuntimeError) -> LoadedModel:
    code: Any = Code(error)
    return LoadedModel(a_config(), code, code, torch.device("cpu"))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RuntimeError("index out of bounds"), InternalError, "index out of bounds(?s:.)*to stderr"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried 4 GiB"),
            BadCall,
            "Tried 4 GiB(?s:.)*smaller batch",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), BadCall, "smaller batch"),
        (torch.AcceleratorError("CUDA error: illegal memory access"), InternalError, "start a new process"),
    ],
)
def test_what_native_code_raises_is_translated_with_torchs_own_words(
    error: RuntimeError, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        a_model(error)(torch.zeros(2, 3, 4, 5))
    assert caught.value.__cause__ is error


def test_a_loaded_model_shows_how_it_is_called() -> None:
    text = str(a_model(RuntimeError()))
    assert text.splitlines()[1:] == ["  x  (batch 1 to 32, 3, 4, 5)  float32", "  It writes to calls."]
    assert repr(a_model(RuntimeError())).startswith("<LoadedModel team/net@1 torch")


def built_with(target: str | None = None, **settings: Any) -> ArtifactConfig:
    recorded = {"matmul_precision": "highest", "deterministic": False, "cudnn_allow_tf32": True}
    key = ProgramKey(digest_bytes(b""), {"settings": recorded | settings})
    config = a_config(key=key)
    return replace(config, target=parse_target(target)) if target else config


@pytest.fixture
def _other_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def test_the_same_settings_and_unrecorded_ones_are_silent() -> None:
    warn_of_settings(built_with())  # warnings are errors here
    warn_of_settings(built_with(GPU))
    warn_of_settings(built_with(cudnn_allow_tf32=False))  # nothing to a CPU
    warn_of_settings(a_config())


@pytest.mark.usefixtures("_other_precision")
def test_other_settings_are_named_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_settings(built_with(GPU, cudnn_allow_tf32=not torch.backends.cudnn.allow_tf32))
    (warning,) = caught
    assert warning.category is NumericSettingsWarning
    text = str(cast("Warning", warning.message))
    assert "matmul_precision is 'high' here and was 'highest'" in text
    assert "cudnn_allow_tf32" in text


def test_code_that_holds_its_weights_is_given_none_and_is_loaded_again_to_start_anew() -> None:
    code: Any = Code(RuntimeError("unused"))
    again: Any = Code(RuntimeError("the second one"))
    code.load_constants = again.load_constants = None
    opened: list[Any] = []
    config = a_config(constants=Constants("", 0, (), baked=True, mutated=("calls",)))
    model = LoadedModel(config, code, code, torch.device("cpu"), lambda: opened.append(again) or again)

    model.reset()

    assert opened == [again]
    assert model.constants() == {}
    with pytest.raises(InternalError, match="the second one"):
        model(torch.zeros(1, 3, 4, 5))
    with pytest.raises(WeightsMismatch, match="baked"):
        model.swap_constants({})
