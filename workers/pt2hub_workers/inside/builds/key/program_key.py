"""The program key: the digest of everything that shapes compiled code."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.artifacts import KEY_SCHEMA, ProgramKey
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import digest_bytes, digest_json
from pt2hub_workers.inside.builds.export.export import used_constants
from pt2hub_workers.inside.builds.key.settings import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub.domain.artifacts import Toolchain
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.targets import Target
    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.builds.key.operator_sources import CodeIdentity

REGION_CODE = 2
"""Number of the way in which regions are compiled. With 1, parts whose graphs differed only in shapes could share code."""
TOOLCHAIN_FIELDS = frozenset({"torch", "triton", "cuda", "compiler", "pt2hub"})
"""Fields of the toolchain that shape code; patch releases of Python and libc do not."""


def compute_program_key(  # noqa: PLR0913  # the parts of one value
    exported: ExportResult,
    identity: CodeIdentity,
    *,
    separate: Iterable[str],
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    toolchain: Toolchain,
    target: Target,
    baked: Digest | None = None,
    regions: Sequence[str] = (),
    is_part: bool = False,
) -> ProgramKey:
    """Compute the program key.

    Args:
        separate: Names of the weights, whose values do not shape the code.
        regions: Modules that are compiled as regions.
        is_part: Whether the program is a part of one that is compiled by regions.
    """
    program = exported.program
    weights = set(separate)
    constants = program_constants(program)
    # The state has a tied tensor under each of its names, and the program reads it under one.
    read = {*used_constants(program), *program.constants}
    fields = {
        "schema": KEY_SCHEMA,
        "graph": identity.graph,
        "operators": dict(identity.operators),
        "signature": digest_json(encode(exported.signature)),
        "constants": digest_json([_describe(name, value) for name, value in sorted(constants.items())]),
        "literals": {k: _value_digest(v) for k, v in sorted(constants.items()) if k in read - weights},
        "options": dict(sorted(options.items())),
        "threads": torch.get_num_threads(),
        "settings": dict(settings),
        "target": target.name,
        "toolchain": {key: value for key, value in encode(toolchain).items() if key in TOOLCHAIN_FIELDS},
        **({"baked": baked} if baked else {}),
        **({"regions": list(regions)} if regions else {}),
        **({"region_code": REGION_CODE} if regions or is_part else {}),
    }
    if reasons := [*identity.reasons, *_settings_without_digest(settings)]:
        fields["reuse"] = {"never": reasons, "nonce": uuid.uuid4().hex}
    return ProgramKey(digest_json(fields), fields)


def program_constants(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return every tensor that the program reads in addition to its inputs, by name."""
    found: dict[str, torch.Tensor] = dict(program.state_dict)
    found.update({k: v for k, v in program.constants.items() if isinstance(v, torch.Tensor)})
    return {name: tensor.detach() for name, tensor in found.items()}


def _settings_without_digest(settings: Mapping[str, Any]) -> list[str]:
    """Return sentences about compiler settings without a digest."""
    changed = settings.get("changed", {})
    return [
        f"{name} is {value.removeprefix(UNNAMED)}"
        for name, value in changed.items()
        if value.startswith(UNNAMED)
    ]


def _describe(name: str, tensor: torch.Tensor) -> list[Any]:
    return [name, list(tensor.shape), list(tensor.stride()), str(tensor.dtype), tensor.device.type]


def _value_digest(tensor: torch.Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return digest_bytes(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
