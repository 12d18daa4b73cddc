"""The digest of all loaded code: files, libraries and the source, but nothing that the toolchain's versions name."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pt2hub.torchvision_operators import declare_torchvision
from pt2hub_workers.inside.builds.key import loaded_code, own_code
from pt2hub_workers.inside.builds.key.global_names import NoDigest
from pt2hub_workers.inside.builds.key.loaded_code import digest_loaded_code
from pt2hub_workers.inside.builds.key.operator_sources import is_torchs_own

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = Path("/nowhere")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A shared library that is nobody's."""
    # Debian builds many of Python's own modules into the interpreter: they have no file.
    found = importlib.util.find_spec("markupsafe._speedups")
    assert found is not None
    assert found.origin is not None
    copy = tmp_path / "library.so"
    copy.write_bytes(Path(found.origin).read_bytes())
    return copy


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Path]:
    """A module that was imported from a folder of no distribution."""
    file = tmp_path / "of_nobody.py"
    file.write_text("VALUE = 1\n")
    spec = importlib.util.spec_from_file_location("of_nobody", file)
    assert spec is not None
    sys.modules["of_nobody"] = importlib.util.module_from_spec(spec)
    yield file
    del sys.modules["of_nobody"]


def test_a_shared_library_is_named_by_its_bytes(library: Path) -> None:
    before = digest_loaded_code({}, NOWHERE)
    ctypes.CDLL(str(library))
    loaded = digest_loaded_code({}, NOWHERE)
    with library.open("ab") as file:
        file.write(b"another build")
    other = digest_loaded_code({}, NOWHERE)

    assert len({before, loaded, other}) == 3
    assert digest_loaded_code({}, NOWHERE) == other


def test_a_module_of_no_distribution_is_named_by_its_bytes_unless_it_is_of_the_source(module: Path) -> None:
    before, within = digest_loaded_code({}, NOWHERE), digest_loaded_code({}, module.parent)
    module.write_text("VALUE = 2\n")

    assert digest_loaded_code({}, NOWHERE) != before
    assert digest_loaded_code({}, module.parent) == within


def test_the_source_is_part_of_it() -> None:
    assert digest_loaded_code({"code": "a"}, NOWHERE) != digest_loaded_code({"code": "b"}, NOWHERE)


def test_a_file_that_is_gone_cannot_be_named(module: Path) -> None:
    module.unlink()

    with pytest.raises(NoDigest, match=r"of_nobody\.py"):
        digest_loaded_code({}, NOWHERE)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("torch", True),
        ("torch._inductor", True),
        ("json", True),
        ("sympy", True),
        ("torchvision", False),
        ("pytest", False),
    ],
)
def test_what_torch_requires_is_named_by_its_version(name: str, *, own: bool) -> None:
    declare_torchvision()
    importlib.import_module(name)

    assert own_code.is_own_module(name) is own


def test_operators_are_told_by_where_they_were_registered() -> None:
    declare_torchvision()
    import torchvision  # noqa: F401  # registers operators

    assert is_torchs_own(torch.ops.aten.relu.default)
    assert is_torchs_own(torch.ops.prims.convert_element_type.default)
    assert not is_torchs_own(torch.ops.torchvision.nms.default)


def test_an_installed_file_that_was_changed_is_named_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, info = tmp_path / "of_somebody.py", tmp_path / "somebody-1.0.dist-info"
    file.write_text("VALUE = 1\n")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    recorded = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"of_somebody.py,sha256={recorded},10\nsomebody-1.0.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    loaded_code._owners.cache_clear()
    try:
        importlib.import_module("of_somebody")
        installed = digest_loaded_code({}, NOWHERE)
        assert digest_loaded_code({}, NOWHERE) == installed
        file.write_text("VALUE = 2\n")
        assert digest_loaded_code({}, NOWHERE) != installed
    finally:
        sys.modules.pop("of_somebody", None)
        loaded_code._owners.cache_clear()
