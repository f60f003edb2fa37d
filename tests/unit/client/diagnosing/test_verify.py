"""The requests of verify_resume, and its result."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client.diagnosing import verify
from det_jupyter.client.diagnosing.verify import (
    Verification,
    VerifyPlan,
    compare_curves,
    plan_verify,
    request_for,
)
from det_jupyter.contract.messages import (
    AgentStatus,
    Capsule,
    CapturedName,
    Curve,
    ExperimentView,
    PoolStatus,
    SlotStatus,
    SlotView,
    State,
    TrialView,
)
from det_jupyter.errors import ConfigError
from det_jupyter.storage import open_storage
from det_jupyter.storage.contract import path_of


def trial(steps_completed: int = 0) -> TrialView:
    return TrialView(
        id=3,
        experiment_id=2,
        state=State.COMPLETED,
        hparams={"lr": 0.1, "layers": {"width": 4}},
        seed=9,
        steps_completed=steps_completed,
        created_at=0.0,
    )


def experiment(**searcher: Any) -> ExperimentView:
    document = {
        "hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": 0}},
        "searcher": {
            "name": "adaptive_asha",
            "metric": "error",
            "smaller_is_better": False,
            "source_trial_id": None,
            "max_trials": 16,
            **searcher,
        },
        "environment": {"environment_variables": ["A=1"]},
        "checkpoint_storage": {"host_path": "/checkpoints", "save_trial_latest": 0},
        "max_restarts": 0,
        "reproducibility": {"experiment_seed": 5},
    }
    return ExperimentView(
        id=2,
        name="digits",
        state=State.COMPLETED,
        config=document,
        capsule=Capsule(entrypoint="T", payload="", sources=""),
        notebook="n.ipynb",
        python="python3",
        cwd="/notebooks",
        progress=1.0,
        created_at=0.0,
    )


def plan_of(view: ExperimentView, steps: int = 0, **given: Any) -> VerifyPlan:
    defaults: dict[str, Any] = {"batches": None, "pause_at": None, "kill_at": None}
    return plan_verify(view, trial(steps), **(defaults | given))


def test_by_default_it_is_paused_at_a_third_and_killed_at_two_thirds() -> None:
    plan = plan_of(experiment(max_length={"batches": 300}))
    assert plan.interruptions == (("pause", 100), ("kill", 200))
    assert plan.max_length == {"batches": 300}


def test_of_epochs_the_trial_tells_how_many_batches_they_were() -> None:
    plan = plan_of(experiment(max_length={"epochs": 2}), steps=60)
    assert plan.interruptions == (("pause", 20), ("kill", 40))
    assert plan.max_length == {"epochs": 2}
    with pytest.raises(ConfigError, match=r"not known yet; give batches="):
        plan_of(experiment(max_length={"epochs": 2}))


def test_interruptions_come_in_the_order_of_their_batches() -> None:
    view = experiment(max_length={"epochs": 2})
    assert plan_of(view, batches=20, pause_at=15, kill_at=7).interruptions == (
        ("kill", 7),
        ("pause", 15),
    )
    assert plan_of(view, batches=20, kill_at=7).interruptions == (("kill", 7),)


def test_both_runs_are_the_same_but_for_the_interruptions() -> None:
    view = experiment(max_length={"batches": 300})
    plan = plan_of(view)
    straight, interrupted = (request_for(view, plan, interrupted=f) for f in (False, True))
    assert straight.is_quiet
    assert interrupted.is_quiet, "their ends are not notified"
    assert straight.config == {
        "name": "digits: straight",
        "hyperparameters": {"lr": 0.1, "layers": {"width": 4}},
        "searcher": {
            "name": "single",
            "max_length": {"batches": 300},
            "metric": "error",
            "smaller_is_better": False,
        },
        "environment": {"environment_variables": ["A=1"]},
        "checkpoint_storage": {
            "host_path": "/checkpoints",
            "save_experiment_best": 0,
            "save_trial_best": 0,
            "save_trial_latest": 1,
        },
        "max_restarts": 1,
        "reproducibility": {"experiment_seed": 5},
    }
    assert straight.parent_id == 2
    variables = ["A=1", "DET_JUPYTER_INTERRUPT=pause@100 kill@200"]
    assert interrupted.config == straight.config | {
        "name": "digits: interrupted",
        "environment": {"environment_variables": variables},
    }


def pool(*sizes: int) -> PoolStatus:
    slots = [
        SlotStatus(slot=SlotView(id=i, kind="cpu", index=i, name="CPU"), state="used")
        for i in range(max(sizes, default=0))
    ]
    agents = [
        AgentStatus(id=f"a{i}", hostname="h", pool="p", connected=True, slots=slots[:size])
        for i, size in enumerate(sizes)
    ]
    return PoolStatus(
        name="p",
        policy="priority",
        preemption=False,
        agents=agents,
        num_slots=sum(sizes),
        num_free=0,
        num_waiting=0,
    )


def pooled(slots_per_trial: int) -> ExperimentView:
    view = experiment(max_length={"batches": 300})
    config = view.config | {"resources": {"slots_per_trial": slots_per_trial}}
    return view.model_copy(update={"config": config, "pool": "p"})


@pytest.mark.parametrize(
    ("sizes", "slots", "machines", "is_possible"),
    [
        ((2, 2), 2, 2, True),
        ((2, 2), 2, 3, False),
        ((2, 1), 2, 2, False),
        ((2, 2), 1, 2, True),
        ((2, 2), 4, 2, False),
        ((2, 2, 2), 4, 2, True),
        ((), 1, 2, False),
    ],
)
def test_so_many_machines_must_be_there(
    sizes: tuple[int, ...], slots: int, machines: int, *, is_possible: bool
) -> None:
    if is_possible:
        assert plan_of(pooled(slots), machines=machines, pools=[pool(*sizes)]).machines == machines
        return
    has = ", ".join(f"a{i} ({size} slots)" for i, size in enumerate(sizes)) or "none"
    with pytest.raises(ConfigError, match=re.escape(f"pool p has: {has}")):
        plan_of(pooled(slots), machines=machines, pools=[pool(*sizes)])


def test_agents_of_other_pools_and_disabled_slots_do_not_count() -> None:
    here, other = pool(2), pool(2, 2).model_copy(update={"name": "q"})
    with pytest.raises(ConfigError, match=r"pool p has: a0 \(2 slots\)$"):
        plan_of(pooled(2), machines=2, pools=[here, other])
    both = pool(2, 2)
    both.agents[1].slots = [
        each.model_copy(update={"state": "disabled"}) for each in both.agents[1].slots
    ]
    with pytest.raises(ConfigError, match="needs so many agents"):
        plan_of(pooled(2), machines=2, pools=[both])
    gone = pool(2, 2)
    gone.agents[1].connected = False
    with pytest.raises(ConfigError, match="needs so many agents"):
        plan_of(pooled(2), machines=2, pools=[gone])


@pytest.mark.parametrize(("machines", "kill_at", "most"), [(0, None, 3), (4, None, 3), (3, 9, 2)])
def test_each_interruption_can_be_followed_by_another_machine(
    machines: int, kill_at: int | None, most: int
) -> None:
    with pytest.raises(ConfigError, match=f"got machines={machines}, expected 1 to {most}"):
        plan_of(pooled(1), machines=machines, kill_at=kill_at, pools=[pool(4, 4, 4)])


def test_agent_of_an_interruption_is_left_by_a_log_policy() -> None:
    own = {"pattern": "ECC error", "action": "exclude_node"}
    view = pooled(2)
    view = view.model_copy(update={"config": view.config | {"log_policies": [own]}})
    plan = plan_of(view, machines=2, pools=[pool(2, 2)])
    straight, interrupted = (request_for(view, plan, interrupted=f) for f in (False, True))
    assert straight.config["log_policies"] == [own]
    first, added = interrupted.config["log_policies"]
    assert (first, added["action"]) == (own, "exclude_node")
    lines = ["DET_JUPYTER_INTERRUPT: pause@100", "DET_JUPYTER_INTERRUPT: pause@1000", "kill@200"]
    assert [bool(re.search(added["pattern"], line)) for line in lines] == [True, False, False]


def test_an_entrypoint_that_is_a_function_is_refused_before_anything_is_submitted() -> None:
    view = experiment(max_length={"batches": 300})
    captured = [
        CapturedName(name="helper", type="class", size_bytes=9),
        CapturedName(name="T", type="function", size_bytes=5),
    ]
    capsule = view.capsule.model_copy(update={"captured": captured})
    with pytest.raises(ConfigError, match="the entrypoint T is a function, expected a PyTorchT"):
        plan_of(view.model_copy(update={"capsule": capsule}))


def verification(*differences: tuple[str, str]) -> Verification:
    return Verification(
        interruptions=(("pause", 7), ("kill", 15)),
        steps_completed=20,
        tensors=31,
        numbers=46,
        differences=differences,
        straight_id=4,
        interrupted_id=5,
    )


def test_an_identical_outcome_is_one_sentence() -> None:
    found = verification()
    assert found
    assert repr(found) == (
        "identical: 31 tensors and 46 reported numbers at batch 20, "
        "interrupted after batch 7 (paused), 15 (killed)"
    )


def test_machines_are_in_the_sentence_if_there_were_several() -> None:
    found = replace(verification(), agents=("b", "c", "c"))
    assert repr(found).endswith("after batch 7 (paused), 15 (killed), on b, then c, then c")
    assert repr(replace(found, agents=("b", "b", "b"))).endswith("15 (killed)")


def curve(group: str, name: str, values: dict[int, float | None]) -> Curve:
    return Curve(
        trial_id=1, group=group, name=name, steps=list(values), values=list(values.values()),
        times=[0.0] * len(values),
    )  # fmt: skip


def test_every_reported_number_is_compared() -> None:
    loss = curve("batches", "loss", {1: 0.5, 2: 0.25, 3: None})
    error = curve("validation", "error", {2: 0.1, 3: 0.3})
    tuned = curve("tensor_fusion", "mb", {1: 25.0})
    assert compare_curves([loss, error, tuned], [loss, error]) == (5, [])
    other = curve("validation", "error", {2: 0.1, 3: 0.3000000001, 4: 0.5})
    assert compare_curves([loss, error], [loss, other]) == (
        5,
        [
            (
                "validation.error",
                "2 of 3 reported numbers differ; the first is at batch 3: 0.3 and 0.3000000001",
            )
        ],
    )
    assert compare_curves([loss], []) == (
        3,
        [
            (
                "batches.loss",
                "3 of 3 reported numbers differ; the first is at batch 1: 0.5 and nothing",
            )
        ],
    )


def test_what_is_not_saved_is_the_first_possible_cause() -> None:
    unsaved = ("`self.ema` (Ema, 2 tensors) changes while training and is in no checkpoint",)
    lines = repr(replace(verification(("validation.error", "no")), unsaved=unsaved)).splitlines()
    assert lines[lines.index("What may be the cause:") + 1] == f"  • {unsaved[0]}"
    assert repr(replace(verification(), unsaved=unsaved)).splitlines()[1] == unsaved[0]


def test_a_difference_is_told_with_what_may_be_the_cause() -> None:
    found = verification(("models.0.w<1>", "2 of 4 elements differ"), ("models.0.b", "too"))
    assert not found
    lines = repr(found).splitlines()
    assert lines[:4] == [
        "differs first in models.0.w<1>: 2 of 4 elements differ",
        "interrupted after batch 7 (paused), 15 (killed); 2 values differ at batch 20 "
        "(experiments 4 and 5 are kept)",
        "  models.0.b: too",
        "What may be the cause:",
    ]
    assert "torch.use_deterministic_algorithms(True)" in repr(found)
    assert "models.0.w&lt;1&gt;" in found._repr_html_()


@pytest.mark.parametrize(
    "entrypoint",
    [
        "python3 train.py",
        "python3 -m det_jupyter.launch.torch_distributed train.py",
        "mpirun -np 2 ./fit",
    ],
)
def test_a_command_is_refused_before_anything_is_submitted(entrypoint: str) -> None:
    view = experiment(max_length={"batches": 300})
    capsule = view.capsule.model_copy(update={"entrypoint": entrypoint})
    with pytest.raises(ConfigError, match=r"is a command, expected a PyTorchTrial class"):
        plan_of(view.model_copy(update={"capsule": capsule}))


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model_def:Trial",
        "python3 -m determined.launch.torch_distributed --trial model_def:Trial",
        "python3 -m determined.launch.torch_distributed --nnodes 1 -- --trial model_def:Trial",
        "python3 -m determined.launch.horovod --trial model_def:Trial",
    ],
)
def test_a_class_of_a_module_is_tried(entrypoint: str) -> None:
    view = experiment(max_length={"batches": 300})
    capsule = view.capsule.model_copy(update={"entrypoint": entrypoint})
    assert plan_of(view.model_copy(update={"capsule": capsule})).interruptions


def test_checkpoints_are_compared_in_a_storage_that_is_no_folder(
    zip_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(zip_location, Path())
    for uuid in ("one", "other"):
        draft = storage.begin(uuid)
        (draft.path / "metadata.json").write_text("{}")
        (draft.path / "weights").write_text(uuid)
        draft.commit()

    def run(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        found = [Path(folder, "weights").read_text() for folder in argv[4:6]]
        return subprocess.CompletedProcess(argv, 0, json.dumps(found), "")

    monkeypatch.setattr(subprocess, "run", run)
    found: Any = verify._compare("", path_of(storage, "one"), path_of(storage, "other"))
    assert found == ["one", "other"]
