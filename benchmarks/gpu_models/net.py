"""Models of the GPU results that no package has: published as a folder of code, and built for comparison with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable


class Block(nn.Module):
    """A layer of a deep network: normalization and a small perceptron, added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute on [batch, width]."""
        y: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return y


class Deep(nn.Module):
    """Many equal layers."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call one after the other."""
        for layer in self.layers:
            x = layer(x)
        return x


class EncoderLayer(nn.Module):
    """A layer of an encoder: attention over all tokens and a perceptron, each added to its input and normalized."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute on [batch, tokens, width]."""
        batch, tokens, width = x.shape
        query, key, value = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        x = self.norm(x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width)))
        y: torch.Tensor = self.norm2(x + self.down(nn.functional.gelu(self.up(x))))
        return y


class Decoder(nn.Module):
    """A decoder's attention over one new token, which it writes into its cache of keys and values.

    The cache begins half full of random keys and values: from an empty one, the first token sees only itself, and
    verification could not tell a right artifact from a wrong one. `steps` counts the calls, each of which writes the next
    place until the cache is full, and then the last one.
    """

    keys: torch.Tensor
    values: torch.Tensor
    steps: torch.Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("keys", torch.randn(1, heads, length, width // heads))
        self.register_buffer("values", torch.randn(1, heads, length, width // heads))
        self.register_buffer("steps", torch.full((1,), length // 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute on [1, 1, width]."""
        length = self.keys.shape[2]
        at = self.steps.clamp(max=length - 1)
        query, key, value = (
            part.view(1, 1, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        self.keys.index_copy_(2, at, key)
        self.values.index_copy_(2, at, value)
        self.steps.add_(1)
        seen = (torch.arange(length, device=x.device) <= at).view(1, 1, 1, length)
        mixed = nn.functional.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, 1, -1))
        y: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return y


class Int8Linear(nn.Module):
    """A linear layer whose weight is kept in 8 bits with a scale for each output, and multiplied in the input's dtype."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        full = torch.randn(outputs, inputs) / inputs**0.5
        scale = full.abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("weight", torch.round(full / scale).to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute on [batch, inputs]."""
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale)


def deep(layers: int = 64, width: int = 64) -> nn.Module:
    """Return many equal layers."""
    return Deep(Block(width) for _ in range(layers)).eval()


def encoder(layers: int = 12, width: int = 768, heads: int = 12) -> nn.Module:
    """Return the layers of an encoder as large as BERT-base, without embeddings."""
    model = Deep(EncoderLayer(width, heads) for _ in range(layers)).eval()
    return _with_biases(model, 0.1)  # larger ones drown the input: each layer adds two


def decoder(width: int = 1024, heads: int = 16, length: int = 2048) -> nn.Module:
    """Return a decoder's layer with its cache."""
    return _with_biases(Decoder(width, heads, length).eval(), 1.0)


def _with_biases(model: nn.Module, deviation: float) -> nn.Module:
    """Make biases as large as trained ones: next to the rounding of 16 bits, fresh ones change no output."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=deviation)
    return model


def int8(width: int = 2048) -> nn.Module:
    """Return a perceptron with 8-bit weights, of plain operators."""
    return nn.Sequential(Int8Linear(width, 4 * width), nn.GELU(), Int8Linear(4 * width, width)).eval()


def int8_torchao(width: int = 2048) -> nn.Module:
    """Return the same perceptron, quantized by torchao."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    config: Any = Int8WeightOnlyConfig()
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).eval()
    quantize_(model.to(torch.bfloat16), config)
    return model


def silu(call: str) -> nn.Module:
    """Return a model around a Triton kernel of its own.

    Args:
        call: `operator` or `plain`.
    """
    import silu_kernel

    return silu_kernel.Net(call).eval()
