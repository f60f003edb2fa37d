"""Experiments in every state a view can meet, for the tests of the views."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from det_jupyter.wire import (
    AllocationState,
    AllocationView,
    Capsule,
    CapturedName,
    CheckpointView,
    Curve,
    ExperimentView,
    FailureView,
    RankView,
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
    }
    return ExperimentView(**{**fields, **changes})


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
