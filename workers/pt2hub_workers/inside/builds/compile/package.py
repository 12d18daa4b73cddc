"""Packs the compiler's package, or reused code, into the layers of an artifact."""

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
from pt2hub.domain.artifacts import NO_TENSORS, Constants, NativeCode, Region, SingleFile
from pt2hub.domain.codec import decode
from pt2hub.domain.targets import Target
from pt2hub.errors import CompileFailed
from pt2hub_workers.inside.builds.compile import called_operators, native, wrapper_layout
from pt2hub_workers.inside.builds.compile.options import HOST_CODE_LEVEL
from pt2hub_workers.inside.operations.files import STEM

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pt2hub.client.artifacts.loader import LoadedModel
    from pt2hub.domain.artifacts import ArtifactConfig


MODEL_NAME = "model.pt2"
_LIFTED = re.compile(r"_tensor_constant\d+")
"""Names in the compiled code of the literals that the export lifted."""


@dataclass(frozen=True, slots=True)
class PackedArtifact:
    """The layers of an artifact and their parts of its config.

    Attributes:
        sources: Generated sources by name; empty if code was reused.
        regions: Parts with code of their own; empty if the model was compiled as a whole.
    """

    code: Path
    weights: Path
    constants: Constants
    native: NativeCode
    single_file: SingleFile
    sources: Mapping[str, bytes]
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True, slots=True)
class PackingInputs:
    """Inputs of packing in addition to the package."""

    weights: Path
    separate: Mapping[str, str]
    mutated: frozenset[str]
    known: frozenset[str]
    target: Target
    host_flags: frozenset[str]


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """A compiler's package without its weights.

    Attributes:
        literals: A safetensors file of the constants that are no weights; None if there are none.
    """

    layer: archive.SplitResult
    constants: Constants
    literals: bytes | None
    native: NativeCode


def pack_compiled(package: Path, around: PackingInputs, directory: Path) -> PackedArtifact:
    """Split the compiler's package into layers, and check that they can be joined again.

    Raises:
        LayoutUnproven: The recorded layout does not rebuild the compiler's blob.
    """
    found = split_compiled(package, around, directory / "code.zip")
    code, constants = found.layer.code, found.constants
    single = assemble(code, constants, around.weights, found.literals, directory)
    return PackedArtifact(code, around.weights, constants, found.native, single, found.layer.sources)


def split_compiled(package: Path, around: PackingInputs, code: Path) -> CompiledCode:
    """Write the code layer of a compiler's package, and check that the recorded layout rebuilds its blob.

    Raises:
        LayoutUnproven: It does not.
    """
    with archive.open_archive(package) as whole:
        names = [entry.name for entry in whole.entries]
        wrapper = next(n for n in names if n.endswith(".wrapper.cpp"))
        blob_name = next((n for n in names if n.endswith("_weights.blob")), None)
        source = whole.read(wrapper).decode()
        blob = memoryview(whole.read(blob_name) if blob_name else b"")
    constants = wrapper_layout.read_constants(
        source,
        blob_member=f"{STEM}/{blob_name.split('/', 1)[1]}" if blob_name else "",
        blob_size=len(blob),
        separate=around.separate,
        mutated=around.mutated,
    )
    constants = _rename_constants(constants, around)
    _refuse_own_constants(constants, around.known)
    literals = _literals(constants, blob)
    wrapper_layout.verify_blob(archive.blob_chunks(constants, around.weights, literals), blob)
    extra = {archive.LITERALS: literals} if literals else {}
    result = archive.split(package, code, strip=native.strip_debug, root=STEM, extra=extra)
    needs = inspect_code(code, result.libraries, result.sources.values(), around)
    return CompiledCode(result, constants, literals, needs)


def pack_baked(package: Path, around: PackingInputs, directory: Path) -> PackedArtifact:
    """Use the compiler's whole package, with its weights, as the code layer.

    It is not split, so no layout needs a proof. The compiler's transformed weights have no names in the model, and
    layouts such as oneDNN's that only the code itself can read.
    """
    code = directory / "code.zip"
    result = archive.split(package, code, strip=native.strip_debug, root=STEM, keep_blob=True)
    needs = inspect_code(code, result.libraries, result.sources.values(), around)
    constants = Constants("", 0, (), baked=True, mutated=tuple(sorted(around.mutated)))
    weights = _write_empty_weights(directory)
    return PackedArtifact(
        code, weights, constants, needs, assemble(code, constants, weights, None, directory), result.sources
    )


def pack_reused(
    code: Path, config: Mapping[str, Any], around: PackingInputs, directory: Path
) -> PackedArtifact:
    """Join another artifact's code layer with new weights, or with none if it contains them.

    Raises:
        LayoutUnproven: The weights do not fit the recorded layout.
    """
    constants = _rename_constants(decode(Constants, config["constants"]), around)
    weights = _write_empty_weights(directory) if constants.baked else around.weights
    literals = archive.read_literals(constants, code)
    single = assemble(code, constants, weights, literals, directory)
    return PackedArtifact(code, weights, constants, decode(NativeCode, config["native"]), single, {})


def load(packed: PackedArtifact, config: ArtifactConfig) -> LoadedModel:
    """Load packed layers into this process."""
    from pt2hub.client.artifacts.loader import load_artifact
    from pt2hub.client.artifacts.local import LocalArtifact

    return load_artifact(LocalArtifact.from_files(config, packed.code, packed.weights), cuda_graph=False)


def write_sources(sources: Mapping[str, bytes], out: Path) -> None:
    """Write the generated sources as a zip file, with names without folders."""
    archive.write_zip(out, sorted((Path(name).name, data) for name, data in sources.items()))


def _rename_constants(constants: Constants, around: PackingInputs) -> Constants:
    """Return the table with the names of these weights in their file."""
    table = []
    for item in constants.table:
        name = around.separate.get(item.fqn, item.fqn) if item.source == "weights" else item.fqn
        table.append(replace(item, stored=name if name != item.fqn else None))
    return replace(constants, table=tuple(table))


def _write_empty_weights(directory: Path) -> Path:
    path = directory / "no-tensors.safetensors"
    path.write_bytes(NO_TENSORS)
    return path


def _refuse_own_constants(constants: Constants, known: frozenset[str]) -> None:
    """Refuse tensors that the compiler derived from weights: they would not follow new weights."""
    own = [c.fqn for c in constants.table if c.fqn not in known and not _LIFTED.fullmatch(c.fqn)]
    if own:
        raise CompileFailed(
            f"the compiler derived its own constants from the weights: {', '.join(own[:5])}",
            where="compile",
            hint="A compile option packs or folds weights: remove it from compile.options.",
        )


def _literals(constants: Constants, blob: memoryview) -> bytes | None:
    found = wrapper_layout.read_literals(constants, blob)
    if not found:
        return None
    tensors = {}
    for fqn, (constant, data) in found.items():
        dtype: torch.dtype = getattr(torch, constant.dtype)
        flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensors[fqn] = flat.as_strided(constant.shape, constant.stride).contiguous()
    return safetensors.torch.save(tensors)


def inspect_code(
    code: Path, libraries: Iterable[str], sources: Iterable[bytes], around: PackingInputs
) -> NativeCode:
    """Return the requirements of a code layer's libraries."""
    level = around.target.arch if around.target.device == "cpu" else HOST_CODE_LEVEL
    texts = [data.decode(errors="replace") for data in sources]
    with tempfile.TemporaryDirectory(prefix="pt2hub-inspect-") as folder:
        paths = []
        for number, name in enumerate(libraries):
            path = Path(folder) / f"{number}.so"
            path.write_bytes(archive.read_member(code, name))
            paths.append(path)
        needs = native.inspect_libraries(paths, texts, level=level, host_flags=around.host_flags)
    operators = called_operators.read_operators(code)
    return replace(
        needs, operators=operators, operator_libraries=called_operators.library_versions(operators)
    )


def assemble(
    code: Path, constants: Constants, weights: Path, literals: bytes | None, directory: Path
) -> SingleFile:
    """Assemble the single file to compute its digest, and remove it: it can be assembled again at any time."""
    out = directory / MODEL_NAME
    chunks = archive.blob_chunks(constants, weights, literals)
    single = archive.write_single_file(code, constants.blob_member, chunks, constants.blob_size, out)
    out.unlink()
    return single
