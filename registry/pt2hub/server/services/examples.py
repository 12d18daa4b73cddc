"""Uploaded tensors, judged by the header of their file: a wrong one is refused before anything waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.archive import read_safetensors_header
from pt2hub.errors import CorruptArchive, Detail, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.archive import ByteSource, TensorEntry
    from pt2hub.domain.inputs import Input
    from pt2hub.domain.specs import Spec

_EXAMPLE = (
    "Write it with safetensors.torch.save_file: one tensor of the input's dtype and number of dimensions."
)
_WEIGHTS = (
    "Write it with safetensors.torch.save_file(model.state_dict(), path); torch.save writes another form."
)


def check_tensors(spec: Spec, files: Mapping[str, ByteSource]) -> None:
    """Refuses weights that are no safetensors file, and example files that are none of their inputs.

    Whether weights fit the model is found by the worker, which has the model.

    Args:
        spec: What names them.
        files: What the spec names, by path; only headers are read. Several inputs may name one file.

    Raises:
        InvalidInput: A file is no safetensors file, or an example's tensor has another dtype or rank.
    """
    if spec.weights is not None:
        _refuse("The uploaded weights cannot be read", _WEIGHTS, _malformed("weights", files["weights"]))
    details = []
    for place, item in enumerate(spec.inputs):
        path = f"inputs[{place}].example"
        if item.example is not None:
            details += _problems(path, item, files[path])
    _refuse("An uploaded example does not fit its input", _EXAMPLE, details)


def _refuse(message: str, hint: str, details: list[Detail]) -> None:
    if details:
        raise InvalidInput(message, where=details[0].path, hint=hint, details=tuple(details))


def _malformed(path: str, file: ByteSource) -> list[Detail]:
    try:
        read_safetensors_header(file)
    except CorruptArchive as exc:
        return [Detail(path, exc.message)]
    return []


def _problems(path: str, item: Input, file: ByteSource) -> list[Detail]:
    try:
        entries = read_safetensors_header(file)
    except CorruptArchive as exc:
        return [Detail(path, exc.message, given=item.example)]
    entry = entries.get(item.name) or (next(iter(entries.values())) if len(entries) == 1 else None)
    if entry is None:
        names = ", ".join(sorted(entries))[:80] or "no tensor"
        return [Detail(path, "the file has no tensor of the input's name", given=names, allowed=item.name)]
    return _differences(path, item, entry)


def _differences(path: str, item: Input, entry: TensorEntry) -> list[Detail]:
    if entry.dtype != item.dtype:
        return [Detail(path, "the tensor has another dtype", given=entry.dtype, allowed=item.dtype)]
    if len(entry.shape) != len(item.shape) or 0 in entry.shape:
        given, allowed = str(list(entry.shape)), str(item.shape)
        return [Detail(path, "the tensor is empty or has another rank", given=given, allowed=allowed)]
    return []
