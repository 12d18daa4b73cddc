"""A build in its child process: export, key, compile or reuse, pack, verify.

The parent answers requests over the channel for everything that needs the storage, the database or another process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub_workers.inside.builds.checked_export import CheckedExport, ExportRequest
from pt2hub_workers.inside.builds.compilation import Compilation
from pt2hub_workers.inside.builds.compile import weights
from pt2hub_workers.inside.builds.export import inputs
from pt2hub_workers.inside.builds.export.export import used_constants
from pt2hub_workers.inside.builds.job import Job, Model
from pt2hub_workers.inside.builds.key import settings, torch_patches
from pt2hub_workers.inside.builds.verify.program_checks import program_module
from pt2hub_workers.inside.builds.verify.verification import BuildVerification, VerifiedModel
from pt2hub_workers.inside.builds.version_model import build_module, convert_dtype, move_inputs
from pt2hub_workers.inside.operations import files
from pt2hub_workers.inside.sources.source_files import SourceFiles

if TYPE_CHECKING:
    import torch

    from pt2hub_workers.inside.builds.compile.compiler import CompilerCount
    from pt2hub_workers.inside.builds.compile.package import PackedArtifact
    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.operations.channel import Channel

DTYPE_TOLERANCE = {"float16": 1.0e-2, "bfloat16": 5.0e-2}
"""Minimum tolerance relative to the signal if the model is converted to a dtype: about ten units in the last place of the
sums in a deep network (seen: 0.012 absolute on a 12-layer BERT in float16)."""


class Build:
    """The steps of one build.

    Attributes:
        compilation: What makes the code; tests plant faults by another one.
    """

    compilation: type[Compilation] = Compilation

    def __init__(self, job: Job, channel: Channel, compilers: CompilerCount) -> None:
        self._job = job
        self._channel = channel
        self._compilers = compilers
        self._settings_before = settings.compiler_configuration() | torch_patches.inductor_constants()
        self._device = job.target.device
        self._verification = BuildVerification(job.spec, job.examples, channel, job.directory)

    def run(self) -> dict[str, Any]:
        """Run all steps; return the parts of the artifact's config and the paths of its files."""
        with self._channel.step("export"):
            model = self._build_model()
            exported = self._export(model)
        with self._channel.step("key"):
            compilation = self.compilation(self._job, self._channel, model, exported, self._settings_before)
            compilation.find_code()
        packed = compilation.make_code()
        parts = self._parts(exported, compilation, packed)
        with self._channel.step("verify"):
            report = self._verify(model, exported, packed, parts, compilation.unfrozen_reason)
        return {**parts, "verification": report, "autotune": compilation.tuning.choices}

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
        layer = self._job.out / "weights-override.safetensors"
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

    def _parts(
        self, exported: ExportResult, compilation: Compilation, packed: PackedArtifact
    ) -> dict[str, Any]:
        return {
            "signature": encode(exported.signature),
            "constants": encode(packed.constants),
            "native": encode(packed.native),
            "key": encode(compilation.key),
            "single_file": encode(packed.single_file),
            "dtype": self._job.request.dtype,
            "code_path": self._parent_path(packed.code),
            "weights_path": self._parent_path(packed.weights),
            "compiler_processes": list(self._compilers.programs),
            "autotuning": compilation.autotuning(),
            "regions": [encode(item) for item in packed.regions],
        }

    def _verify(
        self,
        model: Model,
        exported: ExportResult,
        packed: PackedArtifact,
        parts: dict[str, Any],
        unfrozen: str,
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
            notes=(*exported.notes, *filter(None, [unfrozen])),
        )
        return self._verification.run(verified, parts)

    def _parent_path(self, path: Path) -> str:
        """Return a file's path relative to the workspace, which the parent sees elsewhere."""
        return str(path.relative_to(self._job.directory))

    def _tolerance(self) -> float:
        return max(self._job.spec.checks.tolerance, DTYPE_TOLERANCE.get(self._job.request.dtype or "", 0.0))
