"""Packs regions, and the composite library that calls them, as one package that loads like any other.

The files are named as in the compiler's packages. The regions' libraries have a suffix of their own, since a loader takes
the file that ends with `.so` for the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from pt2hub import archive
from pt2hub.domain.artifacts import Constants, NativeCode, ProgramKey, Region
from pt2hub.domain.digests import Digest, hex_of
from pt2hub_workers.inside.builds.compile import native
from pt2hub_workers.inside.builds.compile.package import (
    PackedArtifact,
    assemble,
    inspect_code,
)
from pt2hub_workers.inside.builds.key.program_key import program_constants
from pt2hub_workers.inside.builds.regions.errors import RegionsImpossible
from pt2hub_workers.inside.builds.regions.plan import PlannedCall, place_values, plan_text
from pt2hub_workers.inside.operations.files import STEM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch.export import ExportedProgram

    from pt2hub.domain.artifacts import Constant
    from pt2hub_workers.inside.builds.compile.package import CompiledCode, PackingInputs
    from pt2hub_workers.inside.builds.regions.choice import Division
    from pt2hub_workers.inside.builds.regions.parts import Part
    from pt2hub_workers.inside.builds.regions.segments import Segment

_FOLDER = f"{STEM}/data/aotinductor/{STEM}"
_LIBRARY = f"{_FOLDER}/{STEM}.wrapper.so"
_SOURCE = f"{_FOLDER}/{STEM}.wrapper.cpp"
_PLAN = f"{_FOLDER}/{STEM}.plan"
_BLOB = f"{_FOLDER}/{STEM}.wrapper_weights.blob"
_LITERALS = f"{STEM}/{archive.LITERALS}"
_METADATA = "_metadata.json"
_SUFFIX = ".region"
_ALIGNMENT = 64
"""Alignment of each call's constants in the blob, as in `composite.cpp`."""
_KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class RegionCode:
    """The code of a part: compiled now, or taken from another artifact.

    Attributes:
        files: Contents of its files, by their names in the code layer; the library first.
        general: Files of the package that are no code, by their names in the code layer.
        constants: The table of one call's constants, by the names in the code.
        literals: Values of the constants that the compiler made, by their names in the code.
        sources: Generated sources by name; empty where the code was reused.
    """

    key: ProgramKey
    files: Mapping[str, bytes]
    general: Mapping[str, bytes]
    constants: Constants
    native: NativeCode
    literals: Mapping[str, torch.Tensor]
    sources: Mapping[str, bytes]
    code_reused_from: Digest | None = None


def compiled_region(key: ProgramKey, compiled: CompiledCode) -> RegionCode:
    """Return a part's code as it was compiled.

    Raises:
        RegionsImpossible: It has several libraries, or calls operators through PyTorch's proxy executor.
    """
    prefix = _prefix(key)
    with archive.open_archive(compiled.layer.code) as layer:
        members = {entry.name: layer.read(entry.name) for entry in layer.entries}
    if len(compiled.layer.libraries) != 1:
        raise RegionsImpossible("the compiler wrote several libraries for a part")
    (library,) = compiled.layer.libraries
    files = {f"{_FOLDER}/{prefix}{_SUFFIX}": members.pop(library)}
    general = {}
    for name, data in members.items():
        if name.endswith(_METADATA) or not name.startswith(_FOLDER):
            general[name] = data
        elif name.endswith(".json"):
            raise RegionsImpossible("a part calls operators that compiled code has no direct access to")
        elif not name.endswith(".cpp"):
            files[name] = data
    general.pop(_LITERALS, None)
    return RegionCode(
        key,
        files,
        general,
        replace(compiled.constants, blob_member=""),
        compiled.native,
        _read_literals(compiled.literals),
        {f"{prefix}.{name.rpartition('/')[2]}": data for name, data in compiled.layer.sources.items()},
    )


def reused_region(region: Region, layer: Path, digest: Digest) -> RegionCode:
    """Return a part's code from the code layer of another artifact.

    Args:
        digest: The code layer's digest.
    """
    with archive.open_archive(layer) as opened:
        members = {entry.name: opened.read(entry.name) for entry in opened.entries}
    kept = {name: data for name, data in members.items() if _is_general(name)}
    prefix = f"{_prefix(region.key)}."
    literals = {
        name.removeprefix(prefix): tensor
        for name, tensor in _read_literals(members.get(_LITERALS)).items()
        if name.startswith(prefix)
    }
    files = {name: members[name] for name in region.members}
    return RegionCode(region.key, files, kept, region.constants, region.native, literals, {}, digest)


def pack_regions(
    division: Division,
    codes: Sequence[RegionCode],
    program: ExportedProgram,
    around: PackingInputs,
    *,
    library: bytes,
    directory: Path,
) -> PackedArtifact:
    """Pack the code of all parts as one code layer.

    Args:
        codes: The code of each part.
        library: The composite library.

    Raises:
        LayoutUnproven: The weights do not fit the recorded layout.
    """
    calls = list(_calls(division, codes))
    table = join_tables(division, codes, around)
    literals = _literals(table, calls, codes, program)
    libraries = [next(iter(code.files)).rpartition("/")[2] for code in codes]
    plan = plan_text(program, division.cut, libraries, [call for call, _ in calls])
    members = {**codes[0].general, _LIBRARY: library, _SOURCE: b"", _PLAN: plan.encode()}
    for code in codes:
        members |= code.files
    package = directory / "composite.pt2"
    archive.write_zip(package, sorted(members.items()))
    extra = {archive.LITERALS: literals} if literals else {}
    layer = archive.split(package, directory / "code.zip", strip=native.strip_debug, root=STEM, extra=extra)
    package.unlink()
    own = inspect_code(layer.code, layer.libraries, (), around)
    needs = native.merge_requirements([*(code.native for code in codes), own])
    return PackedArtifact(
        layer.code,
        around.weights,
        table,
        replace(needs, is_multi_arch=all(code.native.is_multi_arch for code in codes)),
        assemble(layer.code, table, around.weights, literals, directory),
        {name: data for code in codes for name, data in code.sources.items()},
        tuple(_describe(part, code) for part, code in zip(division.parts, codes, strict=True)),
    )


def _prefix(key: ProgramKey) -> str:
    """Return the beginning of a region's names: equal in every artifact that has its code."""
    return hex_of(key.digest)[:_KEY_DIGITS]


def _is_general(name: str) -> bool:
    return name.endswith(_METADATA) or not (name.startswith(_FOLDER) or name == _LITERALS)


def _read_literals(data: bytes | None) -> dict[str, torch.Tensor]:
    return safetensors.torch.load(data) if data else {}


def _calls(division: Division, codes: Sequence[RegionCode]) -> Iterator[tuple[PlannedCall, Segment]]:
    """Yield every call in order, with its segment."""
    places = place_values(division.cut)
    numbers = {id(item): number for number, part in enumerate(division.parts) for item in part.segments}
    for segment in division.cut.segments:
        number = numbers[id(segment)]
        names = {
            item.fqn: _full_name(segment, codes[number], item.fqn) for item in codes[number].constants.table
        }
        inputs, outputs = (
            tuple(places[node.name] for node in some) for some in (segment.inputs, segment.outputs)
        )
        yield PlannedCall(number, inputs, outputs, names), segment


def _full_name(segment: Segment, code: RegionCode, name: str) -> str:
    """Return a constant's name in the model; those that the compiler made are the same for every call."""
    return segment.constants.get(name) or f"{_prefix(code.key)}.{name}"


def join_tables(division: Division, codes: Sequence[RegionCode], around: PackingInputs) -> Constants:
    """Return the table of all calls' constants: a constant of several calls is in the blob of each."""
    table: list[Constant] = []
    end = 0
    for call, _ in _calls(division, codes):
        own = codes[call.library].constants
        begin = -(-end // _ALIGNMENT) * _ALIGNMENT
        table += [_place(item, call.constants[item.fqn], begin, around) for item in own.table]
        end = begin + own.blob_size if own.blob_size else end
    return Constants(_BLOB if table else "", end, tuple(table))


def check_layouts(table: Sequence[Constant]) -> None:
    """Refuse a constant that two parts read in different layouts: a client has it once."""
    strides: dict[str, tuple[int, ...]] = {}
    for item in table:
        if strides.setdefault(item.fqn, item.stride) != item.stride:
            raise RegionsImpossible(f"two parts read {item.fqn} in different layouts")


def _place(item: Constant, name: str, begin: int, around: PackingInputs) -> Constant:
    stored = around.separate.get(name)
    return replace(
        item,
        fqn=name,
        offset=begin + item.offset,
        source="extra" if stored is None else "weights",
        mutated=name in around.mutated,
        stored=stored if stored != name else None,
    )


def _literals(
    table: Constants,
    calls: Sequence[tuple[PlannedCall, Segment]],
    codes: Sequence[RegionCode],
    program: ExportedProgram,
) -> bytes | None:
    """Return a safetensors file of the constants that are no weights; None if there are none."""
    wanted = {item.fqn for item in table.table if item.source == "extra"}
    known = program_constants(program)
    found = {name: known[name].cpu().contiguous().clone() for name in wanted & known.keys()}
    for call, _ in calls:
        for name, tensor in codes[call.library].literals.items():
            if (full := call.constants[name]) in wanted - known.keys():
                found[full] = tensor
    return safetensors.torch.save(found) if found else None


def _describe(part: Part, code: RegionCode) -> Region:
    return Region(
        code.key,
        tuple(code.files),
        code.constants,
        code.native,
        part.modules,
        len(part.segments),
        code.code_reused_from,
    )
