"""Compiles a program by regions: each part once, or not at all where another artifact of the team has its code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import ProgramKey, Region
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest
from pt2hub_workers.inside.builds.compile.fusion import FusionRecorder, fusion_document, write_fusion
from pt2hub_workers.inside.builds.compile.package import PackingInputs, split_compiled
from pt2hub_workers.inside.builds.export.export import ExportResult
from pt2hub_workers.inside.builds.key.program_key import program_constants
from pt2hub_workers.inside.builds.regions.composite import (
    RegionCode,
    check_layouts,
    compiled_region,
    join_tables,
    pack_regions,
    reused_region,
)
from pt2hub_workers.inside.builds.regions.composite_library import CompositeCompiler
from pt2hub_workers.inside.builds.regions.parts import Part, export_part
from pt2hub_workers.inside.builds.regions.segments import is_computed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from torch.export import ExportedProgram

    from pt2hub.domain.fusion import FusedKernel
    from pt2hub_workers.inside.builds.compile.package import PackedArtifact
    from pt2hub_workers.inside.builds.regions.choice import Division
    from pt2hub_workers.inside.operations.channel import Channel

    Compile = Callable[[ExportedProgram, Path, FusionRecorder, str, ProgramKey], None]
    ComputeKey = Callable[[ExportResult, Collection[str]], ProgramKey]


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """A part as a program with its key.

    Attributes:
        around: What packing needs to know of its first segment's constants.
    """

    part: Part
    exported: ExportResult
    key: ProgramKey
    around: PackingInputs


class RegionalCompile:
    """The compile of one program by regions.

    Args:
        around: What packing needs to know of the whole program's constants.
        compute_key: Computes the program key of a part, from its program and the names of its weights.
        directory: Where packages are written.

    Raises:
        RegionsImpossible: A part cannot be a program of its own.
    """

    def __init__(
        self,
        program: ExportedProgram,
        division: Division,
        around: PackingInputs,
        compute_key: ComputeKey,
        *,
        channel: Channel,
        directory: Path,
    ) -> None:
        self._program = program
        self._division = division
        self._around = around
        self._channel = channel
        self._directory = directory
        self._kernels: list[FusedKernel] = []
        self._parts = [self._prepare(part, compute_key) for part in division.parts]

    def compile(self, compile_part: Compile) -> tuple[list[RegionCode], bytes]:
        """Compile the parts whose code no artifact of the team has.

        Args:
            compile_part: Compiles a program into a package; the last arguments are the part's description and program key.

        Returns:
            The code of each part, and the composite library.

        Raises:
            RegionsImpossible: Compiled parts do not fit together.
        """
        known = self._ask_known()
        with CompositeCompiler(self._directory / "composite.so") as compiler:
            codes = [
                self._reuse(found) if found else self._compile(number, item, compile_part)
                for number, item in enumerate(self._parts)
                for found in [known.get(item.key.digest)]
            ]
            check_layouts(join_tables(self._division, codes, self._around).table)
            return codes, compiler.finish()

    def pack(self, codes: list[RegionCode], library: bytes) -> PackedArtifact:
        """Pack the parts' code as one code layer."""
        return pack_regions(
            self._division,
            codes,
            self._program,
            self._around,
            library=library,
            directory=self._directory,
        )

    def write_fusion(self, path: Path) -> None:
        """Write which operations each kernel holds; kernels of reused parts are with the artifact that compiled them."""
        write_fusion(lambda: fusion_document(self._program, self._kernels), path)

    def _prepare(self, part: Part, compute_key: ComputeKey) -> PreparedPart:
        exported = export_part(self._program, part, self._around.target.device)
        around = self._around_part(part, exported)
        return PreparedPart(part, exported, compute_key(exported, around.separate), around)

    def _around_part(self, part: Part, exported: ExportResult) -> PackingInputs:
        whole = self._around
        names = part.first.constants
        return replace(
            whole,
            separate={name: whole.separate[fqn] for name, fqn in names.items() if fqn in whole.separate},
            mutated=exported.mutated,
            known=frozenset(program_constants(exported.program)),
        )

    def _ask_known(self) -> dict[str, dict[str, Any]]:
        """Ask which parts' code artifacts of the team have."""
        keys = [encode(item.key) for item in self._parts]
        names = [str(item.part) for item in self._parts]
        found: dict[str, dict[str, Any]] = self._channel.ask("regions", keys=keys, names=names) or {}
        return found

    def _reuse(self, found: dict[str, Any]) -> RegionCode:
        region = decode(Region, found["region"])
        return reused_region(region, Path(found["code"]), Digest(found["artifact"]))

    def _compile(self, number: int, item: PreparedPart, compile_part: Compile) -> RegionCode:
        name = f"part {number + 1} of {len(self._parts)}: {item.part}"
        self._channel.detail("compile", name)
        package, fusion = self._directory / f"part-{number}.pt2", FusionRecorder()
        compile_part(item.exported.program, package, fusion, name, item.key)
        self._kernels += _locate(fusion.kernels(item.exported.program), item)
        code = self._directory / f"part-{number}.zip"
        compiled = split_compiled(package, item.around, code)
        package.unlink()
        made = compiled_region(item.key, compiled)
        code.unlink()
        return made


def _locate(kernels: list[FusedKernel], item: PreparedPart) -> Iterator[FusedKernel]:
    """Yield a part's kernels with the names of the operations in the whole program."""
    own = [node for node in item.exported.program.graph.nodes if is_computed(node)]
    for kernel in kernels:
        operations: list[str] = []
        for segment in item.part.segments:
            named = {}
            if [node.target for node in segment.nodes] == [node.target for node in own[: len(segment.nodes)]]:
                pairs = zip(own, segment.nodes, strict=False)  # the part may end with copies of its results
                named = {node.name: original.name for node, original in pairs}
            operations += [named[name] for name in kernel.operations if name in named]
        yield replace(kernel, operations=tuple(operations), calls=kernel.calls * len(item.part.segments))
