"""The single-file form: code and weights assembled into one `model.pt2` that stock loaders take."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.client.local import LocalArtifact, literals
from pt2hub.errors import DigestMismatch, HomeUnusable

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.artifacts import SingleFile


def write_model(artifact: LocalArtifact, out: Path) -> SingleFile:
    """Assembles `model.pt2` and proves that it is the one the worker built.

    Args:
        artifact: The files to assemble.
        out: Where it goes; replaced where it exists, and only by the whole file.

    Raises:
        DigestMismatch: The result differs from the digest in the artifact's config.
        HomeUnusable: The file cannot be written.
    """
    constants = artifact.config.constants
    if out.is_dir():
        raise HomeUnusable(
            "It is a directory", where=str(out), hint=f"Name a file in it: {out / 'model.pt2'}."
        )
    incomplete = out.with_name(f".{out.name}.{os.getpid()}.incomplete")
    try:
        blob = archive.blob_chunks(constants, artifact.weights, literals(artifact))
        written = archive.write_single_file(
            artifact.code, constants.blob_member, blob, constants.blob_size, incomplete
        )
        _check(written, artifact, out)
        incomplete.replace(out)
    except OSError as exc:
        raise HomeUnusable(
            f"The file cannot be written: {exc.strerror or exc}", where=str(out), hint="Choose another place."
        ) from exc
    finally:
        with suppress(OSError):  # where nothing could be written there is nothing to remove
            incomplete.unlink(missing_ok=True)
    return written


def _check(written: SingleFile, artifact: LocalArtifact, out: Path) -> None:
    expected = artifact.config.single_file.digest
    if written.digest != expected:
        raise DigestMismatch(
            f"The assembled file has the digest {written.digest}, the artifact's config says {expected}",
            where=str(out),
            hint="Pull with --verify always, or delete the cached files; if it stays, report it.",
        )
