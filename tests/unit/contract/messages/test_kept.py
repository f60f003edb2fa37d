"""Messages of which a master keeps tens of thousands are small."""

from __future__ import annotations

import gc
import tracemalloc

from det_jupyter.contract.messages import CheckpointRef, CheckpointView
from det_jupyter.master.machine.model.state import MachineState, Trial

NUM = 200


def make_trial(number: int = 1) -> Trial:
    return Trial(
        id=number,
        experiment_id=1,
        hparams={"lr": 0.1 * number},
        seed=number,
        created_at=1.0,
        latest_checkpoint=CheckpointRef(uuid=f"u{number}", path=f"/{number}", steps_completed=9),
    )


def test_a_stored_trial_and_its_checkpoint_need_few_kilobytes() -> None:
    """After a restart, when they were read from JSON, which gives every field."""
    trials = {number: make_trial(number) for number in range(NUM)}
    text = MachineState(trials=trials).model_dump_json()
    MachineState.model_validate_json(text)  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        state = MachineState.model_validate_json(text)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert state.trials == trials
    # [m] 3,008 bytes, of which 750 are for the 43rd field: a dict then has twice the size.
    assert used / NUM < 3300


def test_they_are_otherwise_like_all_messages() -> None:
    trial = make_trial()
    trial.runs = 3
    copy = trial.model_copy(update={"runs": 4})
    assert (trial.runs, copy.runs) == (3, 4)
    assert copy != trial
    assert Trial.model_validate_json(trial.model_dump_json()) == trial
    assert trial.model_copy(deep=True) == trial
    assert make_trial().__pydantic_fields_set__ is make_trial().__pydantic_fields_set__
    assert Trial._given is not CheckpointView._given
