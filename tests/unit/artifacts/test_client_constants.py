"""Constants are views of the mapped file where they can be, and refused where they do not fit the table."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save, save_file

from pt2hub import archive
from pt2hub.client.artifacts.constants import ConstantStore
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import CorruptArchive, DigestMismatch, NotFound, WeightsMismatch
from support.artifacts import a_config, a_constant

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.artifacts import Constant

CPU = torch.device("cpu")
WEIGHTS = {
    "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "bias": torch.tensor([1.0, 2.0]),
    "unused": torch.tensor(0),
}
TABLE = (a_constant("weight", (2, 3)), a_constant("bias", (2,)))


def store(folder: Path, *table: Constant, **changes: Any) -> ConstantStore:
    weights, code = folder / "weights.safetensors", folder / "code.zip"
    if not weights.exists():
        save_file(WEIGHTS, weights)
    literals = save({"_tensor_constant0": torch.tensor([7.0])})
    archive.write_zip(code, [("model/version", b"3"), ("model/data/literals.safetensors", literals)])
    return ConstantStore(LocalArtifact.from_files(a_config(*(table or TABLE), **changes), code, weights), CPU)


def test_weights_are_views_of_the_mapped_file_and_the_file_never_changes(tmp_path: Path) -> None:
    made = store(tmp_path)
    first, second = made.pristine(), made.pristine()
    assert first["weight"].data_ptr() == second["weight"].data_ptr()
    assert torch.equal(first["weight"], WEIGHTS["weight"])
    assert set(first) == {"weight", "bias"}
    before = (tmp_path / "weights.safetensors").read_bytes()
    first["weight"].zero_()
    assert (tmp_path / "weights.safetensors").read_bytes() == before


def test_the_views_outlive_store_and_file(tmp_path: Path) -> None:
    made = store(tmp_path).pristine()
    (tmp_path / "weights.safetensors").unlink()
    assert torch.equal(made["weight"], WEIGHTS["weight"])


def pulled(folder: Path) -> LocalArtifact:
    """An artifact with the weights as the cache has them."""
    store(folder)
    data = (folder / "weights.safetensors").read_bytes()
    cache = BlobCache(folder / "cache")
    weights = cache.put(digest_bytes(data), data)
    return LocalArtifact(
        config=a_config(*TABLE),
        code=folder / "code.zip",
        weights=weights,
        weights_digest=digest_bytes(data),
        weights_stamp=cache.stamp(weights),
    )


def rewrite(path: Path, data: bytes) -> None:
    before = path.stat()
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as somebody who hides it does


def test_weights_that_changed_since_they_were_pulled_are_refused(tmp_path: Path) -> None:
    artifact = pulled(tmp_path)
    assert ConstantStore(artifact, CPU).pristine()["bias"][0] == 1.0
    data = artifact.weights.read_bytes()
    rewrite(artifact.weights, data[:-1] + b"x")
    with pytest.raises(DigestMismatch, match=f"not {artifact.weights_digest}") as caught:
        ConstantStore(artifact, CPU)
    assert caught.value.where == str(artifact.weights)
    rewrite(artifact.weights, data)
    assert ConstantStore(artifact, CPU).pristine()["bias"][0] == 1.0, "only touched"
    artifact.weights.unlink()
    with pytest.raises(NotFound, match="File not found"):
        artifact.open_weights()


def test_a_mutated_constant_is_a_copy_each_time(tmp_path: Path) -> None:
    made = store(tmp_path, TABLE[0], replace(TABLE[1], mutated=True))
    first = made.pristine()
    first["bias"].zero_()
    assert torch.equal(made.pristine()["bias"], WEIGHTS["bias"])
    assert made.mutated == ("bias",)


def test_literals_come_from_the_code_layer(tmp_path: Path) -> None:
    made = store(tmp_path, *TABLE, a_constant("_tensor_constant0", (1,), source="extra"))
    assert made.pristine()["_tensor_constant0"].item() == 7.0


def test_a_literal_that_the_code_layer_lacks_is_a_mismatch(tmp_path: Path) -> None:
    with pytest.raises(WeightsMismatch, match="_tensor_constant1") as caught:
        store(tmp_path, a_constant("_tensor_constant1", (1,), source="extra"))
    assert str(caught.value.where).endswith("data/literals.safetensors")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (a_constant("bias", (3,)), r"The shape is \(2,\), the compiled code reads \(3,\)"),
        (a_constant("bias", (2,), dtype="float16"), "dtype is float32, the compiled code reads float16"),
        (a_constant("scale", (2,)), "lacks 1 tensors .* scale"),
    ],
)
def test_a_file_that_does_not_fit_the_table_is_refused(tmp_path: Path, wrong: Constant, words: str) -> None:
    with pytest.raises(WeightsMismatch, match=words):
        store(tmp_path, TABLE[0], wrong).pristine()


def test_a_table_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptArchive, match="contradicts itself at bias"):
        store(tmp_path, TABLE[0], replace(TABLE[1], size=12))


def test_a_truncated_file_is_refused_before_it_is_mapped(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "whole")
    (tmp_path / "weights.safetensors").write_bytes((tmp_path / "whole").read_bytes()[:-4])
    with pytest.raises(CorruptArchive):
        store(tmp_path)


def test_a_dtype_override_converts_floats_only(tmp_path: Path) -> None:
    made = store(tmp_path, a_constant("weight", (2, 3), dtype="bfloat16"), dtype="bfloat16")
    assert made.pristine()["weight"].dtype is torch.bfloat16
    with pytest.raises(WeightsMismatch, match="int64"):
        store(tmp_path, a_constant("unused", (), dtype="bfloat16"), dtype="bfloat16").pristine()


def test_a_declared_stride_is_kept(tmp_path: Path) -> None:
    made = store(tmp_path, a_constant("weight", (2, 3), stride=(1, 2)))
    weight = made.pristine()["weight"]
    assert weight.stride() == (1, 2)
    assert torch.equal(weight, WEIGHTS["weight"])


def test_strides_of_dimensions_of_size_one_cost_no_copy(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(4, 1)}, tmp_path / "weights.safetensors")
    made = store(tmp_path, a_constant("weight", (4, 1), stride=(1, 4)))
    first, second = made.pristine()["weight"], made.pristine()["weight"]
    assert first.stride() == (1, 4)
    assert first.data_ptr() == second.data_ptr()


def test_an_empty_tensor_is_given_too(tmp_path: Path) -> None:
    save_file({"none": torch.empty(0, 3)}, tmp_path / "weights.safetensors")
    assert store(tmp_path, a_constant("none", (0, 3), stride=(3, 1))).pristine()["none"].shape == (0, 3)


def test_replacing_takes_a_whole_state_dict_and_keeps_literals(tmp_path: Path) -> None:
    made = store(tmp_path, *TABLE, a_constant("_tensor_constant0", (1,), source="extra"))
    current = made.pristine()
    retrained = {name: torch.nn.Parameter(value + 1, requires_grad=False) for name, value in WEIGHTS.items()}
    replaced = made.replace(retrained, current)
    assert set(replaced) == {"weight", "bias", "_tensor_constant0"}
    assert replaced["weight"].data_ptr() == retrained["weight"].data_ptr()
    assert replaced["_tensor_constant0"] is current["_tensor_constant0"]


def test_replacing_names_what_is_missing_and_unknown(tmp_path: Path) -> None:
    made = store(tmp_path)
    with pytest.raises(WeightsMismatch, match="missing bias; unknown bais"):
        made.replace({"weight": WEIGHTS["weight"], "bais": WEIGHTS["bias"]}, made.pristine())
    with pytest.raises(WeightsMismatch, match="shape") as caught:
        made.replace({"weight": torch.ones(3, 3), "bias": WEIGHTS["bias"]}, made.pristine())
    assert caught.value.where == "weight"
