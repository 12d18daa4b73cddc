"""Operators that compiled code calls by name, and the packages that register them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.client.machine.libraries import operator_libraries

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_METADATA = "_metadata.json"
_TORCHS_OWN = frozenset(
    {
        "_c10d_functional",
        "_c10d_functional_autograd",
        "_dtensor",
        "_native",
        "_quantized",
        "aten",
        "c10d",
        "export",
        "inductor",
        "inductor_prims",
        "mkl",
        "mkldnn",
        "mkldnn_prepacked",
        "onednn",
        "prim",
        "prims",
        "profiler",
        "quantization",
        "quantized",
        "rngprims",
        "sparse",
        "static_runtime",
        "symm_mem",
    }
)
"""Namespaces of operators that every torch registers."""


def read_operators(code: Path) -> tuple[str, ...]:
    """Return the operators that are not torch's own and that the libraries of a code layer call by name.

    AOTInductor lists such calls in a JSON file beside each library (torch 2.11 to 2.13: `nodes`, each with a `target`).
    """
    with archive.open_archive(code) as layer:
        names = [entry.name for entry in layer.entries if entry.name.endswith(".json")]
        documents = [json.loads(layer.read(name)) for name in names if not name.endswith(_METADATA)]
    nodes = (node for item in documents if isinstance(item, dict) for node in item.get("nodes", ()))
    found = {node["node"]["target"] for node in nodes}
    return tuple(sorted(name for name in found if name.partition("::")[0] not in _TORCHS_OWN))


def library_versions(operators: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages that register operators, by the operators' namespace."""
    installed = operator_libraries()
    namespaces = {name.partition("::")[0] for name in operators}
    return {name: installed[name] for name in sorted(namespaces & installed.keys())}
