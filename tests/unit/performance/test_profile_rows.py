"""Rows of a profile beside torch.compile's, and the generated kernel that each stands for."""

from __future__ import annotations

import pytest

from pt2hub.domain.fusion import FusedKernel
from pt2hub.domain.performance.profile_rows import KernelIndex, pair_rows
from pt2hub.domain.performance.profiles import Gaps, Profile, ProfileRow
from pt2hub.rendering.profiles import GAPS, compare_whole_calls, gap_causes, whole_call


def row(name: str, total: float = 3.0, operator: str | None = None) -> ProfileRow:
    return ProfileRow(name, 3, total, total / 3, 0.5, operator)


def profile(*rows: ProfileRow, calls: int = 3, gaps: Gaps | None = None) -> Profile:
    on_device = {"device_us": 60.0, "gap_us": gaps.total_us} if gaps else {}
    return Profile(3, "cuda" if gaps else "cpu", calls, 100.0, 10.0, rows, gaps=gaps, **on_device)


KERNELS = [
    FusedKernel(name, 1)
    for name in (
        "triton_poi_fused_relu_0",
        "triton_poi_fused_relu_1",
        "model_triton_poi_fused_convolution_0",
        "aoti_torch_cuda_convolution",
        "aoti_torch_cuda_addmm_out",
        "aoti_torch_cuda__scaled_dot_product_flash_attention",
        "aoti_torch_cpu_mkl_linear",
        "silu_kernel_0",
        "gate_kernel_0",
        "gate_kernel_1",
    )
]


@pytest.mark.parametrize(
    ("name", "operator", "found"),
    [
        ("triton_poi_fused_relu_1", None, "triton_poi_fused_relu_1"),
        ("triton_poi_fused_convolution_0", None, "model_triton_poi_fused_convolution_0"),
        ("triton_poi_fused_relu_7", None, None),
        ("triton_poi_fused_relu", None, None),
        ("silu_kernel", None, "silu_kernel_0"),
        ("gate_kernel", None, None),
        ("gate_kernel_1", "mine::gate", "gate_kernel_1"),
        ("sm80_xmma_fprop_implicit_gemm", "aten::convolution", "aoti_torch_cuda_convolution"),
        ("sm80_xmma_fprop_implicit_gemm", "aten::_convolution", "aoti_torch_cuda_convolution"),
        ("sm80_xmma_fprop_implicit_gemm", "aten::cudnn_convolution", "aoti_torch_cuda_convolution"),
        ("ampere_sgemm_128x64_tn", "aten::addmm", "aoti_torch_cuda_addmm_out"),
        (
            "flash_fwd_kernel",
            "aten::_scaled_dot_product_flash_attention",
            "aoti_torch_cuda__scaled_dot_product_flash_attention",
        ),
        ("ampere_sgemm_128x64_tn", "aten::bmm", None),
        ("ampere_sgemm_128x64_tn", None, None),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >", None, None),
        ("aten::addmm", None, "aoti_torch_cuda_addmm_out"),
        ("mkl::_mkl_linear", None, "aoti_torch_cpu_mkl_linear"),
        ("Memcpy DtoD (Device -> Device)", None, None),
        ("", "", None),
        ("::", "::", None),
    ],
)
def test_a_row_leads_to_its_kernel(name: str, operator: str | None, found: str | None) -> None:
    kernel = KernelIndex(KERNELS).find(row(name, operator=operator))
    assert (kernel.name if kernel else None) == found


def test_kernels_of_one_name_in_several_parts_are_one_row() -> None:
    name = "triton_poi_fused_relu_0"
    index = KernelIndex(
        [FusedKernel(name, 2, ("a", "b"), ("x",)), FusedKernel(name, 1, ("c", "b"), ("x", "y"))]
    )
    assert index.find(row(name)) == FusedKernel(name, 3, ("a", "b", "c"), ("x", "y"))


def test_rows_are_paired_by_name_and_the_longest_of_either_comes_first() -> None:
    own = profile(row("a", 30.0), row("b", 3.0))
    other = profile(row("c", 400.0), row("b", 1.0), row("d", 1.0), calls=10)
    pairs = pair_rows(own, other)
    assert [pair.name for pair in pairs] == ["c", "a", "b", "d"]
    assert pairs[2].artifact == own.rows[1]
    assert pairs[2].torch_compile == other.rows[1]
    assert (pairs[0].artifact, pairs[1].torch_compile) == (None, None)
    assert [pair.name for pair in pair_rows(own, None)] == ["a", "b"]


def test_the_parts_of_a_call_stand_side_by_side_and_add_up() -> None:
    own = profile(gaps=Gaps(launch_us=20.0, device_us=10.0))
    other = profile(gaps=Gaps(sync_us=25.0, unknown_us=5.0))
    parts = {label: (mine, theirs) for label, mine, theirs in compare_whole_calls(own, other)}
    assert parts[GAPS["launch_us"]] == (20.0, 0.0)
    assert parts[GAPS["sync_us"]] == (0.0, 25.0)
    assert parts[GAPS["device_us"]] == (10.0, None)
    assert parts[GAPS["unknown_us"]] == (None, 5.0)
    assert sum(time for label, time in whole_call(own) if "under the profiler" not in label) == 100.0
    assert [label for label, _, _ in compare_whole_calls(own, None)] == [
        label for label, _ in whole_call(own)
    ]
    assert gap_causes(own) == "launch-bound 20 µs, on the device 10 µs"
    assert gap_causes(profile(gaps=Gaps())) == "none"
    assert gap_causes(profile()) == ""
    assert whole_call(profile()) == (("call under the profiler", 100.0),)
