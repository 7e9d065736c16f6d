"""Llama's blocks with dropout in PyTorch, as `nets.text.llama`: products apart, attention by PyTorch's own function."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from tiny import size

from .torch_nets import Chain

#: As `nets.text` has them: ids, features, heads, hidden features, blocks; the share that is dropped.
VOCABULARY, FEATURES, HEADS, HIDDEN, BLOCKS = size((512, 384, 6, 1024, 6), (50, 32, 2, 64, 2))
DROPOUT, EPSILON, BASE = 0.1, 1e-5, 10000.0


def llama() -> nn.Module:
    """Ids (n, time) -> scores (n * time, vocabulary)."""
    net = Blocks().add("tokens", nn.Embedding(VOCABULARY, FEATURES))
    for number in range(BLOCKS):
        net.add(f"block{number}", Block())
    net.add("norm", nn.RMSNorm(FEATURES, EPSILON)).add("flat", nn.Flatten(0, 1))
    return net.add("head", nn.Linear(FEATURES, VOCABULARY, bias=False))


class Blocks(Chain):
    """A chain of layers of layers."""

    separator = "/"


class Block(nn.Module):
    """Norms first, attention and a hidden layer beside residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(FEATURES, EPSILON), Attention()
        self.hidden_norm, self.hidden = nn.RMSNorm(FEATURES, EPSILON), SwiGLU()
        self.output, self.drop = nn.Linear(HIDDEN, FEATURES, bias=False), nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, time, features) -> the same."""
        x = x + self.drop(self.attention(self.attention_norm(x)))
        return x + self.drop(self.output(self.hidden(self.hidden_norm(x))))


class Attention(nn.Module):
    """Causal, queries and keys turned by their positions, probabilities dropped."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("query", "key", "value", "output"):
            self.add_module(name, nn.Linear(FEATURES, FEATURES, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, time, features) -> the same."""
        n, time, _ = x.shape
        q, k, v = (
            product(x).view(n, time, HEADS, -1).transpose(1, 2) for product in (self.query, self.key, self.value)
        )
        q, k = turned(q), turned(k)
        seen = scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT * self.training, is_causal=True)
        return self.output(seen.transpose(1, 2).reshape(n, time, FEATURES))


class SwiGLU(nn.Module):
    """silu(gate) * value."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = (nn.Linear(FEATURES, HIDDEN, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, time, features) -> (n, time, hidden)."""
        return silu(self.gate(x)) * self.value(x)


def turned(x: torch.Tensor) -> torch.Tensor:
    """By the positions, (n, heads, time, size): halves as pairs, as in Hugging Face's Llama (arXiv 2104.09864)."""
    time, half = x.shape[2], x.shape[3] // 2
    angles = torch.arange(time)[:, None] * BASE ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)
