"""Generated sources as a compiler writes them, in short: for pages that show such files, and read by no compiler."""

from __future__ import annotations

WRAPPER = """\
// {model}, {title}, for {arch}. Made up by pt2hub admin seed-demo: nobody compiled this.
#include <torch/csrc/inductor/aoti_runtime/interface.h>
#include <torch/csrc/inductor/aoti_runtime/model.h>

namespace torch::aot_inductor {{

void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles,   // handles are stolen, the array is borrowed
    AtenTensorHandle* output_handles,
    DeviceStreamType stream,
    AOTIProxyExecutorHandle proxy_executor) {{
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, num_inputs());
    const int64_t s0 = sizes_of(inputs[0])[0];
    if (s0 < 1) {{
        throw std::runtime_error("batch must be at least 1");
    }}
    RAIIAtenTensorHandle buf0 = std::move(inputs[0]);
    RAIIAtenTensorHandle buf1 = empty_strided_like(buf0, /*device_index=*/device_idx_);
{calls}
    output_handles[0] = buf1.release();
}}

}}  // namespace torch::aot_inductor
"""
KERNEL = """
extern "C" void {kernel}(const float* in_ptr0, const float* in_ptr1, float* out_ptr0, const int64_t ks0)
{{
    #pragma omp parallel for schedule(static)
    for (int64_t x0 = 0; x0 < 64 * ks0; x0 += 16) {{
        auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + x0, 16);
        auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr1 + x0 % 64, 16);
        auto tmp2 = tmp0 + tmp1;                                        // {number}
        auto tmp3 = at::vec::maximum(tmp2, at::vec::Vectorized<float>(0));
        tmp3.store(out_ptr0 + x0);
    }}
}}
"""
TRITON = '''\
# Made up by pt2hub admin seed-demo: nobody compiled this.
import triton
import triton.language as tl


@triton.jit
def {kernel}(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    """One pass over the elements, for {arch}."""
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask).to(tl.float32)
    tmp1 = tl.load(in_ptr1 + xindex % 768, xmask, eviction_policy="evict_last").to(tl.float32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp2 * 0.5 * (1.0 + tl.erf(tmp2 * 0.7071067811865476))
    tl.store(out_ptr0 + xindex, tmp3, xmask)
'''
