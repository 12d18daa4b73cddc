"""From the compiler's package, or reused code, to the layers of an artifact."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from pt2hub import archive
from pt2hub.domain.artifacts import NO_TENSORS, Constants, NativeCode, SingleFile
from pt2hub.domain.codec import decode
from pt2hub.domain.targets import Target
from pt2hub.errors import CompileFailed
from pt2hub_workers.inside import layout, native
from pt2hub_workers.inside.files import STEM
from pt2hub_workers.inside.recipe import HOST_CODE_LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pt2hub.client.loader import LoadedModel
    from pt2hub.domain.artifacts import ArtifactConfig


LITERALS = "extra/literals.safetensors"
"""Where literal constants travel in the code layer, below the archive's root."""
MODEL_NAME = "model.pt2"
_LIFTED = re.compile(r"_tensor_constant\d+")
"""What the compiled code calls the literals that the export lifted."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The layers of an artifact and what its config says of them.

    Attributes:
        code: The code layer.
        weights: The weights layer.
        constants: The table of constants.
        native: What the libraries need.
        single_file: Digest, size and listing of the assembled file.
        sources: Generated sources by name, for people to read; empty where code was reused.
    """

    code: Path
    weights: Path
    constants: Constants
    native: NativeCode
    single_file: SingleFile
    sources: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What packing needs to know beside the package.

    Attributes:
        weights: The weights that the code was compiled with.
        separate: Names by which the program may call the tensors in them, and their names there.
        mutated: Names of the constants that the model writes to.
        known: Names of every constant of the exported program.
        target: What was compiled for.
        host_flags: The worker's CPU flags.
    """

    weights: Path
    separate: Mapping[str, str]
    mutated: frozenset[str]
    known: frozenset[str]
    target: Target
    host_flags: frozenset[str]


def pack_compiled(package: Path, around: Circumstances, directory: Path) -> Packed:
    """Takes the compiler's package apart and proves that it can be put together again.

    Args:
        package: As AOTInductor wrote it.
        around: Weights, target and worker.
        directory: Where the code layer is written.

    Raises:
        LayoutUnproven: The recorded layout does not rebuild the compiler's blob.
        CorruptArchive: The package is not what AOTInductor writes.
        CompileFailed: binutils failed on a library.
    """
    with archive.open_archive(package) as whole:
        names = [entry.name for entry in whole.entries]
        wrapper = next(n for n in names if n.endswith(".wrapper.cpp"))
        blob_name = next((n for n in names if n.endswith("_weights.blob")), None)
        source = whole.read(wrapper).decode()
        blob = memoryview(whole.read(blob_name) if blob_name else b"")
    constants = layout.read_constants(
        source,
        blob_member=f"{STEM}/{blob_name.split('/', 1)[1]}" if blob_name else "",
        blob_size=len(blob),
        separate=around.separate,
        mutated=around.mutated,
    )
    constants = _stored(constants, around)
    _refuse_own_constants(constants, around.known)
    literals = _literals(constants, blob)
    layout.prove(archive.blob_chunks(constants, around.weights, literals), blob)
    code = directory / "code.zip"
    extra = {LITERALS: literals} if literals else {}
    result = archive.split(package, code, strip=native.strip_debug, root=STEM, extra=extra)
    needs = _inspect(code, result.libraries, result.sources.values(), around)
    return Packed(
        code,
        around.weights,
        constants,
        needs,
        _assemble(code, constants, around.weights, literals, directory),
        result.sources,
    )


def pack_baked(package: Path, around: Circumstances, directory: Path) -> Packed:
    """Makes the compiler's package the code layer as it is, with its weights.

    Nothing is taken apart, so that no layout needs a proof. What the compiler made of the weights has no names in
    the model, and forms such as oneDNN's that only the code itself can read.

    Args:
        package: As AOTInductor wrote it.
        around: Target, worker and the constants that the model writes to.
        directory: Where the layers are written.

    Raises:
        CorruptArchive: The package is not what AOTInductor writes.
        CompileFailed: binutils failed on a library.
    """
    code = directory / "code.zip"
    result = archive.split(package, code, strip=native.strip_debug, root=STEM, keep_blob=True)
    needs = _inspect(code, result.libraries, result.sources.values(), around)
    constants = Constants("", 0, (), baked=True, mutated=tuple(sorted(around.mutated)))
    weights = _no_tensors(directory)
    return Packed(
        code, weights, constants, needs, _assemble(code, constants, weights, None, directory), result.sources
    )


def pack_reused(code: Path, config: Mapping[str, Any], around: Circumstances, directory: Path) -> Packed:
    """Joins another artifact's code layer with new weights, or with none where it holds them.

    Args:
        code: The code layer.
        config: Config of the artifact it was published with; the same program key promises the same tables.
        around: Weights, target and worker.
        directory: Where the single file is assembled for its digest.

    Raises:
        LayoutUnproven: The weights do not fit the recorded layout.
    """
    constants = _stored(decode(Constants, config["constants"]), around)
    weights = _no_tensors(directory) if constants.baked else around.weights
    root_member = f"{STEM}/{LITERALS}"
    has_literals = any(item.source == "extra" for item in constants.table)
    literals = archive.read_member(code, root_member) if has_literals else None
    single = _assemble(code, constants, weights, literals, directory)
    return Packed(code, weights, constants, decode(NativeCode, config["native"]), single, {})


def load(packed: Packed, config: ArtifactConfig) -> LoadedModel:
    """Loads layers into this process.

    Args:
        packed: The layers.
        config: Of the artifact whose layers they are, or will be.
    """
    from pt2hub.client.loader import load_artifact
    from pt2hub.client.local import LocalArtifact

    return load_artifact(LocalArtifact.from_files(config, packed.code, packed.weights))


def write_sources(sources: Mapping[str, bytes], out: Path) -> None:
    """Writes the generated sources as a zip of their own, the names without folders."""
    archive.write_zip(out, sorted((Path(name).name, data) for name, data in sources.items()))


def _stored(constants: Constants, around: Circumstances) -> Constants:
    """The table, with the names that these weights have in their file."""
    table = []
    for item in constants.table:
        name = around.separate.get(item.fqn, item.fqn) if item.source == "weights" else item.fqn
        table.append(replace(item, stored=name if name != item.fqn else None))
    return replace(constants, table=tuple(table))


def _no_tensors(directory: Path) -> Path:
    path = directory / "no-tensors.safetensors"
    path.write_bytes(NO_TENSORS)
    return path


def _refuse_own_constants(constants: Constants, known: frozenset[str]) -> None:
    """Refuses tensors that the compiler derived from weights: they would not follow other weights."""
    own = [c.fqn for c in constants.table if c.fqn not in known and not _LIFTED.fullmatch(c.fqn)]
    if own:
        raise CompileFailed(
            f"the compiler made constants of its own from the weights: {', '.join(own[:5])}",
            where="compile",
            hint="An option packs or folds weights. Leave it out of compile.options.",
        )


def _literals(constants: Constants, blob: memoryview) -> bytes | None:
    found = layout.literals(constants, blob)
    if not found:
        return None
    tensors = {}
    for fqn, (constant, data) in found.items():
        dtype: torch.dtype = getattr(torch, constant.dtype)
        flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensors[fqn] = flat.reshape(constant.shape)
    return safetensors.torch.save(tensors)


def _inspect(
    code: Path, libraries: Iterable[str], sources: Iterable[bytes], around: Circumstances
) -> NativeCode:
    level = around.target.arch if around.target.device == "cpu" else HOST_CODE_LEVEL
    texts = [data.decode(errors="replace") for data in sources]
    with tempfile.TemporaryDirectory(prefix="pt2hub-inspect-") as folder:
        paths = []
        for number, name in enumerate(libraries):
            path = Path(folder) / f"{number}.so"
            path.write_bytes(archive.read_member(code, name))
            paths.append(path)
        return native.inspect_libraries(paths, texts, level=level, host_flags=around.host_flags)


def _assemble(
    code: Path, constants: Constants, weights: Path, literals: bytes | None, directory: Path
) -> SingleFile:
    """Assembles the single file for its digest, and removes it: it can be assembled again at any time."""
    out = directory / MODEL_NAME
    chunks = archive.blob_chunks(constants, weights, literals)
    single = archive.write_single_file(code, constants.blob_member, chunks, constants.blob_size, out)
    out.unlink()
    return single
