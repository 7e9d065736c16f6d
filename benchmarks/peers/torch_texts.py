"""The nets of `sequences.py` in plain PyTorch, in the form that is quickest there: one product for queries, keys and
values, `scaled_dot_product_attention` with `is_causal`, and `nn.LSTM`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from tiny import size

from .torch_nets import Named

#: As `nets.text` has them: of the GPT of bytes, characters of a text, and features, heads, blocks; of the LSTM.
TIME, SIZES = size((256, (384, 6, 6)), (9, (24, 3, 2)))
FEATURES, CLASSES = size((256, 10), (5, 4))


class Text(nn.Module, ABC):
    """A net whose parameters are not one by one those of our layers."""

    @abstractmethod
    def by_our_names(self) -> Named:
        """All parameters."""


class Block(nn.Module):
    """Norms first, attention and a hidden layer beside residual connections."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.hidden_norm = nn.LayerNorm(features), nn.LayerNorm(features)
        self.projections, self.joined = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.hidden, self.output = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, time, features) -> the same."""
        n, time, features = x.shape
        projected = self.projections(self.attention_norm(x)).split(features, dim=2)
        q, k, v = (each.view(n, time, self.heads, features // self.heads).transpose(1, 2) for each in projected)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(n, time, features))
        return x + self.output(gelu(self.hidden(self.hidden_norm(x)), approximate="tanh"))

    def by_our_names(self, path: str) -> Named:
        """Its parameters."""
        for name in ("attention_norm", "hidden_norm"):
            norm = getattr(self, name)
            yield from ((f"{path}/{name}/gamma", norm.weight, False), (f"{path}/{name}/beta", norm.bias, False))
        parts = zip(("query", "key", "value"), *(p.chunk(3) for p in self.projections.parameters()), strict=True)
        joined, hidden, output = ((m.weight, m.bias) for m in (self.joined, self.hidden, self.output))
        products = [(f"attention/{name}", weight, bias) for name, weight, bias in parts]
        for name, weight, bias in [*products, ("attention/output", *joined), ("hidden", *hidden), ("output", *output)]:
            yield f"{path}/{name}/weight", weight, True
            yield f"{path}/{name}/bias", bias, False


class GPT(Text):
    """GPT-2's layers. time: of a sample; tied: whether the head uses the table of the tokens."""

    def __init__(
        self, vocabulary: int, positions: int, features: int, heads: int, blocks: int, time: int, tied: bool
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, features)
        self.positions = nn.Parameter(torch.empty(positions, features))
        self.blocks = nn.ModuleList(Block(features, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(features)
        self.head = None if tied else nn.Linear(features, vocabulary, bias=False)
        self.time = time

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """ids (n, time) -> scores (n * time, vocabulary)."""
        y = self.tokens(x) + self.positions[: self.time]
        for block in self.blocks:
            y = block(y)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return linear(self.norm(y).flatten(0, 1), weight)

    def by_our_names(self) -> Named:
        """All parameters."""
        yield from (("tokens/weight", self.tokens.weight, False), ("positions/weight", self.positions, False))
        for number, block in enumerate(self.blocks):
            yield from block.by_our_names(f"block{number}")
        yield from (("norm/gamma", self.norm.weight, False), ("norm/beta", self.norm.bias, False))
        if self.head is not None:
            yield "head/weight", self.head.weight, True


class LSTM(Text):
    """Two stacks, the last output's scores."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, 2, batch_first=True)
        self.scores = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, time, features) -> (n, classes)."""
        return self.scores(self.lstm(x)[0][:, -1])

    def by_our_names(self) -> Named:
        """All parameters."""
        for name, parameter in self.lstm.named_parameters():
            yield f"lstm/{name}", parameter, parameter.ndim == 2
        yield from (("scores/weight", self.scores.weight, True), ("scores/bias", self.scores.bias, False))


TEXTS: dict[str, Callable[[], Text]] = {
    "gpt_11m": lambda: GPT(256, TIME, *SIZES, TIME, tied=False),
    "gpt2_small_256": lambda: GPT(50257, 1024, 768, 12, 12, 256, tied=True),
    "gpt2_small_512": lambda: GPT(50257, 1024, 768, 12, 12, 512, tied=True),
    "gpt2_small_1024": lambda: GPT(50257, 1024, 768, 12, 12, 1024, tied=True),
    "lstm": lambda: LSTM(FEATURES, FEATURES, CLASSES),
}
