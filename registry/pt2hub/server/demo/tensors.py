"""Names and shapes of weights, as the usual architectures have them."""

from __future__ import annotations

import itertools
from typing import TypeAlias

Tensors: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


def linear(name: str, out: int, into: int) -> Tensors:
    """A layer's weight and bias."""
    return ((f"{name}.weight", (out, into)), (f"{name}.bias", (out,)))


def norm(name: str, width: int) -> Tensors:
    """A normalisation's weight and bias."""
    return ((f"{name}.weight", (width,)), (f"{name}.bias", (width,)))


def convolution(name: str, out: int, into: int, kernel: int) -> Tensors:
    """A convolution without bias, and the batch normalisation behind it."""
    bn = name.replace("conv", "bn")
    running = ((f"{bn}.running_mean", (out,)), (f"{bn}.running_var", (out,)))
    return ((f"{name}.weight", (out, into, kernel, kernel)), *norm(bn, out), *running)


def resnet(blocks: tuple[int, ...], classes: int, width: int = 64) -> Tensors:
    """A residual network with bottlenecks."""
    found: list[tuple[str, tuple[int, ...]]] = [*convolution("conv1", width, 3, 7)]
    into = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for place in range(count):
            prefix = f"layer{stage + 1}.{place}"
            found += convolution(f"{prefix}.conv1", inner, into, 1)
            found += convolution(f"{prefix}.conv2", inner, inner, 3)
            found += convolution(f"{prefix}.conv3", 4 * inner, inner, 1)
            if place == 0:
                found += convolution(f"{prefix}.downsample.conv", 4 * inner, into, 1)
            into = 4 * inner
    return (*found, *linear("fc", classes, into))


def mobile(widths: tuple[int, ...], classes: int) -> Tensors:
    """A network of separable convolutions."""
    found: list[tuple[str, tuple[int, ...]]] = [*convolution("stem.conv", widths[0], 3, 3)]
    for place, (into, out) in enumerate(itertools.pairwise(widths)):
        found += convolution(f"blocks.{place}.conv_pw", 4 * into, into, 1)
        found += convolution(f"blocks.{place}.conv_dw", 4 * into, 1, 5)
        found += convolution(f"blocks.{place}.conv_pwl", out, 4 * into, 1)
    return (*found, *linear("classifier", classes, widths[-1]))


def transformer(
    layers: int, width: int, vocabulary: int, *, prefix: str = "encoder", head: int = 0
) -> Tensors:
    """A stack of attention layers, with embeddings where there is a vocabulary, and a head where it is asked for."""
    found: list[tuple[str, tuple[int, ...]]] = []
    if vocabulary:
        found += [
            ("embeddings.word_embeddings.weight", (vocabulary, width)),
            *norm("embeddings.LayerNorm", width),
        ]
    for place in range(layers):
        layer = f"{prefix}.layer.{place}"
        for part in ("query", "key", "value"):
            found += linear(f"{layer}.attention.self.{part}", width, width)
        found += linear(f"{layer}.attention.output.dense", width, width)
        found += norm(f"{layer}.attention.output.LayerNorm", width)
        found += linear(f"{layer}.intermediate.dense", 4 * width, width)
        found += linear(f"{layer}.output.dense", width, 4 * width)
        found += norm(f"{layer}.output.LayerNorm", width)
    return (*found, *(linear("classifier", head, width) if head else ()))


def ranker(tables: dict[str, int], width: int, layers: tuple[int, ...], *, crosses: int = 0) -> Tensors:
    """Embedding tables, cross layers and a tower of linear ones."""
    found: list[tuple[str, tuple[int, ...]]] = [
        (f"embeddings.{name}.weight", (rows, width)) for name, rows in tables.items()
    ]
    into = width * len(tables)
    for place in range(crosses):
        found += linear(f"cross.{place}", into, into)
    for place, out in enumerate(layers):
        found += linear(f"tower.{2 * place}", out, into)
        into = out
    return (*found, *linear("head", 1, into))


def recurrent(layers: int, into: int, width: int, classes: int) -> Tensors:
    """Gated recurrent layers and a head."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for place in range(layers):
        size = width if place else into
        found += [
            (f"gru.weight_ih_l{place}", (3 * width, size)),
            (f"gru.weight_hh_l{place}", (3 * width, width)),
            (f"gru.bias_ih_l{place}", (3 * width,)),
            (f"gru.bias_hh_l{place}", (3 * width,)),
        ]
    return (*found, *linear("head", classes, width))
