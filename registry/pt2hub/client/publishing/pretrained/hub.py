"""Weights in a repository of the Hugging Face Hub, or of a mirror (`HF_ENDPOINT`).

The library keeps what it fetches in its own cache (`HF_HOME`) and sends the user's token (`HF_TOKEN`).
"""

from __future__ import annotations

import difflib
import hashlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pt2hub.client.publishing.pretrained.names import WHERE, FetchedWeights, HubName
from pt2hub.client.publishing.pretrained.shards import merge, shards_of
from pt2hub.errors import Pt2hubError, WeightsUnavailable
from pt2hub.extras import require_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoSibling

_TENSORS, _INDEX = ".safetensors", ".safetensors.index.json"
_USUAL = (f"model{_TENSORS}", f"model{_INDEX}")
_MAX_SUGGESTIONS = 5
_ANSWER_SECONDS = 30.0
_CLIENT = "pt2hub"
_TOKEN = "If it is private or gated, request access and set HF_TOKEN to your token."  # noqa: S105  # a sentence
_AWAY = "Try again; if this machine only reaches a mirror, set HF_ENDPOINT to it."


def fetch(name: HubName, into: Path, *, shown: bool) -> FetchedWeights:
    """Download weights from the hub; see `pretrained.fetch`."""
    require_modules("Weights on the hub", "huggingface_hub")
    with _translate_errors(name), _bars(shown=shown):
        snapshot = _Snapshot.of(name)
        file = snapshot.chosen(name)
        path = snapshot.download(file)
        if file.endswith(_INDEX):
            path = _merge_shards(snapshot, file, path, into)
    return FetchedWeights(path, str(HubName(name.repository, snapshot.commit, file)))


class _Snapshot:
    """A repository at one commit."""

    def __init__(self, api: HfApi, repository: str, commit: str, files: Mapping[str, RepoSibling]) -> None:
        self.commit = commit
        self.files = files
        self._api = api
        self._repository = repository

    @classmethod
    def of(cls, name: HubName) -> _Snapshot:
        """Resolve the revision to a commit."""
        from huggingface_hub import HfApi

        api = HfApi(library_name=_CLIENT)
        info = api.model_info(
            name.repository, revision=name.revision, timeout=_ANSWER_SECONDS, files_metadata=True
        )
        if not info.sha:
            raise WeightsUnavailable(f"{name} has no known commit", where=WHERE, hint="Pin a commit.")
        return cls(api, name.repository, info.sha, {item.rfilename: item for item in info.siblings or ()})

    def chosen(self, name: HubName) -> str:
        """Return the file of the repository that a name selects.

        Raises:
            WeightsUnavailable: The file does not exist or is not a safetensors file.
        """
        if name.file is None:
            found = next((file for file in _USUAL if file in self.files), None)
            if found is None:
                raise self._without(name)
            return found
        if name.file not in self.files:
            near = difflib.get_close_matches(name.file, self.files, n=_MAX_SUGGESTIONS) or self._safe()
            raise WeightsUnavailable(
                f"{name.repository} has no file {name.file} at {self.commit[:12]}",
                where=WHERE,
                hint=f"It has {', '.join(near)}." if near else "Check the repository's file list.",
            )
        if not name.file.endswith((_TENSORS, _INDEX)):
            raise _pickle_refused(name.file)
        return name.file

    def download(self, file: str) -> Path:
        """Return a file from the library's cache, verified if its digest is known."""
        path = Path(self._api.hf_hub_download(self._repository, file, revision=self.commit))
        lfs = self.files[file].lfs
        if lfs is not None:
            _check(path, file, lfs.sha256)
        return path

    def _safe(self) -> list[str]:
        return [file for file in self.files if file.endswith((_TENSORS, _INDEX))][:_MAX_SUGGESTIONS]

    def _without(self, name: HubName) -> WeightsUnavailable:
        if named := self._safe():
            return WeightsUnavailable(
                f"{name.repository} has no file {_USUAL[0]} at {self.commit[:12]}",
                where=WHERE,
                hint=f"Choose one of its files: {', '.join(f'{name}#{file}' for file in named)}",
            )
        pickles = [file for file in self.files if file.endswith((".bin", ".pt", ".pth", ".ckpt"))]
        if pickles:
            return _pickle_refused(pickles[0])
        return WeightsUnavailable(
            f"{name.repository} has no safetensors file at {self.commit[:12]}",
            where=WHERE,
            hint="Choose another revision or repository.",
        )


def _pickle_refused(file: str) -> WeightsUnavailable:
    return WeightsUnavailable(
        f"{file} is not a safetensors file; pt2hub does not download pickles, because reading them can run code",
        where=WHERE,
        hint="If you trust it, load it with torch.load(weights_only=True), save its state_dict with "
        "safetensors.torch.save_file, and publish with that file as the weights.",
    )


def _check(path: Path, file: str, digest: str) -> None:
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != digest:
        raise WeightsUnavailable(
            f"{file} does not match the hub's digest (sha256 {digest[:12]}..., found {found[:12]}...)",
            where=WHERE,
            hint=f"Delete {path.resolve()} and try again.",
        )


def _merge_shards(snapshot: _Snapshot, file: str, index: Path, into: Path) -> Path:
    places = shards_of(index)
    folder = PurePosixPath(file).parent
    missing = sorted({shard for shard in places.values() if str(folder / shard) not in snapshot.files})
    if missing:
        raise WeightsUnavailable(
            f"{file} lists {missing[0]}, which is not in the repository",
            where=WHERE,
            hint="Choose another file.",
        )
    paths = {shard: snapshot.download(str(folder / shard)) for shard in sorted(set(places.values()))}
    out = into / "weights.safetensors"
    merge(places, paths, out)
    return out


@contextmanager
def _bars(*, shown: bool) -> Iterator[None]:
    """Show the library's progress bars only if stderr is a terminal."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


@contextmanager
def _translate_errors(name: HubName) -> Iterator[None]:
    """Translate the library's errors; its HTTP client differs between major releases."""
    from huggingface_hub import errors

    try:
        yield
    except Pt2hubError:
        raise
    except errors.RevisionNotFoundError as exc:
        raise WeightsUnavailable(
            f"{name.repository} has no revision {name.revision}",
            where=WHERE,
            hint="Use a branch, a tag or a commit.",
        ) from exc
    except errors.GatedRepoError as exc:
        raise WeightsUnavailable(f"{name.repository} is gated", where=WHERE, hint=_TOKEN) from exc
    except errors.RepositoryNotFoundError as exc:
        raise WeightsUnavailable(
            f"Repository {name.repository} not found, or not accessible",
            where=WHERE,
            hint=f"Check the name. {_TOKEN}",
        ) from exc
    except errors.HfHubHTTPError as exc:
        status = exc.response.status_code
        raise WeightsUnavailable(
            f"The hub answers {status} for {name}",
            where=WHERE,
            hint=_TOKEN if status in (401, 403) else _AWAY,
        ) from exc
    except Exception as exc:
        first = str(exc).strip().partition("\n")[0]
        raise WeightsUnavailable(f"{name} cannot be fetched: {first}", where=WHERE, hint=_AWAY) from exc
