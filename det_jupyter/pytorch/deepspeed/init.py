"""`pytorch.deepspeed.init`: the context of a DeepSpeedTrial, in a script, a notebook or a rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_jupyter import core
from det_jupyter.pytorch.deepspeed.context import DeepSpeedTrialContext
from det_jupyter.pytorch.training.init import check_arguments, init_context


@contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: core.DistributedContext | None = None,
    enable_tensorboard_logging: bool = False,
    seed: int | None = None,
    checkpoint_storage: str | Path | None = None,
) -> Iterator[DeepSpeedTrialContext]:
    """Yield the context of a DeepSpeedTrial; arguments as for `pytorch.init`. Collective.

    Raises:
        ConfigError: The configuration has problems; the error has all of them.
    """
    check_arguments(hparams=hparams, exp_conf=exp_conf, seed=seed)
    with init_context(
        DeepSpeedTrialContext, hparams, exp_conf, distributed, seed, checkpoint_storage
    ) as context:
        if enable_tensorboard_logging:
            context.set_enable_tensorboard_logging(True)
        yield context
