"""How builds of the story end badly: the step, the error as the build would have told it, and what was printed before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pt2hub.domain.builds import Outcome
from pt2hub.errors import (
    ArtifactWrong,
    BuildTimedOut,
    CompileFailed,
    DataDependent,
    Detail,
    DimensionSpecialised,
    ExportFailed,
    FactoryFailed,
    InputRefused,
    LimitExceeded,
    MissingRequirement,
    NanOutput,
    NondeterministicModel,
    Pt2hubError,
    SourceDrifted,
    StorageUnavailable,
    ToleranceMissed,
    WeightsMismatch,
    WorkerLost,
)

Told = tuple[str, str]
"""Level and text of a line."""


@dataclass(frozen=True, slots=True)
class Case:
    """A build that fails.

    Attributes:
        model: The model's name.
        number: The version's number.
        target: The target's name.
        worker: Who has it.
    """

    model: str
    number: int
    target: str
    worker: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to fail.

    Attributes:
        step: The step at which it happens.
        make: The error of a case; None where there is none.
        printed: What the log has before it.
        outcome: How the attempt ends.
        passes: Whether the next attempt goes well.
        before: Attempts that end in other ways before this one.
        seconds: How long the step takes until then, None for most of its usual time.
    """

    step: str
    make: Callable[[Case], Pt2hubError | None]
    printed: tuple[Told, ...] = ()
    outcome: Outcome = Outcome.FAILED
    passes: bool = False
    before: tuple[str, ...] = ()
    seconds: float | None = None

    def error(self, model: str, number: int, target: str, worker: str) -> Pt2hubError | None:
        """What the attempt ends with."""
        return self.make(Case(model, number, target, worker))


_FOLLOW = (
    "Compiled code has one path for all values. Write torch.where or torch.cond instead of the branch, say what always "
    "holds with torch._check, or make the value it depends on an argument under `fixed`."
)
_PLACES: dict[str, dict[str, Any]] = {
    "demo-vision/detr-layout": {
        "file": "layout/postprocess.py",
        "line": 48,
        "code": "if keep.sum() > self.max_boxes:",
        "locals": {"keep": "Tensor(shape: torch.Size([batch, 100]))", "self.max_boxes": "64"},
        "kind": "DATA_DEPENDENT_ERROR",
        "expression": "Eq(u0 > 64, True)",
    },
    "demo-ranking/session-gru": {
        "file": "session/model.py",
        "line": 31,
        "code": "length = int((clicks > 0).sum(dim=1).max())",
        "locals": {"clicks": "Tensor(shape: torch.Size([batch, 50]))"},
        "kind": "DATA_DEPENDENT_ERROR",
        "expression": "u0",
    },
}


def _data_dependent(case: Case) -> Pt2hubError:
    place = _PLACES.get(case.model, next(iter(_PLACES.values())))
    values = ", ".join(f"{name} = {value}" for name, value in place["locals"].items())
    return DataDependent(
        f"what the model does depends on the values of tensors at {place['file']}:{place['line']}: "
        f"{place['code']} ({values})",
        where="source",
        hint=_FOLLOW,
        context={**place, "suggestion": _FOLLOW, "others": []},
    )


def _export(_: Case) -> Pt2hubError:
    place = {
        "file": "transformers/models/deberta_v2/modeling_deberta_v2.py",
        "line": 127,
        "code": "scale_factor = scaled_size_sqrt(query_layer, scale_factor)",
        "locals": {"scale_factor": "3"},
        "kind": "",
        "expression": "",
    }
    hint = "TorchDynamo suggests: Avoid calling `torch.jit.script` functions from the model's forward."
    return ExportFailed(
        f"torch.export refused the model at {place['file']}:{place['line']}: {place['code']} (scale_factor = 3): "
        "Unsupported: call of a scripted function",
        where="source",
        hint=hint,
        context={**place, "suggestion": hint, "others": []},
    )


def _specialised(_: Case) -> Pt2hubError:
    hint = "Write 4 instead of batch in the shapes, or have that line take it from a tensor's shape."
    place = {
        "file": "layout/queries.py",
        "line": 22,
        "code": "queries = self.embed.weight.repeat(4, 1, 1)",
        "locals": {"self.embed.weight": "Parameter(shape: torch.Size([100, 256]))"},
        "kind": "GUARD_ADDED",
        "expression": "Eq(batch, 4)",
    }
    return DimensionSpecialised(
        f"the model fixes dimension batch at 4 at {place['file']}:{place['line']}: {place['code']}",
        where="dims.batch",
        hint=hint,
        context={**place, "suggestion": hint, "others": []},
    )


def _out_of_memory(case: Case) -> Pt2hubError:
    return LimitExceeded(
        "The build needed more memory than it may use: 24 GiB.",
        where="compile",
        hint="Use a smaller model or a smaller example; an operator can raise PT2HUB_BUILD_MEMORY of the worker.",
        context={"what": "memory", "limit": 24 << 30, "worker": case.worker},
    )


def _row(error: float, allowed: float, **others: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON values
    told = {
        "point": "largest",
        "threads": 8,
        "group": None,
        "output": 0,
        "signal": 4.71,
        "eager_error": 1.9e-5,
    }
    return {**told, "error": error, "allowed": allowed, **others}


def _tolerance(_: Case) -> Pt2hubError:
    return ToleranceMissed(
        "output 0 at largest on 8 threads is off by 0.00683; allowed 0.00471 (signal 4.71, eager's own error 1.9e-05)",
        where="verify",
        hint="Raise checks.tolerance if this error is acceptable to you.",
    )


def _wrong(_: Case) -> Pt2hubError:
    return ArtifactWrong(
        "output 0 at example on 8 threads with perturbed encoder.layer.7 is off by 1.84; allowed 0.00471 (signal 4.71, "
        "eager's own error 1.9e-05)",
        where="verify",
        hint="The compiled code computes something else than the model. This is a defect of the compiler or of pt2hub: "
        "please report it with the build's log and sources.",
        context={
            "comparisons": [
                _row(1.84, 0.00471, point="example", group="encoder.layer.7"),
                _row(1.61, 0.00471, point="example", group="encoder.layer.8"),
            ]
        },
    )


def _timed_out(_: Case) -> Pt2hubError:
    return BuildTimedOut(
        "the build took longer than 3600 s; it was at compile",
        where="compile",
        hint="Raise limits: {seconds: ...} in the spec, or lower the autotuning options.",
    )


def _worker_lost(case: Case) -> Pt2hubError:
    return WorkerLost(
        f"Attempt 1 lost its worker {case.worker}",
        where=case.model,
        hint="What takes a worker down with it mostly takes its memory: see the last lines of each attempt.",
        context={"worker": case.worker},
    )


def _lost_often(case: Case) -> Pt2hubError:
    told = ", ".join(f"attempt {number} ({case.worker}: lost)" for number in range(1, 6))
    return WorkerLost(
        f"5 attempts were lost or failed for a passing reason: {told}",
        where=case.model,
        hint="What takes a worker down with it mostly takes its memory: see the last lines of each attempt, then run "
        "pt2hub retry.",
        context={"attempt": 5, "worker": case.worker},
    )


def _storage(_: Case) -> Pt2hubError:
    return StorageUnavailable(
        "S3 answered SlowDown.",
        where="blobs/sha256",
        hint="The bucket takes fewer requests than it gets; try again in a minute.",
        context={"s3_code": "SlowDown"},
    )


def _nan(_: Case) -> Pt2hubError:
    return NanOutput(
        "output 0 holds NaN or infinity in eager mode at x: batch=8",
        where="outputs[0]",
        hint="Nothing can be proven against it. Check the weights, the generated inputs' range, and the smallest and "
        "largest sizes in dims.",
    )


def _nondeterministic(_: Case) -> Pt2hubError:
    return NondeterministicModel(
        "output 0 differs between two eager runs on the same inputs",
        where="source",
        hint="Dropout or another random layer is active: build the model in eval mode, without randomness. In training "
        "mode: deberta.encoder.layer.0.attention.self.dropout.",
    )


def _drifted(_: Case) -> Pt2hubError:
    return SourceDrifted(
        "output 0 at example is 0.0121 away from the golden output; rounding explains 3.2e-06",
        where="source",
        hint="The installed package computes something else than when this version was first built. Publish a new "
        "version, or build on a worker with the pinned packages.",
    )


def _mismatch(_: Case) -> Pt2hubError:
    return WeightsMismatch(
        "the weights file lacks fc.bias, and has classifier.bias, which the model has not",
        where="weights",
        hint="Write the state_dict of the model that the source builds.",
        details=(
            Detail("weights", "missing: fc.bias"),
            Detail("weights", "not in the model: classifier.bias"),
        ),
    )


def _requirement(case: Case) -> Pt2hubError:
    text = f"torchao>=0.14 is wanted, {case.worker} has 0.12.0"
    return MissingRequirement(
        text,
        where="source.requirements[0]",
        details=(Detail("source.requirements[0]", text, given="torchao>=0.14", allowed="0.12.0"),),
        hint="Install it on the worker: a build has no network and installs nothing. Or ask for what is there, or put the "
        "package's source into the archive.",
    )


def _factory_failed(_: Case) -> Pt2hubError:
    return FactoryFailed(
        "ads.dlrm:build raised KeyError: 'dense_dim' at ads/dlrm.py:57: width = settings['dense_dim']",
        where="source.entry",
        hint="Call it with the same arguments in a Python shell.",
    )


def _input_refused(_: Case) -> Pt2hubError:
    return InputRefused(
        "the model raised RuntimeError: Calculated padded input size per channel: (2). Kernel size: (3). Kernel size "
        "can't be greater than actual input size",
        where="inputs",
        hint="Shapes given: input_values: [2, 400]. Raised at transformers/models/wav2vec2/modeling_wav2vec2.py:281.",
    )


def _compile(_: Case) -> Pt2hubError:
    return CompileFailed(
        "AOTInductor failed: CppCompileError: C++ compile error: /tmp/job/model/model.kernel.cpp:2871:56: error: cannot "
        "convert 'at::vec::VectorizedN<float, 2>' to 'at::vec::Vectorized<float>'",
        where="compile",
        hint="The build's log has the whole message and the compiler's output.",
    )


_GXX = (
    (
        "compiler",
        "\x1b[01m\x1b[Kmodel.kernel.cpp:\x1b[m\x1b[K In function '\x1b[01m\x1b[Kvoid cpp_fused_gelu_17(const float*, float*, int64_t)\x1b[m\x1b[K':",
    ),
    (
        "compiler",
        "\x1b[01m\x1b[Kmodel.kernel.cpp:2871:56:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kcannot convert '\x1b[01m\x1b[Kat::vec::VectorizedN<float, 2>\x1b[m\x1b[K' to '\x1b[01m\x1b[Kat::vec::Vectorized<float>\x1b[m\x1b[K'",
    ),
    (
        "compiler",
        " 2871 |                     auto tmp9 = \x1b[01;31m\x1b[Kat::vec::maximum(tmp7, tmp8)\x1b[m\x1b[K;",
    ),
    (
        "compiler",
        "      |                                 \x1b[01;31m\x1b[K~~~~~~~~~~~~~~~~^~~~~~~~~~~~\x1b[m\x1b[K",
    ),
)
_TUNING = tuple(
    (
        "compiler",
        f"AUTOTUNE mm({m}x768, 768x3072): triton_mm_{n} \x1b[3{1 + n % 6}m{9.1 + n % 7:.4f} ms\x1b[0m",
    )
    for n, m in enumerate(range(64, 64 * 120, 64))
)
_PRINTED = (
    ("output", "\x1b[32mINFO\x1b[0m layout: anchors for 5 levels, stride 8 to 128"),
    ("output", "<script>document.title = 'a page of 1998'</script> is the first box of the test page"),
    ("output", "\x1b[2J\x1b[Hthe model's own code clears the terminal here"),
)

LONG = 841
"""So many times the chatter of autotuning make a log of 100,000 lines."""
KINDS: dict[str, Kind] = {
    "data_dependent": Kind("export", _data_dependent, _PRINTED),
    "export": Kind(
        "export", _export, (("warning", "torch.jit.script is deprecated; please switch to torch.compile"),)
    ),
    "dimension_specialised": Kind("export", _specialised, _PRINTED[:1]),
    "factory_failed": Kind(
        "export", _factory_failed, (("output", "loading settings from ads/production.toml"),)
    ),
    "requirement": Kind("export", _requirement),
    "weights_mismatch": Kind("export", _mismatch),
    "input_refused": Kind("export", _input_refused),
    "nan_output": Kind(
        "export", _nan, (("output", "\x1b[33mWARNING\x1b[0m softmax of float16: largest logit is 65504"),)
    ),
    "nondeterministic": Kind("export", _nondeterministic),
    "out_of_memory": Kind("compile", _out_of_memory, _GXX[:1]),
    "compile": Kind("compile", _compile, _GXX),
    "timed_out": Kind("compile", _timed_out, _TUNING, seconds=3571.0),
    "talkative": Kind("compile", _timed_out, _TUNING * LONG, seconds=3571.0),
    "tolerance": Kind("verify", _tolerance),
    "wrong": Kind("verify", _wrong, (("info", "reference of 14 perturbations in 41.17 s"),)),
    "drifted": Kind("verify", _drifted),
    "cancelled": Kind("compile", lambda _: None, outcome=Outcome.CANCELLED),
    "worker_lost": Kind("compile", _worker_lost, outcome=Outcome.LOST, passes=True),
    "handed_back": Kind("verify", lambda _: None, outcome=Outcome.HANDED_BACK, passes=True),
    "storage": Kind("upload", _storage, outcome=Outcome.RETRIED, passes=True),
    "lost_often": Kind("compile", _lost_often, outcome=Outcome.LOST, before=("worker_lost",) * 4),
}
"""Every way to fail, by its name in the models' stories."""
