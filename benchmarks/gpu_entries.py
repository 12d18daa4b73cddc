"""What `make gpu-results` publishes and times: one entry for each row of docs/gpu-results.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CODE = Path(__file__).resolve().parent / "gpu_models"
"""The folder of code of the models that no package has."""
_IMAGE = [{"name": "x", "shape": ["batch", 3, 224, 224], "generate": {"normal": {}}}]
_BATCH = {"batch": {"min": 1, "max": 32, "example": 2}}
_TOKENS = [
    {
        "name": "input_ids",
        "shape": ["batch", 128],
        "dtype": "int64",
        "generate": {"randint": {"low": 0, "high": 30522}},
    }
]
_FIXED: dict[str, Any] = {"inputs": [{**_TOKENS[0], "shape": [1, 128]}], "dims": {}}
_BERT = {"factory": "transformers:BertModel", "config": {"num_hidden_layers": 12}}
_SILU = [{"name": "x", "shape": ["batch", 64], "generate": {"normal": {}}}]
_HALF = "float16"


@dataclass(frozen=True, slots=True)
class Entry:
    """A model to publish.

    Attributes:
        name: Its name in the file of results; its model is `results/<name>` unless the spec names another.
        title: How the page names it.
        spec: Fields of its spec.
        sizes: Sizes of its dynamic dimensions at which it is timed; empty if it is published only.
        modes: Modes of `torch.compile` that it is compared with.
        after: Entry that is published before it.
        timed_with: Entry in whose process it is timed, taking turns with it: one of the same model and weights.
        refused: Whether the publication is to be refused, with a reason.
        measured: Whether first calls in fresh processes are measured, and the product's own measuring job runs.
    """

    name: str
    title: str
    spec: dict[str, Any]
    sizes: dict[str, int] = field(default_factory=dict)
    modes: tuple[str, ...] = ()
    after: str = ""
    timed_with: str = ""
    refused: bool = False
    measured: bool = False

    @property
    def uses_code(self) -> bool:
        """Whether its source is the folder of code."""
        return "entry" in self.spec["source"]

    @property
    def is_tuned(self) -> bool:
        """Whether its build autotunes, for which it has the device alone."""
        return "mode" in self.spec.get("compile", {})


MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_TUNED_MODES = ("default", "reduce-overhead", "max-autotune")
"""Without CUDA graphs the same kernels are slower at batch 1, as resnet18's row shows."""
_QUICK = ("default", "reduce-overhead")


def _tuned(seconds: int) -> dict[str, Any]:
    """Return the fields of a spec that autotunes.

    Args:
        seconds: Budget. An operation that has begun is finished, which can take a minute for a convolution.
    """
    return {"compile": {"mode": "max-autotune"}, "limits": {"autotune_seconds": seconds}}


def _resnet18(**fields: Any) -> dict[str, Any]:
    source = {"factory": "torchvision.models:resnet18", "kwargs": {}, "seed": 0}
    return {"model": "vision/resnet18", "source": source, "inputs": _IMAGE, "dims": _BATCH, **fields}


def _image_model(name: str, **kwargs: Any) -> dict[str, Any]:
    source = {"factory": "timm:create_model", "kwargs": {"model_name": name, **kwargs}}
    return {"source": source, "inputs": _IMAGE, "dims": _BATCH, "dtype": "bfloat16", **_tuned(60)}


def _bert(**fields: Any) -> dict[str, Any]:
    return {"source": _BERT, "inputs": _TOKENS, "dims": _BATCH, "dtype": _HALF, **fields}


def _layers(
    name: str, title: str, spec: dict[str, Any], sizes: dict[str, int], regions: str | list[str] = "auto"
) -> tuple[Entry, Entry]:
    """Return the entries of a model of equal layers, compiled by regions and whole."""
    by_regions, whole = (
        {**spec, "model": f"{label}/{name}", "compile": {"regions": wanted}}
        for label, wanted in (("regions", regions), ("whole", "none"))
    )
    return (
        Entry(f"{name}-regions", f"{title}, by regions", by_regions, sizes, timed_with=f"{name}-whole"),
        Entry(f"{name}-whole", f"{title}, whole", whole, sizes, _QUICK),
    )


def _own(entry: str, inputs: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    kwargs = fields.pop("kwargs", {})
    return {"source": {"entry": f"net:{entry}", "kwargs": kwargs}, "inputs": inputs, **fields}


def _input(*shape: int | str, name: str = "x") -> list[dict[str, Any]]:
    return [{"name": name, "shape": list(shape), "generate": {"normal": {}}}]


def _silu(name: str, title: str, call: str, *, strict: bool, refused: bool = False) -> Entry:
    spec = _own(
        "silu",
        _SILU,
        kwargs={"call": call},
        dims={"batch": {"min": 1, "max": 1024, "example": 128}},
        dtype="bfloat16",
        export={"strict": strict},
    )
    return Entry(
        name, title, spec, {} if refused else {"batch": 128}, () if refused else _QUICK, refused=refused
    )


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        # Its max-autotune modes take more than two minutes each for a first call.
        Entry("resnet18", "resnet18, float32", _resnet18(), {"batch": 1}, _QUICK),
        Entry(
            "resnet18-tuned",
            "resnet18, float32, max-autotune",
            _resnet18(model="vision/resnet18-tuned", **_tuned(100)),
            {"batch": 1},
            timed_with="resnet18",
        ),
        Entry(
            "resnet18-retrained",
            "resnet18 retrained",
            _resnet18(source={"factory": "torchvision.models:resnet18", "kwargs": {}, "seed": 1}),
            after="resnet18",
        ),
        Entry("resnet18-first-calls", "resnet18, float32, in fresh processes", _resnet18(), measured=True),
        Entry(
            "bert-base",
            "BERT-base, float16, 128 tokens, max-autotune",
            _bert(**_tuned(180)),
            {"batch": 1},
            _TUNED_MODES,
        ),
        Entry(
            "bert-base-again",
            "BERT with 11 layers, max-autotune, after the tuned one",
            _bert(
                model="results/bert-base",
                source={**_BERT, "config": {"num_hidden_layers": 11}},
                **_tuned(180),
            ),
            after="bert-base",
        ),
        Entry(
            "bert-base-fixed",
            "BERT-base, float16, 1 x 128 tokens, max-autotune",
            _bert(**_FIXED, model="results/bert-base-fixed", **_tuned(180)),
            {"batch": 1},
            _TUNED_MODES,
        ),
        Entry(
            "bert-base-fixed-default",
            "BERT-base, float16, 1 x 128 tokens",
            _bert(**_FIXED, model="results/bert-base-fixed-default"),
            {"batch": 1},
            timed_with="bert-base-fixed",
        ),
        # With embeddings and pooler there are three parts, so that `auto` leaves it whole.
        *_layers("bert-base", "BERT-base, float16, 128 tokens", _bert(), {"batch": 1}, ["BertLayer"]),
        *_layers(
            "encoder",
            "12 encoder layers, 768 wide, float16",
            _own("encoder", _input(2, 128, 768), dtype=_HALF),
            {"batch": 2},
        ),
        *_layers("deep", "64 layers, 64 wide, float32", _own("deep", _input(16, 64)), {"batch": 16}),
        Entry(
            "vit",
            "ViT-B/16 of timm, bfloat16, max-autotune",
            # A fresh class token is almost zero: no output shows whether an artifact reads it.
            {**_image_model("vit_base_patch16_224"), "checks": {"accept": ["no_power"]}},
            {"batch": 1},
            _TUNED_MODES,
        ),
        Entry(
            "convnext",
            "ConvNeXt-T of timm, bfloat16, max-autotune",
            # Fresh scales of its layers are so small that no output shows whether an artifact reads them.
            _image_model("convnext_tiny", ls_init_value=1.0),
            {"batch": 1},
            _TUNED_MODES,
        ),
        _silu("silu-operator", "Triton kernel as an operator", "operator", strict=False),
        _silu("silu-operator-strict", "Triton kernel as an operator, strict export", "operator", strict=True),
        _silu("silu-plain-strict", "Triton kernel called plainly, strict export", "plain", strict=True),
        _silu("silu-plain", "Triton kernel called plainly", "plain", strict=False, refused=True),
        Entry(
            "decoder",
            "decoder layer with a cache of keys and values, bfloat16",
            _own("decoder", _input(1, 1, 1024), dtype="bfloat16"),
            {"batch": 1},
            _QUICK,
        ),
        Entry(
            "int8",
            "perceptron with 8-bit weights of plain operators, bfloat16",
            _own("int8", _input(8, 2048, name="input"), dtype="bfloat16"),
            {"batch": 8},
            _QUICK,
        ),
        Entry(
            "int8-torchao",
            "the same quantized by torchao",
            _own("int8_torchao", [{**_input(8, 2048, name="input")[0], "dtype": "bfloat16"}]),
            {"batch": 8},
            _QUICK,
        ),
    )
}
PARTS: dict[str, tuple[str, ...]] = {
    "layers": (
        *(
            "bert-base-regions",
            "bert-base-whole",
            "encoder-regions",
            "encoder-whole",
            "deep-regions",
            "deep-whole",
        ),
        *("silu-operator", "silu-operator-strict", "silu-plain-strict", "silu-plain"),
        *("decoder", "int8", "int8-torchao", "convnext"),
    ),
    "resnet18": ("resnet18", "resnet18-tuned", "resnet18-retrained"),
    "transformers": ("bert-base", "bert-base-again", "vit", "resnet18-first-calls"),
}
"""Rows of one command each, where a command may take only ten minutes (docs/how-to/gpu-machine.md#the-gpu-results)."""
