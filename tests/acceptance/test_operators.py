"""Versions whose operators differ in nothing but their bodies: each artifact computes what its own source computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.cli.operations.temporary_server import TemporaryServer
from support.bounded import TORCH, mended, spec
from support.headers import PLACE

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import BuildView

pytestmark = pytest.mark.compiles
ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join(str(ROOT / name) for name in ("registry", "workers", "tests"))
MENDED = mended(TORCH)
COMMENTED = MENDED.replace("def act", "# mended\ndef act").replace("def build", "# no other model\ndef build")
SPEC = spec(
    "tiny/bounded",
    dims={"batch": {"min": 1, "max": 16, "example": 2}},
    measure={"torch_compile": False, "processes": 1},
)


def _published(client: Client, folder: Path, source: str) -> tuple[BuildView, str]:
    """Publishes a source; its build, and the build's log."""
    folder.mkdir()
    (folder / "net.py").write_text(source)
    version = client.publish(SPEC, code=folder, wait=True)
    build = version.builds[0]
    assert build.state == "succeeded", build.error
    return build, "\n".join(line.text for line in client.builds.logs(build.id))


def test_another_body_is_not_answered_with_code_of_the_first(tmp_path: Path) -> None:
    scratch = {"PT2HUB_SCRATCH": str(tmp_path), "PT2HUB_HEADERS": str(PLACE)}
    trial = TemporaryServer(tmp_path, PYTHONPATH=PATHS, **scratch)
    x = torch.full((3, 8), 76.28)
    with trial.server() as client:
        made: list[tuple[dict[str, Any], torch.Tensor, str]] = []
        for name, source in (("first", TORCH), ("mended", MENDED), ("commented", COMMENTED)):
            build, log = _published(client, tmp_path / name, source)
            assert build.artifact is not None
            outputs = client.load(f"tiny/bounded@{build.number}")(x)
            made.append((client.artifacts.get(build.artifact).provenance, outputs, log))
        audited = subprocess.run(
            [sys.executable, "-m", "pt2hub", "admin", "audit-keys", "--json"],
            env=trial.environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    for provenance, _, log in made:
        assert provenance["operators"] == ["bounded.act.default"]
        assert "operator bounded.act.default: the key contains its source and the graph of its body" in log
    first, mended, commented = made
    torch.testing.assert_close(first[1], torch.zeros_like(x))
    assert mended[0]["code_reused_from"] is None
    torch.testing.assert_close(mended[1], x * 3)
    assert commented[0]["code_reused_from"] is not None
    torch.testing.assert_close(commented[1], x * 3)
    assert [item["certainty"] for item in json.loads(audited)["artifacts"]] == ["named"]
