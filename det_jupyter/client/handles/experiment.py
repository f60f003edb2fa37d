"""A handle on one experiment; methods of more than a request call functions of other modules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, Unpack, overload

from det_jupyter.client.calls import methods_explain_arguments
from det_jupyter.client.client import Client
from det_jupyter.client.diagnosing.diagnosis_plan import plan_diagnosis
from det_jupyter.client.diagnosing.diagnosis_result import Diagnosis
from det_jupyter.client.diagnosing.diagnosis_runs import DiagnosisRuns
from det_jupyter.client.diagnosing.verify import Verification, plan_verify, verify
from det_jupyter.client.following.follow import call_at_end, pause_and_wait, wait_for_end
from det_jupyter.client.following.log_lines import (
    TAIL,
    LogFilter,
    LogLines,
    follow_lines,
    query_of,
    read,
)
from det_jupyter.client.handle_text import describe_choice, experiment_line, ranked
from det_jupyter.client.handles.checkpoint import (
    Checkpoint,
    fetch_checkpoints,
    find_best_checkpoint,
)
from det_jupyter.client.handles.compare import (
    Comparison,
    ShownImportance,
    fetch_experiments,
    fetch_trials,
    numbers_to_compare,
)
from det_jupyter.client.handles.exports import Code, metric_columns, trial_rows
from det_jupyter.client.handles.reasons import (
    ShownReason,
    ShownVerdict,
    experiment_reason,
    experiment_verdict,
)
from det_jupyter.client.handles.search_results import (
    BestResult,
    SearchPicture,
    best_result,
    search_picture,
)
from det_jupyter.client.handles.steering import (
    apply_retention,
    change_limits,
    continue_experiment,
    submit_fork,
)
from det_jupyter.client.handles.trial import Trial, choose_trial
from det_jupyter.client.imports.event_files import EventFiles, write_event_files
from det_jupyter.client.requests import When, make_request, number_of
from det_jupyter.client.sharing.archive_export import Choice, export_archive
from det_jupyter.client.tables import Columns, Rows, to_frame
from det_jupyter.contract.messages import (
    Activate,
    Archive,
    Cancel,
    ChangeDetails,
    ChangeResources,
    ContinueTrial,
    Curve,
    Delete,
    EffectiveConfig,
    ExperimentView,
    Kill,
    LogLine,
    MoveInQueue,
    OfExperiment,
    SearchChangeView,
    State,
    TrialView,
    Unarchive,
)
from det_jupyter.errors import Conflict, DetError, NotFound, UsageError
from det_jupyter.view import ViewState


class ShownConfig(EffectiveConfig):
    """An effective configuration that prints as YAML."""

    def __repr__(self) -> str:
        return self.yaml


@methods_explain_arguments
class Experiment:
    """An experiment of the master. The handle stores only its id; each call fetches its data."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self.id = experiment_id

    @property
    def view(self) -> ExperimentView:
        """Everything that the master stores of the experiment, fetched now."""
        return self._client.experiment(self.id)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.view.name

    @property
    def state(self) -> State:
        """The experiment's state, fetched now."""
        return self.view.state

    @property
    def progress(self) -> float:
        """Completed fraction of its training, 0..1."""
        return self.view.progress

    @property
    def config(self) -> dict[str, Any]:
        """The effective configuration, with defaults filled in."""
        return self.view.config

    def effective_config(self) -> EffectiveConfig:
        """Return the effective configuration, with the origin of each value; prints as YAML."""
        return ShownConfig(**dict(self._client.effective_config(self.id)))

    @property
    def search_changes(self) -> list[SearchChangeView]:
        """The changes of its search by `change_search`, oldest first, with times and values."""
        return self.view.search_changes

    @property
    def trials(self) -> list[Trial]:
        """The experiment's trials, in the order in which they were created."""
        return self._trials(self.view.trials)

    def ranking(self) -> list[Trial]:
        """Return the trials, best value of the searcher's metric first, those without one last."""
        return self._trials(ranked(self.view))

    @property
    def best(self) -> BestResult:
        """The best result so far: `metric`, `hparams` and `trial`; prints as a line.

        Raises:
            NotFound: No trial has reported the searcher's metric yet.
        """
        view = self.view
        return best_result(view, self._best_trial(view))

    def best_trial(self) -> Trial:
        """Return the trial with the best value of the searcher's metric.

        Raises:
            NotFound: No trial has reported it yet.
        """
        return self._best_trial(self.view)

    def _best_trial(self, view: ExperimentView) -> Trial:
        best = next(iter(ranked(view)), None)
        if best is None or best.best_metric is None:
            raise NotFound(f"experiment {self.id}: no trial has reported {view.metric} yet")
        return self._trials([best])[0]

    @property
    def trial(self) -> Trial:
        """The experiment's only trial.

        Raises:
            NotFound: It has no trial yet.
            Conflict: It is a search; the message says how to choose one of its trials.
        """
        view = self.view
        if view.search is not None and view.search.max_trials > 1:
            raise Conflict(f"experiment {self.id} is a search: {describe_choice(view)}")
        if not view.trials:
            raise NotFound(f"experiment {self.id} has no trial yet")
        return self._trials(view.trials)[0]

    @property
    def verdict(self) -> ShownVerdict:
        """What limits the training; for a search, the verdict on the best trial that has one.

        Raises:
            NotFound: It has no trial yet.
        """
        return experiment_verdict(self.view)

    def why(self) -> ShownReason:
        """Return why its next trial does not run; prints as a sentence.

        Raises:
            NotFound: It has no trial yet.
        """
        return experiment_reason(self._client, self.view)

    def train_to_the_end(self) -> Self:
        """Train the best trial to the search's full length, as an experiment of its own.

        Raises:
            NotFound: No trial has reported the metric yet.
            Conflict: The search has no length to train to, or the trial trains now.
        """
        return self._handle(self._client.continue_trial(self.best_trial().id, ContinueTrial()).id)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the experiment's checkpoints, oldest first."""
        return fetch_checkpoints(self._client, self.id)

    def best_checkpoint(self) -> Checkpoint:
        """Return the checkpoint with the best value of the searcher's metric, of those kept.

        Raises:
            NotFound: No checkpoint was saved together with a validation yet, or none of these
                is kept.
        """
        return find_best_checkpoint(self._client, self.view)

    def wait(
        self,
        timeout: float | None = None,
        *,
        on_tick: Callable[[ViewState], None] = lambda state: None,
    ) -> State:
        """Block until it has ended, and return its state; an interrupt does not end it.

        A notebook shows its progress, why it waits, and its message at the end.

        Args:
            timeout: Seconds after which a WaitTimeout (a TimeoutError) is raised.
            on_tick: Called a few times a second with what its view shows.

        Raises:
            RankFailed: It ended with an error; the message has the rank's traceback.
            Conflict: It was paused, so it would not end by itself.
            WaitTimeout: It has not ended after `timeout` seconds.
            MasterStopped: The master was shut down meanwhile; it is not started again.
        """
        return self._wait(timeout, on_tick)

    def _wait(self, timeout: float | None, on_tick: Callable[[ViewState], None]) -> State:
        return wait_for_end(self._client.watching, self.id, timeout, on_tick)

    def on_end(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(experiment)` once when it has ended; at once if it has already.

        The call is made in a thread of this process: if the process exits before, there is no
        call. An error that the callback raises is logged. A paused experiment has not ended; for
        one that is deleted before its end there is no call.
        """
        call_at_end(self._client.watching, self.id, lambda: callback(self))

    def pause(self, timeout: float | None = 5.0, *, at_once: bool = False) -> State:
        """Let all ranks save their state at the same batch and release their slots.

        Args:
            timeout: Seconds to wait until its slots are free; None: without limit.
            at_once: Kill the ranks, also those of an earlier pause that have not left: what they
                have trained since the last checkpoint is lost.

        Returns:
            PAUSED if its slots are free, and PAUSING if not: `why()` returns which ranks it waits
            for, and when they are killed. Or a final state, if it has ended meanwhile.

        Raises:
            Conflict: It has ended, or is stopping.
        """
        return pause_and_wait(self._client, self.id, timeout, at_once=at_once)

    def activate(self) -> None:
        """Continue from the state that `pause` saved."""
        self._client.change(Activate(experiment_id=self.id))

    def cancel(self) -> None:
        """End the experiment after its ranks have saved their state."""
        self._client.change(Cancel(experiment_id=self.id))

    def kill(self) -> None:
        """End the experiment now; unsaved progress is lost."""
        self._client.change(Kill(experiment_id=self.id))

    def archive(self) -> None:
        """Hide the experiment from lists.

        Raises:
            Conflict: It has not ended, or is archived already.
        """
        self._client.change(Archive(experiment_id=self.id))

    def unarchive(self) -> None:
        """Show the experiment in lists again."""
        self._client.change(Unarchive(experiment_id=self.id))

    def delete(self, *, ask: bool = False) -> None:
        """Delete the experiment permanently, with its checkpoints, metrics and logs.

        Args:
            ask: Whether to ask first, on standard input; the default in a notebook.

        Raises:
            UsageError: A confirmation is needed, and this front end takes no input.
            Conflict: It has not ended, or another experiment still needs one of its checkpoints.
        """
        if not ask or self._is_confirmed():
            self._client.change(Delete(experiment_id=self.id))

    def _is_confirmed(self) -> bool:
        what = f"experiment {self.id} ({self.view.name}) with its checkpoints, metrics and logs"
        try:
            answer = input(f"Delete {what}? It cannot be undone. [y/N] ")
        except (EOFError, NotImplementedError):  # the latter of a notebook without a front end
            raise UsageError(
                f"delete: {what} cannot be restored, and no question can be asked here; "
                "to confirm it, write delete(ask=False)"
            ) from None
        if answer.strip().lower() in ("y", "yes"):
            return True
        print(f"Experiment {self.id} is kept.")
        return False

    def set_name(self, name: str) -> None:
        """Rename the experiment."""
        self._change(ChangeDetails, name=name)

    def set_description(self, description: str) -> None:
        """Set the description: text of any number of lines."""
        self._change(ChangeDetails, description=description)

    def add_label(self, *labels: str) -> None:
        """Add labels, by which the experiment can be found; its other labels stay."""
        self._change(ChangeDetails, add_labels=list(labels))

    def remove_label(self, *labels: str) -> None:
        """Remove labels."""
        self._change(ChangeDetails, remove_labels=list(labels))

    def _change(self, kind: type[OfExperiment], **given: Any) -> Any:
        return self._client.change(make_request(kind, experiment_id=self.id, **given))

    def set_priority(self, priority: int) -> None:
        """Set the priority: 1 to 99, a lower number is more urgent."""
        self._change(ChangeResources, priority=priority)

    def set_weight(self, weight: float) -> None:
        """Set the weight of its share of the slots, in pools with fair share."""
        self._change(ChangeResources, weight=weight)

    def set_max_slots(self, max_slots: int | None) -> None:
        """Limit the slots that its trials hold together; None: no limit."""
        self._change(ChangeResources, max_slots="none" if max_slots is None else max_slots)

    def set_pool(self, name: str) -> None:
        """Move the experiment to another pool: running trials are preempted and queue there."""
        self._change(ChangeResources, resource_pool=name)

    def move_ahead_of(self, other: Experiment | int) -> None:
        """Move the experiment right ahead of another in the queue, with that one's priority."""
        self._change(MoveInQueue, ahead_of=number_of(other))

    def move_behind(self, other: Experiment | int) -> None:
        """Move the experiment right behind another in the queue, with that one's priority."""
        self._change(MoveInQueue, behind=number_of(other))

    def change_search(
        self,
        *,
        max_trials: int | None = None,
        max_length: dict[str, int] | int | None = None,
        max_concurrent_trials: int | None = None,
        hyperparameters: dict[str, Any] | None = None,
    ) -> None:
        """Change limits of a running search; arguments that are not given change nothing.

        Args:
            max_trials: A larger number of trials.
            max_length: A longer training, such as {"epochs": 12}.
            max_concurrent_trials: Number of trials that train at once from now on.
            hyperparameters: Narrower ranges for the trials to come.

        Raises:
            ConfigError: All reasons why the change is impossible; nothing has changed.
            Conflict: It has ended.
        """
        change_limits(
            self._client,
            self.id,
            max_trials=max_trials,
            max_length=max_length,
            max_concurrent_trials=max_concurrent_trials,
            hyperparameters=hyperparameters,
        )

    def continue_(self, config: Mapping[str, Any] | None = None) -> None:
        """Continue an ended experiment under its own number: unfinished trials train to the end.

        Args:
            config: Changes of its configuration, such as {"searcher.max_length.epochs": 12}; only
                for the searcher `single`.

        Raises:
            ConfigError: Everything that is wrong with the configuration.
            Conflict: It has not ended, or all its trials have finished.
        """
        continue_experiment(self._client, self.id, config)

    def fork(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        trial: Trial | int | None = None,
        checkpoint: Checkpoint | str | None = None,
        queue_anyway: bool = False,
    ) -> Self:
        """Submit a new experiment with its captured code and its configuration.

        Args:
            config: Changes of its configuration, such as {"hyperparameters.lr": 0.1}.
            trial: New trials start from the latest checkpoint of this trial.
            checkpoint: New trials start from this checkpoint.
            queue_anyway: Submit it even if no pool can run it at present.

        Raises:
            ConfigError: Everything that is wrong with the configuration.
            Conflict: It is archived.
        """
        child_id = submit_fork(
            self._client,
            self.id,
            config,
            trial=trial,
            checkpoint=checkpoint,
            queue_anyway=queue_anyway,
        )
        return self._handle(child_id)

    def set_retention(
        self,
        *,
        save_experiment_best: int,
        save_trial_best: int,
        save_trial_latest: int,
        dry_run: bool = False,
    ) -> list[Checkpoint]:
        """Set how many checkpoints to keep, and delete the others.

        Args:
            save_experiment_best: Number of best checkpoints of all trials.
            save_trial_best: Number of best checkpoints of each trial.
            save_trial_latest: Number of latest checkpoints of each trial.
            dry_run: Delete nothing; return those that would be deleted.

        Returns:
            The checkpoints that are deleted.
        """
        return apply_retention(
            self._client,
            self.id,
            save_experiment_best=save_experiment_best,
            save_trial_best=save_trial_best,
            save_trial_latest=save_trial_latest,
            dry_run=dry_run,
        )

    def curves(self, *, max_points: int | None = None) -> list[Curve]:
        """Return every metric of every trial, each with its steps and values.

        If several values were reported at one step, a curve has the last; `metrics()` has all.
        """
        return self._client.curves(self.id, max_points=max_points)

    def metrics(self) -> Any:
        """Return every value of every metric as a tidy pandas DataFrame.

        Columns: `trial`, `group` ("training", "validation", "batches" for each batch's, or your
        own), `steps`, `epoch` (a fraction), `time`, `metric`, `value`.

        Raises:
            DetError: pandas is not installed; `curves()` needs none.
        """
        return to_frame(self.metric_columns())

    def metric_columns(self) -> Columns:
        """Return the columns of `metrics()`, as lists by name."""
        return metric_columns(self._client.curves(self.id, repeats=True))

    def tensorboard(self, folder: str | Path | None = None) -> EventFiles:
        """Write TensorBoard files of metrics, timings and system metrics, and keep them current.

        The result prints the lines that display them: `%tensorboard --logdir FOLDER`. Until the
        experiment has ended, or `stop()`, new points are appended every 10 s. Writing a folder
        again appends only new points.

        Args:
            folder: The folder; by default `tensorboard/experiment-7` in the present one.

        Raises:
            DetError: The package tensorboard is not installed.
        """
        folder = Path(folder or f"tensorboard/experiment-{self.id}")
        return write_event_files(self._client, self.id, None, folder)

    def export_archive(self, path: str | Path, *, checkpoints: Choice = "best") -> Path:
        """Write the experiment to one file, which `det_jupyter.import_archive` reads anywhere.

        It has configuration, code, metrics, what the ranks printed, and checkpoints, but no
        secrets: no values of environment variables, no addresses of alerts and trackers. Secrets
        of this process's environment are removed from what was printed.

        Args:
            path: The file; one that is there is replaced.
            checkpoints: "best": the best one, or the latest if none was validated; "all" or
                "none".

        Raises:
            Conflict: It is not over, or its code or a checkpoint contains a secret.
            DetError: The file cannot be written, or a checkpoint cannot be read.
        """
        return export_archive(self._client, self.id, path, checkpoints).path

    def trials_table(self) -> Rows:
        """Return a row for each trial, best first; `.to_frame()` converts it to a DataFrame.

        Columns: `trial`, `state`, the best value of the searcher's metric under its name, `steps`,
        `duration_s` from the trial's creation to its end, `restarts`, `rungs` (number reached),
        and each hyperparameter as `hparams.lr`, nested ones as `hparams.optimizer.lr`.
        """
        return trial_rows(self._client.experiment(self.id), time.time())

    def plot(self) -> SearchPicture:
        """Return the picture of a search, drawn now: hyperparameters and metric of its trials.

        A notebook displays it; `.save("search.svg")` writes it.

        Raises:
            Conflict: It is no search.
            NotFound: No trial has reported the metric yet, or no hyperparameter varies.
        """
        return search_picture(self._client, self.id)

    def code(self) -> Code:
        """Return the captured source: of cells by label ("Cell In[5]"), of local modules by path.

        Raises:
            NotFound: The captured code cannot be read any more.
        """
        return Code(self._client.code(self.id))

    @overload
    def logs(
        self, *, trial: Trial | int | None = None, follow: Literal[False] = False,
        **which: Unpack[LogFilter],
    ) -> LogLines: ...  # fmt: skip

    @overload
    def logs(
        self,
        *,
        trial: Trial | int | None = None,
        follow: Literal[True],
        **which: Unpack[LogFilter],
    ) -> Iterator[LogLine]: ...

    def logs(
        self,
        *,
        trial: Trial | int | None = None,
        rank: int | None = None,
        agent: str | None = None,
        since: When = None,
        level: str | None = None,
        search: str | None = None,
        tail: int | None = TAIL,
        follow: bool = False,
    ) -> LogLines | Iterator[LogLine]:
        """Return the last `tail` lines that the ranks of its trials printed; with None, all.

        Args:
            trial: Only lines of this trial, a handle or a number.
            rank: Only lines of this rank.
            agent: Only lines of ranks on this agent (one computer).
            since: Only later lines: an age such as "10m", a date, or a time.
            level: Only lines of this level or a higher one: debug, info, warning, error, critical.
                The level is recognised in the line; a traceback is an error.
            search: Only lines with this text, in any case; as "/.../" a regular expression.
            tail: Number of lines; the result's `total` is the number of lines that match.
            follow: Return an iterator that waits for more lines until the experiment has ended.
        """
        query = query_of(rank=rank, agent=agent, since=since, level=level, search=search)
        client = self._client.watching if follow else self._client
        fetch = partial(client.experiment_logs, self.id, trial_id=number_of(trial))
        return (follow_lines if follow else read)(fetch, query, tail)

    _comparison = Comparison

    def compare(self, *others: int | Experiment) -> Comparison:
        """Compare the experiment with others: curves, results, configuration, code, versions.

        Args:
            others: Their numbers, or handles.

        Raises:
            UsageError: There are none, too many, or one twice.
            NotFound: There is no such experiment.
        """
        return self._comparison(
            fetch_experiments(
                self._client, numbers_to_compare("compare", "experiment", others, own=[self.id])
            )
        )

    def importance(self) -> ShownImportance:
        """Return how important each hyperparameter is for being among the best quarter of trials.

        Evaluated by Optuna's PED-ANOVA, if at least 20 trials have ended; otherwise `sentence` has
        the reason why there is no result.
        """
        return ShownImportance(**dict(self._client.importance(self.id)))

    def compare_trials(self, *trials: int | Trial) -> Comparison:
        """Compare some of its trials: curves, results and hyperparameters.

        Args:
            trials: Their numbers, or handles; without any, the best trials are compared.

        Raises:
            UsageError: It has only one trial, or a trial is given twice.
            NotFound: It has no such trial.
        """
        chosen = numbers_to_compare("compare_trials", "trial", trials)
        view = self._client.experiment(self.id)
        return self._comparison(*fetch_trials(self._client, view, chosen))

    def verify_resume(
        self,
        trial: Trial | None = None,
        batches: int | None = None,
        pause_at: int | None = None,
        kill_at: int | None = None,
        timeout: float | None = None,
        *,
        machines: int = 1,
        keep: bool = False,
    ) -> Verification:
        """Verify that pausing and killing do not change the result of the training.

        Its code and configuration are submitted twice, as two experiments with the same seed. One
        trains without interruption; the other is paused after one batch, killed after another,
        and continues each time. Every bit of their last checkpoints is compared. Both are deleted,
        unless something differs.

        Args:
            trial: The trial whose hyperparameters are used; by default the best, or the first.
            batches: Number of batches to train; by default the length in the configuration.
            pause_at: Pause after this batch. If neither is given, a third of the batches.
            kill_at: Kill all ranks with SIGKILL after this one. If neither is given, two thirds.
            timeout: Seconds to wait for each of the two.
            machines: Number of agents that the interrupted one has been on: 2 lets it continue on
                another one after the first interruption, 3 on a third one after the second.
            keep: Do not delete them.

        Raises:
            ConfigError: An argument is wrong, its entrypoint is no class, or there are too few
                agents.
            RankFailed: One of the two ended with an error.
            WaitTimeout: They took too long.
        """
        view = self._client.experiment(self.id)
        chosen = choose_trial(view, trial)
        plan = plan_verify(
            view,
            chosen,
            batches=batches,
            pause_at=pause_at,
            kill_at=kill_at,
            machines=machines,
            pools=self._client.pools() if machines > 1 else (),
        )
        return verify(self._client, view, plan, self._plain_handle, timeout_s=timeout, keep=keep)

    def diagnose(
        self,
        trial: Trial | None = None,
        recipes: Sequence[str] | None = None,
        seconds: float = 5.0,
        rounds: int = 3,
        timeout: float | None = None,
        *,
        keep: bool = False,
    ) -> Diagnosis:
        """Measure what limits its throughput: run it briefly in variants that differ in one point.

        The variants are: unchanged; with recorded batches; with few exchanges of gradients; on one
        slot; and, if these find a cost, with a change that may lower it: more loader workers,
        other bucket sizes, compressed gradients. Each run is an experiment of the lowest priority,
        labelled `diagnose`, that saves nothing; it waits for slots like any other. The experiment
        itself is not touched, whatever its state.

        Args:
            trial: The trial whose hyperparameters are used; by default the best, or the first.
            recipes: Only these variants, by name; the table has the names.
            seconds: Duration of the measurement in each run, after its warm-up.
            rounds: Number of runs of each recipe, in turns with the others: at least 2.
            timeout: Seconds for all runs together.
            keep: Do not delete the runs.

        Raises:
            ConfigError: An argument is wrong, or its entrypoint is no class.
            RankFailed: The unchanged run failed.
            Conflict: The unchanged run was killed, or preempted again and again.
            WaitTimeout: It took too long.
        """
        view = self._client.experiment(self.id)
        chosen = choose_trial(view, trial)
        plan = plan_diagnosis(view, chosen, recipes=recipes, seconds=seconds, rounds=rounds)
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        runs = DiagnosisRuns(self._client, plan, self._plain_handle, deadline=deadline, keep=keep)
        return runs.run()

    def _handle(self, experiment_id: int) -> Self:
        return type(self)(self._client, experiment_id)

    def _plain_handle(self, experiment_id: int) -> Experiment:
        """Return a handle whose `wait` prints nothing and raises KeyboardInterrupt."""
        return Experiment(self._client, experiment_id)

    def _trials(self, views: Iterable[TrialView]) -> list[Trial]:
        return [Trial(self._client, view.id, self._handle) for view in views]

    def __repr__(self) -> str:
        try:
            return experiment_line(self.view)
        except DetError as error:
            return f"Experiment {self.id} ({error})"
