"""Fetching of named weights from any source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.archive.safetensors_header import read_safetensors_header
from pt2hub.client import output
from pt2hub.client.publishing.pretrained.names import WHERE, HubName, parse
from pt2hub.errors import CorruptArchive, WeightsUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.publishing.pretrained.names import FetchedWeights


def fetch(
    text: str, into: Path, *, mirror: str | None = None, progress: bool | None = None
) -> FetchedWeights:
    """Download named weights as one safetensors file.

    Tensors keep names, dtypes and bytes: whether they fit the model is for the build to say.

    Args:
        text: `torchvision:ENUM.MEMBER`, or `hf:repository[@revision][#file]`.
        into: A folder for the file, where it cannot stay in the library's own cache.
        progress: Whether the transfer is shown on stderr; None where somebody watches.

    Raises:
        WeightsUnavailable: The name is unknown, nobody answers, or what came is damaged or not to be trusted.
        UnsupportedTensor: A tensor has no form in safetensors.
        BadConfiguration: A package is not installed.
    """
    name = parse(text)
    shown = output.announce(f"fetching {text}", progress)  # the libraries' bars name files only
    if isinstance(name, HubName):
        from pt2hub.client.publishing.pretrained import hub

        fetched = hub.fetch(name, into, shown=shown)
    else:
        from pt2hub.client.publishing.pretrained import vision

        fetched = vision.fetch(name, into, mirror=mirror, shown=shown)
    try:
        read_safetensors_header(fetched.path)
    except CorruptArchive as exc:
        raise WeightsUnavailable(
            f"{fetched.pinned} is {exc.message}", where=WHERE, hint="Choose another file or revision."
        ) from exc
    return fetched
