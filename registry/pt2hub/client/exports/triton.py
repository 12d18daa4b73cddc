"""The `config.pbtxt` of a model in a repository of Triton Inference Server.

Its PyTorch backend loads AOTInductor packages with `platform: "torch_aoti"` (beta since release 26.03). It completes no
configuration by itself, batches nothing, and passes tensors only, so that everything is written here
(docs/facts/aoti.md#triton-inference-server).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.domain.artifacts import ArtifactConfig, Signature

PLATFORM = "torch_aoti"
KNOWN_RELEASES = {"2.12": "26.04"}
"""Release of Triton Inference Server whose container has a release of torch, as far as seen."""
_TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
}
_ANY = -1
"""A size that requests may choose."""


@dataclass(frozen=True, slots=True)
class TritonTensor:
    """An input or output as Triton names it.

    Attributes:
        name: `ARGS[0]`, `KWARGS[mask]`, `RESULT`, `RESULT[1]`.
        dims: Sizes; -1 where requests may choose.
        dtype: Torch dtype without the prefix.
    """

    name: str
    dims: tuple[int, ...]
    dtype: str

    def to_text(self) -> str:
        """Return the entry of `config.pbtxt`.

        Raises:
            InvalidInput: Triton has no such type.
        """
        if self.dtype not in _TYPES:
            raise InvalidInput(
                f"Triton has no type for {self.dtype}",
                where=self.name,
                hint="Publish the model with another dtype, or with a cast at its end.",
            )
        dims = f"dims: [ {', '.join(map(str, self.dims or (1,)))} ]"
        shape = "" if self.dims else "\n    reshape: { shape: [ ] }"
        return f'  {{\n    name: "{self.name}"\n    data_type: {_TYPES[self.dtype]}\n    {dims}{shape}\n  }}'


def render_config(name: str, config: ArtifactConfig, outputs: Sequence[TritonTensor]) -> str:
    """Return the text of `config.pbtxt`.

    Args:
        name: The model's name in the repository, that of its folder.
        outputs: The outputs, see `name_outputs`.

    Raises:
        InvalidInput: Triton cannot call the model.
    """
    version = config.version
    inputs = name_inputs(config.signature)
    kind = "KIND_GPU" if config.signature.device == "cuda" else "KIND_CPU"
    return "\n".join(
        (
            f"# {version.model}@{version.number} for {config.target.name}, written by pt2hub.",
            f"# {explain_release(config)}",
            f'name: "{name}"',
            'backend: "pytorch"',
            f'platform: "{PLATFORM}"',
            "max_batch_size: 0",
            _block("input", inputs),
            _block("output", outputs),
            f"instance_group [ {{ kind: {kind} }} ]",
            "",
        )
    )


def _block(what: str, tensors: Sequence[TritonTensor]) -> str:
    entries = ",\n".join(item.to_text() for item in tensors)
    return f"{what} [\n{entries}\n]"


def explain_release(config: ArtifactConfig) -> str:
    """Return which release of Triton Inference Server has the torch of an artifact."""
    minor = ".".join(config.toolchain.torch.split(".")[:2])
    if release := KNOWN_RELEASES.get(minor):
        return f"Built with torch {minor}, which the container {release} of Triton Inference Server has."
    known = ", ".join(f"{release} has torch {torch}" for torch, release in KNOWN_RELEASES.items())
    return (
        f"Built with torch {minor}: use a container of Triton Inference Server with torch {minor} ({known})."
    )


def name_inputs(signature: Signature) -> tuple[TritonTensor, ...]:
    """Return the inputs of an artifact with Triton's names, in the order of the signature.

    Raises:
        InvalidInput: The model takes arguments that are not tensors.
    """
    if signature.fixed:
        raise InvalidInput(
            f"Triton passes tensors only, and the model takes {', '.join(sorted(signature.fixed))}",
            where="arguments",
            hint="Publish it with these arguments bound, such as in a module that calls it with them.",
        )
    paths = {path: name for path, name in _leaves(signature) if path is not None}
    return tuple(
        TritonTensor(
            paths[item.name],
            tuple(_ANY if isinstance(size, str) else size for size in item.shape),
            item.dtype,
        )
        for item in signature.inputs
    )


def name_outputs(out_spec: str, forms: Sequence[tuple[tuple[int, ...], str]]) -> tuple[TritonTensor, ...]:
    """Return the outputs of an artifact with Triton's names.

    Args:
        out_spec: Torch's tree spec of the result.
        forms: Sizes and dtype of each output.

    Raises:
        InvalidInput: The result holds something that is no tensor.
    """
    names = [f"RESULT{steps}" for steps, _ in _walk(_root(out_spec))]
    if len(names) != len(forms):
        raise InvalidInput(
            f"Triton returns tensors only, and {len(names) - len(forms)} of the model's results are not",
            where="outputs",
            hint="Choose the tensors with `outputs` in the spec.",
        )
    return tuple(TritonTensor(name, dims, dtype) for name, (dims, dtype) in zip(names, forms, strict=True))


def _leaves(signature: Signature) -> Iterator[tuple[str | None, str]]:
    """Yield the path of each argument's tensors as the signature has it, and Triton's name."""
    args, kwargs = _root(signature.in_spec)["children_spec"]
    for index, node in enumerate(args["children_spec"]):
        root = signature.arguments[index]
        for steps, path in _walk(node):
            yield f"{root}{path}", f"ARGS[{index}]{steps}"
    for key, node in zip(_keys(kwargs), kwargs["children_spec"], strict=True):
        for steps, path in _walk(node):
            yield f"{key}{path}", f"KWARGS[{key}]{steps}"


def _root(spec: str) -> dict[str, Any]:
    node: dict[str, Any] = json.loads(spec)[1]
    return node


def _walk(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each leaf's steps in Triton's form and in that of `domain.publishing.paths`."""
    kind = node["type"]
    if kind is None:
        yield "", ""
        return
    keys = _keys(node) if kind == "builtins.dict" else list(range(len(node["children_spec"])))
    form = {"builtins.dict": ".{}", "builtins.list": "[{}]"}.get(kind, "({})")
    for key, child in zip(keys, node["children_spec"], strict=True):
        for steps, path in _walk(child):
            yield f"[{key}]{steps}", f"{form.format(key)}{path}"


def _keys(node: dict[str, Any]) -> list[str]:
    keys: list[str] = json.loads(node["context"])
    return keys
