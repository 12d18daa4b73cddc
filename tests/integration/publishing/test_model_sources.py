"""Models of every kind of source: what libraries build exports and agrees, what code brings runs, and what is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub import errors
from pt2hub.domain.publishing.spec import DEFAULT_FACTORIES, Spec, TargetSpec
from pt2hub_workers.inside.builds.export import inputs
from pt2hub_workers.inside.builds.export.adapter import adapt_model
from pt2hub_workers.inside.builds.export.call import arguments
from pt2hub_workers.inside.builds.export.export import export
from pt2hub_workers.inside.builds.key import settings
from pt2hub_workers.inside.sources import build_model
from pt2hub_workers.inside.sources.source_files import SourceFiles
from support.code import DIGEST, archive
from support.workbench import Workbench, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}
GPT2 = {"n_layer": 1, "n_embd": 32, "n_head": 4, "vocab_size": 99, "bos_token_id": 0, "eos_token_id": 0}
IDS = {
    "name": "input_ids",
    "shape": ["batch", "seq"],
    "dtype": "int64",
    "generate": {"randint": {"high": 99}},
}
MASK = {"name": "attention_mask", "shape": ["batch", "seq"], "dtype": "int64", "generate": {"constant": 1}}
TEXT = {"batch": {"min": 1, "max": 8, "example": 2}, "seq": {"min": 2, "max": 32, "example": 6}}
IMAGE = {"name": "x", "shape": ["batch", 3, 32, 32], "generate": {"normal": {}}}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a build's process has it; a test before may have imported the library, which reads the variable only then.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def _factory(factory: str, config: dict[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
    return {"factory": factory, "config": config, "kwargs": kwargs}


def _model(document: dict[str, Any], tmp_path: Path) -> tuple[Spec, torch.nn.Module]:
    spec = Spec.model_validate(document)
    return spec, build_model(spec.source, SourceFiles(DEFAULT_FACTORIES, None, None, tmp_path))


@pytest.mark.parametrize(
    "fields",
    [
        {
            "source": _factory(
                "transformers:BertModel", {**SMALL, "model_type": "bert"}, add_pooling_layer=False
            ),
            "inputs": [IDS, MASK],
            "dims": TEXT,
            "outputs": [".last_hidden_state"],
        },
        {
            "source": _factory("transformers:AutoModel", {**GPT2, "model_type": "gpt2"}),
            "inputs": [IDS],
            "dims": TEXT,
            "fixed": {"use_cache": False},
        },
        {
            "source": _factory(
                "timm:create_model", model_name="test_resnet", pretrained=False, num_classes=5
            ),
            "inputs": [IMAGE],
            "dims": {"batch": TEXT["batch"]},
        },
    ],
    ids=["bert", "gpt2", "timm"],
)
def test_what_a_library_builds_exports_with_dynamic_sizes_and_agrees_at_others(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    with settings.watch_settings() as changed:
        spec, model = _model(tiny_spec(**fields), tmp_path)
    adapt_model(model, spec)
    example, _, smallest, _ = inputs.make_points(spec, {name: dim.max for name, dim in spec.dims.items()})

    program = export(
        model, inputs.make_inputs(spec, example, {}), spec, TargetSpec(target="auto"), "cpu"
    ).program

    assert changed == []
    given = arguments(inputs.make_inputs(spec, smallest, {}))
    with torch.inference_mode():
        torch.testing.assert_close(program.module()(*given.values()), model(**given))


@pytest.mark.parametrize(
    ("source", "kind", "where", "said"),
    [
        (
            _factory("transformers:BertModel", {**SMALL, "hidden_sise": 8}),
            errors.FactoryArguments,
            "source.config.hidden_sise",
            "Did you mean hidden_size",
        ),
        (
            _factory("transformers:CLIPModel", {"text_config": {"hiden_act": "relu"}}),
            errors.FactoryArguments,
            "source.config.text_config.hiden_act",
            "CLIPTextConfig has no such field",
        ),
        (
            _factory("transformers:BertModel", {**SMALL, "hidden_size": "wide"}),
            errors.FactoryArguments,
            "source.config.hidden_size",
            "expected int, got str",
        ),
        (
            _factory("transformers:BertModel", {"model_type": "gpt2"}),
            errors.FactoryArguments,
            "source.config.model_type",
            "model_type must be bert",
        ),
        (
            _factory("transformers:AutoModel", {"model_type": "bertt"}),
            errors.FactoryArguments,
            "source.config.model_type",
            "Did you mean bert",
        ),
        (
            _factory("transformers:AutoModel", SMALL),
            errors.FactoryArguments,
            "source.config.model_type",
            "requires a model_type",
        ),
        (
            _factory("transformers:BertModel"),
            errors.FactoryArguments,
            "source.config",
            "{} selects the defaults",
        ),
        (
            _factory("transformers:BertModel", SMALL, add_poling_layer=True),
            errors.FactoryArguments,
            "source.kwargs",
            "BertModel(add_pooling_layer=True)",
        ),
        (
            _factory("torchvision.models:resnet18", {"width": 3}),
            errors.FactoryArguments,
            "source.config",
            "does not accept a configuration",
        ),
        (
            _factory("timm:create_model", model_name="test_resnet", pretraned=False),
            errors.FactoryArguments,
            "source.kwargs",
            "pretraned",
        ),
        (
            _factory("transformers:BertModl"),
            errors.UnknownFactory,
            "source.factory",
            "Did you mean BertModel",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fields_and_arguments_that_a_library_would_swallow_are_refused(
    source: dict[str, Any], kind: type[errors.Pt2hubError], where: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(kind) as caught:
        _model(tiny_spec(source=source), tmp_path)

    assert caught.value.where == where
    assert said in str(caught.value)


def test_a_configurations_dtype_is_heeded(tmp_path: Path) -> None:
    source = _factory("transformers:BertModel", {**SMALL, "dtype": "bfloat16"})

    assert _model(tiny_spec(source=source), tmp_path)[1].dtype == torch.bfloat16


@pytest.mark.parametrize(
    "source",
    [
        _factory("timm:create_model", model_name="test_resnet", pretrained=True),
        _factory("timm:create_model", model_name="test_resnet", checkpoint_path="/home/me/weights.pth"),
    ],
    ids=["network", "file"],
)
def test_a_factory_that_looks_for_weights_elsewhere_is_told_how_they_come_here(
    source: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(errors.FactoryFailed) as caught:
        _model(tiny_spec(source=source), tmp_path)

    assert "pt2hub publish --weights" in (caught.value.hint or "")


CHANGING = """
import os

import torch
import torch._inductor.config

torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
torch.set_num_threads(1)
torch._inductor.config.max_fusion_size = 32
os.environ["TORCHINDUCTOR_OF_A_SOURCE"] = "1"


class Net(torch.nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4, device="cpu", dtype=torch.float32)
        self.gain = gain

    def forward(self, x):
        from parts.shift import SHIFT  # when it is called

        return (self.linear(x) * self.gain + SHIFT * torch.ones(4)).float()


@torch.inference_mode()
def build(gain):
    return Net(gain)
"""


@pytest.fixture
def _settings() -> Iterator[None]:
    """What the source above changes of this process, put back."""
    import torch._inductor.config

    threads, size = torch.get_num_threads(), torch._inductor.config.max_fusion_size  # as the source does
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)
    torch._inductor.config.max_fusion_size = size
    os.environ.pop("TORCHINDUCTOR_OF_A_SOURCE", None)


@pytest.mark.usefixtures("_settings")
def test_code_that_changes_settings_is_published_and_they_are_said_and_in_the_key(
    bench: Workbench, tmp_path: Path
) -> None:
    bench.events.clear()
    code = archive(tmp_path, {"net.py": CHANGING, "parts/shift.py": "SHIFT = 0.5"})
    source = {"code": DIGEST, "entry": "net:build", "kwargs": {"gain": 3.0}, "requirements": ["torch>=2.11"]}

    parts = bench.build(tiny_spec(source=source), source=code)

    warned = [event["text"] for event in bench.events if event.get("level") == "warning"]
    for said in (
        "default_dtype from torch.float32 to torch.float64: it is part of the program key",
        "num_threads from",
        "inductor.max_fusion_size from 64 to 32",
        "environment.TORCHINDUCTOR_OF_A_SOURCE from nothing to 1",
        "the default device (to meta), which is restored",
        "the gradient mode, which is restored",
    ):
        assert any(line.startswith("the source changed") and said in line for line in warned), said
    fields = bench.keys[-1][1]["fields"]
    assert fields["threads"] == 1
    assert fields["settings"]["default_dtype"] == "torch.float64"
    assert fields["settings"]["changed"] == {"inductor.max_fusion_size": "32"}
    assert fields["settings"]["environment"]["TORCHINDUCTOR_OF_A_SOURCE"] == "1"
    assert parts["verification"]["result"] == "passed"


def test_a_plain_function_without_weights_is_published(bench: Workbench, tmp_path: Path) -> None:
    text = "def scaled(x, scale=1.0):\n    return {'y': x.sin() * scale}\n"
    source = {"code": DIGEST, "entry": "net:scaled", "entry_is": "function"}

    parts = bench.build(
        tiny_spec(source=source, fixed={"scale": 2.0}), source=archive(tmp_path, {"net.py": text})
    )

    assert parts["verification"]["result"] == "passed"
    assert parts["signature"]["arguments"] == ["x", "scale"]
    assert parts["signature"]["fixed"] == {"scale": 2.0}
