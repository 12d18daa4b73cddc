"""Submissions of code and of programs: what is judged before anything waits, pinned and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

from pt2hub.archive.code import pack_code
from pt2hub.archive.exported_programs import split_program
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import (
    BadCodeArchive,
    BadProgram,
    Conflict,
    DimensionSpecialised,
    InputRefused,
    InvalidInput,
    NotFound,
    ProgramNewer,
    Pt2hubError,
    UnknownEntry,
    UnknownInput,
    WeightsMismatch,
)
from support.packages import WEIGHTS
from support.registry import GPU, V3, V4

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.registry import Registry

X = {"name": "x", "shape": ["batch", 3], "generate": {"normal": {}}}
DIMS = {"batch": {"min": 2, "max": 32, "example": 4}}
FILES = {
    "net.py": "def build(): ...\n",
    "models/__init__.py": "",
    "models/unet.py": "class UNet: ...\n",
    "labels.txt": "cat\n",
}


@pytest.fixture
def code(tmp_path: Path) -> bytes:
    for name, text in FILES.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    pack_code(tmp_path / "code", tmp_path / "code.zip")
    return (tmp_path / "code.zip").read_bytes()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """A small program: as torch saves it, and its two parts."""
    folder = tmp_path_factory.mktemp("program")
    batch = torch.export.Dim("batch", min=2, max=32)
    exported = torch.export.export(
        torch.nn.Linear(3, 2), (torch.zeros(4, 3),), dynamic_shapes={"input": {0: batch}}
    )
    torch.export.save(exported, folder / "saved.pt2")
    split_program(folder / "saved.pt2", folder / "program", folder / "weights")
    return {name: (folder / name).read_bytes() for name in ("saved.pt2", "program", "weights")}


def of_code(digest: str, **changes: Any) -> dict[str, Any]:
    return {"source": {"code": digest, "entry": "net:build", **changes}}


def of_program(registry: Registry, saved: Mapping[str, bytes], **changes: Any) -> dict[str, Any]:
    program, weights = registry.blob(saved["program"]).digest, registry.blob(saved["weights"]).digest
    inputs = [{**X, "name": "input"}]
    return {
        "source": {"program": program},
        "weights": weights,
        "inputs": inputs,
        "dims": DIMS,
        "targets": [V4],
        **changes,
    }


def nothing_waits(registry: Registry) -> bool:
    tables = ("models", "versions", "builds", "procrastinate_jobs", "blob_references")
    return all(registry.sql(f"SELECT count(*) FROM {table}") == [(0,)] for table in tables)


def test_code_is_pinned_and_kept_for_its_version(registry: Registry, code: bytes) -> None:
    stored = registry.blob(code)
    view = registry.submit(**of_code(stored.digest, entry="models.unet:UNet", requirements=["timm >=1.0"]))
    assert view.pins["blobs"] == {"source.code": {"digest": stored.digest, "size": len(code)}}
    assert registry.sql("SELECT kind, digest, owner FROM blob_references") == [
        ("blobs", stored.digest, f"version:{registry.sql('SELECT id FROM versions')[0][0]}")
    ]
    assert not registry.submit(
        **of_code(stored.digest, entry="models.unet:UNet", requirements=["timm >=1.0"])
    ).created
    assert registry.submit(**of_code(stored.digest)).number == 2


def test_code_that_was_not_uploaded_is_missed_where_the_spec_names_it(registry: Registry) -> None:
    digest = digest_bytes(b"nowhere")
    with pytest.raises(NotFound, match="not uploaded") as caught:
        registry.submit(**of_code(digest))
    assert [(item.path, item.given) for item in caught.value.details] == [("source.code", digest)]
    assert "--code" in (caught.value.hint or "")


@pytest.mark.parametrize("data", [b"", b"def build(): ...", WEIGHTS])
def test_code_that_is_no_archive_is_refused_before_anything_waits(registry: Registry, data: bytes) -> None:
    with pytest.raises(BadCodeArchive) as caught:
        registry.submit(**of_code(registry.blob(data).digest))
    assert caught.value.where == "source.code"
    assert "--code" in (caught.value.hint or "")
    assert nothing_waits(registry)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("unet:UNet", "Did you mean models.unet?"),
        ("nett:build", "Did you mean net?"),
        ("train:main", "It has models, models.unet, net."),
        ("labels:build", "It has models, models.unet, net."),
    ],
)
def test_an_entry_that_the_archive_lacks_is_answered_with_what_it_has(
    registry: Registry, code: bytes, entry: str, said: str
) -> None:
    with pytest.raises(UnknownEntry) as caught:
        registry.submit(**of_code(registry.blob(code).digest, entry=entry))
    assert caught.value.where == "source.entry"
    assert said in (caught.value.hint or "")
    assert nothing_waits(registry)


@pytest.mark.parametrize("text", ["timm>=", "timm==one", "timm>1,<", "timm[a"])
def test_a_requirement_that_pip_could_not_read_is_refused(registry: Registry, text: str) -> None:
    digest = digest_bytes(b"nobody asks for it")
    with pytest.raises(InvalidInput) as caught:
        registry.submit(**of_code(digest, requirements=["torch>=2.11,<2.14", text]))
    (detail,) = caught.value.details
    assert (caught.value.where, detail.path) == ("source.requirements[1]", "source.requirements[1]")
    assert text in (detail.given or "")


def test_a_program_and_its_weights_are_pinned_and_kept(
    registry: Registry, saved: Mapping[str, bytes]
) -> None:
    spec = of_program(registry, saved, weights_from="hf:team/name@0123")
    view = registry.submit(**spec)
    assert view.pins["blobs"] == {
        "weights": {"digest": spec["weights"], "size": len(saved["weights"])},
        "source.program": {"digest": spec["source"]["program"], "size": len(saved["program"])},
    }
    assert view.pins["weights_from"] == "hf:team/name@0123"
    assert "weights_from" not in view.spec
    kept = registry.sql("SELECT digest FROM blob_references ORDER BY digest")
    assert kept == [(digest,) for digest in sorted([spec["weights"], spec["source"]["program"]])]
    again = registry.submit(**{**spec, "weights_from": None})
    assert (again.created, again.pins) == (False, view.pins)


def test_a_program_without_weights_is_refused(registry: Registry, saved: Mapping[str, bytes]) -> None:
    with pytest.raises(InvalidInput, match="digest of the weights is required") as caught:
        registry.submit(**of_program(registry, saved, weights=None))
    assert caught.value.where == "weights"
    assert "--program" in (caught.value.hint or "")


def test_what_torch_saved_is_no_program_before_it_was_taken_apart(
    registry: Registry, saved: Mapping[str, bytes], code: bytes
) -> None:
    for data in (saved["saved.pt2"], code, b"", saved["program"][:-1]):
        with pytest.raises(BadProgram) as caught:
            registry.submit(**of_program(registry, saved, source={"program": registry.blob(data).digest}))
        assert caught.value.where == "source.program"
        assert caught.value.hint
    assert nothing_waits(registry)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"inputs": [X]}, UnknownInput),
        ({"inputs": [{**X, "name": "input", "shape": ["batch", 4]}]}, InputRefused),
        ({"fixed": {"mode": 1}}, UnknownInput),
        ({"dims": {"batch": {"min": 2, "max": 64, "example": 4}}}, DimensionSpecialised),
    ],
)
def test_a_spec_that_calls_a_program_otherwise_is_refused(
    registry: Registry, saved: Mapping[str, bytes], changes: dict[str, Any], expected: type[Pt2hubError]
) -> None:
    with pytest.raises(expected) as caught:
        registry.submit(**of_program(registry, saved, **changes))
    assert caught.value.where
    assert caught.value.hint
    assert nothing_waits(registry)


def test_a_program_newer_than_a_named_target_is_refused_and_auto_leaves_it_to_the_workers(
    registry: Registry, saved: Mapping[str, bytes]
) -> None:
    with pytest.raises(ProgramNewer, match=torch.__version__.replace("+", r"\+")) as caught:
        registry.submit(**of_program(registry, saved, targets=[V4, GPU]))
    assert [(item.path, item.given) for item in caught.value.details] == [("targets[1]", GPU)]
    assert nothing_waits(registry)
    registry.worker("w1", GPU)
    assert registry.submit(**of_program(registry, saved, targets=["auto"])).created


def test_weights_that_are_not_the_programs_are_refused(
    registry: Registry, saved: Mapping[str, bytes]
) -> None:
    weights = safetensors.torch.save({"weight": torch.zeros(2, 3), "bias": torch.zeros(3)})
    with pytest.raises(WeightsMismatch) as caught:
        registry.submit(**of_program(registry, saved, weights=registry.blob(weights).digest))
    assert [item.path for item in caught.value.details] == ["bias"]
    assert nothing_waits(registry)


def test_one_uploaded_file_serves_several_inputs(registry: Registry) -> None:
    tensors = {"batch.image": torch.zeros(2, 3), "pair[0]": torch.zeros(5, dtype=torch.int64)}
    stored = registry.blob(safetensors.torch.save(tensors))
    inputs = [
        {"name": "batch.image", "shape": [2, 3], "example": stored.digest},
        {"name": "pair[0]", "shape": [5], "dtype": "int64", "example": stored.digest},
    ]
    view = registry.submit(inputs=inputs, dims={})
    assert view.pins["blobs"] == {
        f"inputs[{place}].example": {"digest": stored.digest, "size": stored.size} for place in (0, 1)
    }
    assert registry.sql("SELECT digest FROM blob_references") == [(stored.digest,)]
    inputs[1]["name"] = "pair(0)"
    with pytest.raises(InvalidInput) as caught:
        registry.submit(inputs=inputs, dims={})
    (detail,) = caught.value.details
    assert (detail.path, detail.given) == ("inputs[1].example", "batch.image, pair[0]")
    assert detail.allowed == "pair(0)"


def test_the_form_of_the_weights_is_an_override_like_others(registry: Registry) -> None:
    view = registry.submit(targets=[{"target": V4, "weights": "baked"}, {"target": V3, "weights": "split"}])
    rows = registry.sql("SELECT target, request FROM builds ORDER BY position")
    assert rows == [(V4, {"target": V4, "weights": "baked"}), (V3, {"target": V3})]
    assert registry.submit(targets=[V3]).number == view.number
    with pytest.raises(Conflict) as caught:
        registry.submit(targets=[{"target": V4, "weights": "split"}])
    assert caught.value.context["present"] == {"target": V4, "weights": "baked"}
    assert registry.submit(targets=[V4], compile={"weights": "baked"}).number == 2


def test_a_programs_dtype_is_left_to_the_worker(registry: Registry, saved: Mapping[str, bytes]) -> None:
    targets = [{"target": V4, "dtype": "bfloat16", "weights": "baked"}]
    assert registry.submit(**of_program(registry, saved, targets=targets, outputs=["[0]"])).created
