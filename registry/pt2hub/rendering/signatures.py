"""Sizes of an artifact, and the inputs that it takes, as rows of text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Signature
from pt2hub.domain.codec import decode
from pt2hub.errors import INVISIBLE_CHARACTERS, BadResponse
from pt2hub.rendering.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.artifacts import Dim, TensorInput
    from pt2hub.wire.artifacts import ArtifactView

_MAX_SHOWN = 8
"""Inputs, dimensions or fixed arguments that are listed."""
_MAX_VALUE_CHARS = 80
"""Characters of a fixed argument's value."""
_PLAIN = "contiguous_format"


def signature_of(view: ArtifactView) -> Signature | None:
    """Return an artifact's call signature; None if its config is damaged, or only a newer pt2hub can read it."""
    try:
        return decode(Signature, view.config.get("signature"))
    except BadResponse:
        return None


def signature_rows(view: ArtifactView) -> tuple[tuple[str, str], ...]:
    """Return the sizes of an artifact's parts, its inputs, its dynamic dimensions and its fixed arguments."""
    sizes = {
        "code": view.code_bytes,
        "weights": view.weights_bytes,
        "model.pt2": view.single_file_bytes,
    }
    size = ", ".join(f"{name} {format_bytes(count)}" for name, count in sizes.items())
    signature = signature_of(view)
    if signature is None:
        return (("size", size),)
    inputs = _shortened([_describe_input(item) for item in signature.inputs])
    dims = [f"{name} {_describe_dim(dim)}" for name, dim in signature.dims.items()]
    fixed = [f"{name}={_format_value(value)}" for name, value in signature.fixed.items()]
    rows = (
        ("size", size),
        *(("" if at else "inputs", line) for at, line in enumerate(inputs)),
        ("dims", ", ".join(_shortened(dims))),
        ("fixed", ", ".join(_shortened(fixed))),
    )
    return tuple((name, text.translate(INVISIBLE_CHARACTERS)) for name, text in rows if text)


def _shortened(lines: list[str]) -> Iterator[str]:
    yield from lines[:_MAX_SHOWN]
    if len(lines) > _MAX_SHOWN:
        yield f"{len(lines) - _MAX_SHOWN} more"


def _format_value(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 3]}..."


def _describe_input(item: TensorInput) -> str:
    shape = ", ".join(map(str, item.shape))
    return f"{item.name} {item.dtype} [{shape}]{'' if item.memory_format == _PLAIN else f' {item.memory_format}'}"


def _describe_dim(dim: Dim) -> str:
    """Return the sizes of a dynamic dimension: `8 to 512 in steps of 8`."""
    return f"{dim.min} to {dim.max}" + (f" in steps of {dim.multiple_of}" if dim.multiple_of > 1 else "")
