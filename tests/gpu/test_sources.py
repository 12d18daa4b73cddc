"""Other sources than factories of torchvision, on a CUDA device: transformers, an exported program, baked weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.cli.operations import demo
from support.gpu import UNMEASURED, await_measured, check_confined, publish

if TYPE_CHECKING:
    from pt2hub.client.client import Client

pytestmark = pytest.mark.gpu
BERT = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
SIZES = {
    "batch": {"min": 1, "max": 16, "example": 2},
    "tokens": {"min": 8, "max": 128, "example": 64, "multiple_of": 8},
}


def _ids(name: str, high: int, low: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "shape": ["batch", "tokens"],
        "dtype": "int64",
        "generate": {"randint": {"low": low, "high": high}},
    }


def test_a_transformers_model_in_half_precision_keeps_one_output(client: Client) -> None:
    import transformers

    reference = publish(
        client,
        {
            "measure": UNMEASURED,
            "model": "text/bert",
            "source": {"factory": "transformers:BertModel", "config": BERT},
            "inputs": [_ids("input_ids", 30522), _ids("attention_mask", 2, 1)],
            "fixed": {"return_dict": True},
            "outputs": [".last_hidden_state"],
            "dims": SIZES,
            "targets": [{"target": "auto", "dtype": "float16"}],
        },
    )
    torch.manual_seed(0)
    eager = transformers.BertModel(transformers.BertConfig(**BERT)).eval().half().cuda()
    ids = torch.randint(0, 30522, (3, 32), device="cuda")
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        expected = eager(input_ids=ids, attention_mask=mask).last_hidden_state

    found = client.load(reference)(input_ids=ids, attention_mask=mask)

    assert found.dtype is torch.float16
    torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)


class _Pair(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, pair: dict[str, torch.Tensor], scale: float = 1.0) -> dict[str, torch.Tensor]:
        positions = torch.arange(pair["a"].shape[0])  # made on the device of the export, the CPU
        joined = (
            self.left(pair["a"]) * scale + self.right(pair["b"]) + positions.to(pair["a"].device)[:, None]
        )
        return {"joined": joined, "norm": joined.norm(dim=-1)}


def test_a_program_that_was_exported_on_the_cpu_is_built_for_the_gpu(client: Client) -> None:
    torch.manual_seed(1)
    model = _Pair().eval()
    pair = {"a": torch.randn(4, 64), "b": torch.randn(4, 64)}
    batch = torch.export.Dim("batch", min=1, max=64)

    version = client.publish(
        model,
        (pair,),
        {"scale": 0.5},
        name="team/pair",
        dynamic_shapes={"pair": {"a": {0: batch}, "b": {0: batch}}, "scale": None},
        measure=UNMEASURED,
        wait=True,
    )

    assert [build.state for build in version.builds] == ["succeeded"], [
        build.error for build in version.builds
    ]
    check_confined(client, version.builds[0])
    expected = model(pair, scale=0.5)
    found = client.load(f"team/pair@{version.number}")({k: v.cuda() for k, v in pair.items()}, scale=0.5)
    for name in ("joined", "norm"):
        torch.testing.assert_close(found[name].cpu(), expected[name], rtol=5e-3, atol=5e-3)


def test_baked_weights_agree_and_are_timed_beside_eager(client: Client) -> None:
    import torchvision

    spec = {**demo.SPEC, "model": "vision/resnet18-baked", "compile": {"weights": "baked"}}
    reference = publish(client, {**spec, "measure": {"processes": 1, "torch_compile": False}})
    torch.manual_seed(0)
    eager = torchvision.models.resnet18().eval().cuda()
    x = torch.randn(4, 3, 224, 224, device="cuda")
    with torch.inference_mode():
        expected = eager(x)

    found = client.load(reference)(x)

    torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)  # tf32 convolutions
    digest = await_measured(client, reference)
    timed = {m.implementation for m in client.artifacts.get(digest).measurements if m.metric == "latency_p50"}
    assert timed == {"artifact", "eager"}
