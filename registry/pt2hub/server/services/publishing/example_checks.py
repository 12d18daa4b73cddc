"""Checks of uploaded weights and example inputs, by the headers of their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.archive import read_safetensors_header
from pt2hub.errors import CorruptArchive, Detail, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.archive import ByteSource, TensorEntry
    from pt2hub.domain.publishing.inputs import Input
    from pt2hub.domain.publishing.spec import Spec

_EXAMPLE_HINT = (
    "Write it with safetensors.torch.save_file: one tensor of the input's dtype and number of dimensions."
)
_WEIGHTS_HINT = (
    "Write it with safetensors.torch.save_file(model.state_dict(), path); torch.save writes another format."
)


def check_tensors(spec: Spec, files: Mapping[str, ByteSource]) -> None:
    """Refuse weights that are not a safetensors file, and example files that do not fit their inputs.

    The worker, which has the model, checks whether the weights fit it.

    Args:
        files: The blobs that the spec names, by path; only headers are read. Several inputs may share a file.

    Raises:
        InvalidInput: A file is not safetensors, or an example's dtype or rank differs from its input's.
    """
    if spec.weights is not None:
        _refuse(
            "The uploaded weights cannot be read", _WEIGHTS_HINT, _malformed_file("weights", files["weights"])
        )
    details = []
    for index, item in enumerate(spec.inputs):
        path = f"inputs[{index}].example"
        if item.example is not None:
            details += _problems(path, item, files[path])
    _refuse("An uploaded example does not fit its input", _EXAMPLE_HINT, details)


def _refuse(message: str, hint: str, details: list[Detail]) -> None:
    if details:
        raise InvalidInput(message, where=details[0].path, hint=hint, details=tuple(details))


def _malformed_file(path: str, file: ByteSource) -> list[Detail]:
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
        return [Detail(path, "the file has no tensor with the input's name", given=names, allowed=item.name)]
    return _differences(path, item, entry)


def _differences(path: str, item: Input, entry: TensorEntry) -> list[Detail]:
    if entry.dtype != item.dtype:
        return [
            Detail(path, "the tensor's dtype differs from the input's", given=entry.dtype, allowed=item.dtype)
        ]
    if len(entry.shape) != len(item.shape) or 0 in entry.shape:
        given, allowed = str(list(entry.shape)), str(item.shape)
        return [
            Detail(
                path, "the tensor is empty or its rank differs from the input's", given=given, allowed=allowed
            )
        ]
    return []
