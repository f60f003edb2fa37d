"""Stage 4: a process for each slot, started by this script itself.

    python3 4_distributed.py launcher          starts the workers of this computer
    python3 4_distributed.py worker 1 1        is the worker of rank 1, local rank 1

`python3 -m det_jupyter.launch.torch_distributed` would do what the launcher does here; it is
written out to show what a launcher has to do.
"""

import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import det_jupyter as det
from det_jupyter import core

STEPS = 100
STEP_S = float(os.environ.get("STEP_S", "0.02"))


def launch(slots_per_node: int, node: int) -> int:
    """Start a worker for each slot of this computer; return the exit code of them all.

    When one fails the others are ended at once: they would wait for it for ever.
    """
    workers = []
    for local_rank in range(slots_per_node):
        rank = node * slots_per_node + local_rank
        wrapper = [sys.executable, "-m", "det_jupyter.launch.wrap_rank", str(rank)]
        worker = [sys.executable, __file__, "worker", str(rank), str(local_rank)]
        workers.append(subprocess.Popen([*wrapper, "--", *worker]))
    exit_codes: queue.Queue[int] = queue.Queue()
    for process in workers:
        threading.Thread(target=lambda p=process: exit_codes.put(p.wait())).start()
    first_failure = 0
    for _ in workers:
        exit_code = exit_codes.get()
        if exit_code != 0 and first_failure == 0:
            first_failure = exit_code
            for process in workers:
                process.terminate()
    return first_failure


def save(folder: Path, x: int, steps_completed: int, trial_id: int) -> None:
    """Write everything that the loop needs to go on."""
    state = {"x": x, "steps_completed": steps_completed, "trial_id": trial_id}
    (folder / "state.json").write_text(json.dumps(state))


def load(folder: Path, trial_id: int) -> tuple[int, int]:
    """Return x, and the steps that this trial has done already (see stage 2)."""
    state = json.loads((folder / "state.json").read_text())
    if state["trial_id"] == trial_id:
        return state["x"], state["steps_completed"]
    return state["x"], 0


def main(context: core.Context, latest: str | None, trial_id: int, increment_by: int) -> None:
    """Add the increments of all ranks in every step. All ranks run this in step.

    Only the chief, rank 0, reports and saves; every rank restores, and is asked to leave at the
    same step.
    """
    is_chief = context.distributed.rank == 0
    x, first = 0, 0
    if latest is not None:
        with context.checkpoint.restore_path(latest) as folder:
            x, first = load(folder, trial_id)
    saved_at = first
    for step in range(first, STEPS):
        x += sum(context.distributed.allgather(increment_by))
        time.sleep(STEP_S)
        steps_completed = step + 1
        if steps_completed % 10 == 0:
            if is_chief:
                logging.info("x is now %d", x)
                context.train.report_training_metrics(steps_completed, {"x": x})
                context.train.report_progress(steps_completed / STEPS)
                about = {"steps_completed": steps_completed}
                with context.checkpoint.store_path(about) as (to, _):
                    save(to, x, steps_completed, trial_id)
            saved_at = steps_completed
            if context.preempt.should_preempt():
                return
    if is_chief:
        context.train.report_validation_metrics(STEPS, {"x": x})
        if saved_at != STEPS:
            with context.checkpoint.store_path({"steps_completed": STEPS}) as (to, _):
                save(to, x, STEPS, trial_id)


def work(info: core.TrialInfo, rank: int, local_rank: int) -> None:
    """Be one worker: where no training framework says who is who, the cluster's info does."""
    slots_per_node, num_nodes = len(info.slot_ids), len(info.container_addrs)
    distributed = core.DistributedContext(
        rank=rank,
        size=num_nodes * slots_per_node,
        local_rank=local_rank,
        local_size=slots_per_node,
        cross_rank=info.container_rank,
        cross_size=num_nodes,
        chief_ip=info.container_addrs[0],
    )
    increment_by = info.trial.hparams["increment_by"]
    with core.init(distributed=distributed) as context:
        main(context, info.latest_checkpoint, info.trial.trial_id, increment_by)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    assert info is not None, "this stage needs an experiment: det e create 4_distributed.yaml ."
    match sys.argv[1:]:
        case ["launcher"]:
            sys.exit(launch(len(info.slot_ids), info.container_rank))
        case ["worker", rank, local_rank]:
            work(info, int(rank), int(local_rank))
        case arguments:
            sys.exit(f"expected `launcher` or `worker RANK LOCAL_RANK`, got {arguments}")
