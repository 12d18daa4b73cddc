"""Compile modes and options: what they stand for, which contradict each other, and which change nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch._inductor
import torch._inductor.config

from pt2hub.domain.publishing.compile_modes import MODES, is_graphed, requested_options
from pt2hub.domain.publishing.compile_notes import explain_options
from pt2hub.domain.publishing.inductor_options import OPTION_TYPES
from pt2hub.domain.publishing.spec import Spec, TargetSpec
from pt2hub.errors import InvalidInput
from pt2hub.server.services.publishing.spec_errors import parse_spec
from support.registry import a_spec

CPU, OLD_GPU, GPU = "torch2.13-cpu-x86_64_v4", "torch2.11-cu130-sm80", "torch2.11-cu130-sm90"


def test_a_mode_stands_for_torchs_options_and_its_cuda_graphs() -> None:
    torchs = torch._inductor.list_mode_options()
    assert set(MODES) == set(torchs) - {"lite"}
    for name, mode in MODES.items():
        graphs = {"triton.cudagraphs": True} if mode.is_graphed else {}
        assert {**mode.options, **graphs} == torchs[name], name


def test_every_option_that_may_be_set_is_one_of_torchs() -> None:
    known = torch._inductor.config.get_config_copy()
    assert sorted(set(OPTION_TYPES) - set(known)) == []
    for name, kind in OPTION_TYPES.items():
        default = known[name]
        assert default is None or kind.accepts(default), name


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"compile": {"mode": "max-autotun"}},
            'compile.mode: unknown value (given: "max-autotun"; allowed: "default", "reduce-overhead", "max-autotune"',
        ),
        (
            {"compile": {"mode": "max-autotune", "options": {"max_autotune": False}}},
            (
                "compile.options.max_autotune: the option contradicts mode max-autotune, which sets it to true "
                "(given: false)"
            ),
        ),
        (
            {
                "compile": {"mode": "max-autotune"},
                "targets": [{"target": CPU, "options": {"max_autotune": False}}],
            },
            "targets[0].options.max_autotune: the option contradicts mode max-autotune, which sets it to true",
        ),
        (
            {
                "compile": {"options": {"max_autotune": False}},
                "targets": [CPU, {"target": GPU, "mode": "max-autotune-no-cudagraphs"}],
            },
            "targets[1].mode: the mode sets max_autotune to true, which compile.options.max_autotune contradicts",
        ),
        (
            {"compile": {"options": {"max_autotune": 1}}},
            "compile.options.max_autotune: invalid value (given: 1; allowed: true or false)",
        ),
        (
            {"compile": {"options": {"coordinate_descent_search_radius": 9}}},
            (
                "compile.options.coordinate_descent_search_radius: invalid value (given: 9; allowed: a whole number "
                "from 1 to 8)"
            ),
        ),
        (
            {"compile": {"options": {"max_autotune_conv_backends": "ATEN,TRITN"}}},
            (
                'compile.options.max_autotune_conv_backends: invalid value (given: "ATEN,TRITN"; allowed: one or more of '
                "ATEN, TRITON, separated by commas)"
            ),
        ),
        (
            {"compile": {"options": {"max_autotune_gem": True}}},
            "compile.options: option max_autotune_gem cannot be set (max_autotune_gem: did you mean max_autotune_gemm?)",
        ),
        (
            {"compile": {"options": {"emit_multi_arch_kernel": True}}},
            "did you mean aot_inductor.emit_multi_arch_kernel?",
        ),
        (
            {"targets": [{"target": GPU, "options": {"triton.cudagraphs": True}}]},
            "targets[0].options: option triton.cudagraphs cannot be set (triton.cudagraphs: CUDA graphs belong to the mode",
        ),
    ],
)
def test_what_is_wrong_with_mode_and_options_is_said_at_its_place(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(a_spec(**fields))
    assert text in str(caught.value)


def test_a_target_without_the_mode_may_say_the_opposite() -> None:
    targets = [{"target": CPU, "mode": "default", "options": {"max_autotune": False}}]
    spec = parse_spec(a_spec(compile={"mode": "max-autotune"}, targets=targets))
    assert requested_options(spec.canonical(), spec.requests()[0].model_dump()) == {"max_autotune": False}


def test_the_mode_is_part_of_the_version_and_only_where_it_is_not_the_default() -> None:
    plain = parse_spec(a_spec())
    assert parse_spec(a_spec(compile={"mode": "default"})).identity() == plain.identity()
    assert parse_spec(a_spec(compile={"mode": "reduce-overhead"})).identity() != plain.identity()


def test_a_target_that_repeats_the_mode_has_no_override() -> None:
    spec = parse_spec(
        a_spec(compile={"mode": "max-autotune"}, targets=[{"target": GPU, "mode": "max-autotune"}])
    )
    assert [request.mode for request in spec.requests()] == [None]
    assert is_graphed(spec.canonical(), spec.requests()[0].model_dump())


def test_graphs_and_their_absence_ask_the_compiler_for_the_same_code() -> None:
    one, other = (
        parse_spec(a_spec(compile={"mode": mode})).canonical()
        for mode in ("max-autotune", "max-autotune-no-cudagraphs")
    )
    assert requested_options(one, {}) == requested_options(other, {}) != {}
    assert (is_graphed(one, {}), is_graphed(other, {})) == (True, False)


def test_options_override_the_modes_and_a_targets_override_both() -> None:
    spec = a_spec(compile={"mode": "max-autotune", "options": {"shape_padding": False}})
    request = {"options": {"shape_padding": True, "conv_1x1_as_mm": True}}
    assert requested_options(parse_spec(spec).canonical(), request) == {
        "max_autotune": True,
        "coordinate_descent_tuning": True,
        "shape_padding": True,
        "conv_1x1_as_mm": True,
    }


def test_stored_specs_keep_values_that_older_releases_took() -> None:
    old = {**parse_spec(a_spec()).canonical(), "compile": {"options": {"max_autotune": 1}}}
    assert Spec.from_canonical(old).compile.options == {"max_autotune": 1}
    request = {"target": CPU, "options": {"max_autotune_gemm_backends": "atlas"}}
    assert TargetSpec.from_stored(request).options == {"max_autotune_gemm_backends": "atlas"}


def notes(**fields: Any) -> tuple[str, ...]:
    spec = parse_spec(a_spec(**fields))
    return explain_options(spec, [request.model_dump() for request in spec.requests()])


def test_modes_and_options_that_change_nothing_are_said_with_their_targets() -> None:
    split = "autotuning has nothing to choose: with weights: split a CPU has one kernel for each operation."
    assert notes(compile={"options": {"max_autotune": True}}, targets=[CPU, GPU])[0].startswith(
        f"{CPU}: {split}"
    )
    found = notes(compile={"mode": "max-autotune"}, targets=[CPU, GPU])
    assert [note.partition(": ")[2] for note in found] == [
        f"{split} weights: baked has several for matrix products.",
        "mode max-autotune makes no CUDA graphs, which only GPUs have.",
    ]
    assert notes(compile={"mode": "max-autotune-no-cudagraphs", "weights": "baked"}, targets=[CPU]) == ()
    only_triton = notes(
        compile={"options": {"coordinate_descent_tuning": True}, "weights": "baked"}, targets=[CPU]
    )
    assert "only max_autotune and max_autotune_gemm have candidates on a CPU" in only_triton[0]


def test_code_for_several_gpus_is_said_to_change_nothing_where_pytorch_makes_none() -> None:
    option = {"options": {"aot_inductor.emit_multi_arch_kernel": True}}
    assert notes(compile=option, targets=[OLD_GPU]) == ()
    assert notes(compile=option, targets=[GPU, CPU]) == (
        f"{GPU}: aot_inductor.emit_multi_arch_kernel changes nothing: PyTorch's code for sm90 runs on it alone.",
        f"{CPU}: aot_inductor.emit_multi_arch_kernel changes nothing: there are no GPU kernels.",
    )
