"""What a worker says of its machine."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from pt2hub_workers.inside.operations import probe

if TYPE_CHECKING:
    import pytest


def test_the_packages_that_sources_come_from_are_pinned_where_they_are_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = ("torch", "torchvision", "timm", "transformers", "safetensors")
    pinned = probe._packages()
    assert {name: pinned[name] for name in installed} == {name: version(name) for name in installed}
    monkeypatch.setattr(probe, "PINNED", ("torch", "no-such-package"))
    assert set(probe._packages()) == {"torch"}
