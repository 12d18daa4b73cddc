"""Kernels of an artifact with their times: the largest first, and what ran without a record."""

from __future__ import annotations

from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.domain.fusion import FusedKernel
from pt2hub.domain.performance.profiles import PROFILE_SCHEMA, Profile, ProfileRow
from pt2hub.server.pages.artifacts.kernel_table import KernelTable, KernelTime, tabulate
from pt2hub.wire.kernels import KernelsView

DIGEST = Digest("sha256:" + "0" * 64)


def view(*names: str) -> KernelsView:
    kernels = tuple(FusedKernel(name, 1, ()) for name in names)
    return KernelsView(DIGEST, "team/name", 1, "torch2.13-cu130-sm90", DIGEST, kernels, ())


def row(name: str, share: float, operator: str | None = None) -> ProfileRow:
    """Return a row of three calls, whose GPU is busy for 1,000 µs each."""
    return ProfileRow(name, 3, 3000 * share, 1000 * share, share, operator)


def profile(*rows: ProfileRow, device: str = "cuda", **values: Any) -> Profile:
    return Profile(PROFILE_SCHEMA, device, 3, 1000.0, values.pop("rest_us", 0.0), rows, batch=8, **values)


def names(table: KernelTable) -> list[str]:
    return [item.name for item in (*table.shown, *table.others)]


def test_the_largest_kernel_is_first_and_those_without_a_time_are_last_in_the_order_of_their_calls() -> None:
    found = tabulate(
        view("triton_a_0", "triton_b_1", "aoti_torch_cuda_addmm_out", "triton_c_2"),
        profile(
            row("Memcpy DtoH", 0.1),
            row("triton_b_1", 0.2),
            row("sgemm", 0.4, "aten::addmm"),
            row("sgemm_2", 0.3, "aten::addmm"),
        ),
    )
    assert names(found) == [
        "aoti_torch_cuda_addmm_out",
        "triton_b_1",
        "Memcpy DtoH",
        "triton_a_0",
        "triton_c_2",
    ]
    assert found.largest is not None
    assert found.largest.time is not None
    assert round(found.largest.time.share, 6) == 0.7
    assert found.shown[1].time == KernelTime(0.2, 200.0, 1.0)
    assert [item.time for item in found.shown[3:]] == [None, None]
    assert (found.recorded, found.unrecorded, found.shown[2].kernel) == (4, 1, None)


def test_without_a_profile_kernels_stand_in_the_order_of_their_calls() -> None:
    found = tabulate(view("triton_b_0", "triton_a_1"))
    assert names(found) == ["triton_b_0", "triton_a_1"]
    assert (found.largest, found.unseen_share, found.is_mostly_unseen) == (None, None, False)


def test_without_a_record_what_ran_is_listed_and_leads_to_the_sources() -> None:
    found = tabulate(None, profile(row("triton_poi_fused_0", 0.6), row("Memcpy DtoH", 0.4)))
    assert [(item.name, item.generated) for item in found.shown] == [
        ("triton_poi_fused_0", "triton_poi_fused_0"),
        ("Memcpy DtoH", ""),
    ]


def test_kernels_of_one_name_have_one_time() -> None:
    found = tabulate(view("triton_a_0", "triton_b_0", "triton_a_0"), profile(row("triton_a_0", 0.6)))
    assert [(item.name, item.is_repeated) for item in found.shown] == [
        ("triton_a_0", False),
        ("triton_a_0", True),
        ("triton_b_0", False),
    ]


def test_on_a_cpu_generated_kernels_may_take_more_than_the_profiler_sees() -> None:
    kernels = view("cpp_fused_relu_0", "aoti_torch_cpu_mm_out")
    seen = row("aten::mm", 0.3)
    assert tabulate(kernels, profile(seen, device="cpu", rest_us=700.0)).is_mostly_unseen
    assert not tabulate(kernels, profile(seen, device="cpu", rest_us=200.0)).is_mostly_unseen
    every = profile(seen, row("cpp_fused_relu_0", 0.1), device="cpu", rest_us=600.0)
    assert not tabulate(kernels, every).is_mostly_unseen
    assert not tabulate(kernels, profile(seen, rest_us=700.0)).is_mostly_unseen
