"""Compares values of a metric. A value that is not a finite number is the worst."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from math import inf
from typing import Any

from det_jupyter.contract.values.json_numbers import to_finite

_LARGER = {
    "acc", "acc1", "acc5", "accuracy", "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "miou",
    "precision", "psnr", "r2", "recall", "return", "reward", "rouge", "score", "ssim", "top1",
    "top5",
}  # fmt: skip
_SMALLER = {
    "bpc", "cer", "cost", "err", "error", "fid", "loss", "mae", "mse", "nll", "perplexity", "ppl",
    "regret", "rmse", "wer",
}  # fmt: skip


class Direction(StrEnum):
    """Whether a smaller or a larger value of the searcher's metric is better.

    >>> Direction.MAXIMIZE.best([0.5, float("nan"), 0.75, None])
    0.75
    """

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"

    @classmethod
    def of(cls, *, smaller_is_better: bool) -> Direction:
        """Return the direction that this setting names."""
        return cls.MINIMIZE if smaller_is_better else cls.MAXIMIZE

    @property
    def sign(self) -> float:
        """The factor that makes smaller values the better ones: 1 or -1."""
        return 1.0 if self is Direction.MINIMIZE else -1.0

    @property
    def worst(self) -> float:
        """The value that stands for one that is not a finite number: inf or -inf."""
        return self.sign * inf

    def loss(self, value: Any) -> float:
        """Return the value with the sign that makes smaller better: a sort key, best first.

        >>> Direction.MAXIMIZE.loss(0.75), Direction.MAXIMIZE.loss("NaN")
        (-0.75, inf)
        """
        number = to_finite(value)
        return inf if number is None else self.sign * number

    def is_better(self, value: Any, than: Any) -> bool:
        """Return whether a value is better than another; a finite one is better than None."""
        return self.loss(value) < self.loss(than)

    def best(self, values: Iterable[Any]) -> float | None:
        """Return the best of the values, None if none of them is a finite number."""
        numbers = [number for value in values if (number := to_finite(value)) is not None]
        return min(numbers, key=self.loss, default=None)


def is_smaller_better(metric: str) -> bool | None:
    """Guess from the name of a metric whether smaller values are better; None: no guess.

    >>> [is_smaller_better(name) for name in ("val_loss", "valAccuracy", "top5_error", "tokens")]
    [True, False, True, None]
    >>> is_smaller_better("mAP"), is_smaller_better("val_mIoU")
    (False, False)
    """
    spaced = re.sub(r"([a-z])([A-Z])", r"\1_\2", metric)
    words = set(re.split(r"[^a-z0-9]+", f"{metric} {spaced}".lower()))
    return True if words & _SMALLER else False if words & _LARGER else None
