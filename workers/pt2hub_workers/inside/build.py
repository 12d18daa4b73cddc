"""The build in its child process: export, key, compile or reuse, pack, verify.

What needs the storage, the database or another process is asked of the parent over the channel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.artifacts import Toolchain
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.compiling import weights_form
from pt2hub.domain.digests import digest_file
from pt2hub.domain.specs import Spec, TargetSpec
from pt2hub.domain.targets import Target
from pt2hub_workers.inside import (
    compiling,
    files,
    inputs,
    loaded_code,
    packing,
    settings,
    torch_patches,
    weights,
)
from pt2hub_workers.inside.examination import Candidate, Examination
from pt2hub_workers.inside.exporting import used_constants
from pt2hub_workers.inside.keying import constants_of, program_key
from pt2hub_workers.inside.model import build_module, in_dtype, moved
from pt2hub_workers.inside.operator_sources import CodeIdentity, identify_code
from pt2hub_workers.inside.program_checks import program_module
from pt2hub_workers.inside.proving import Proof, Subject
from pt2hub_workers.inside.recipe import compile_options, frozen_options
from pt2hub_workers.inside.sources.building import Given
from pt2hub_workers.inside.tensors import dtype_name
from pt2hub_workers.inside.tuning import Tuning, asked_for, shaping

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ProgramKey
    from pt2hub_workers.inside.channel import Channel
    from pt2hub_workers.inside.compiling import CompilerCount
    from pt2hub_workers.inside.exporting import Exported
    from pt2hub_workers.inside.packing import Packed

DTYPE_TOLERANCE = {"float16": 1.0e-2, "bfloat16": 5.0e-2}
"""Least tolerance relative to signal where a target overrides the dtype: about ten units in the last place
of the sums in a deep network (seen: 0.012 absolute on a 12-layer BERT in float16, facts section 13)."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the parent sends.

    Attributes:
        spec: The spec.
        request: The target asked for, with its overrides.
        target: What to build for.
        toolchain: The worker's versions.
        directory: The room, as this process sees it; results go to its `out`.
        source: The uploaded archive or program, None for a factory.
        weights: The version's weights, None for the first build of a seeded source.
        golden: Golden document and files, None for the first build.
        examples: Uploaded example tensors by input name.
        host_flags: The worker's CPU flags.
        factories: Modules whose factories may be named.
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

    @classmethod
    def read(cls, message: dict[str, Any]) -> Job:
        """The job out of the parent's message."""
        return cls(
            spec=Spec.from_canonical(message["spec"]),
            request=TargetSpec.model_validate(message["request"]),
            target=decode(Target, message["target"]),
            toolchain=decode(Toolchain, message["toolchain"]),
            directory=Path(message["directory"]),
            source=Path(message["source"]) if message["source"] else None,
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
        original: In its own dtype, on the device: computes the golden outputs.
        module: In the target's dtype; the same object where nothing is overridden.
        layer: The artifact's weights layer.
    """

    original: torch.nn.Module
    module: torch.nn.Module
    layer: Path


class Build:
    """One build, step by step."""

    def __init__(self, job: Job, channel: Channel, compilers: CompilerCount) -> None:
        """Prepares the build.

        Args:
            job: What to build.
            channel: To the parent.
            compilers: Counts compiler processes from before the first step.
        """
        self._job = job
        self._channel = channel
        self._compilers = compilers
        self._before = settings.compiler_configuration() | torch_patches.constants_of_inductor()
        self._device = job.target.device
        self._baked = weights_form(job.spec.canonical(), job.request.model_dump()) == "baked"
        self._out = job.directory / "out"
        self._proof = Proof(job.spec, job.examples, channel, job.directory)

    def run(self) -> dict[str, Any]:
        """Runs the steps up to the verification; returns the parts of the artifact's config and files."""
        with self._channel.step("export"):
            model = self._build_model()
            exported = self._export(model)
        with self._channel.step("key"):
            key, options = self._key(exported, self._identify(exported), model)
            self._tell_of(options, exported)
            reused = self._channel.ask("code", key=encode(key))
        packed, tuned = self._code(model, exported, options, reused)
        parts = self._parts(exported, key, packed)
        parts["autotuning"] = (
            _tuned_before(reused) if reused else tuned.summary() if asked_for(options) else None
        )
        with self._channel.step("verify"):
            report = self._verify(model, exported, packed, parts)
        return {**parts, "verification": report, "autotune": tuned.choices}

    def _build_model(self) -> Model:
        job, path = self._job, self._job.weights
        given = Given(job.factories, job.source, path, job.directory / "tmp", self._device, job.spec)
        module = build_module(job.spec, given, self._channel)
        if path is None:
            weights.write_weights(module, job.directory / files.WEIGHTS)
            # Another target's first build may have been quicker: whoever recorded first decides for all.
            path = Path(self._channel.ask("weights"))
        weights.load_weights(module, path)
        module = module.to(self._device)
        if job.request.dtype is None:
            return Model(module, module, path)
        return self._overridden(module)

    def _overridden(self, module: torch.nn.Module) -> Model:
        """A copy in the target's dtype, with a weights layer of its own."""
        other = in_dtype(module, self._job.request)
        layer = self._out / "weights-override.safetensors"
        weights.write_weights(other, layer)
        return Model(module, other, layer)

    def _export(self, model: Model) -> Exported:
        spec = self._job.spec
        example, other = (self._inputs(point, model) for point in inputs.points(spec, {})[:2])
        candidate = Candidate(
            original=model.original,
            module=model.module,
            moved=lambda tensors: self._moved(tensors, model),
            example=example,
            other=other,
            request=self._job.request,
            device=self._device,
            tolerance=self._tolerance(),
        )
        examination = Examination(spec, self._channel, self._job.directory / "tmp")
        return examination.export(candidate, self._proof, self._job.golden)

    def _inputs(self, point: inputs.Point, model: Model) -> inputs.Tensors:
        return self._moved(inputs.make(self._job.spec, point, self._job.examples), model)

    def _moved(self, tensors: inputs.Tensors, model: Model) -> inputs.Tensors:
        """Inputs as the target takes them: device, dtype override, memory format."""
        converted = model.module is not model.original
        return moved(tensors, self._job.request, self._device, converted=converted)

    def _identify(self, exported: Exported) -> CodeIdentity:
        """The code that the program only names; the log says what of it is in the key."""
        job = self._job
        source = job.spec.canonical()["source"]
        root = job.directory / "tmp" / "source"
        identity = identify_code(exported.program, lambda: loaded_code.digest_loaded_code(source, root))
        for line in identity.lines:
            self._channel.log(line)
        return identity

    def _key(
        self, exported: Exported, identity: CodeIdentity, model: Model
    ) -> tuple[ProgramKey, dict[str, Any]]:
        job = self._job
        asked = self._asked()
        # A frozen buffer keeps no state: what the model writes to it is folded away (seen with torch 2.13).
        if self._baked and not exported.mutated:
            options = frozen_options(job.target, asked, _dtypes(exported))
        else:
            options = compile_options(job.target, asked)
        now = settings.compiler_configuration() | torch_patches.constants_of_inductor()
        changed = settings.changed(
            self._before, {name: now[name] for name in now.keys() & self._before.keys()}
        )
        tuned_within = shaping(options, job.spec.limits.autotune_seconds)
        key = program_key(
            exported,
            identity,
            separate=weights.names_for(model.module, model.layer),
            options=options,
            settings={**settings.numeric_settings(), "changed": changed, **tuned_within},
            toolchain=job.toolchain,
            target=job.target,
            baked=digest_file(model.layer) if self._baked else None,
        )
        return key, options

    def _asked(self) -> dict[str, Any]:
        return {**self._job.spec.compile.options, **self._job.request.options}

    def _tell_of(self, options: dict[str, Any], exported: Exported) -> None:
        for name, value in self._asked().items():
            if options[name] != value:
                self._channel.log(
                    f"compile option {name}={value} is {options[name]} on this target", "warning"
                )
        if unfrozen := self._unfrozen(exported):
            self._channel.log(unfrozen, "warning")

    def _unfrozen(self, exported: Exported) -> str:
        """Why baked weights are not frozen; empty where they are."""
        if not self._baked or not exported.mutated:
            return ""
        written = ", ".join(sorted(exported.mutated))
        return f"the weights are in the code but not frozen: the model writes to {written}"

    def _code(
        self, model: Model, exported: Exported, options: dict[str, Any], reused: dict[str, Any] | None
    ) -> tuple[Packed, Tuning]:
        around = self._around(model, exported)
        if reused:
            with self._channel.step("reuse"):
                code = Path(reused["code"])
                self._channel.detail("reuse", f"code of {reused['artifact']}")
            with self._channel.step("pack"):
                return packing.pack_reused(code, reused["config"], around, self._out), Tuning()
        package = self._out / "package.pt2"
        with self._channel.step("compile"):
            tuned = self._compile(exported, options, package)
        with self._channel.step("pack"):
            pack = packing.pack_baked if self._baked else packing.pack_compiled
            packed = pack(package, around, self._out)
            packing.write_sources(packed.sources, self._job.directory / files.SOURCES)
            package.unlink()
        return packed, tuned

    def _around(self, model: Model, exported: Exported) -> packing.Circumstances:
        return packing.Circumstances(
            weights=model.layer,
            separate=weights.names_for(model.module, model.layer),
            mutated=exported.mutated,
            known=frozenset(constants_of(exported.program)),
            target=self._job.target,
            host_flags=self._job.host_flags,
        )

    def _compile(self, exported: Exported, options: dict[str, Any], package: Path) -> Tuning:
        """Compiles beside other builds; where autotuning is on, alone as soon as something is timed."""
        if not asked_for(options):  # a GPU's few standard choices are timed in milliseconds, beside others
            return compiling.compile_program(exported.program, options, package)
        budget = self._job.spec.limits.autotune_seconds
        tuning = Tuning(budget, on_begin=lambda: self._channel.ask("device", mode="exclusive"))
        compiling.compile_program(exported.program, options, package, tuning)
        if tuning.begun:
            self._channel.ask("device", mode="shared")
        if tuning.made or tuning.skipped:
            self._channel.log(f"autotuning: {tuning}", "warning" if tuning.skipped else "info")
        return tuning

    def _parts(self, exported: Exported, key: ProgramKey, packed: Packed) -> dict[str, Any]:
        return {
            "signature": encode(exported.signature),
            "constants": encode(packed.constants),
            "native": encode(packed.native),
            "key": encode(key),
            "single_file": encode(packed.single_file),
            "dtype": self._job.request.dtype,
            "code_path": self._named(packed.code),
            "weights_path": self._named(packed.weights),
            "compiler_processes": list(self._compilers.programs),
        }

    def _verify(
        self, model: Model, exported: Exported, packed: Packed, parts: dict[str, Any]
    ) -> dict[str, Any]:
        subject = Subject(
            original=model.original,
            module=model.module,
            moved=lambda tensors: self._moved(tensors, model),
            program=program_module(exported.program),
            used=used_constants(exported.program),
            swappable=frozenset(item.fqn for item in packed.constants.table),
            baked=packed.constants.baked,
            stateful=bool(exported.mutated),
            tolerance=self._tolerance(),
            notes=(*exported.notes, *filter(None, [self._unfrozen(exported)])),
        )
        return self._proof.run(subject, parts)

    def _named(self, path: Path) -> str:
        """A file of the room as the parent, who sees the room elsewhere, is told of it."""
        return str(path.relative_to(self._job.directory))

    def _tolerance(self) -> float:
        return max(self._job.spec.checks.tolerance, DTYPE_TOLERANCE.get(self._job.request.dtype or "", 0.0))


def _dtypes(exported: Exported) -> frozenset[str]:
    return frozenset(dtype_name(tensor) for tensor in constants_of(exported.program).values())


def _tuned_before(reused: dict[str, Any]) -> dict[str, Any] | None:
    """What autotuning did for code that is reused."""
    found: dict[str, Any] | None = reused["config"]["provenance"].get("autotuning")
    return found


def isolate_caches(directory: Path) -> None:
    """Points the compiler's caches and temporary files into the job's directory.

    Two jobs in one cache directory mix their outputs (facts/aoti.md, section 5).
    """
    for name, folder in (
        ("TORCHINDUCTOR_CACHE_DIR", "cache"),
        ("TRITON_CACHE_DIR", "cache/triton"),
        ("TMPDIR", "tmp"),
    ):
        path = directory / folder
        path.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(path)
