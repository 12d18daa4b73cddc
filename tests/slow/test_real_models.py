"""Models as people have them, on their whole way: published to a real server, built in the sandbox, loaded, compared.

Run by `make test-slow`. The figures that it prints are of one run on a machine that may do other things too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch
from torch import nn

from pt2hub.cli.operations.temporary_server import TemporaryServer
from pt2hub.torchvision_operators import declare_torchvision
from support.headers import PLACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.client.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
IMAGES = {"name": "x", "shape": ["batch", 3, 128, 128], "generate": {"normal": {}}}
BERT = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}


def _resnet18() -> nn.Module:
    declare_torchvision()
    from torchvision.models import resnet18

    return resnet18()


def _bert() -> nn.Module:
    declare_torchvision()
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**BERT))


def _mobilenet() -> nn.Module:
    """With statistics of what flows through it: as it is born, next to nothing reaches its end."""
    declare_torchvision()
    import timm

    model = timm.create_model("mobilenetv3_small_100").train()
    with torch.no_grad():
        for _ in range(20):
            model(torch.randn(16, 3, 96, 96))
    return model


def _pictures(batch: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 3, 128, 128)}


def _sentences(batch: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(30522, (batch, 8 * batch))
    mask = torch.ones_like(ids)
    mask[-1, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@dataclass(frozen=True)
class Case:
    """A model: how the server is told of it, how it is made here, and inputs of a batch."""

    source: dict[str, Any]
    make: Callable[[], nn.Module]
    inputs: Callable[[int], dict[str, torch.Tensor]]
    fields: dict[str, Any]
    result: Callable[[Any], torch.Tensor] = field(default=lambda found: found)


CASES = {
    "resnet18": Case(
        {"factory": "torchvision.models:resnet18"},
        _resnet18,
        _pictures,
        {"inputs": [IMAGES], "dims": {"batch": {"min": 1, "max": 8, "example": 2}}},
    ),
    "bert": Case(
        {"factory": "transformers:BertModel", "config": BERT},
        _bert,
        _sentences,
        {
            "inputs": [
                {
                    "name": "input_ids",
                    "shape": ["batch", "length"],
                    "dtype": "int64",
                    "generate": {"randint": {"high": 30522}},
                },
                {
                    "name": "attention_mask",
                    "shape": ["batch", "length"],
                    "dtype": "int64",
                    "generate": {"constant": 1},
                },
            ],
            "dims": {
                "batch": {"min": 1, "max": 8, "example": 2},
                "length": {"min": 8, "max": 128, "example": 32, "multiple_of": 8},
            },
            "outputs": [".last_hidden_state"],
        },
        lambda found: found.last_hidden_state,
    ),
    "mobilenetv3": Case(
        {"factory": "timm:create_model", "kwargs": {"model_name": "mobilenetv3_small_100"}},
        _mobilenet,
        _pictures,
        {"inputs": [IMAGES], "dims": {"batch": {"min": 1, "max": 8, "example": 2}}},
    ),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Of a server with one worker, which confines what it builds."""
    places = {"PT2HUB_HEADERS": str(PLACE), "PT2HUB_ISOLATION": "sandbox"}
    with TemporaryServer(tmp_path_factory.mktemp("slow"), **places).server() as made:
        yield made


@pytest.mark.parametrize("name", CASES)
def test_a_real_model_is_published_loaded_and_computes_what_eager_does(
    client: Client, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make().eval().requires_grad_(False)
    weights = tmp_path / "weights.safetensors"
    safetensors.torch.save_model(model, str(weights))
    spec = {"model": f"real/{name}", "source": {**case.source, "seed": 1}, **case.fields}

    began = time.monotonic()
    version = client.publish({**spec, "measure": {"torch_compile": False}}, weights=weights, wait=True)

    assert version.readiness == "ready", version.builds[0].error
    digest = version.builds[0].artifact
    assert digest is not None
    artifact = client.artifacts.get(digest)
    assert artifact.provenance["isolation"] == "sandbox"
    loaded = client.load(f"real/{name}@1")
    for batch in (1, 3, 8):
        inputs = case.inputs(batch)
        expected = case.result(model(**inputs))
        signal = expected.abs().max().item()
        assert signal > 1e-3, "or this tests nothing"
        torch.testing.assert_close(loaded(**inputs), expected, rtol=1e-3, atol=1e-4 * signal)
    seconds = ", ".join(f"{step.name} {step.seconds:.1f}" for step in version.builds[0].steps if step.seconds)
    print(f"\n{name}: published in {time.monotonic() - began:.0f} s ({seconds})")
