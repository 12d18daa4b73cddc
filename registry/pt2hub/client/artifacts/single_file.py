"""The single-file form: code and weights in one `model.pt2`, which torch's own loader reads."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.client.artifacts.local import LocalArtifact, literals
from pt2hub.errors import DigestMismatch, HomeUnusable

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.artifacts import SingleFile


def write_model(artifact: LocalArtifact, out: Path) -> SingleFile:
    """Assemble `model.pt2` and check that its digest is that of the worker's file.

    Args:
        out: Where it goes; replaced where it exists, and only by the whole file.

    Raises:
        DigestMismatch: The result differs from the digest in the artifact's config.
        HomeUnusable: The file cannot be written.
    """
    constants = artifact.config.constants
    if os.path.isdir(out):  # noqa: PTH112  # False where the folder may not be searched; the write says so
        raise HomeUnusable(
            "The output path is a directory",
            where=str(out),
            hint=f"Pass the path of a file in it: {out / 'model.pt2'}.",
        )
    incomplete = out.with_name(f".{out.name}.{os.urandom(4).hex()}.incomplete")
    try:
        blob = archive.blob_chunks(constants, artifact.weights, literals(artifact))
        written = archive.write_single_file(
            artifact.code, constants.blob_member, blob, constants.blob_size, incomplete
        )
        _check(written, artifact, out)
        incomplete.replace(out)
    except OSError as exc:
        raise HomeUnusable(
            f"Cannot write the file: {exc.strerror or exc}", where=str(out), hint="Choose another path."
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
            hint='Pull with `--verify always`, verify="always" in Python, or delete the cached files; if it persists, report it.',
        )
