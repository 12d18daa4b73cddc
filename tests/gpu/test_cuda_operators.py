"""Versions whose Triton kernels compute equal numbers with other blocks: none runs the code of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from support.bounded import TRITON, mended, spec
from support.gpu import UNMEASURED, check_confined

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client

pytestmark = pytest.mark.gpu
PLAIN = TRITON.replace('@torch.library.triton_op("bounded::act", mutates_args=())\n', "").replace(
    "torch.library.wrap_triton(kernel)", "kernel"
)
DIMS = {"batch": {"min": 1, "max": 1024, "example": 128}}


def _published(
    client: Client, folder: Path, model: str, source: str, *, strict: bool
) -> tuple[Any, torch.Tensor]:
    """Publishes a source; the artifact's view, and what it computes beyond the branch."""
    folder.mkdir()
    (folder / "net.py").write_text(source)
    version = client.publish(
        spec(model, dims=DIMS, measure=UNMEASURED, export={"strict": strict}), code=folder, wait=True
    )
    build = version.builds[0]
    check_confined(client, build)
    assert build.artifact is not None
    outputs = client.load(f"{model}@{build.number}")(torch.full((3, 8), 76.28, device="cuda"))
    return client.artifacts.get(build.artifact), outputs


@pytest.mark.parametrize(("source", "strict"), [(TRITON, False), (PLAIN, True)], ids=["triton_op", "plain"])
def test_another_block_or_body_is_not_answered_with_code_of_the_first(
    client: Client, tmp_path: Path, source: str, *, strict: bool
) -> None:
    model = f"tiny/bounded-{'plain' if strict else 'operator'}"
    sources = {
        "first": source,
        "block": source.replace("BLOCK = 256", "BLOCK = 1024"),
        "mended": mended(source),
        "commented": source.replace("    mask =", "    # what lies within\n    mask ="),
    }
    made = {
        name: _published(client, tmp_path / name, model, text, strict=strict)
        for name, text in sources.items()
    }

    for name in ("first", "block", "mended"):
        assert made[name][0].provenance["code_reused_from"] is None, name
    assert made["commented"][0].provenance["code_reused_from"] is not None
    assert len({view.program_key for view, _ in made.values()}) == 3
    for name, (_, outputs) in made.items():
        torch.testing.assert_close(outputs.cpu(), torch.full((3, 8), 76.28 * 3 if name == "mended" else 0.0))
