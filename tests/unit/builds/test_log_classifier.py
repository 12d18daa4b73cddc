"""What torch 2.13 prints while it compiles is told from what the model's own code prints."""

from __future__ import annotations

import pytest

from pt2hub_workers.builds.log_classifier import LogClassifier

TORCH = "/venv/lib/python3.11/site-packages/torch"
# As torch 2.13.0+cpu printed it.
PRINTED = f"""\
output  |model says hello
output  |/home/me/net.py:6: UserWarning: model's own warning
output  |  warnings.warn("model's own warning")
compiler|{TORCH}/_inductor/select_algorithm.py:4799: UserWarning: TypedStorage is deprecated. It will be removed
compiler|  current_out_size = out_base.storage().size()
compiler|Autotune Choices Stats:
compiler|{{"num_choices": 2, "num_triton_choices": 0, "best_kernel": "_linear_pointwise", "best_time": 0.0359}}
compiler|AUTOTUNE linear_unary(32x64, 128x64, 128)
compiler|strides: [64, 1], [1, 0], [1]
compiler|dtypes: torch.float32, torch.float32, torch.float32
compiler|  _linear_pointwise 0.0359 ms 100.0%
compiler|  cpp_CppMicroGemmFP32Vec_0 15.9860 ms 0.2%
compiler|SingleProcess AUTOTUNE benchmarking takes 3.9265 seconds and 0.0000 seconds precompiling for 2 choices
output  |dtypes: are of no interest here
compiler|E1121 18:08:30.694000 29732 torch/_inductor/select_algorithm.py:5068] [0/0] Runtime error during autotuning:
compiler|E1121 18:08:30.694000 29732 torch/_inductor/select_algorithm.py:5068] [0/0] No valid triton configs.
compiler|E1121 18:08:30.694000 29732 torch/_inductor/select_algorithm.py:5068] [0/0]\x20
compiler|W1121 18:08:30.712000 29732 torch/_inductor/utils.py:17] Traceback (most recent call last):
compiler|W1121 18:08:30.712000 29732 torch/_inductor/utils.py:17]   File "/home/me/net.py", line 14, in <module>
compiler|[W1121 18:08:30.712345678 NNPACK.cpp:56] Could not initialize NNPACK! Reason: Unsupported hardware.
output  |Traceback (most recent call last):
output  |  File "/home/me/net.py", line 14, in <module>
output  |    torch.zeros(2)@torch.zeros(3)
output  |    ~~~~~~~~~~~~~~^~~~~~~~~~~~~~~
output  |  File "{TORCH}/nn/modules/module.py", line 1, in forward
output  |RuntimeError: inconsistent tensor size
output  |
compiler|Traceback (most recent call last):
compiler|  File "{TORCH}/_inductor/autotune_process.py", line 300, in benchmark
compiler|    raise RuntimeError
compiler|RuntimeError: CUDA error: invalid argument
compiler|
compiler|During handling of the above exception, another exception occurred:
compiler|
compiler|Traceback (most recent call last):
compiler|  File "{TORCH}/_inductor/autotune_process.py", line 310, in benchmark
compiler|ValueError: no choice is left
output  |epoch 1
compiler|Runtime error during autotuning:
compiler|No valid triton configs. OutOfMemoryError: out of resource: shared memory, Required: 294912
compiler|.
compiler|Ignoring this choice.
output  |epoch 2
compiler|{TORCH}/functional.py:504: UserWarning: torch.meshgrid: in an upcoming release, it will be required
compiler|  return _VF.meshgrid(tensors, **kwargs)  # type: ignore[attr-defined]
output  |  an indented line of the model
compiler|/home/me/net.py:20: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.
compiler|  with autocast():
output  |/home/me/net.py:21: RuntimeWarning: overflow encountered in exp
output  |  return np.exp(x)
compiler|In file included from /tmp/torchinductor_me/abc.h:3,
compiler|                 from /tmp/torchinductor_me/main.cpp:1:
compiler|/tmp/torchinductor_me/main.cpp:12:8: warning: unused variable 'ks0' [-Wunused-variable]
compiler|   12 |   auto ks0 = 1;
compiler|      |        ^~~
output  |Warning: the learning rate is high
output  |loss: 0.5
output  |AUTOTUNE is on
output  |E.T. phone home
"""
CASES = [line.split("|", 1) for line in PRINTED.splitlines()]


def test_what_the_compiler_prints_is_noise_and_the_models_own_lines_are_not() -> None:
    classifier = LogClassifier()
    told = [pair for _, text in CASES for pair in classifier.feed(text)]
    assert told == [(level.strip(), text) for level, text in CASES]


def test_a_traceback_that_breaks_off_is_not_lost() -> None:
    classifier = LogClassifier()
    assert classifier.feed("Traceback (most recent call last):") == []
    assert classifier.flush() == [("output", "Traceback (most recent call last):")]
    assert classifier.flush() == []


@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "W", "x" * 8192, "W1121", "a: " * 2000, "/" * 8000 + ":1: "]
)
def test_any_line_is_told_at_once_and_never_changed(text: str) -> None:
    assert LogClassifier().feed(text) == [("output", text)]
