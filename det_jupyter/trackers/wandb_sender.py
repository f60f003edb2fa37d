"""Writes experiments as offline runs of Weights & Biases, a folder for each trial.

    FOLDER/offline-run-20261128_141503-KEY-12/run-KEY-12.wandb

`wandb sync FOLDER/offline-run-*` sends them. W&B cannot append to an offline run, so a folder is
written anew from all data of the trial, and then replaces the former folder: it is complete at any
moment, and has no duplicates. This happens once a minute while a trial trains (less often if it
takes long), and at its end.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

os.environ["WANDB_ERROR_REPORTING"] = "false"  # it would send errors to W&B
os.environ["WANDB_SILENT"] = "true"

import wandb
from wandb.proto.wandb_internal_pb2 import HistoryRecord

from det_jupyter.contract.messages import Curve, TrackerProgress, TrackerWork
from det_jupyter.contract.values.addresses import without_secrets
from det_jupyter.errors import NotFound
from det_jupyter.trackers.contents import RunFacts, code_file, rows_of
from det_jupyter.trackers.service import MasterFeed, TrackerRefused, Unreachable

_PERIOD_S = 60.0
_SHARE = 20  # at most 1/20 of the time is spent on writing
_LONGEST_TAG = 64
_EXIT_CODES = {"failed": 1, "canceled": 255}


class WandbSender:
    """Writes runs of one project below a folder.

    Args:
        folder: The folder; made if it is absent.
        project: Name of the project.
        entity: Name of the user or team; None: the owner of the API key that `wandb sync` uses.
        source: Reads from the master.
    """

    def __init__(
        self, *, folder: Path, project: str, entity: str | None, source: MasterFeed
    ) -> None:
        self._folder = folder
        self._project = project
        self._entity = entity
        self._source = source
        self._not_before: dict[int, float] = {}  # by work, on the monotonic clock
        # By experiment and its position: the last feed item that was read, and trials to be
        # written.
        self._read: dict[tuple[int, int], tuple[int, set[int]]] = {}

    def send(self, work: TrackerWork) -> None:
        """Write the trials with something new, and store the new position in the master."""
        since = (work.id, work.seq)
        seq, touched = self._read.pop(since, (work.seq, set[int]()))
        for items in self._source.pages(work.experiment_id, seq):
            seq = items[-1].seq
            touched |= {item.trial_id for item in items if item.trial_id is not None}
            if any(item.kind == "config" for item in items):
                # Labels and the description may have changed, also of trials that have ended.
                touched |= {each.id for each in self._source.experiment(work.experiment_id).trials}
        facts = dict(self._facts(work.experiment_id, sorted(touched)))
        is_running = any(each.status == "running" for each in facts.values())
        began = time.monotonic()
        if is_running and began < self._not_before.get(work.id, 0.0):
            self._read[since] = seq, touched
            return
        try:
            self._write_all(work, facts)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Unreachable(f"{self._folder} cannot be written: {why}") from None
        except wandb.Error as error:
            raise TrackerRefused(f"W&B refuses: {without_secrets(str(error), ())}") from None
        ended = time.monotonic()
        self._not_before[work.id] = ended + max(_PERIOD_S, _SHARE * (ended - began))
        self._source.advance(work, work.seq, TrackerProgress(seq=seq))

    def _facts(
        self, experiment_id: int, trial_ids: Iterable[int]
    ) -> Iterable[tuple[int, RunFacts]]:
        for trial_id in trial_ids:
            try:
                yield trial_id, self._source.facts(experiment_id, trial_id)
            except NotFound:  # deleted meanwhile
                continue

    def _write_all(self, work: TrackerWork, facts: dict[int, RunFacts]) -> None:
        if not facts:
            return
        curves = self._source.curves(work.experiment_id)
        code = self._source.code(work.experiment_id)
        group = f"experiment {work.experiment_id}"
        for trial_id, each in facts.items():
            own = [curve for curve in curves if curve.trial_id == trial_id]
            self._write(f"{work.key}-{trial_id}", group, each, own, code)

    def _write(
        self,
        run_id: str,
        group: str,
        facts: RunFacts,
        curves: Sequence[Curve],
        code: dict[str, str],
    ) -> None:
        """Write the folder of a trial under another name, then replace the former folder by it."""
        scratch = self._folder / f".writing-{run_id}"
        shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
        scratch.mkdir(parents=True)
        run = wandb.init(
            id=run_id,
            project=self._project,
            entity=self._entity,
            name=facts.name,
            group=group,
            tags=[label[:_LONGEST_TAG] for label in facts.labels if label],
            notes=facts.description or None,
            config=facts.params,
            mode="offline",
            dir=scratch,
            settings=_settings(),
        )
        _log(run, facts.began_at, curves)
        run.summary.update({f"det_jupyter/{name}": text for name, text in facts.facts.items()})
        _add_code(run, code)
        run.finish(exit_code=_EXIT_CODES.get(facts.status, 0))
        (made,) = scratch.glob("wandb/offline-run-*")
        for path in made.rglob("*"):
            if path.is_symlink():  # to a log of W&B's own process, in the user's home folder
                path.unlink()
        began = time.strftime("%Y%m%d_%H%M%S", time.localtime(facts.began_at))
        target = self._folder / f"offline-run-{began}-{run_id}"
        former = scratch / "former"
        if target.exists():
            target.rename(former)
        made.rename(target)
        shutil.rmtree(scratch, ignore_errors=True)


def _log(run: Any, began_at: float, curves: Sequence[Curve]) -> None:
    """Write the rows of a run, with the time since the trial's beginning as `_runtime`.

    `run.log` is not used: its `_runtime` would be the time since this process began to write.
    """
    last: dict[str, float] = {}
    for step, row in rows_of(curves):
        whole = {**row, "_runtime": row["_timestamp"] - began_at, "_step": step}
        record = HistoryRecord()
        record.step.num = step
        for name, value in whole.items():
            text = json.dumps("NaN" if math.isnan(value) else value)
            record.item.add(key=name, value_json=text)
        run._interface._publish_history(record)
        last |= whole
    run.summary.update(last)


def _settings() -> Any:
    """Return settings of W&B with which a run contains only what the trial has reported.

    This process does not train, so its output, its packages and its use of the machine would
    mislead.
    """
    return wandb.Settings(
        silent=True,
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        symlink=False,
        x_save_requirements=False,
    )


def _add_code(run: Any, code: dict[str, str]) -> None:
    """Copy source files into a run's own folder; W&B would link files of other folders."""
    root = Path(run.dir)
    for name, text in code.items():
        path = root / "code" / code_file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        run.save(str(path), base_path=str(root), policy="end")
