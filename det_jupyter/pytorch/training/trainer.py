"""Training from a script or a notebook cell: `init` gives the context, `Trainer.fit` trains.

    with pytorch.init(hparams={"global_batch_size": 32}) as context:
        trainer = pytorch.Trainer(MyTrial(context), context)
        trainer.fit(max_length=pytorch.Epoch(3), validation_period=pytorch.Epoch(1))

    where                        ranks                metrics, checkpoints
    notebook, plain script       this process         printed; a folder of det_jupyter's
    script under torchrun        one per process      the same, by rank 0
    in a rank of an experiment   its gang             the experiment's

It is the loop that experiments run. Whatever holds for them (pauses, exactness) holds here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from det_jupyter import core
from det_jupyter.blobs import BlobStore
from det_jupyter.config import ExperimentConfig, Length, parse_config
from det_jupyter.config.sections import Profiling
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.checkpoints.origin import Origin, name_of_class
from det_jupyter.pytorch.messages import without_own_frames
from det_jupyter.pytorch.ranks.failures import telling_lost_peers
from det_jupyter.pytorch.rng import draw_seed, seed_everything
from det_jupyter.pytorch.run.arguments import check_fit, check_init
from det_jupyter.pytorch.run.rules import Policy, Rules, Start
from det_jupyter.pytorch.run.schedule import as_period
from det_jupyter.pytorch.run.units import Batch, TrainUnit
from det_jupyter.pytorch.training.building import check_wrapped
from det_jupyter.pytorch.training.events import Reason
from det_jupyter.pytorch.training.keyboard import leaving_on_interrupt
from det_jupyter.pytorch.training.loop import Loop
from det_jupyter.pytorch.training.printing import PrintedRecords
from det_jupyter.pytorch.training.torchrun import choose_device, join, leaving_the_group
from det_jupyter.pytorch.trial.context import PyTorchTrialContext, tensorboard_folder
from det_jupyter.pytorch.trial.definition import PyTorchTrial, check_trial_class
from det_jupyter.wire import CheckpointRef


class Trainer:
    """Trains a trial. Every rank has one, and does everything in step with the others.

    Args:
        trial: Made with `context`.
        context: What `init` gave.

    Raises:
        ConfigError: These are no trial and its context, or the trial lacks something.
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        if not isinstance(trial, PyTorchTrial):
            hint = " (create one: MyTrial(context))" if isinstance(trial, type) else ""
            raise ConfigError([f"Trainer: got {trial!r}, expected a PyTorchTrial{hint}"])
        if not isinstance(context, PyTorchTrialContext) or context.core is None:
            raise ConfigError([f"Trainer: got {context!r}, expected what pytorch.init() gives"])
        if problems := check_trial_class(type(trial)):
            raise ConfigError([f"Trainer: {problem}" for problem in problems])
        check_wrapped(trial, context)
        context.claim(trial)
        self._trial = trial
        self._context = context
        self._core = context.core
        self._latest: CheckpointRef | None = None  # of an earlier fit

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit = Batch(100),  # noqa: B008  # a constant
        checkpoint_policy: Policy = "best",
        latest_checkpoint: str | Path | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> Reason:
        """Train, and return why the training ended. Collective: all ranks call it alike.

        Args:
            checkpoint_period, validation_period: How often; there is always one of each at the
                end.
            max_length: How long, counted from the trial's beginning. In a search it may be left
                out: the search decides.
            reporting_period: How often training metrics are reported.
            checkpoint_policy: Whether validations that are the best so far, all, or none are
                followed by a checkpoint.
            latest_checkpoint: Folder or uuid of the checkpoint to go on from. By default a second
                `fit` goes on from the end of the first, and a rank of an experiment from its
                trial's checkpoint.
            step_zero_validation: Validate before the first batch too.
            test_mode: Only try all parts: a batch, a validation batch and a checkpoint.
            profiling_enabled: Record how long the parts of a batch take.

        Raises:
            ConfigError: Something of it, or of the trial, cannot work.
            KeyboardInterrupt: It was interrupted; the state is saved, and the message says where.
        """
        check_fit(
            max_length=max_length,
            periods={
                "checkpoint_period": checkpoint_period,
                "validation_period": validation_period,
                "reporting_period": reporting_period,
            },
            checkpoint_policy=checkpoint_policy,
            latest_checkpoint=latest_checkpoint,
        )
        rules = Rules(
            length=Length("batches", 1) if test_mode else self._length(max_length),
            reporting=as_period(reporting_period),
            validation=as_period(validation_period),
            checkpoint=as_period(checkpoint_period),
            checkpoint_policy=checkpoint_policy,
            initial_validation=step_zero_validation,
            validation_batches=1 if test_mode else None,
            profiling=Profiling(enabled=profiling_enabled),
            is_script=True,
            **_judged_by(self._context),
        )
        is_given = max_length is not None or test_mode
        return self.run(rules, self._start(latest_checkpoint), is_given=is_given)

    def run(
        self, rules: Rules, start: Start, *, is_given: bool = True, is_kept: bool = True
    ) -> Reason:
        """Train by these rules; `fit` in other words. Collective.

        Args:
            rules: What happens besides training, and how long it takes.
            start: Where it begins.
            is_given: Their length counts, not what a search wants.
            is_kept: The checkpoints of the run are there after it.
        """
        with leaving_on_interrupt(self._core, is_kept=is_kept) as wants_to_leave:
            loop = Loop(
                self._trial,
                self._context,
                self._aimed_at(rules.length) if is_given else self._core,
                rules,
                start,
                self._origin(start.seed),
                wants_to_leave=wants_to_leave,
            )
            reason = loop.run()
        self._latest = loop.latest_checkpoint or self._latest
        if isinstance(self._core.sink, PrintedRecords):
            self._core.sink.print_timings()
        return reason

    def _length(self, max_length: TrainUnit | None) -> Length:
        if max_length is not None:
            return max_length.to_length()
        if self._core.info is not None:
            return self._core.info.config.searcher.max_length or self._core.searcher.target
        raise ConfigError(
            [
                "fit: max_length: how long to train is missing; "
                "pass pytorch.Batch(n) or pytorch.Epoch(n) with n of at least 1"
            ]
        )

    def _aimed_at(self, length: Length) -> core.Context:
        """Return the core context with this target, in place of the search's."""
        searcher = core.SearcherContext(
            length,
            is_last=True,
            page=None,
            distributed=self._core.distributed,
            sink=self._core.sink,
        )
        return replace(self._core, searcher=searcher)

    def _start(self, latest_checkpoint: str | Path | None) -> Start:
        info = self._core.info
        checkpoint = self._latest or (info.plan.checkpoint if info else None)
        if latest_checkpoint is not None:
            checkpoint = self._find(latest_checkpoint)
        return Start(
            seed=self._context.get_trial_seed(),
            checkpoint=checkpoint,
            best_metric=info.plan.best_metric if info else None,
        )

    def _find(self, checkpoint: str | Path) -> CheckpointRef:
        path = Path(checkpoint).expanduser()
        if not path.is_dir() and len(path.parts) > 1:
            raise ConfigError([f"fit: latest_checkpoint: there is no folder {path}"])
        if not path.is_dir():  # a name, as `fit` prints it
            with self._core.checkpoint.restore_path(str(checkpoint)) as path:
                pass
        metadata = core.read_metadata(path)
        return CheckpointRef(
            uuid=metadata["uuid"], path=str(path), steps_completed=metadata["steps_completed"]
        )

    def _origin(self, seed: int) -> Origin:
        context, info = self._context, self._core.info
        return Origin(
            trial_class=name_of_class(type(self._trial)),
            hparams=context.get_hparams() if context.has_hparams else None,
            config=context.config.to_document() if context.config else None,
            seed=seed,
            experiment_id=info.experiment_id if info else None,
            trial_id=info.trial_id if info else None,
            capsule=info.plan.capsule if info else None,
            blobs=BlobStore(info.data_dir / "blobs") if info else None,
        )


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
    """Give the context of a trial, in a `with` block. Collective where there are several ranks.

    All generators are seeded, so that every rank builds the same weights, and every run again.

    Args:
        hparams: By default those of `exp_conf`; in a rank of an experiment, the trial's.
        exp_conf: An experiment configuration, or a part of one.
        distributed: The ranks; by default as torchrun has started them.
        aggregation_frequency: Batches from one step of the optimizer to the next; by default the
            configuration's, or 1.
        enable_tensorboard_logging: Write metrics to TensorBoard files too.
        seed: Of the trial; by default the configuration's `reproducibility.experiment_seed`, or
            one that is drawn.
        checkpoint_storage: Folder for checkpoints; by default det_jupyter's own.

    Raises:
        ConfigError: The configuration has problems (all of them are told).
    """
    check_init(
        hparams=hparams,
        exp_conf=exp_conf,
        aggregation_frequency=aggregation_frequency,
        seed=seed,
    )
    with leaving_the_group():
        context = _rank_context(hparams) or _local_context(
            hparams, exp_conf, distributed, seed, checkpoint_storage
        )
        if aggregation_frequency is not None:
            context.position.aggregation_frequency = aggregation_frequency
        if enable_tensorboard_logging:
            context.set_enable_tensorboard_logging(True)
        seed_everything(context.get_trial_seed())
        with closing(context), telling_lost_peers(context.core), without_own_frames():
            yield context


def _rank_context(hparams: Mapping[str, Any] | None) -> PyTorchTrialContext | None:
    """Return the context of a rank of an experiment; None if this process is none."""
    rank = core.current()
    if rank is None or rank.info is None:
        return None
    info = rank.info
    return PyTorchTrialContext(
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
    hparams: Mapping[str, Any] | None,
    exp_conf: Mapping[str, Any] | None,
    distributed: core.DistributedContext | None,
    seed: int | None,
    checkpoint_storage: str | Path | None,
) -> PyTorchTrialContext:
    device = choose_device()
    distributed = distributed or join(device)
    config = _completed(exp_conf) if exp_conf is not None else None
    if seed is None and "reproducibility" in (exp_conf or {}):
        seed = config.reproducibility.experiment_seed if config else None
    if seed is None:
        seed = distributed.broadcast(draw_seed())
    sink = PrintedRecords() if distributed.is_chief else core.RecordList()
    began = distributed.broadcast(time.strftime("%Y%m%d-%H%M%S"))
    context = PyTorchTrialContext(
        core=core.init(distributed=distributed, sink=sink, checkpoint_storage=checkpoint_storage),
        device=device,
        hparams=hparams if hparams is not None or config is None else config.hyperparameters,
        config=config,
        trial_seed=seed,
        tensorboard_folder=Path("tensorboard") / began,  # one for each run
    )
    context.has_searcher = "searcher" in (exp_conf or {})
    return context


def _completed(exp_conf: Mapping[str, Any]) -> ExperimentConfig:
    """Return the configuration, with what only an experiment needs filled in."""
    document = {"entrypoint": "Trial", **exp_conf}
    searcher = exp_conf.get("searcher", {})
    if isinstance(searcher, Mapping) and searcher.get("name", "single") == "single":
        document["searcher"] = {**_NO_SEARCH, **searcher}
    return parse_config(document, default_seed=0)


_NO_SEARCH = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}


def _judged_by(context: PyTorchTrialContext) -> dict[str, Any]:
    """Return the rules that no argument of `fit` is about."""
    config = context.config
    if config is None:
        return {}
    return {
        "metric": config.searcher.metric if context.has_searcher else None,
        "smaller_is_better": config.searcher.smaller_is_better,
        "average_training_metrics": config.optimizations.average_training_metrics,
        "on_nan_loss": config.on_nan_loss,
        "check_ranks": config.optimizations.check_ranks,
        "records_per_epoch": config.records_per_epoch,
    }
