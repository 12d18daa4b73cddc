"""Weights from torchvision: pickles, read with torch's restricted reader and written as safetensors."""

from __future__ import annotations

import difflib
import hashlib
import http.client
import socket
import urllib.error
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pt2hub.client.publishing.pretrained.names import WHERE, FetchedWeights
from pt2hub.errors import UnsupportedTensor, WeightsUnavailable
from pt2hub.extras import require_modules
from pt2hub.torchvision_operators import declare_torchvision

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from pt2hub.client.publishing.pretrained.names import TorchvisionName

_SILENCE_SECONDS = 60.0
"""Timeout without data; torch's own download has none."""
_MAX_SUGGESTIONS = 3
_MIRROR = "Try again; if this machine only reaches a mirror, set PT2HUB_TORCHVISION_MIRROR to it."


def fetch(name: TorchvisionName, into: Path, *, mirror: str | None, shown: bool) -> FetchedWeights:
    """Download weights from torchvision through torch's cache; see `pretrained.fetch`."""
    require_modules("Weights from torchvision", "torch", "torchvision", "safetensors")
    declare_torchvision()
    from safetensors.torch import save_file

    weights = _find_enum(name)
    pinned = f"torchvision:{type(weights).__name__}.{weights.name}"
    url = _mirror_url(weights.url, mirror)
    out = into / "weights.safetensors"
    save_file(_apart(_load(url, _download(url, shown=shown))), out)
    return FetchedWeights(out, pinned)


def _find_enum(name: TorchvisionName) -> Any:
    from torchvision.models import get_weight

    try:
        return get_weight(name.member)
    except (ValueError, KeyError, TypeError) as exc:  # no such enumeration; no such member; a function's name
        suggestions = _suggest(name.member)
        hint = (
            f"Did you mean {' or '.join(suggestions)}?"
            if suggestions
            else "To list its models: torchvision.models.list_models()"
        )
        raise WeightsUnavailable(f"torchvision has no weights {name.member}", where=WHERE, hint=hint) from exc


def _suggest(member: str) -> list[str]:
    from torchvision import models

    enums = [models.get_model_weights(name) for name in models.list_models()]
    names = [f"{enum.__name__}.{key}" for enum in enums for key in enum.__members__]
    wanted = member.lower().removesuffix(".default")
    begins = [name for name in names if name.lower().startswith(f"{wanted.partition('.')[0]}")]
    found = (
        difflib.get_close_matches(member, begins or names, n=_MAX_SUGGESTIONS) or begins[:_MAX_SUGGESTIONS]
    )
    return [f"torchvision:{name}" for name in found]


def _mirror_url(url: str, mirror: str | None) -> str:
    return mirror.rstrip("/") + urlsplit(url).path if mirror else url


def _download(url: str, *, shown: bool) -> Path:
    """Return the file from torch's cache (`TORCH_HOME`), downloading it if necessary."""
    from torch import hub

    file = Path(hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name
    announced = hub.HASH_REGEX.search(file.name)
    begin = announced[1] if announced else ""
    if file.exists():
        _check_cached(file, begin)
        return file
    with _translate_errors(url):
        file.parent.mkdir(parents=True, exist_ok=True)
        hub.download_url_to_file(url, str(file), begin or None, progress=shown)
    return file


def _check_cached(file: Path, begin: str) -> None:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if not digest.startswith(begin):
        raise WeightsUnavailable(
            f"{file} does not match the digest in its name (sha256 {begin}..., found {digest[: len(begin)]}...)",
            where=WHERE,
            hint="Delete the file to fetch it again.",
        )


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    """Set a timeout for torch's download, and translate its errors."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_SECONDS)
    try:
        yield
    except urllib.error.HTTPError as exc:
        exc.close()
        raise WeightsUnavailable(f"{url} answers {exc.code} {exc.reason}", where=WHERE, hint=_MIRROR) from exc
    except RuntimeError as exc:  # the one that says both digests
        raise WeightsUnavailable(
            f"{url} is incomplete or does not match the digest in its name: {exc}",
            where=WHERE,
            hint="Try again.",
        ) from exc
    except (OSError, http.client.HTTPException) as exc:
        reason = getattr(exc, "reason", None) or exc
        raise WeightsUnavailable(f"{url} cannot be fetched: {reason}", where=WHERE, hint=_MIRROR) from exc
    finally:
        socket.setdefaulttimeout(before)


def _load(url: str, file: Path) -> dict[str, torch.Tensor]:
    import torch

    try:
        # It is in the cache already; this reader also knows the forms of old releases.
        found: object = torch.hub.load_state_dict_from_url(
            url, str(file.parent), map_location="cpu", weights_only=True
        )
    except Exception as exc:  # a damaged pickle raises whatever its bytes happen to mean
        first = str(exc).partition("\n")[0]
        raise WeightsUnavailable(
            f"{file} contains no weights that torch can read safely: {first}",
            where=WHERE,
            hint="Delete the file to fetch it again.",
        ) from exc
    if not isinstance(found, dict) or not all(isinstance(item, torch.Tensor) for item in found.values()):
        raise WeightsUnavailable(f"{file} contains no state_dict", where=WHERE, hint="Choose other weights.")
    return found


def _apart(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors as safetensors requires them: contiguous, without shared memory."""
    import torch

    kept: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        if tensor.is_quantized or tensor.layout != torch.strided:
            raise UnsupportedTensor(
                f"{name} is quantised or sparse, which safetensors cannot store",
                where=WHERE,
                hint="Use weights of the model that is not quantised.",
            )
        address = tensor.untyped_storage().data_ptr()
        kept[name] = (tensor.clone() if address in seen else tensor).detach().contiguous()
        seen.add(address)
    return kept
