"""Functions as entrypoints: every rank of a gang calls them, in its own context."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Any

from det_jupyter.contract.run.journal import (
    FirstStep,
    MetricsReported,
    Notice,
    Progress,
    RankFailure,
    RunEnded,
    TargetReached,
)
from det_jupyter.contract.values.lengths import Length
from tests.integration.rank_support import LABEL, Gang, Lab
from tests.integration.test_rank_kernel import client_of, execute
from tests.trials import Gate

FUNCTIONS = """
import time
import torch.distributed as dist
from torch.distributed.distributed_c10d import init_process_group
import det_jupyter as det
from det_jupyter import core
from det_jupyter.errors import InvalidHP

factor = 2


def work():
    distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as context:
        assert core.init() is context
        info = det.get_cluster_info()
        ranks = context.distributed.allgather(distributed.rank)
        step = 0
        if info.latest_checkpoint is not None:
            assert isinstance(info.latest_checkpoint, str)
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                step, trial_id = map(int, (path / "state").read_text().split(","))
            assert trial_id == info.trial.trial_id
            metadata = context.checkpoint.get_metadata(info.latest_checkpoint)
            assert metadata["steps_completed"] == step
        while step < 50:
            step += 1
            if distributed.rank == 0:
                context.train.report_progress(step / 50, step)
            if context.preempt.should_preempt():
                if distributed.rank == 0:
                    with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
                        (path / "state").write_text(f"{step},{info.trial.trial_id}")
                return
        if distributed.rank == 0:
            metrics = {"ranks": ranks, "value": factor * info.trial.trial_seed}
            context.train.report_metrics("results", step, metrics)


def silent():
    pass


def wrong():
    core.init()
    raise KeyError("nothing here")


def late():
    context = core.init()
    for step in range(1, 4):
        context.distributed.barrier()
        if context.distributed.is_chief:
            context.train.report_progress(step / 3, step)
    if context.distributed.rank == 1:
        raise ValueError("too late")
    context.distributed.barrier()


def invalid():
    raise InvalidHP("these cannot work")


def given_arguments():
    core.init(checkpoint_storage="/tmp", length=None)


def given_another_place():
    elsewhere = core.DistributedContext()
    elsewhere.rank = 1
    core.init(distributed=elsewhere)


def under_torchrun():
    try:
        dist.init_process_group("nccl")
    except ValueError as error:
        assert "got 'nccl', but this rank has a process group of 'gloo' already" in str(error)
    init_process_group("cpu:gloo,cuda:nccl")
    dist.init_process_group(backend="gloo", init_method="env://")
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed) as context:
        if distributed.rank == 0:
            context.train.report_metrics("results", 1, {"ranks": distributed.size})
        distributed.barrier()
    both = dist.new_group([0, 1])
    dist.barrier(both)  # a group that is destroyed while the other rank connects fails there
    dist.destroy_process_group(both)
    dist.destroy_process_group()


def endless():
    context, step = core.init(), 0
    while not context.preempt.should_preempt():
        step += 1
        context.train.note_steps(step)
        time.sleep(0.01)
"""


def start(lab: Lab, name: str, *, ranks: int = 2, source: str = FUNCTIONS, **more: Any) -> Gang:
    document = {
        "entrypoint": name,
        "hyperparameters": {"global_batch_size": 4},
        "searcher": {"name": "single", "metric": "unheard_of", "max_length": {"batches": 9}},
    }
    return lab.start(source, document, ranks=ranks, **more)


def test_every_rank_calls_the_function_in_its_own_context(lab: Lab) -> None:
    gang = start(lab, "work")
    ended = gang.ended()
    assert (ended.reason, ended.steps_completed) == ("completed", 50)
    (results,) = gang.of(MetricsReported)
    assert (results.group, results.metrics) == ("results", {"ranks": [0, 1], "value": 14})
    assert [first.steps_completed for first in gang.of(FirstStep)] == [1]
    assert gang.of(Progress)[-1].fraction == 1.0


def test_a_script_that_makes_and_ends_its_process_group_keeps_that_of_its_rank(lab: Lab) -> None:
    gang = start(lab, "under_torchrun")
    assert gang.ended().reason == "completed"
    (results,) = gang.of(MetricsReported)
    assert results.metrics == {"ranks": 2}


def test_a_function_that_returns_has_reached_its_target_though_it_reported_no_metric(
    lab: Lab,
) -> None:
    gang = start(lab, "silent")
    assert gang.ended().reason == "completed"
    (reached,) = gang.of(TargetReached)
    assert reached.target == Length("batches", 9)
    assert gang.of(FirstStep) == []


def test_a_function_that_leaves_when_it_is_asked_to_is_preempted_and_goes_on(
    lab: Lab, tmp_path: Path
) -> None:
    gate, before = Gate(tmp_path, 3), "            if context.preempt.should_preempt():\n"
    source = gate.source(FUNCTIONS, before=before, step="step")
    gang = start(lab, "work", source=source)
    gang.wait_until(gate.is_reached, "it trains")
    gang.page.raise_signal("preempt")
    ended = gang.ended()
    assert ended.reason == "preempted"
    assert 1 <= ended.steps_completed < 50
    assert gang.of(TargetReached) == []
    checkpoint = gang.last_checkpoint()
    assert checkpoint.steps_completed == ended.steps_completed
    again = start(lab, "work", checkpoint=checkpoint)
    assert again.ended().reason == "completed"
    assert again.of(Progress)[0].steps_completed == checkpoint.steps_completed + 1


def test_a_failure_names_its_line_and_is_final_before_the_first_step(lab: Lab) -> None:
    gang = start(lab, "wrong", ranks=1)
    assert gang.wait() == [1]
    (failure,) = gang.of(RankFailure)
    assert failure.error == "KeyError: 'nothing here'"
    assert failure.where.startswith(f"{LABEL}, line ")
    assert failure.where.endswith(", in wrong")
    assert failure.final
    assert gang.of(RunEnded) == []


def test_a_failure_after_the_first_step_may_be_tried_again(lab: Lab) -> None:
    gang = start(lab, "late")
    codes = gang.wait()
    assert codes[1] == 1
    first = gang.failures()[0]
    assert (first.rank, first.error) == (1, "ValueError: too late")
    assert not first.final


def test_invalid_hyperparameters_end_the_run(lab: Lab) -> None:
    gang = start(lab, "invalid", ranks=1)
    gang.wait()
    (ended,) = gang.of(RunEnded)
    assert (ended.reason, ended.message) == ("invalid_hp", "these cannot work")


def test_a_rank_takes_no_arguments_for_its_context(lab: Lab) -> None:
    gang = start(lab, "given_arguments", ranks=1)
    gang.wait()
    assert "core.init: got checkpoint_storage, but this is a rank" in gang.failures()[0].error
    gang = start(lab, "given_another_place", ranks=1)
    gang.wait()
    expected = "got distributed of rank 1 of 1, but this is rank 0 of 1 of an experiment"
    assert expected in gang.failures()[0].error


def test_the_kernel_of_a_rank_shows_the_functions_variables(lab: Lab) -> None:
    gang = start(lab, "endless", ranks=1)
    with client_of(gang, 0) as client:
        before = int(execute(client, "step")[0])
        time.sleep(0.1)
        assert int(execute(client, "step")[0]) > before
        assert execute(client, "context.info.trial_id, rank")[0] == "(1, 0)"
        assert "in endless" in ast.literal_eval(execute(client, "det_stack()")[0])
    gang.page.raise_signal("preempt")
    assert gang.ended().reason == "preempted"


WRITERS = """
import time
from torch.utils.tensorboard import SummaryWriter
from det_jupyter import core


def written(hparams):
    writer = SummaryWriter(f"runs/{core.current().distributed.rank}")
    for step in range(1, 6):
        writer.add_scalar("Loss/train", 1 / step, step)
    writer.add_scalar("Loss/val", 0.5, 5)
    writer.close()


def reported():
    context, writer = core.init(), SummaryWriter("runs")
    for step in range(1, 4):
        writer.add_scalar("Loss/train", 1 / step, step)
        if context.distributed.rank == 0:
            context.train.report_training_metrics(step, {"loss": 1 / step})
        time.sleep(0.3)  # longer than events are held, in all
    writer.close()
"""


def run_writer(lab: Lab, name: str) -> Gang:
    searcher = {"name": "single", "metric": "Loss", "max_length": {"batches": 5}}
    return lab.start(WRITERS, {"entrypoint": name, "searcher": searcher})


def test_what_the_chief_writes_for_tensorboard_is_reported(lab: Lab) -> None:
    gang = run_writer(lab, "written")
    assert gang.ended().steps_completed == 5
    found = [(each.group, each.steps_completed, each.metrics) for each in gang.of(MetricsReported)]
    *training, validation = found
    assert [step for group, step, _ in training if group == "training"] == [1, 2, 3, 4, 5]
    assert training[1][2] == {"Loss": 0.5}
    assert validation == ("validation", 5, {"Loss": 0.5})
    assert len(gang.of(Notice)) == 1
    assert not gang.of(MetricsReported, rank=1)  # it has written the same


def test_what_is_reported_is_not_read_again_from_event_files(lab: Lab) -> None:
    gang = run_writer(lab, "reported")
    gang.ended()
    assert [each.metrics for each in gang.of(MetricsReported)] == [
        {"loss": 1 / step} for step in range(1, 4)
    ]
    assert [each.text.partition(" is ")[0] for each in gang.of(Notice)] == ["searcher.metric"]
