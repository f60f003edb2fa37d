"""Experiments in every state a view can meet, for the tests of the views."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from det_jupyter.contract.messages import (
    AllocationState,
    AllocationView,
    BracketView,
    Capsule,
    CapturedName,
    CheckpointView,
    Curve,
    ExperimentView,
    FailureView,
    RankView,
    RungView,
    SearchView,
    SlotView,
    State,
    TrialView,
)

CREATED_AT = 1_790_000_000.0
TRACEBACK = """Traceback (most recent call last):
  Cell In[5], line 12, in train_batch
    loss = self.model(images).sum() / labels
RuntimeError: The size of tensor a (64) must match the size of tensor b (10)
"""


def slot(index: int, *, cuda: bool = False) -> SlotView:
    if cuda:
        return SlotView(id=index, kind="cuda", index=index, name="NVIDIA H100 80GB HBM3")
    return SlotView(id=index, kind="cpu", index=index, name="cpu")


def rank(number: int, *, is_up: bool = True, cuda: bool = False) -> RankView:
    device = f"cuda:{number}" if cuda else "cpu"
    return RankView(
        rank=number,
        pid=4200 + number,
        slot=slot(number, cuda=cuda),
        connection_file="",
        output_file="",
        backend=("nccl" if cuda else "gloo") if is_up else "",
        device=device if is_up else "",
    )


def allocation(
    state: AllocationState = AllocationState.RUNNING,
    *,
    num_ranks: int = 2,
    is_up: bool = True,
    cuda: bool = False,
) -> AllocationView:
    ranks = [rank(i, is_up=is_up, cuda=cuda) for i in range(num_ranks)]
    return AllocationView(
        id="7.1.1",
        run=1,
        state=state,
        agent_id="local",
        slots=[each.slot for each in ranks],
        ranks=[] if state is AllocationState.QUEUED else ranks,
        started_at=CREATED_AT + 0.05,
        first_step_at=CREATED_AT + 0.14 if is_up else None,
    )


def trial(**changes: Any) -> TrialView:
    fields: dict[str, Any] = {
        "id": 1,
        "experiment_id": 7,
        "state": State.ACTIVE,
        "hparams": {"global_batch_size": 64, "lr": 0.05},
        "seed": 1,
        "steps_completed": 58,
        "progress": 0.4328,
        "allocation": allocation(),
        "created_at": CREATED_AT,
    }
    return TrialView(**{**fields, **changes})


def failure(**changes: Any) -> FailureView:
    fields: dict[str, Any] = {
        "rank": 1,
        "exit_code": 1,
        "error": "RuntimeError: The size of tensor a (64) must match the size of tensor b (10)",
        "where": "Cell In[5], line 12, in train_batch",
        "traceback": TRACEBACK,
        "at": CREATED_AT + 9,
    }
    return FailureView(**{**fields, **changes})


def capsule(**changes: Any) -> Capsule:
    captured = [
        CapturedName(name="DigitsTrial", cell="In [5]", type="class", size_bytes=6_120),
        CapturedName(name="images", cell="In [3]", type="torch.Tensor", size_bytes=459_904),
        CapturedName(name="labels", cell="In [3]", type="torch.Tensor", size_bytes=14_376),
        CapturedName(name="helpers.py", cell="helpers.py", type="module", size_bytes=812),
    ]
    fields = {"entrypoint": "DigitsTrial", "payload": "p", "sources": "s", "captured": captured}
    return Capsule(**{**fields, **changes})


def experiment(*trials: TrialView, **changes: Any) -> ExperimentView:
    fields: dict[str, Any] = {
        "id": 7,
        "name": "digits",
        "state": State.ACTIVE,
        "config": {
            "records_per_epoch": 1437,
            "searcher": {"name": "single", "metric": "accuracy", "smaller_is_better": False},
        },
        "capsule": capsule(),
        "notebook": "quickstart.ipynb",
        "python": "python",
        "cwd": "folder",
        "progress": trials[0].progress if trials else 0.0,
        "created_at": CREATED_AT,
        "trials": list(trials),
        **_held(changes.get("ended_at")),
    }
    return ExperimentView(**{**fields, **changes})


def _held(ended_at: float | None) -> dict[str, float]:
    """Slots were held from the beginning on."""
    return {"held_since": CREATED_AT} if ended_at is None else {"held_s": ended_at - CREATED_AT}


def checkpoint(steps: int, metric: float | None, **changes: Any) -> CheckpointView:
    fields: dict[str, Any] = {
        "uuid": f"uuid-{steps}",
        "experiment_id": 7,
        "trial_id": 1,
        "steps_completed": steps,
        "path": f"checkpoint-{steps}",
        "size_bytes": 620_000,
        "created_at": CREATED_AT + steps / 10,
        "searcher_metric": metric,
    }
    return CheckpointView(**{**fields, **changes})


def curve(group: str, name: str, values: list[float | None], **changes: Any) -> Curve:
    stride = int(changes.pop("stride", 1))
    steps = [stride * (i + 1) for i in range(len(values))]
    return Curve(
        **{
            "trial_id": 1,
            "group": group,
            "name": name,
            "steps": steps,
            "values": values,
            "times": [CREATED_AT + step / 10 for step in steps],
            **changes,
        }
    )


def digits_curves(num_steps: int, trial_id: int = 1, pace: float = 25.0) -> list[Curve]:
    """Return curves as a real training shows them; the noise is the same at every call."""

    def loss(step: int) -> float:
        noise = Random(step * 7919 + trial_id).random() - 0.5
        return 2.3 * math.exp(-step / pace) + 0.09 + noise * 0.5 * math.exp(-step / 150)

    def quality(step: int) -> float:
        return 0.985 - 0.9 * math.exp(-step / pace)

    ends = [step for step in range(22, num_steps + 1, 22)]
    curves = [
        curve("batches", "loss", [loss(step) for step in range(1, num_steps + 1)]),
        curve(
            "validation", "validation_loss", [1.6 * loss(step) ** 0.9 for step in ends], stride=22
        ),
        curve("validation", "accuracy", [quality(step) for step in ends], stride=22),
    ]
    return [each.model_copy(update={"trial_id": trial_id}) for each in curves if each.steps]


SPACE: dict[str, Any] = {
    "global_batch_size": 64,
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "hidden": {"type": "int", "minval": 16, "maxval": 256},
    "optimizer": {
        "name": {"type": "categorical", "vals": ["sgd", "adam", "rmsprop"]},
        "momentum": {"type": "double", "minval": 0, "maxval": 0.99},
    },
}
RUNGS = (1, 4, 16)  # epochs
DIVISOR = 4
STEPS_PER_EPOCH = 22


def sample(number: int) -> dict[str, Any]:
    """Return hyperparameters out of SPACE."""
    rng = Random(number)
    return {
        "global_batch_size": 64,
        "lr": float(10 ** rng.uniform(-4, -1)),
        "hidden": rng.randint(16, 256),
        "optimizer": {
            "name": rng.choice(["sgd", "adam", "rmsprop"]),
            "momentum": rng.uniform(0, 0.99),
        },
    }


def accuracy(number: int, epochs: float) -> float:
    """Return how good the trial with `sample(number)` is after so much training."""
    hparams = sample(number)
    rng = Random(number * 31 + round(epochs * 8))
    miss = abs(math.log10(hparams["lr"]) + 2.2) / 3
    skill = {"adam": 0.98, "rmsprop": 0.94, "sgd": 0.9}[hparams["optimizer"]["name"]]
    top = skill - 0.6 * miss**1.5 - 0.1 * abs(hparams["hidden"] - 160) / 160
    return float(round(top * (1 - 0.75 * math.exp(-epochs / 2.5)) + rng.uniform(-0.02, 0.02), 4))


class _Asha:
    """Plays asynchronous halving on a few slots, one trial after the other."""

    def __init__(self, num_slots: int) -> None:
        self.results: dict[int, list[float | None]] = {}
        self.going: dict[int, float] = {}  # trial -> when it reached its target
        self.reached: list[tuple[float, int, int]] = []  # when, trial, rung
        self.failed: dict[int, float] = {}
        self.promoted = [0 for _ in RUNGS]
        self.num_slots = num_slots

    def play(self, max_trials: int, num_results: int) -> None:
        now = 0.0
        while True:
            while len(self.going) < self.num_slots and (number := self._next(max_trials)):
                done = len(self.results.setdefault(number, []))
                length = RUNGS[done] - (RUNGS[done - 1] if done else 0)
                self.going[number] = now + length * (2 + Random(number).random())
            if not self.going or len(self.reached) >= num_results:
                return
            number = min(self.going, key=self.going.__getitem__)
            now = self.going.pop(number)
            self._finish(number, now)

    def _finish(self, number: int, now: float) -> None:
        if number % 29 == 9:
            self.failed[number] = now
            return
        rung = len(self.results[number])
        value = None if number % 37 == 13 else accuracy(number, RUNGS[rung])
        self.results[number].append(value)
        self.reached.append((now, number, rung))

    def _next(self, max_trials: int) -> int | None:
        for rung in reversed(range(len(RUNGS) - 1)):
            here = [n for n, values in self.results.items() if len(values) > rung]
            here.sort(key=lambda n: -(self.results[n][rung] or -math.inf))
            for number in here[: len(here) // DIVISOR]:
                is_resting = len(self.results[number]) == rung + 1 and number not in self.going
                if is_resting and number not in self.failed:
                    self.promoted[rung] += 1
                    return number
        return len(self.results) + 1 if len(self.results) < max_trials else None


def search_experiment(
    max_trials: int, num_results: int, *, num_slots: int = 4, is_over: bool = False
) -> tuple[ExperimentView, list[Curve], list[CheckpointView], float]:
    """Return an ASHA search after so many results, its curves and checkpoints, and the time."""
    asha = _Asha(num_slots)
    asha.play(max_trials, num_results)
    now = CREATED_AT + (asha.reached[-1][0] if asha.reached else 0.0)
    trials = [_asha_trial(asha, number, is_over=is_over) for number in asha.results]
    rungs = [
        RungView(
            length={"epochs": float(length)},
            num_results=sum(rung == place for _, _, rung in asha.reached),
            num_promoted=asha.promoted[place],
        )
        for place, length in enumerate(RUNGS)
    ]
    searcher = {
        "name": "async_halving", "metric": "accuracy", "smaller_is_better": False,
        "max_trials": max_trials, "max_length": {"epochs": 16}, "num_rungs": 3, "divisor": DIVISOR,
    }  # fmt: skip
    view = experiment(
        *trials,
        config={"searcher": searcher, "hyperparameters": SPACE},
        progress=1.0 if is_over else round(len(asha.results) / max_trials / 1.2, 3),
        state=State.COMPLETED if is_over else State.ACTIVE,
        ended_at=now if is_over else None,
        search=SearchView(
            name="async_halving",
            max_trials=max_trials,
            num_created=len(trials),
            num_closed=sum(t.state.is_terminal for t in trials),
            divisor=DIVISOR,
            brackets=[BracketView(rungs=rungs, max_trials=max_trials, num_created=len(trials))],
        ),
    )
    checkpoints = [
        checkpoint(
            RUNGS[rung] * STEPS_PER_EPOCH,
            asha.results[number][rung],
            trial_id=number,
            uuid=f"uuid-{number}-{rung}",
            created_at=CREATED_AT + at,
        )
        for at, number, rung in asha.reached
    ]
    return view, [c for t in trials for c in trial_curves(t)], checkpoints, now


def adaptive_experiment() -> tuple[ExperimentView, float]:
    """Return a search of three brackets by a loss; one of its trials diverged."""
    trials: list[TrialView] = []
    brackets: list[BracketView] = []
    for place, max_trials in enumerate((64, 24, 8)):
        view, _, _, now = search_experiment(max_trials, round(max_trials * 1.1))
        assert view.search is not None
        rungs = view.search.brackets[0].rungs[place:]
        brackets.append(BracketView(rungs=rungs, max_trials=max_trials))
        trials += [_in_bracket(t, place, len(trials) + t.id) for t in view.trials]
    diverged = {"rung_metrics": [1.5e9], "best_metric": 1.5e9, "latest_metric": 1.5e9}
    trials[1] = trials[1].model_copy(update=diverged)
    searcher = {"name": "adaptive_asha", "metric": "loss", "smaller_is_better": True}
    search = SearchView(name="adaptive_asha", max_trials=96, brackets=brackets)
    config = {"searcher": searcher, "hyperparameters": SPACE}
    return experiment(*trials, config=config, progress=0.8, search=search), now


def _in_bracket(shown: TrialView, bracket: int, number: int) -> TrialView:
    """Return a trial among those of another bracket, with its accuracies as losses."""
    losses = [None if value is None else 2.4 - 2.2 * value for value in shown.rung_metrics]
    best = None if shown.best_metric is None else 2.4 - 2.2 * shown.best_metric
    return shown.model_copy(
        update={
            "id": number,
            "bracket": bracket,
            "rung_metrics": losses[bracket:],
            "best_metric": best,
            "latest_metric": best,
        }
    )


def _asha_trial(asha: _Asha, number: int, *, is_over: bool) -> TrialView:
    values = asha.results[number]
    is_going, has_failed = number in asha.going, number in asha.failed
    is_top = len(values) == len(RUNGS)
    aim = len(values) - (0 if is_going or has_failed else 1)
    epochs = RUNGS[aim] - (0.4 * RUNGS[aim] if is_going or has_failed else 0)
    known = [value for value in values if value is not None]
    state = State.ERROR if has_failed else State.COMPLETED if is_over or is_top else State.ACTIVE
    return trial(
        id=number,
        index=number - 1,
        state=state,
        hparams=sample(number),
        bracket=0,
        rung_metrics=values,
        target={"epochs": RUNGS[aim]},
        steps_completed=int(epochs * STEPS_PER_EPOCH),
        progress=epochs / RUNGS[-1],
        best_metric=max(known, default=None),
        latest_metric=known[-1] if known else None,
        allocation=allocation(num_ranks=1) if is_going and not is_over else None,
        is_resting=state is State.ACTIVE and not is_going,
        was_stopped=is_over and not is_top and not has_failed,
        failure=failure(rank=0) if has_failed else None,
        ended_at=CREATED_AT + asha.failed[number] if has_failed else None,
    )


def trial_curves(shown: TrialView) -> list[Curve]:
    """Return the curves of one trial of a search."""
    num_epochs = shown.steps_completed // STEPS_PER_EPOCH
    values: list[float | None] = [accuracy(shown.id, e + 1) for e in range(num_epochs)]
    if shown.id % 37 == 13:
        values = [None for _ in values]
    rng = Random(shown.id)
    losses: list[float | None] = [
        2.4 - 2.2 * accuracy(shown.id, step / STEPS_PER_EPOCH) + rng.uniform(-0.15, 0.15)
        for step in range(1, shown.steps_completed + 1)
    ]
    curves = [
        curve("validation", "accuracy", values, stride=STEPS_PER_EPOCH, trial_id=shown.id),
        curve("batches", "loss", losses, trial_id=shown.id),
    ]
    return [each for each in curves if each.steps]
