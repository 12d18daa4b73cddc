"""Triton kernels in the program key: what they compute, what they read, how they are launched.

They need Triton and no device: with Triton beside torch they run on any machine (`pytest -m gpu` and this file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.program_keys import keys_of

if TYPE_CHECKING:
    from support.program_keys import Named

pytestmark = pytest.mark.gpu
KERNEL = """
import torch
import triton
import triton.language as tl

BLOCK = 256
SHIFT: tl.constexpr = tl.constexpr(1)
UNREAD = 1

@triton.jit
def inner(x):
    return x * 2

@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % 2 == 0})
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, inner(x) + SHIFT, mask=mask)

@triton.jit
def unused(x_ptr):
    tl.store(x_ptr, 0)

@torch.library.triton_op("mine::act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    torch.library.wrap_triton(kernel)[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK=BLOCK)
    return out

class Net(torch.nn.Module):
    def forward(self, x):
        return act(x)

EXAMPLE = lambda: (torch.ones(3, 4, device="cuda" if torch.cuda.is_available() else "cpu"),)

def build():
    return Net().eval()
"""
PLAIN = (
    KERNEL.replace('@torch.library.triton_op("mine::act", mutates_args=())\n', "")
    .replace("torch.library.wrap_triton(kernel)", "kernel")
    .replace("import torch\n", "import torch\n\nSTRICT = True\n", 1)
)
SHAPING = {
    "block size": ("BLOCK = 256", "BLOCK = 1024"),
    "body": ("inner(x) + SHIFT", "inner(x) - SHIFT"),
    "a kernel that it calls": ("return x * 2", "return x * 3"),
    "a global": ("tl.constexpr(1)", "tl.constexpr(2)"),
    "warps": ("num_warps=4", "num_warps=8"),
    "stages": ("num_warps=4", "num_warps=4, num_stages=2"),
    "key of autotuning": ('key=["n"]', "key=[]"),
    "heuristics": ("% 2 == 0", "% 5 == 0"),
    "grid": ("triton.cdiv(n, BLOCK)", "triton.cdiv(n, BLOCK) + 1"),
    "inlining": ("@triton.jit\ndef inner", "@triton.jit(noinline=True)\ndef inner"),
    "a global that is changed between import and call": (
        "def build():\n",
        "def build():\n    global SHIFT\n    SHIFT = tl.constexpr(7)\n",
    ),
    "two kernels of one name": (
        "class Net",
        "first = kernel\n\n@triton.jit\ndef kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    tl.store(out_ptr, 1.0)\n\nclass Net",
    ),
}
HARMLESS = {
    "a comment": ("    mask =", "    # what lies within\n    mask ="),
    "lines above": ("@triton.jit\ndef inner", "\n\n\n@triton.jit\ndef inner"),
    "another kernel": ("tl.store(x_ptr, 0)", "tl.store(x_ptr, 1)"),
    "a global that it does not read": ("UNREAD = 1", "UNREAD = 2"),
}
DROPPED_BY_TRACING = {
    "key of autotuning": ('key=["n"]', "key=[]"),
    "heuristics of equal result": ("% 2 == 0", "% 4 == 0"),
}
"""Of a plain call, torch.export keeps a heuristic's result alone, and drops the key of an autotuner above heuristics."""
PLAIN_SHAPING = {name: change for name, change in SHAPING.items() if name not in DROPPED_BY_TRACING}
PLAIN_HARMLESS = HARMLESS | DROPPED_BY_TRACING
UNNAMED = {
    "a heuristic that reads an object": (
        'lambda given: given["n"] % 2 == 0',
        "lambda given: limit.value",
        "class Limit: value = True\nlimit = Limit()\n@triton.jit\ndef inner",
    )
}


def _changed(source: str, change: tuple[str, str]) -> str:
    old, new = change
    assert old in source
    return source.replace(old, new, 1)


@pytest.fixture(scope="module")
def keys() -> dict[str, Named]:
    changes = [*SHAPING.values(), *HARMLESS.values()]
    sources = [KERNEL, _unnamed(), *(_changed(KERNEL, change) for change in changes)]
    return keys_of({source: source for source in dict.fromkeys(sources)})


@pytest.fixture(scope="module")
def plain() -> dict[str, Named]:
    """Of plain calls, which torch.export traces only where Triton finds a device."""
    changes = [*PLAIN_SHAPING.values(), *PLAIN_HARMLESS.values()]
    sources = [PLAIN, *(_changed(PLAIN, change) for change in changes)]
    return keys_of({source: source for source in dict.fromkeys(sources)})


def _unnamed() -> str:
    old, new, above = UNNAMED["a heuristic that reads an object"]
    return KERNEL.replace(old, new).replace("@triton.jit\ndef inner", above)


@pytest.mark.parametrize("change", SHAPING.values(), ids=SHAPING)
def test_what_a_kernel_computes_and_how_it_is_launched_is_another_key(
    keys: dict[str, Named], change: tuple[str, str]
) -> None:
    before, after = keys[KERNEL], keys[_changed(KERNEL, change)]

    assert before.digest != after.digest
    assert before.never == after.never == []
    assert before.unchanged


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_shape_a_kernel_is_the_same_key(
    keys: dict[str, Named], change: tuple[str, str]
) -> None:
    assert keys[KERNEL].fields == keys[_changed(KERNEL, change)].fields


@pytest.mark.parametrize("change", PLAIN_SHAPING.values(), ids=PLAIN_SHAPING)
def test_of_a_plain_call_it_is_another_key_as_well(plain: dict[str, Named], change: tuple[str, str]) -> None:
    before, after = plain[PLAIN], plain[_changed(PLAIN, change)]

    assert before.digest != after.digest
    assert before.never == after.never == []


@pytest.mark.parametrize("change", PLAIN_HARMLESS.values(), ids=PLAIN_HARMLESS)
def test_of_a_plain_call_it_is_the_same_key_as_well(plain: dict[str, Named], change: tuple[str, str]) -> None:
    assert plain[PLAIN].fields == plain[_changed(PLAIN, change)].fields


def test_the_log_says_which_kernels_are_in_the_key(keys: dict[str, Named]) -> None:
    said = "Triton kernel kernel: the key contains its source and configurations"

    assert keys[KERNEL].lines == [
        "operator mine.act.default: the key contains its source and the graph of its body",
        said,
    ]


def test_the_log_says_so_of_a_plain_call(plain: dict[str, Named]) -> None:
    assert plain[PLAIN].lines == ["Triton kernel kernel: the key contains its source and configurations"]


def test_a_heuristic_that_reads_an_object_is_covered_by_all_loaded_code(keys: dict[str, Named]) -> None:
    said = "operator mine.act.default: its body uses a value of type the_model.Limit, the key contains all loaded code"

    assert said in keys[_unnamed()].lines
