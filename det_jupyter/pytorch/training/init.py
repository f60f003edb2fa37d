"""`pytorch.init`: the context of a trial, in a script, a notebook, or a rank of an experiment."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from det_jupyter import core
from det_jupyter.config import parse_config
from det_jupyter.core.peer_errors import SOURCE_POSITION, PeerFailed, PeerLost, is_lost_peer
from det_jupyter.core.train import tensorboard_folder
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.messages import without_own_frames
from det_jupyter.pytorch.process_groups import choose_device, open_distributed, open_process_group
from det_jupyter.pytorch.rng import draw_seed, seed_everything
from det_jupyter.pytorch.training.printing import PrintedRecords, SilentRecords
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

Kind = TypeVar("Kind", bound=PyTorchTrialContext)


@contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: core.DistributedContext | None = None,
    aggregation_frequency: int | None = None,
    enable_tensorboard_logging: bool = False,
    seed: int | None = None,
    checkpoint_storage: str | Path | None = None,
) -> Iterator[PyTorchTrialContext]:
    """Yield the context of a trial. Collective: all ranks must call it.

    Seeds all generators, so that every rank and every run builds the same weights.

    Args:
        hparams: The hyperparameters; by default those of `exp_conf` or, in a rank of an
            experiment, the trial's.
        exp_conf: An experiment's configuration, or a part of one.
        distributed: The ranks; by default those that torchrun started.
        aggregation_frequency: Batches from one step of the optimizer to the next; by default the
            configuration's, or 1.
        enable_tensorboard_logging: Write metrics to TensorBoard files too.
        seed: The trial's seed; by default the configuration's `reproducibility.experiment_seed`,
            or a random one.
        checkpoint_storage: Folder for checkpoints; by default det_jupyter's own.

    Raises:
        ConfigError: The configuration has problems; the error has all of them.
    """
    check_arguments(
        hparams=hparams,
        exp_conf=exp_conf,
        aggregation_frequency=aggregation_frequency,
        seed=seed,
    )
    with init_context(
        PyTorchTrialContext, hparams, exp_conf, distributed, seed, checkpoint_storage
    ) as context:
        if aggregation_frequency is not None:
            context.position.aggregation_frequency = aggregation_frequency
        if enable_tensorboard_logging:
            context.set_enable_tensorboard_logging(True)
        yield context


@contextmanager
def init_context(
    kind: type[Kind],
    hparams: Mapping[str, Any] | None,
    exp_conf: Mapping[str, Any] | None,
    distributed: core.DistributedContext | None,
    seed: int | None,
    checkpoint_storage: str | Path | None,
) -> Iterator[Kind]:
    """Yield a context of this kind; arguments as for `init`, which are checked. Collective."""
    with ExitStack() as stack:
        context = _rank_context(kind, hparams, distributed, stack)
        if context is None:
            device = choose_device()
            distributed = distributed or stack.enter_context(
                open_distributed(device, "pytorch.init")
            )
            context = _local_context(
                kind, hparams, exp_conf, distributed, device, seed, checkpoint_storage
            )
        seed_everything(context.get_trial_seed())
        with closing(context), naming_lost_peers(context.core), without_own_frames():
            yield context


def _rank_context(
    kind: type[Kind],
    hparams: Mapping[str, Any] | None,
    distributed: core.DistributedContext | None,
    stack: ExitStack,
) -> Kind | None:
    """Return the context if this process belongs to an experiment, else None."""
    rank = core.current()
    if rank is None or rank.info is None:
        if core.get_cluster_info() is None:
            return None
        if distributed is None:
            distributed = stack.enter_context(open_distributed(choose_device(), "pytorch.init"))
        rank = stack.enter_context(core.init(distributed=distributed))
    if rank.distributed.size > 1:  # a script has none yet: core's collectives need none
        assert rank.info is not None
        stack.enter_context(open_process_group(rank.info.device))
    return context_of_rank(rank, hparams, kind)


def context_of_rank(
    rank: core.Context, hparams: Mapping[str, Any] | None, kind: type[Kind]
) -> Kind:
    """Return the context of a rank of an experiment.

    Args:
        rank: The rank's context of the Core API, whose `info` has the trial.
        hparams: The hyperparameters; None: the trial's.
        kind: The class of the context.
    """
    info = rank.info
    assert info is not None, "a rank of an experiment"
    return kind(
        core=rank,
        device=info.device,
        hparams=info.hparams if hparams is None else hparams,
        config=info.config,
        experiment_id=info.experiment_id,
        trial_id=info.trial_id,
        trial_seed=info.trial_seed,
        tensorboard_folder=tensorboard_folder(info.data_dir, info.experiment_id, info.trial_id),
    )


def _local_context(
    kind: type[Kind],
    hparams: Mapping[str, Any] | None,
    exp_conf: Mapping[str, Any] | None,
    distributed: core.DistributedContext,
    device: torch.device,
    seed: int | None,
    checkpoint_storage: str | Path | None,
) -> Kind:
    config = None
    if exp_conf is not None:  # keys that only an experiment needs get defaults
        document = {"entrypoint": "Trial", **exp_conf}
        searcher = exp_conf.get("searcher", {})
        if isinstance(searcher, Mapping) and searcher.get("name", "single") == "single":
            document["searcher"] = {**_NO_SEARCH, **searcher}
        config = parse_config(document, default_seed=0)
    if seed is None and "reproducibility" in (exp_conf or {}):
        seed = config.reproducibility.experiment_seed if config else None
    if seed is None:
        seed = distributed.broadcast(draw_seed())
    sink = PrintedRecords() if distributed.is_chief else SilentRecords()
    began = distributed.broadcast(time.strftime("%Y%m%d-%H%M%S"))
    context = kind(
        core=core.init(distributed=distributed, sink=sink, checkpoint_storage=checkpoint_storage),
        device=device,
        hparams=hparams if hparams is not None or config is None else config.hyperparameters,
        config=config,
        trial_seed=seed,
        tensorboard_folder=Path("tensorboard") / began,  # one for each run
    )
    context.has_searcher = "searcher" in (exp_conf or {})
    return context


@contextmanager
def naming_lost_peers(context: core.Context | None) -> Iterator[None]:
    """Report errors that come from the end of another rank as PeerLost, outside of experiments.

    Raises:
        PeerLost: Replaces an error of gloo or NCCL about a lost connection.
    """
    try:
        yield
    except Exception as error:  # torch reports a lost peer by errors of several types
        is_script = context is not None and context.info is None
        if not is_script or isinstance(error, PeerFailed) or not is_lost_peer(error):
            raise
        summary = SOURCE_POSITION.sub("", str(error)).strip().partition("\n")[0].partition(". ")[0]
        raise PeerLost(
            "another rank has ended, and its own error has the cause "
            f"(here it shows as: {summary})"
        ) from None


_NO_SEARCH = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}


def check_arguments(
    *, hparams: Any, exp_conf: Any, seed: Any, aggregation_frequency: Any = None
) -> None:
    """Check the arguments of `init`.

    Raises:
        ConfigError: Some cannot be used; the error has all of them.
    """
    problems = [
        f"init: {name}: got {value!r}, expected a dict"
        for name, value in {"hparams": hparams, "exp_conf": exp_conf}.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    if aggregation_frequency is not None and not is_whole(aggregation_frequency, 1):
        problems.append(
            f"init: aggregation_frequency: got {aggregation_frequency!r}, expected at least 1"
        )
    if seed is not None and not is_whole(seed, 0):
        problems.append(f"init: seed: got {seed!r}, expected a whole number of at least 0")
    if problems:
        raise ConfigError(problems)


def is_whole(value: Any, least: int) -> bool:
    """Return whether the value is a whole number of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
