"""A build in its child process: export, key, compile or reuse, pack, verify.

The parent answers requests over the channel for everything that needs the storage, the database or another process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.artifacts import Toolchain
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import digest_file
from pt2hub.domain.publishing.compile_modes import requested_options
from pt2hub.domain.publishing.compile_options import run_dtype, weights_form
from pt2hub.domain.publishing.inductor_options import is_autotuned
from pt2hub.domain.publishing.spec import Spec, TargetSpec
from pt2hub.domain.targets import Target
from pt2hub_workers.inside.builds.checked_export import CheckedExport, ExportRequest
from pt2hub_workers.inside.builds.compile import compiler, weights
from pt2hub_workers.inside.builds.compile import package as packing
from pt2hub_workers.inside.builds.compile.autotune import Tuning, key_settings
from pt2hub_workers.inside.builds.compile.fusion import FusionRecorder
from pt2hub_workers.inside.builds.compile.known_times import KnownTimes
from pt2hub_workers.inside.builds.compile.options import compile_options, frozen_options, require_options
from pt2hub_workers.inside.builds.compile.precompiled_headers import header_options
from pt2hub_workers.inside.builds.compile.tuning_progress import TuningProgress
from pt2hub_workers.inside.builds.export import inputs
from pt2hub_workers.inside.builds.export.export import used_constants
from pt2hub_workers.inside.builds.export.opaque_operators import check_opaque
from pt2hub_workers.inside.builds.key import loaded_code, settings, torch_patches
from pt2hub_workers.inside.builds.key.operator_sources import CodeIdentity, identify_code
from pt2hub_workers.inside.builds.key.program_key import compute_program_key, program_constants
from pt2hub_workers.inside.builds.verify.program_checks import program_module
from pt2hub_workers.inside.builds.verify.tensor_conversions import dtype_name
from pt2hub_workers.inside.builds.verify.verification import BuildVerification, VerifiedModel
from pt2hub_workers.inside.builds.version_model import build_module, convert_dtype, move_inputs
from pt2hub_workers.inside.operations import files
from pt2hub_workers.inside.sources.source_files import SourceFiles

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ProgramKey
    from pt2hub_workers.inside.builds.compile.compiler import CompilerCount
    from pt2hub_workers.inside.builds.compile.package import PackedArtifact
    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.operations.channel import Channel

DTYPE_TOLERANCE = {"float16": 1.0e-2, "bfloat16": 5.0e-2}
"""Minimum tolerance relative to the signal if the model is converted to a dtype: about ten units in the last place of the
sums in a deep network (seen: 0.012 absolute on a 12-layer BERT in float16)."""


@dataclass(frozen=True, slots=True)
class Job:
    """A build job from the parent.

    Attributes:
        request: The target, with the dtype that the model runs in.
        directory: The workspace as this process sees it; results go to its `out`.
    """

    spec: Spec
    request: TargetSpec
    target: Target
    toolchain: Toolchain
    directory: Path
    source: Path | None
    weights: Path | None
    golden: dict[str, Any] | None
    examples: dict[str, Path]
    host_flags: frozenset[str]
    factories: tuple[str, ...]
    modules: Path | None = None

    @classmethod
    def read(cls, message: dict[str, Any]) -> Job:
        """Decode the job from the parent's message."""
        dtype = run_dtype(message["spec"], message["request"])
        return cls(
            spec=Spec.from_canonical(message["spec"]),
            request=TargetSpec.from_stored({**message["request"], "dtype": dtype}),
            target=decode(Target, message["target"]),
            toolchain=decode(Toolchain, message["toolchain"]),
            directory=Path(message["directory"]),
            source=Path(message["source"]) if message["source"] else None,
            modules=Path(message["modules"]) if message.get("modules") else None,
            weights=Path(message["weights"]) if message["weights"] else None,
            golden=message["golden"],
            examples={name: Path(path) for name, path in message["examples"].items()},
            host_flags=frozenset(message["host_flags"]),
            factories=tuple(message["factories"]),
        )


@dataclass(slots=True)
class Model:
    """The model as the version defines it, and as the target runs it.

    Attributes:
        module: In the target's dtype; the same object if the target does not override the dtype.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    weights_layer: Path


class Build:
    """The steps of one build."""

    def __init__(self, job: Job, channel: Channel, compilers: CompilerCount) -> None:
        self._job = job
        self._channel = channel
        self._compilers = compilers
        self._settings_before = settings.compiler_configuration() | torch_patches.inductor_constants()
        self._device = job.target.device
        self._baked = weights_form(job.spec.canonical(), job.request.model_dump()) == "baked"
        self._out = job.directory / "out"
        self._verification = BuildVerification(job.spec, job.examples, channel, job.directory)

    def run(self) -> dict[str, Any]:
        """Run all steps; return the parts of the artifact's config and the paths of its files."""
        with self._channel.step("export"):
            model = self._build_model()
            exported = self._export(model)
        with self._channel.step("key"):
            key, options = self._compute_key(exported, self._identify_code(exported), model)
            self._log_options(options, exported)
            reused = self._channel.ask("code", key=encode(key))
        packed, tuned = self._compile_or_reuse(model, exported, options, reused)
        parts = self._parts(exported, key, packed)
        parts["autotuning"] = (
            _reused_autotuning(reused) if reused else tuned.summary() if is_autotuned(options) else None
        )
        with self._channel.step("verify"):
            report = self._verify(model, exported, packed, parts)
        return {**parts, "verification": report, "autotune": tuned.choices}

    def _build_model(self) -> Model:
        job, path = self._job, self._job.weights
        scratch = job.directory / "tmp"
        given = SourceFiles(job.factories, job.source, path, scratch, self._device, job.spec, job.modules)
        module = build_module(job.spec, given, self._channel)
        if path is None:
            weights.write_weights(module, job.directory / files.WEIGHTS)
            # Another target's first build may have been quicker: the weights that were recorded first apply to all.
            path = Path(self._channel.ask("weights"))
        weights.load_weights(module, path)
        module = module.to(self._device)
        if job.request.dtype is None:
            return Model(module, module, path)
        return self._override_dtype(module)

    def _override_dtype(self, module: torch.nn.Module) -> Model:
        """Copy the model into the target's dtype, with a weights layer of its own."""
        other = convert_dtype(module, self._job.request)
        layer = self._out / "weights-override.safetensors"
        weights.write_weights(other, layer)
        return Model(module, other, layer)

    def _export(self, model: Model) -> ExportResult:
        spec = self._job.spec
        example, other = (self._inputs(point, model) for point in inputs.make_points(spec, {})[:2])
        candidate = ExportRequest(
            original=model.original,
            module=model.module,
            move=lambda tensors: self._move(tensors, model),
            example=example,
            other=other,
            request=self._job.request,
            device=self._device,
            tolerance=self._tolerance(),
        )
        examination = CheckedExport(spec, self._channel, self._job.directory / "tmp")
        return examination.export(candidate, self._verification, self._job.golden)

    def _inputs(self, point: inputs.Point, model: Model) -> inputs.Tensors:
        return self._move(inputs.make_inputs(self._job.spec, point, self._job.examples), model)

    def _move(self, tensors: inputs.Tensors, model: Model) -> inputs.Tensors:
        """Convert inputs for the target: device, dtype override, memory format."""
        converted = model.module is not model.original
        return move_inputs(tensors, self._job.request, self._device, converted=converted)

    def _identify_code(self, exported: ExportResult) -> CodeIdentity:
        """Identify the code that the program refers to by name, and log what the key contains."""
        job = self._job
        source = job.spec.canonical()["source"]
        root = job.directory / "tmp" / "source"
        identity = identify_code(exported.program, lambda: loaded_code.digest_loaded_code(source, root))
        for line in identity.lines:
            self._channel.log(line)
        check_opaque(exported.program, identity.opaque)
        return identity

    def _compute_key(
        self, exported: ExportResult, identity: CodeIdentity, model: Model
    ) -> tuple[ProgramKey, dict[str, Any]]:
        job = self._job
        requested = self._requested_options()
        require_options(requested)
        # A frozen buffer keeps no state: writes to it are folded away (seen with torch 2.13).
        if self._baked and not exported.mutated:
            options = frozen_options(job.target, requested, _dtypes(exported))
        else:
            options = compile_options(job.target, requested)
        now = settings.compiler_configuration() | torch_patches.inductor_constants()
        changed = settings.diff_settings(
            self._settings_before, {name: now[name] for name in now.keys() & self._settings_before.keys()}
        )
        tuned_within = key_settings(options, job.spec.limits.autotune_seconds)
        key = compute_program_key(
            exported,
            identity,
            separate=weights.map_names(model.module, model.weights_layer),
            options=options,
            settings={**settings.numeric_settings(), "changed": changed, **tuned_within},
            toolchain=job.toolchain,
            target=job.target,
            baked=digest_file(model.weights_layer) if self._baked else None,
        )
        return key, options

    def _requested_options(self) -> dict[str, Any]:
        return requested_options(self._job.spec.canonical(), self._job.request.model_dump())

    def _log_options(self, options: dict[str, Any], exported: ExportResult) -> None:
        for name, value in self._requested_options().items():
            if options[name] != value:
                self._channel.log(
                    f"compile option {name}={value} is overridden by {options[name]} on this target",
                    "warning",
                )
        if unfrozen := self._why_unfrozen(exported):
            self._channel.log(unfrozen, "warning")

    def _why_unfrozen(self, exported: ExportResult) -> str:
        """Return why baked weights are not frozen; empty if they are."""
        if not self._baked or not exported.mutated:
            return ""
        written = ", ".join(sorted(exported.mutated))
        return f"the weights are in the code but not frozen: the model writes to {written}"

    def _compile_or_reuse(
        self, model: Model, exported: ExportResult, options: dict[str, Any], reused: dict[str, Any] | None
    ) -> tuple[PackedArtifact, Tuning]:
        around = self._packing_inputs(model, exported)
        if reused:
            with self._channel.step("reuse"):
                code = Path(reused["code"])
                self._channel.detail("reuse", f"code of {reused['artifact']}")
            with self._channel.step("pack"):
                return packing.pack_reused(code, reused["config"], around, self._out), Tuning()
        package, fusion = self._out / "package.pt2", FusionRecorder()
        with self._channel.step("compile"):
            tuned = self._compile(exported, options, package, fusion)
        with self._channel.step("pack"):
            pack = packing.pack_baked if self._baked else packing.pack_compiled
            packed = pack(package, around, self._out)
            packing.write_sources(packed.sources, self._job.directory / files.SOURCES)
            fusion.write(exported.program, self._job.directory / files.FUSION)
            package.unlink()
        return packed, tuned

    def _packing_inputs(self, model: Model, exported: ExportResult) -> packing.PackingInputs:
        return packing.PackingInputs(
            weights=model.weights_layer,
            separate=weights.map_names(model.module, model.weights_layer),
            mutated=exported.mutated,
            known=frozenset(program_constants(exported.program)),
            target=self._job.target,
            host_flags=self._job.host_flags,
        )

    def _compile(
        self, exported: ExportResult, options: dict[str, Any], package: Path, fusion: FusionRecorder
    ) -> Tuning:
        """Compile while other builds run; with autotuning, take the device exclusively as soon as something is timed."""
        options = options | header_options()
        if not is_autotuned(
            options
        ):  # a GPU's few standard choices are timed in milliseconds, while others run
            return compiler.compile_program(exported.program, options, package, fusion=fusion)
        known = self._channel.ask("autotune")
        tuning = Tuning(
            self._job.spec.limits.autotune_seconds,
            on_begin=lambda: self._channel.ask("device", mode="exclusive"),
            known=KnownTimes.read(Path(known)) if known else KnownTimes(),
            progress=TuningProgress(self._channel.log, partial(self._channel.detail, "compile")),
        )
        compiler.compile_program(exported.program, options, package, tuning, fusion)
        if tuning.begun:
            self._channel.ask("device", mode="shared")
        tuning.known.write(self._job.directory / files.AUTOTUNE_TIMES)
        if tuning.summary():
            self._channel.log(f"autotuning: {tuning}", "warning" if tuning.skipped else "info")
        return tuning

    def _parts(self, exported: ExportResult, key: ProgramKey, packed: PackedArtifact) -> dict[str, Any]:
        return {
            "signature": encode(exported.signature),
            "constants": encode(packed.constants),
            "native": encode(packed.native),
            "key": encode(key),
            "single_file": encode(packed.single_file),
            "dtype": self._job.request.dtype,
            "code_path": self._parent_path(packed.code),
            "weights_path": self._parent_path(packed.weights),
            "compiler_processes": list(self._compilers.programs),
        }

    def _verify(
        self, model: Model, exported: ExportResult, packed: PackedArtifact, parts: dict[str, Any]
    ) -> dict[str, Any]:
        verified = VerifiedModel(
            original=model.original,
            module=model.module,
            move=lambda tensors: self._move(tensors, model),
            program=program_module(exported.program),
            used=used_constants(exported.program),
            swappable=frozenset(item.fqn for item in packed.constants.table),
            is_baked=packed.constants.baked,
            is_stateful=bool(exported.mutated),
            tolerance=self._tolerance(),
            notes=(*exported.notes, *filter(None, [self._why_unfrozen(exported)])),
        )
        return self._verification.run(verified, parts)

    def _parent_path(self, path: Path) -> str:
        """Return a file's path relative to the workspace, which the parent sees elsewhere."""
        return str(path.relative_to(self._job.directory))

    def _tolerance(self) -> float:
        return max(self._job.spec.checks.tolerance, DTYPE_TOLERANCE.get(self._job.request.dtype or "", 0.0))


def _dtypes(exported: ExportResult) -> frozenset[str]:
    return frozenset(dtype_name(tensor) for tensor in program_constants(exported.program).values())


def _reused_autotuning(reused: dict[str, Any]) -> dict[str, Any] | None:
    """Return the autotuning summary of reused code."""
    found: dict[str, Any] | None = reused["config"]["provenance"].get("autotuning")
    return found
