"""Which options and which key a program is compiled with, split and baked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pt2hub.domain.artifacts import Signature, Toolchain
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.publishing.compile_options import weights_form
from pt2hub.domain.targets import Target, parse_target
from pt2hub.errors import InvalidInput
from pt2hub_workers.inside.builds.compile.options import compile_options, frozen_options, require_options
from pt2hub_workers.inside.builds.export.export import ExportResult
from pt2hub_workers.inside.builds.key.operator_sources import CodeIdentity
from pt2hub_workers.inside.builds.key.program_key import compute_program_key

V3, V4 = (Target(torch="2.13", device="cpu", arch=f"x86_64_{level}") for level in ("v3", "v4"))
GPU = parse_target("torch2.11-cu130-sm90")


def test_split_code_has_the_options_that_published_keys_were_made_of() -> None:
    assert compile_options(V3, {"max_autotune": True}) == {
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": "binary_blob",
        "always_keep_tensor_constants": True,
        "joint_graph_constant_folding": False,
        "cpp.dynamic_threads": True,
        "cpp.simdlen": 256,
        "cpp.march": "x86-64-v3",
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.model_name_for_generated_files": "model",
        "max_autotune": True,
        "max_autotune_gemm_backends": "ATEN",
    }
    assert "max_autotune_gemm_backends" not in compile_options(GPU, {})


def test_frozen_code_may_fold_and_pack_weights_and_stays_as_portable() -> None:
    split = compile_options(V3, {"max_autotune_gemm_backends": "CPP"})
    frozen = frozen_options(V3, {"max_autotune_gemm_backends": "CPP"}, {"float32"})

    assert set(split) - set(frozen) == {"always_keep_tensor_constants", "joint_graph_constant_folding"}
    assert {name: frozen[name] for name in frozen if frozen[name] != split.get(name)} == {
        "freezing": True,
        "max_autotune_gemm_backends": "CPP",
    }


@pytest.mark.parametrize(
    ("target", "dtypes", "packs"),
    [
        (V3, {"float32", "int64"}, True),
        (V3, {"float32", "bfloat16"}, False),
        (V4, {"float32", "bfloat16"}, True),
        (V4, {"float16"}, False),
        (GPU, {"float16"}, True),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_weights_are_packed_where_every_cpu_of_the_level_runs_the_packed_product(
    target: Target, dtypes: set[str], *, packs: bool
) -> None:
    assert frozen_options(target, {}, dtypes).get("cpp.weight_prepack", True) is packs


@pytest.mark.parametrize(
    ("spec", "request_", "form"),
    [
        ({}, {}, "split"),
        ({"compile": {"weights": "baked"}}, {"weights": None}, "baked"),
        ({"compile": {"weights": "baked"}}, {"weights": "split"}, "split"),
        ({"compile": {"options": {}}}, {"weights": "baked"}, "baked"),
    ],
    ids=str,
)
def test_a_target_decides_for_itself_where_its_weights_go(
    spec: dict[str, Any], request_: dict[str, Any], form: str
) -> None:
    assert weights_form(spec, request_) == form


def test_the_weights_are_in_the_key_of_baked_code_alone() -> None:
    module = torch.nn.Linear(2, 2).eval().requires_grad_(False)
    signature = Signature(("input",), (), dims={}, fixed={}, device="cpu", in_spec="", out_spec="")
    exported = ExportResult(torch.export.export(module, (torch.ones(1, 2),)), signature, frozenset())

    def key(**baked: Any) -> dict[str, Any]:
        toolchain = Toolchain("2", "3", "g++", "glibc", "1")
        given = {"options": {}, "settings": {}, "toolchain": toolchain, "target": V3}
        return compute_program_key(
            exported, CodeIdentity(""), separate=["weight", "bias"], **given, **baked
        ).fields

    one, other = digest_bytes(b"one"), digest_bytes(b"other")
    assert set(key(baked=one)) - set(key()) == {"baked"}
    assert key(baked=one) != key(baked=other)
    assert key() == {name: value for name, value in key(baked=one).items() if name != "baked"}


def test_an_option_that_this_torch_lacks_is_refused_by_name() -> None:
    require_options({"max_autotune": True, "aot_inductor.emit_multi_arch_kernel": True})
    with pytest.raises(InvalidInput, match=r"has no option cpp\.teleport"):
        require_options({"cpp.teleport": True})
