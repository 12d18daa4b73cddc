"""The program key: the digest of everything that shapes the code."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.artifacts import KEY_SCHEMA, ProgramKey
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import digest_bytes, digest_json
from pt2hub_workers.inside.exporting import used_constants
from pt2hub_workers.inside.settings import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pt2hub.domain.artifacts import Toolchain
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.targets import Target
    from pt2hub_workers.inside.exporting import Exported
    from pt2hub_workers.inside.operator_sources import CodeIdentity

SHAPING = frozenset({"torch", "triton", "cuda", "compiler", "pt2hub"})
"""The toolchain's fields that shape code; the interpreter's and libc's patch releases do not."""


def program_key(  # noqa: PLR0913  # the parts of one value
    exported: Exported,
    identity: CodeIdentity,
    *,
    separate: Iterable[str],
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    toolchain: Toolchain,
    target: Target,
    baked: Digest | None = None,
) -> ProgramKey:
    """Computes the key.

    Args:
        exported: The program.
        identity: The program's graph, and the code that it only names.
        separate: Names of the constants that travel in the weights layer; the values of all others are
            part of the code layer, hence of the key.
        options: Inductor's options, complete.
        settings: Process-wide numeric settings and changed compiler configuration.
        toolchain: Versions of torch, triton, CUDA, compiler and pt2hub.
        target: What is compiled for.
        baked: Digest of the weights that the code will hold; None where it takes any.
    """
    program = exported.program
    weights = set(separate)
    constants = constants_of(program)
    # A tied tensor stands in the state under each of its names, and the program reads it under one.
    read = {*used_constants(program), *program.constants}
    fields = {
        "schema": KEY_SCHEMA,
        "graph": identity.graph,
        "operators": dict(identity.operators),
        "signature": digest_json(encode(exported.signature)),
        "constants": digest_json([_described(name, value) for name, value in sorted(constants.items())]),
        "literals": {k: _value_digest(v) for k, v in sorted(constants.items()) if k in read - weights},
        "options": dict(sorted(options.items())),
        "threads": torch.get_num_threads(),
        "settings": dict(settings),
        "target": target.name,
        "toolchain": {key: value for key, value in encode(toolchain).items() if key in SHAPING},
        **({"baked": baked} if baked else {}),
    }
    if reasons := [*identity.reasons, *_unnamed(settings)]:
        fields["reuse"] = {"never": reasons, "nonce": uuid.uuid4().hex}
    return ProgramKey(digest_json(fields), fields)


def constants_of(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Every tensor the program reads besides its inputs, by name."""
    found: dict[str, torch.Tensor] = dict(program.state_dict)
    found.update({k: v for k, v in program.constants.items() if isinstance(v, torch.Tensor)})
    return {name: tensor.detach() for name, tensor in found.items()}


def _unnamed(settings: Mapping[str, Any]) -> list[str]:
    """The compiler's settings whose values have no digest."""
    changed = settings.get("changed", {})
    return [
        f"{name} is {value.removeprefix(UNNAMED)}"
        for name, value in changed.items()
        if value.startswith(UNNAMED)
    ]


def _described(name: str, tensor: torch.Tensor) -> list[Any]:
    return [name, list(tensor.shape), list(tensor.stride()), str(tensor.dtype), tensor.device.type]


def _value_digest(tensor: torch.Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return digest_bytes(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
