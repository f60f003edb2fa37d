"""Two models of well-known sizes, to measure the cost of exchanging their gradients.

ResNet-50 (He et al., 2016; v1.5: the stride is in the 3x3 convolution) has 25,557,032 parameters
in 161 tensors; GPT-2 small (Radford et al., 2019), whose output is tied to its input, has
124,439,808 in 148.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, with a shortcut."""

    def __init__(self, inward: int, width: int, stride: int) -> None:
        super().__init__()
        outward = 4 * width
        widths = [inward, width, width, outward]
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise(widths)):
            is_middle = index == 1
            layers += [
                nn.Conv2d(
                    before,
                    after,
                    3 if is_middle else 1,
                    stride if is_middle else 1,
                    padding=1 if is_middle else 0,
                    bias=False,
                ),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Sequential()
        if stride != 1 or inward != outward:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        return functional.relu(self.layers(images) + self.shortcut(images))


class ResNet(nn.Module):
    """ResNet-50 at width 64; narrower for a quick run."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        inward = width
        for stage, depth in enumerate((3, 4, 6, 3)):
            for index in range(depth):
                stride = 2 if stage and not index else 1
                blocks.append(Bottleneck(inward, width << stage, stride))
                inward = 4 * (width << stage)
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inward, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the loss if all classes are 0."""
        scores = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return functional.cross_entropy(scores, torch.zeros_like(scores[:, 0], dtype=torch.long))


class Block(nn.Module):
    """Causal self-attention, then a two-layer network, each after a norm and with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.to_qkv = nn.Linear(width, 3 * width)
        self.from_heads = nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Run the block on B x T x C."""
        qkv = self.to_qkv(self.norms[0](hidden)).unflatten(2, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.from_heads(mixed.transpose(1, 2).flatten(2))
        result: torch.Tensor = hidden + self.network(self.norms[1](hidden))
        return result


class GPT2(nn.Module):
    """GPT-2 small by default."""

    def __init__(
        self, layers: int = 12, width: int = 768, words: int = 50257, positions: int = 1024
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting each next token of B x T."""
        hidden = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        scores = self.norm(hidden) @ self.words.weight.T
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
