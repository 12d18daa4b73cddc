"""The lock file: TOML with one fact per line, sorted, so that equal locks are equal files and Git merges them."""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import TYPE_CHECKING, Any

from pt2hub.client.lock.lock_schema import find_faults
from pt2hub.domain.codec import decode
from pt2hub.domain.locks import LOCK_SCHEMA, Lock
from pt2hub.domain.names import Reference
from pt2hub.errors import ClientTooOld, Detail, HomeUnusable, LockInvalid, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.domain.locks import LockedArtifact, LockedModel

LOCK_NAME = "pt2hub.lock"
MAX_LOCK_BYTES = 16 << 20
_MAX_FAULTS = 20
_HEAD = "# Written by `pt2hub lock`; change it with that command, not by hand.\n"
_CONFLICT = re.compile(r"^(<<<<<<<|=======|>>>>>>>)( |$)", re.MULTILINE)
_MAX_SCHEMA = 1_000_000
_RESTORE = "Restore it from version control, or delete it and run `pt2hub lock`, which resolves every reference anew."
_MERGE = (
    "Take one of the two sides (git checkout --ours pt2hub.lock, or --theirs), then run `pt2hub lock`, which adds what "
    "pyproject.toml declares; without a declaration, name what the other side had: pt2hub lock REF."
)


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        NotFound: There is none, or it cannot be read.
        LockInvalid: It is malformed.
        ClientTooOld: A newer pt2hub wrote it.
    """
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise NotFound(
            f"Cannot read the lock file: {exc.strerror or exc}",
            where=str(path),
            hint="To write one: pt2hub lock team/name@prod",
        ) from exc
    return parse_lock(data, str(path))


def parse_lock(data: bytes, where: str) -> Lock:
    """Read the content of a lock file; errors as for `read_lock`.

    Args:
        where: Path of the file, for errors.
    """
    document = _parse_toml(data, where)
    schema = document.get("schema")
    if type(schema) is not int or not 1 <= schema <= _MAX_SCHEMA:
        raise LockInvalid("The lock file has no schema number", where=where, hint=_RESTORE)
    if schema > LOCK_SCHEMA:
        raise ClientTooOld(
            f"The lock file has schema {schema}, this pt2hub reads up to {LOCK_SCHEMA}",
            where=where,
            hint="Upgrade with pip install --upgrade pt2hub.",
        )
    faults = [*find_faults(document)]
    if not faults:
        lock = decode(Lock, document)
        faults = [*_inconsistencies(lock)]
        if not faults:
            return lock
    raise LockInvalid(where=where, hint=_RESTORE, details=tuple(faults[:_MAX_FAULTS]))


def format_lock(lock: Lock) -> str:
    """Return the text of a lock file: equal locks give equal texts."""
    return "".join(f"{line}\n" for line in _lines(lock))


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock file unless it has this content already; it is replaced as a whole.

    Returns:
        Whether it was written.

    Raises:
        HomeUnusable: It cannot be written.
    """
    text = format_lock(lock).encode()
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        if path.exists() and path.read_bytes() == text:
            return False
        temporary.write_bytes(text)
        temporary.replace(path)
    except OSError as exc:
        temporary.unlink(missing_ok=True)
        raise HomeUnusable(
            f"Cannot write the lock file: {exc.strerror or exc}",
            where=str(path),
            hint="Correct the permissions, or choose another path for the lock file.",
        ) from exc
    return True


def _inconsistencies(lock: Lock) -> Iterator[Detail]:
    """Yield what a merge by hand leaves behind: entries that stand there twice."""
    yield from _repeated("models", "reference", list(lock.references))
    for index, model in enumerate(lock.models):
        place = f"models[{index}].artifacts"
        yield from _repeated(place, "target", list(model.targets))
        yield from _repeated(f"models[{index}].files", "name", [item.name for item in model.files])
        yield from _repeated(place, "manifest.digest", [item.manifest.digest for item in model.artifacts])
        yield from _contradictions(f"models[{index}]", model)


def _contradictions(place: str, model: LockedModel) -> Iterator[Detail]:
    """Yield what is locked for a reference that names something else."""
    reference = Reference.parse(model.reference)
    if not reference.allows_version(model.model, model.version):
        yield Detail(f"{place}.version", "is not that of the reference", given=str(model.version))
    for index, item in enumerate(model.artifacts):
        if not item.manifest.digest.startswith(reference.digest_start):
            path = f"{place}.artifacts[{index}].manifest.digest"
            yield Detail(path, "is not that of the reference", given=item.manifest.digest)


def _repeated(place: str, name: str, values: list[str]) -> Iterator[Detail]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield Detail(f"{place}[{index}].{name}", "is listed twice", given=value)


def _parse_toml(data: bytes, where: str) -> dict[str, Any]:
    if len(data) > MAX_LOCK_BYTES:
        raise LockInvalid(f"The lock file is longer than {MAX_LOCK_BYTES} bytes", where=where, hint=_RESTORE)
    try:
        text = data.decode()
        return tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        marker = _CONFLICT.search(data.decode(errors="replace"))
        if marker is None:
            raise LockInvalid(f"The lock file is not TOML: {exc}", where=where, hint=_RESTORE) from exc
        line = data.decode(errors="replace").count("\n", 0, marker.start()) + 1
        raise LockInvalid(
            f"The lock file has merge conflict markers, the first in line {line}", where=where, hint=_MERGE
        ) from exc


def _lines(lock: Lock) -> Iterator[str]:
    yield _HEAD.rstrip("\n")
    yield f"schema = {lock.schema}"
    yield f"server = {_quote(lock.server)}"
    if lock.targets:
        yield "targets = ["
        yield from (f"    {_quote(target)}," for target in sorted(lock.targets))
        yield "]"
    if lock.storage:
        yield ""
        yield "[storage]"
        yield f"url = {_quote(lock.storage.url)}"
        if lock.storage.endpoint:
            yield f"endpoint = {_quote(lock.storage.endpoint)}"
        if lock.storage.region:
            yield f"region = {_quote(lock.storage.region)}"
    for model in sorted(lock.models, key=lambda item: item.reference):
        yield from _model_lines(model)


def _model_lines(model: LockedModel) -> Iterator[str]:
    yield ""
    yield "[[models]]"
    yield f"reference = {_quote(model.reference)}"
    yield f"version = {model.version}"
    for file in sorted(model.files, key=lambda item: item.name):
        yield from ("", "[[models.files]]", f"name = {_quote(file.name)}")
        yield from (f"digest = {_quote(file.digest)}", f"size = {file.size}")
    for artifact in sorted(model.artifacts, key=lambda item: item.target):
        yield from _artifact_lines(artifact)


def _artifact_lines(artifact: LockedArtifact) -> Iterator[str]:
    yield ""
    yield "[[models.artifacts]]"
    yield f"target = {_quote(artifact.target)}"
    for name, blob in artifact.blobs.items():
        yield f"{name} = {{ digest = {_quote(blob.digest)}, size = {blob.size} }}"


def _quote(text: str) -> str:
    """Return a basic string of TOML, which has the escapes of JSON and another one for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
