"""Autotuning on a CUDA device: what candidates are, which ones fail and why, and kernels compared by what they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from support.gpu import UNMEASURED, check_confined

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.domain.performance.autotune import AutotuneChoice
    from pt2hub.wire.artifacts import ArtifactView

pytestmark = pytest.mark.gpu
NAME = "team/products"
TILES = {"BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps"}
SIZES = [["256", "512"], ["512", "512"]]
"""Of the product that both versions have."""


class _Products(torch.nn.Module):
    """A product in float32: its largest tiles need more shared memory than a GPU of today has."""

    def __init__(self, *, before: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(512, 512) / 23)
        self.before = torch.nn.Parameter(torch.randn(512, 384) / 23) if before else None

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = x @ self.weight
        return (own,) if self.before is None else (torch.relu(x @ self.before), own)


def _published(client: Client, *, before: bool) -> ArtifactView:
    options = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON"}
    version = client.publish(
        _Products(before=before).eval(),
        (torch.randn(256, 512),),
        name=NAME,
        compile={"options": options},
        measure=UNMEASURED,
        wait=True,
    )
    (build,) = version.builds
    assert build.state == "succeeded", build.error
    check_confined(client, build)
    assert build.artifact is not None
    view = client.artifacts.get(build.artifact)
    print(json.dumps({"known from before": before, "autotuning": view.provenance["autotuning"]}))
    return view


@pytest.fixture(scope="module")
def built(client: Client) -> tuple[ArtifactView, ArtifactView]:
    """The artifacts of two versions; the second one has the first one's product, and another one before it."""
    return _published(client, before=False), _published(client, before=True)


def _identity(choice: AutotuneChoice) -> str:
    return json.dumps([choice.template, choice.parameters], sort_keys=True)


def test_candidates_are_kept_with_their_parameters_and_compared_by_them(
    client: Client, built: tuple[ArtifactView, ArtifactView]
) -> None:
    first, second = (list(view.autotune) for view in built)
    rows: dict[str, Any] = {row.candidate: [row.milliseconds, row.parameters, row.reason] for row in first}
    print(json.dumps(rows))

    triton = [row for row in first if row.template.startswith("triton_")]
    assert len(triton) >= 5
    for row in triton:
        assert row.parameters is not None
        assert row.parameters.keys() >= TILES, row
    assert len({_identity(row) for row in first}) == len(first)
    assert "extern: mm" in {row.template for row in first}
    assert [row.chosen for row in first].count(True) == 1
    assert all((row.milliseconds or 0) > 0 for row in first if row.chosen)
    assert all((row.benchmark_seconds or 0) > 0 for row in first)

    failed = [row for row in first if row.milliseconds is None]
    print(json.dumps({row.candidate: row.reason for row in failed}))
    assert any("resource" in row.reason or "shared memory" in row.reason for row in failed)
    assert [row.rank for row in first] == list(range(1, len(first) + 1))

    same = [row for row in second if row.shapes == SIZES]
    names = {_identity(row): row.candidate for row in first if row in triton}
    moved = [row for row in same if names.get(_identity(row), row.candidate) != row.candidate]
    assert moved, "no kernel has another name in the second build, so that nothing is tried here"
    was, now = (next(row for row in rows if row.chosen) for rows in (first, same))
    told = [
        item for item in client.performance.compare(f"{NAME}@1", f"{NAME}@2").autotune if item.shapes == SIZES
    ]
    print(json.dumps({"before": [was.candidate, _identity(was)], "after": [now.candidate, _identity(now)]}))
    assert bool(told) == (_identity(was) != _identity(now)), told


def test_a_later_build_of_the_team_times_only_what_is_new(built: tuple[ArtifactView, ArtifactView]) -> None:
    one, other = built
    assert "known" not in one.provenance["autotuning"]
    assert other.provenance["autotuning"]["known"] >= 1
    times = [[row.milliseconds for row in view.autotune if row.shapes == SIZES] for view in built]
    assert times[0]
    assert times[0] == times[1]


def test_a_mode_tunes_and_makes_graphs_the_default_of_a_load(client: Client) -> None:
    x = torch.randn(256, 512)  # whose products an earlier test may have timed
    model = _Products(before=True).eval()
    version = client.publish(
        model, (x,), name="team/moded", compile={"mode": "max-autotune"}, measure=UNMEASURED, wait=True
    )
    (build,) = version.builds
    assert build.artifact is not None, build.error
    made = client.artifacts.get(build.artifact).provenance["compile"]
    assert made == {
        "mode": "max-autotune",
        "options": {"coordinate_descent_tuning": True, "max_autotune": True},
    }
    graphed, plain = client.load("team/moded@1"), client.load("team/moded@1", cuda_graph=False)
    for _ in range(2):
        for one, other in zip(graphed(x.cuda()), plain(x.cuda()), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert graphed.info.cuda_graphs is not None
    assert plain.info.cuda_graphs is None
