"""Which artifacts of older program keys may run another program's code, and how that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.archive.exported_programs import split_program
from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.key_audits import Certainty
from support.code import NET, archive
from support.registry import V4

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.key_audits import KeyFinding
    from support.registry import Registry

REUSED = digest_bytes(b"code")
WITH_OPERATOR = NET + '\n\n@torch.library.custom_op("mine::act", mutates_args=())\ndef act(x): ...\n'


def _provenance(**fields: Any) -> dict[str, Any]:
    return {"build": "0" * 16, "attempt": 1, "request": {}, "isolation": "sandbox", **fields}


def _published(registry: Registry, spec: dict[str, Any], **provenance: Any) -> str:
    version = registry.submit(**spec)
    given = {"code_reused_from": REUSED, **provenance}
    registry.published(version, provenance=_provenance(**given))
    return f"{version.model}@{version.number}"


def _audit(registry: Registry) -> tuple[KeyFinding, ...]:
    return registry.services.key_audits.audit()


def _of_code(registry: Registry, folder: Path, files: dict[str, str]) -> dict[str, Any]:
    stored = registry.blob(archive(folder, files).read_bytes())
    return {"source": {"code": stored.digest, "entry": "net:build"}}


def test_an_artifact_that_was_compiled_is_not_listed(registry: Registry) -> None:
    _published(registry, {}, code_reused_from=None)

    assert _audit(registry) == ()


def test_an_artifact_of_todays_key_is_listed_where_it_calls_others_operators(registry: Registry) -> None:
    _published(registry, {}, key_schema=KEY_SCHEMA, operators=[])
    assert _audit(registry) == ()

    name = _published(
        registry,
        {"dims": {"batch": {"min": 1, "max": 7, "example": 2}}},
        key_schema=KEY_SCHEMA,
        operators=["mine.act.default"],
    )

    (found,) = _audit(registry)
    assert (found.version, found.certainty, found.operators) == (name, Certainty.NAMED, ("mine.act.default",))


@pytest.mark.parametrize(
    ("files", "certainty", "why"),
    [
        ({"net.py": NET}, Certainty.UNLIKELY, "its code registers no operator and writes no kernel"),
        ({"net.py": WITH_OPERATOR}, Certainty.MAY_DIFFER, "its code has torch.library in net.py"),
        (
            {"net.py": NET, "ops.cu": ""},
            Certainty.MAY_DIFFER,
            "its code has ops.cu, which may register operators",
        ),
    ],
    ids=["plain", "operator", "native"],
)
def test_of_an_older_key_the_uploaded_code_is_asked(
    registry: Registry, tmp_path: Path, files: dict[str, str], certainty: Certainty, why: str
) -> None:
    name = _published(registry, _of_code(registry, tmp_path, files))

    (found,) = _audit(registry)

    assert (found.version, found.target, found.key_schema, found.reused) == (name, V4, 1, REUSED)
    assert (found.certainty, found.why) == (certainty, why)


def test_of_an_older_key_the_uploaded_program_is_asked(registry: Registry, tmp_path: Path) -> None:
    torch.export.save(
        torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(4, 3),)), tmp_path / "saved.pt2"
    )
    split_program(tmp_path / "saved.pt2", tmp_path / "program", tmp_path / "weights")
    program, weights = (
        registry.blob((tmp_path / name).read_bytes()).digest for name in ("program", "weights")
    )
    inputs = [{"name": "input", "shape": [4, 3], "generate": {"normal": {}}}]
    _published(registry, {"source": {"program": program}, "weights": weights, "inputs": inputs, "dims": {}})

    (found,) = _audit(registry)

    assert (found.certainty, found.why) == (
        Certainty.UNLIKELY,
        "its program calls only torch's own operators",
    )


def test_of_a_factory_nothing_that_is_stored_tells(registry: Registry) -> None:
    _published(registry, {})

    (found,) = _audit(registry)

    assert found.certainty is Certainty.UNKNOWN
    assert found.why.startswith("the factory ")
