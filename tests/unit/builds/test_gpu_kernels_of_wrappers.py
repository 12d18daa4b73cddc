"""What a generated wrapper says of its GPU kernels: their files, and the shared memory of a block."""

from __future__ import annotations

import pytest

from pt2hub_workers.inside.builds.compile.native import inspect_libraries

WRAPPER = """
    if (kernels.triton_poi_fused_relu_0 == nullptr) {{
        kernels.triton_poi_fused_relu_0 = loadKernel("/build/cache/c2/c2x.{one}", "triton_poi_fused_relu_0", 0, this->cubin_dir_);
    }}
    if (kernels.triton_tem_fused_mm_1 == nullptr) {{
        kernels.triton_tem_fused_mm_1 = loadKernel("/build/cache/ab/abc.{other}", "triton_tem_fused_mm_1", 98304, cubin_dir_, &kernels_.loaded_modules_);
    }}
"""
"""The lines of torch 2.11 and of 2.13."""


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("cubin", "cubin", False), ("fatbin", "cubin", False), ("fatbin", "fatbin", True)],
)
def test_an_artifact_is_for_several_gpus_if_every_kernel_has_ptx(
    one: str, other: str, expected: bool
) -> None:
    needs = inspect_libraries(
        [], [WRAPPER.format(one=one, other=other)], level="x86_64_v3", host_flags=frozenset()
    )
    assert needs.is_multi_arch is expected
    assert needs.shared_memory_bytes == 98304


def test_an_artifact_without_gpu_kernels_needs_no_gpu() -> None:
    needs = inspect_libraries([], ["// g++ model.cpp -mavx2"], level="x86_64_v3", host_flags=frozenset())
    assert (needs.is_multi_arch, needs.shared_memory_bytes, needs.cpu_flags) == (False, 0, ("avx2",))
