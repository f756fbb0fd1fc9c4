"""A byte-level causal transformer, about a million parameters by default."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ByteTransformer"]

_BYTES = 256


class _Block(nn.Module):
    """Pre-norm attention and feed-forward, each added to its input; (B, T, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm_attention(x)).view(split).permute(2, 0, 3, 1, 4)
        # Written out instead of the fused kernel, whose backward pass on CUDA adds in any order.
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        fed: Tensor = self.down(functional.gelu(self.up(self.norm_feed(x))))
        return x + fed


class ByteTransformer(nn.Module):
    """Predicts each next byte of a sequence; no dropout, so a step has no randomness of its own."""

    hidden: Tensor  # (T, T) bool, true where a position may not look

    def __init__(self, *, width: int, layers: int, heads: int, seq_len_bytes: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(_BYTES, width)
        self.positions = nn.Parameter(torch.zeros(seq_len_bytes, width))
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _BYTES)
        future = torch.ones(seq_len_bytes, seq_len_bytes, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", future, persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, T, 256) for the byte after each of ``inputs`` (B, T), int64 in 0..255."""
        x = self.bytes(inputs) + self.positions
        for block in self.blocks:
            x = block(x, self.hidden)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def loss(self, rows: Tensor) -> Tensor:
        """Mean cross-entropy in nats per byte over ``rows`` (B, T + 1), int64; a scalar."""
        logits = self(rows[:, :-1])
        loss: Tensor = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        return loss
