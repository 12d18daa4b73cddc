"""The code of a build's program: its key, and a compile, by regions or as a whole, or reuse."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import digest_file, hex_of
from pt2hub.domain.publishing.compile_modes import requested_options
from pt2hub.domain.publishing.inductor_options import CHANNELS_LAST, is_autotuned
from pt2hub.domain.publishing.regions import requested_regions
from pt2hub_workers.inside.builds.compile import compiler, weights
from pt2hub_workers.inside.builds.compile import package as packing
from pt2hub_workers.inside.builds.compile.autotune import Tuning, key_settings
from pt2hub_workers.inside.builds.compile.channels_last import prefers_channels_last
from pt2hub_workers.inside.builds.compile.debug_logs import DebugLogs
from pt2hub_workers.inside.builds.compile.fusion import FusionRecorder, write_fusion
from pt2hub_workers.inside.builds.compile.known_times import KnownTimes
from pt2hub_workers.inside.builds.compile.options import compile_options, frozen_options, require_options
from pt2hub_workers.inside.builds.compile.precompiled_headers import header_options
from pt2hub_workers.inside.builds.compile.tuning_progress import TuningProgress
from pt2hub_workers.inside.builds.export.opaque_operators import check_opaque
from pt2hub_workers.inside.builds.key import loaded_code, settings, torch_patches
from pt2hub_workers.inside.builds.key.operator_sources import CodeIdentity, identify_code
from pt2hub_workers.inside.builds.key.program_key import compute_program_key, program_constants
from pt2hub_workers.inside.builds.regions.choice import RegionChoice
from pt2hub_workers.inside.builds.regions.errors import RegionsImpossible, refuse_regions
from pt2hub_workers.inside.builds.regions.regional_compile import RegionalCompile
from pt2hub_workers.inside.builds.verify.tensor_conversions import dtype_name
from pt2hub_workers.inside.operations import files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from torch.export import ExportedProgram

    from pt2hub.domain.artifacts import ProgramKey
    from pt2hub_workers.inside.builds.compile.package import PackedArtifact
    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.builds.job import Job, Model
    from pt2hub_workers.inside.builds.regions.choice import Division
    from pt2hub_workers.inside.operations.channel import Channel


class Compilation:
    """Makes the code layer of one exported program.

    Attributes:
        key: The program key.
        options: Inductor's options.
        tuning: What autotuning chose.

    Args:
        settings_before: Compiler settings before the model's source was imported.
    """

    key: ProgramKey
    options: dict[str, Any]

    def __init__(
        self,
        job: Job,
        channel: Channel,
        model: Model,
        exported: ExportResult,
        settings_before: Mapping[str, str],
    ) -> None:
        self.tuning = Tuning()
        self._job = job
        self._channel = channel
        self._model = model
        self._exported = exported
        self._settings_before = settings_before
        self._separate = weights.map_names(model.module, model.weights_layer)
        self._around = packing.PackingInputs(
            weights=model.weights_layer,
            separate=self._separate,
            mutated=exported.mutated,
            known=frozenset(program_constants(exported.program)),
            target=job.target,
            host_flags=job.host_flags,
        )
        self._debug_logs = DebugLogs()
        self._reused: dict[str, Any] | None = None
        self._division: Division | None = None

    def find_code(self) -> None:
        """Compute the key, and ask whether an artifact of the team has its code."""
        self._division = self._divide()
        identity = self._identify(self._exported.program)
        for line in identity.lines:
            self._channel.log(line)
        check_opaque(self._exported.program, identity.opaque)
        self.options = self._compile_options()
        modules = self._division.modules if self._division else ()
        self.key = self._compute_key(self._exported, identity, self._separate, modules)
        self._log_options()
        self._reused = self._channel.ask("code", key=encode(self.key))

    def make_code(self) -> PackedArtifact:
        """Compile the program or reuse code, and pack the layers."""
        if self._reused:
            return self._reuse(self._reused)
        with self._channel.step("compile"):
            with self._debug_logs.record(self._job.spec.compile.debug, self._job.directory):
                pack = self._compile()
            if self._job.spec.compile.debug:
                self._channel.log(str(self._debug_logs))
        with self._channel.step("pack"):
            packed = pack()
            packing.write_sources(packed.sources, self._job.directory / files.SOURCES)
        return packed

    def autotuning(self) -> dict[str, Any] | None:
        """Return the autotuning summary for the artifact's provenance."""
        if self._reused:  # that of the reused code
            found: dict[str, Any] | None = self._reused["config"]["provenance"].get("autotuning")
            return found
        return self.tuning.summary() if is_autotuned(self.options) else None

    @property
    def unfrozen_reason(self) -> str:
        """Why baked weights are not frozen; empty if they are."""
        if not self._job.is_baked or not self._exported.mutated:
            return ""
        written = ", ".join(sorted(self._exported.mutated))
        return f"the weights are in the code but not frozen: the model writes to {written}"

    def _divide(self) -> Division | None:
        """Return the program in parts; None where it is compiled as a whole."""
        requested = self._requested_regions()
        if self._job.is_baked or requested == "none":
            return None
        choice = RegionChoice(self._exported.program, self._model.module, frozenset(self._separate))
        return choice.choose(requested)

    def _identify(self, program: ExportedProgram) -> CodeIdentity:
        """Identify the code that a program refers to by name."""
        source = self._job.spec.canonical()["source"]
        root = self._job.directory / "tmp" / "source"
        return identify_code(program, lambda: loaded_code.digest_loaded_code(source, root))

    def _compile_options(self) -> dict[str, Any]:
        job, requested = self._job, self._requested_options()
        require_options(requested)
        # A frozen buffer keeps no state: writes to it are folded away (seen with torch 2.13).
        if job.is_baked and not self._exported.mutated:
            return frozen_options(job.target, requested, _dtypes(self._exported))
        return compile_options(job.target, self._layout_option(requested) | requested)

    def _layout_option(self, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Return the option that puts convolutions into channels_last where that is faster, unless the spec decides."""
        if self._job.target.device != "cuda" or not requested.get("layout_optimization", True):
            return {}
        return {CHANNELS_LAST: True} if prefers_channels_last(self._exported.program) else {}

    def _compute_key(
        self,
        exported: ExportResult,
        identity: CodeIdentity,
        separate: Collection[str],
        modules: Sequence[str] = (),
        *,
        is_part: bool = False,
    ) -> ProgramKey:
        job = self._job
        now = settings.compiler_configuration() | torch_patches.inductor_constants()
        changed = settings.diff_settings(
            self._settings_before, {name: now[name] for name in now.keys() & self._settings_before.keys()}
        )
        tuned_within = key_settings(self.options, job.spec.limits.autotune_seconds)
        return compute_program_key(
            exported,
            identity,
            separate=separate,
            options=self.options,
            settings={**settings.numeric_settings(), "changed": changed, **tuned_within},
            toolchain=job.toolchain,
            target=job.target,
            baked=digest_file(self._model.weights_layer) if job.is_baked else None,
            regions=modules,
            is_part=is_part,
        )

    def _compute_part_key(self, part: ExportResult, separate: Collection[str]) -> ProgramKey:
        return self._compute_key(part, self._identify(part.program), separate, is_part=True)

    def _requested_options(self) -> dict[str, Any]:
        return requested_options(self._job.spec.canonical(), self._job.request.model_dump())

    def _requested_regions(self) -> Any:
        return requested_regions(self._job.spec.canonical(), self._job.request.model_dump())

    def _log_options(self) -> None:
        for name, value in self._requested_options().items():
            if self.options[name] != value:
                self._channel.log(
                    f"compile option {name}={value} is overridden by {self.options[name]} on this target",
                    "warning",
                )
        if self.unfrozen_reason:
            self._channel.log(self.unfrozen_reason, "warning")

    def _reuse(self, reused: dict[str, Any]) -> PackedArtifact:
        with self._channel.step("reuse"):
            code = Path(reused["code"])
            self._channel.detail("reuse", f"code of {reused['artifact']}")
        with self._channel.step("pack"):
            return packing.pack_reused(code, reused["config"], self._around, self._job.out)

    def _compile(self) -> Callable[[], PackedArtifact]:
        """Compile; return what packs the result."""
        self.tuning = self._prepare_tuning()
        pack = self._compile_regions(self._division) if self._division else None
        pack = pack or self._compile_whole()
        self._end_tuning()
        return pack

    def _compile_regions(self, division: Division) -> Callable[[], PackedArtifact] | None:
        """Compile by regions; None if the program turns out to be impossible to compile that way."""
        parts = "; ".join(map(str, division.parts))
        self._channel.log(f"compiling by regions, {len(division.parts)} parts: {parts}")
        try:
            regional = RegionalCompile(
                self._exported.program,
                division,
                self._around,
                self._compute_part_key,
                channel=self._channel,
                directory=self._job.out,
            )
            codes, library = regional.compile(self._compile_part)
        except RegionsImpossible as error:
            requested = self._requested_regions()
            if requested != "auto":
                raise refuse_regions(requested, error) from error
            self._channel.log(f"compiling as a whole: {error}")
            return None

        def pack() -> PackedArtifact:
            regional.write_fusion(self._job.directory / files.FUSION)
            return regional.pack(codes, library)

        return pack

    def _compile_whole(self) -> Callable[[], PackedArtifact]:
        package, fusion, program = self._job.out / "package.pt2", FusionRecorder(), self._exported.program
        self._compile_program(program, package, fusion)

        def pack() -> PackedArtifact:
            split = packing.pack_baked if self._job.is_baked else packing.pack_compiled
            packed = split(package, self._around, self._job.out)
            package.unlink()
            write_fusion(lambda: fusion.document(program), self._job.directory / files.FUSION)
            return packed

        return pack

    def _compile_part(
        self, program: ExportedProgram, package: Path, fusion: FusionRecorder, name: str, key: ProgramKey
    ) -> None:
        self._debug_logs.begin_part(name)
        self._compile_program(program, package, fusion, folder=hex_of(key.digest))

    def _compile_program(
        self, program: ExportedProgram, package: Path, fusion: FusionRecorder, *, folder: str = ""
    ) -> None:
        options = self.options | header_options()
        compiler.compile_program(program, options, package, self.tuning, fusion, folder=folder)

    def _prepare_tuning(self) -> Tuning:
        """Return the autotuning, which takes the device exclusively as soon as something is timed.

        Without autotuning other builds run meanwhile: a GPU's few standard choices are timed in milliseconds.
        """
        if not is_autotuned(self.options):
            return Tuning()
        known = self._channel.ask("autotune")
        return Tuning(
            self._job.spec.limits.autotune_seconds,
            on_begin=lambda: self._channel.ask("device", mode="exclusive"),
            known=KnownTimes.read(Path(known)) if known else KnownTimes(),
            progress=TuningProgress(self._channel.log, partial(self._channel.detail, "compile")),
        )

    def _end_tuning(self) -> None:
        if not is_autotuned(self.options):
            return
        if self.tuning.begun:
            self._channel.ask("device", mode="shared")
        self.tuning.known.write(self._job.directory / files.AUTOTUNE_TIMES)
        if self.tuning.summary():
            self._channel.log(f"autotuning: {self.tuning}", "warning" if self.tuning.skipped else "info")


def _dtypes(exported: ExportResult) -> frozenset[str]:
    return frozenset(dtype_name(tensor) for tensor in program_constants(exported.program).values())
