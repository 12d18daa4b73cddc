"""The gate against real faults: each is compiled into a real package and loaded by a real process."""

from __future__ import annotations

import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub import archive, errors
from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub_workers.inside.builds.compilation import Compilation
from support.tiny_models import Convnet, Mlp
from support.workbench import Workbench, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.builds.build_verification import VerificationRun

pytestmark = pytest.mark.compiles

IMAGE = {
    "inputs": [{"name": "image", "shape": ["batch", 3, 10, 10], "generate": {"normal": {}}}],
}


@pytest.fixture(scope="module")
def published(bench: Workbench) -> dict[str, Any]:
    return {**bench.build(tiny_spec()), "trial": bench.runs[-1]}


@pytest.fixture(scope="module")
def hung(
    bench: Workbench, published: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[dict[str, Any]]]:
    """A verification that runs into its time limit while other tests go on."""
    run = _with_library(published["trial"], tmp_path_factory.mktemp("hung"), "sleep(600);")
    with ThreadPoolExecutor(1) as executor:
        yield executor.submit(bench.verify, run, 15)


def _loaded(parts: dict[str, Any]) -> Any:
    config = decode(ArtifactConfig, parts["config"])
    return load_artifact(
        LocalArtifact.from_files(config, Path(parts["code_path"]), Path(parts["weights_path"]))
    )


@pytest.mark.usefixtures("hung")  # starts it
def test_a_right_artifact_passes_and_computes_what_the_model_does(published: dict[str, Any]) -> None:
    torch.manual_seed(3)
    model = Mlp().eval()
    x = torch.randn(5, 8)

    torch.testing.assert_close(_loaded(published)(x), model(x).detach(), rtol=1e-5, atol=1e-5)
    report = published["verification"]
    assert report["result"] == "passed"
    tried = {(row["point"], row["threads"], row["group"]) for row in report["comparisons"]}
    assert {"smallest.0", "example.0", "example.1", "largest.0"} <= {point for point, _, _ in tried}
    assert {1, 8} <= {threads for _, threads, _ in tried}
    assert {"Linear.weight", "Linear.bias", "everything"} <= {group for _, _, group in tried}
    assert all(row["signal"] >= 4 * row["allowed"] > 0 for row in report["comparisons"])


def test_other_weights_reuse_the_code_and_start_no_compiler(
    bench: Workbench, published: dict[str, Any]
) -> None:
    reuse = {"code": published["code_path"], "config": published["config"], "artifact": "sha256:first"}
    other = tiny_spec(source={"factory": "support.tiny_models:Mlp", "kwargs": {}, "seed": 99})

    parts = bench.build(other, reuse=reuse)

    torch.manual_seed(99)
    model = Mlp().eval()
    x = torch.randn(3, 8)
    torch.testing.assert_close(_loaded(parts)(x), model(x).detach(), rtol=1e-5, atol=1e-5)
    assert parts["key"]["digest"] == published["key"]["digest"]
    assert parts["compiler_processes"] == []
    assert published["compiler_processes"] != []
    assert parts["single_file"]["digest"] != published["single_file"]["digest"]


def test_a_build_that_tunes_nothing_never_asks_for_the_device_alone(
    bench: Workbench, published: dict[str, Any]
) -> None:
    assert published["autotuning"] is None
    assert [event for event in bench.events if event["event"] == "device"] == []


def test_the_single_file_is_what_unzip_lists_and_the_stock_loader_runs(
    published: dict[str, Any], tmp_path: Path
) -> None:
    config = decode(ArtifactConfig, published["config"])
    code, weights = Path(published["code_path"]), Path(published["weights_path"])
    literals = archive.read_member(code, "model/data/literals.safetensors")
    chunks = archive.blob_chunks(config.constants, weights, literals)
    path = tmp_path / "model.pt2"

    made = archive.write_single_file(
        code, config.constants.blob_member, chunks, config.constants.blob_size, path
    )

    assert made == config.single_file
    listed = subprocess.run(
        ["python3", "-m", "zipfile", "-l", str(path)], check=True, capture_output=True, text=True
    )
    sizes = {line.split()[0]: int(line.split()[-1]) for line in listed.stdout.splitlines()[1:]}
    assert sizes == {member.name: member.size for member in config.single_file.members}
    # The loader under the stock aoti_load_package, which finds the blob by itself.
    runner = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)
    torch.manual_seed(3)
    model, x = Mlp().eval(), torch.randn(7, 8)
    torch.testing.assert_close(runner.boxed_run([x])[0], model(x).detach(), rtol=1e-5, atol=1e-5)


def test_nested_outputs_and_channels_last_keep_their_structure(bench: Workbench) -> None:
    parts = bench.build(tiny_spec("Convnet", **IMAGE), request={"memory_format": "channels_last"})

    torch.manual_seed(3)
    model, image = Convnet().eval(), torch.randn(4, 3, 10, 10).contiguous(memory_format=torch.channels_last)
    found, expected = _loaded(parts)(image=image), model(image)
    assert list(found) == ["features", "pooled"]
    torch.testing.assert_close(found["pooled"], expected["pooled"].detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.BadCall, match="channels_last"):
        _loaded(parts)(torch.randn(4, 3, 10, 10))


def test_parts_that_rightly_stand_still_at_the_smallest_size_or_always_are_no_reason_to_refuse(
    bench: Workbench,
) -> None:
    spec = tiny_spec("Attending", inputs=[{"name": "x", "shape": ["length", 8], "generate": {"normal": {}}}])
    parts = bench.build({**spec, "dims": {"length": {"min": 1, "max": 16, "example": 6}}})

    assert parts["verification"]["result"] == "passed"
    assert any("Attending.mask" in note for note in parts["verification"]["notes"])


def test_a_sum_over_thousands_is_judged_by_the_size_it_has_there(bench: Workbench) -> None:
    parts = bench.build(tiny_spec("Growing", dims={"batch": {"min": 1, "max": 20000, "example": 4}}))

    allowed = {row["point"]: row["allowed"] for row in parts["verification"]["comparisons"]}
    assert parts["verification"]["result"] == "passed"
    assert allowed["largest.0"] > 100 * allowed["example.0"]


def test_a_dtype_override_has_weights_of_its_own_and_autotuning_on_a_cpu_leaves_them_separate(
    bench: Workbench,
) -> None:
    packing = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}  # as `_Autotuned`, but by a spec
    parts = bench.build(tiny_spec(compile={"options": packing}), request={"dtype": "bfloat16"})

    assert parts["verification"]["result"] == "passed"
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    torch.manual_seed(3)
    model = Mlp().eval().to(torch.bfloat16)
    torch.testing.assert_close(_loaded(parts)(x).float(), model(x).detach().float(), rtol=0.1, atol=0.05)
    assert {item["dtype"] for item in parts["constants"]["table"]} == {"bfloat16", "float32"}


def test_a_drifted_source_is_refused(bench: Workbench, published: dict[str, Any]) -> None:
    drifted = tiny_spec(source={"factory": "support.tiny_models:Flipped", "kwargs": {}, "seed": 3})

    with pytest.raises(errors.SourceDrifted, match="golden"):
        bench.build(drifted, golden=published["golden"], weights=Path(published["weights_path"]))


class _Folding(Compilation):
    """Lets the compiler fold values that are uniform at first: right for these weights, wrong for others."""

    def _compile_options(self) -> dict[str, Any]:
        return {
            **super()._compile_options(),
            "joint_graph_constant_folding": True,
            "always_keep_tensor_constants": False,
        }


def test_weights_baked_in_by_folding_are_caught_by_the_swap(bench: Workbench) -> None:
    with pytest.raises(errors.Pt2hubError) as caught:
        bench.build(tiny_spec("Scaled"), kind=_Folding)

    assert isinstance(caught.value, errors.ArtifactWrong)
    assert "perturbed Scaled.gain" in caught.value.message


class _Autotuned(Compilation):
    """Lets autotuning try Inductor's own matrix product, which packs weights into the code on a CPU."""

    def _compile_options(self) -> dict[str, Any]:
        return {**super()._compile_options(), "max_autotune": True, "max_autotune_gemm_backends": "CPP"}


def test_weights_packed_by_autotuning_are_refused(bench: Workbench) -> None:
    with pytest.raises(errors.CompileFailed, match="derived its own constants"):
        bench.build(tiny_spec(), kind=_Autotuned)


class _FixedThreads(Compilation):
    """Code whose scratch arrays are as long as this machine's thread count."""

    def _compile_options(self) -> dict[str, Any]:
        return {**super()._compile_options(), "cpp.dynamic_threads": False}


def test_code_that_crashes_on_eight_threads_is_caught(bench: Workbench) -> None:
    spec = tiny_spec(
        "Summing",
        inputs=[{"name": "x", "shape": ["batch", 64], "generate": {"normal": {}}}],
        dims={"batch": {"min": 2048, "max": 4096, "example": 2048}},
    )

    with pytest.raises(errors.ArtifactCrashed) as caught:
        bench.build(spec, kind=_FixedThreads)

    assert caught.value.context["signal"] in ("SIGSEGV", "SIGBUS", "SIGABRT")
    assert "8 threads" in caught.value.context["doing"]


def _with_library(trial: VerificationRun, folder: Path, body: str) -> VerificationRun:
    """The same artifact with a library whose constructor does something else."""
    source, library, code = folder / "bad.c", folder / "bad.so", folder / "code.zip"
    source.write_text(
        f"#include <unistd.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void f(void) {{ {body} }}\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    with archive.open_archive(trial.code) as right:
        members = {entry.name: right.read(entry.name) for entry in right.entries}
    replaced = {n: library.read_bytes() if n.endswith(".so") else data for n, data in members.items()}
    archive.write_zip(code, sorted(replaced.items()))
    return replace(trial, code=code)


def test_a_library_that_never_finishes_loading_is_caught(hung: Future[dict[str, Any]]) -> None:
    with pytest.raises(errors.ArtifactHung) as caught:
        hung.result()

    assert "load" in caught.value.message


def test_a_library_that_crashes_while_loading_is_caught(
    bench: Workbench, published: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(errors.ArtifactCrashed) as caught:
        bench.verify(_with_library(published["trial"], tmp_path, "abort();"), 120)

    assert caught.value.context == {"signal": "SIGABRT", "doing": "load"}


def test_a_model_without_power_is_published_only_where_the_spec_accepts_it(bench: Workbench) -> None:
    parts = bench.build(tiny_spec("Zero", checks={"tolerance": 1e-3, "accept": ["no_power"]}))

    assert parts["verification"]["result"] == "no_power"
    assert parts["verification"]["no_power"]
