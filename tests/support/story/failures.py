"""How builds of the story fail: the step, what was printed before, and the error that a worker would have reported."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.errors import (
    ArtifactWrong,
    DataDependent,
    Pt2hubError,
    StorageUnavailable,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed step.

    Attributes:
        error: None where the worker hands the build back.
        printed: Level and text of each line before the error.
        again: Whether another attempt follows by itself.
    """

    step: str
    error: Pt2hubError | None
    printed: tuple[tuple[str, str], ...] = ()
    again: bool = False


_BRANCH = "if keep.sum() > self.max_boxes:"
_REWRITE = "Replace the branch by torch.where or torch.cond, or state what always holds with torch._check."
_PLACE = {
    "file": "layout/postprocess.py",
    "line": 48,
    "code": _BRANCH,
    "locals": {"keep": "Tensor(shape: torch.Size([batch, 100]))", "self.max_boxes": "64"},
    "kind": "DATA_DEPENDENT_ERROR",
    "expression": "Eq(u0 > 64, True)",
    "suggestion": _REWRITE,
    "others": [],
}
_COMPARISON = {"point": "example", "threads": 8, "group": "layer2.1", "output": 0, "signal": 4.71}
FAILURES: dict[str, Failure] = {
    "data_dependent": Failure(
        "export",
        DataDependent(
            f"the model's control flow depends on tensor values at layout/postprocess.py:48: {_BRANCH}",
            where="source",
            hint=_REWRITE,
            context=_PLACE,
        ),
        (
            ("output", "\x1b[32mINFO\x1b[0m layout: anchors for 5 levels, stride 8 to 128"),
            ("output", "<script>document.title = 'taken over'</script> is the first box of the test page"),
            ("output", "\x1b[2J\x1b[Hthe model's own code clears the terminal here"),
        ),
    ),
    "wrong": Failure(
        "verify",
        ArtifactWrong(
            "output 0 at example on 8 threads with perturbed layer2.1 is off by 1.84; allowed 0.00471",
            where="verify",
            hint="The compiled code computes something different from the model. Please report it with the build's log.",
            context={
                "comparisons": [{**_COMPARISON, "error": 1.84, "allowed": 0.00471, "eager_error": 1.9e-5}]
            },
        ),
    ),
    "storage": Failure(
        "upload", StorageUnavailable("S3 returned SlowDown.", where="blobs/sha256"), again=True
    ),
    "handed_back": Failure("verify", None, (("warning", "the worker stops"),), again=True),
}
