"""Evidence and advice for each kind of cause, in terms of the configuration and the API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median

from det_jupyter.contract.messages.verdicts import Cause, CauseKind
from det_jupyter.contract.values.measures import PARTS
from det_jupyter.contract.values.text import brief, size
from det_jupyter.diagnosis.memory import Creep
from det_jupyter.diagnosis.run_facts import RunMeasurements, Setting, mean_of
from det_jupyter.diagnosis.stragglers import CPU_FULL, THROTTLED, Straggler

IDLE_GPU = 60.0  # % utilization; below, the kernels of a compute-bound rank are too small
READS_DISK = 20e6  # bytes/s of all ranks and their workers
IDLE_LOADERS = 50.0  # % of a core; below, loaders mostly wait
WAITING_LOADERS = 25.0  # % of a core; below, they do not wait for the CPU even if it is full
SMALL_LOAD_S = 0.001
SMALL_BATCH_S = 0.005  # below, the fixed cost of a batch matters
NOTABLE_WAIT = 0.15  # share of the time that a compute-bound rank waits for a core
NOTABLE_PART = 0.05  # share of the time; smaller parts of a kind are not named
CPU_IS_FULL = "The CPU is full. Close other programs or use fewer slots."

Advised = tuple[list[str], list[str]]  # evidence, advice


def advise(
    kind: CauseKind,
    share: float,
    facts: RunMeasurements,
    setting: Setting,
    straggler: Straggler | None = None,
) -> Cause:
    """Return a cause of this kind with its evidence and advice."""
    rank, because = None, None
    if kind == "straggler" and straggler is not None:
        rank, because = straggler.ranks[0], straggler.because
        evidence, advice = _of_straggler(facts, setting, straggler)
    else:
        evidence, advice = _ADVISED[kind](facts, setting)
    return Cause(
        kind=kind,
        share=min(1.0, share),
        rank=rank,
        because=because,
        evidence=evidence,
        advice=advice,
    )


def compute_gains(facts: RunMeasurements, setting: Setting) -> Advised:
    """Return evidence and advice for a compute-bound run; no advice if nothing can be gained."""
    evidence = [f"{brief(facts.batch_s)} a batch", *_cpu_lines(facts, setting)]
    if not setting.is_on_gpus:
        more, advice = _core_waits(facts, setting)
        return evidence + more, advice
    advice = []
    busy = mean_of(facts.gpu(place, "gpu_util") for place in setting.places)
    if busy is not None:
        evidence.append(f"GPUs are busy {busy:.0f} % of the time")
        if busy < IDLE_GPU:
            advice.append(f"raise {_batch_size(setting)}, to give the GPU more at once")
            if setting.is_own_loop:
                advice.append("compile the model with torch.compile, for fewer and larger kernels")
            elif not setting.is_compiled:
                advice.append("set optimizations.compile: true, for fewer and larger kernels")
    hot = mean_of(facts.gpu(place, "gpu_throttled_thermal") for place in setting.places)
    if hot is not None and hot > THROTTLED:
        evidence.append(f"GPU clocks are lowered {hot:.0%} of the time, because of heat")
        advice.append("cool the machine better")
    other_processes = [name for place in setting.places for name in place.other_processes]
    if other_processes:
        evidence.append(f"other processes use its GPUs: {', '.join(other_processes[:3])}")
    if setting.is_own_loop:
        advice.append("train in bf16 with torch.autocast, unless the loop does already")
    elif not setting.mixed_precision:
        advice.append("set optimizations.mixed_precision: bf16, unless the trial casts by itself")
    return evidence, advice


def _core_waits(facts: RunMeasurements, setting: Setting) -> Advised:
    """Return evidence and advice if a rank without a GPU waits for a core."""
    waits = {
        rank: wait
        for rank in range(setting.world_size)
        if (wait := facts.process(setting, rank, "rank", "cpu_wait")) is not None
    }
    if not waits or max(waits.values()) < 100 * NOTABLE_WAIT:
        return [], []
    rank = max(waits, key=waits.__getitem__)
    return [f"rank {rank} waits for a core {waits[rank]:.0f} % of the time"], [CPU_IS_FULL]


def _of_input(facts: RunMeasurements, setting: Setting) -> Advised:
    full = [*_cpu_lines(facts, setting)]
    evidence = [_part_line(facts, "dataloader_next"), *full]
    ranks = range(setting.world_size)
    is_sampled = any(
        facts.process(setting, rank, "rank", "cpu_util") is not None for rank in ranks
    )
    workers = mean_of(facts.process(setting, r, "workers", "num_processes") for r in ranks)
    loader = "workers" if workers else "rank"
    busy = mean_of(facts.process(setting, rank, loader, "cpu_util") for rank in ranks)
    if workers:
        evidence.append(f"{workers:.0f} loader workers a rank")
    elif is_sampled:
        evidence.append("no loader workers: each rank loads its data itself")
    reads = (
        facts.process(setting, rank, of, "disk_read")
        for rank in ranks
        for of in ("rank", "workers")
    )
    read = sum(filter(None, reads))
    each = None if busy is None else busy / (workers or 1)
    if facts.part_s("dataloader_next") < SMALL_LOAD_S:  # the overhead of a worker's queue
        return evidence, [
            f"raise {_batch_size(setting)}, or load whole batches at once: a TensorDataset of "
            "tensors"
        ]
    if full and (each is None or each >= WAITING_LOADERS):
        advice = [
            "do the work of loading once and store its result; more workers will not help, as "
            "the CPU is full"
        ]
    elif read >= READS_DISK and each is not None and each < IDLE_LOADERS:
        evidence.append(f"loading reads {size(read)} a second from disk and hardly computes")
        advice = ["copy the data to a faster disk or keep them in memory"]
    elif workers:
        advice = [f"raise num_workers of the DataLoader to {2 * round(workers)}"]
    else:
        advice = ["set num_workers of the DataLoader to 2 or more, so that data load meanwhile"]
    if setting.is_on_gpus:
        advice.append("set pin_memory=True in the DataLoader")
    if not full:
        advice.append("do the work of loading once and store its result")
    return evidence, advice


def _of_transfer(facts: RunMeasurements, setting: Setting) -> Advised:
    to, back = facts.part("to_device"), facts.part("from_device")
    evidence = [_part_line(facts, name) for name in _notable(facts, ("to_device", "from_device"))]
    advice = []
    if to >= back:
        if setting.is_on_gpus:
            advice.append("set pin_memory=True in the DataLoader, so that copies are asynchronous")
            advice.append("send smaller types (uint8 images) and convert them on the device")
        else:
            advice.append("move the work of to_device into the dataset, where workers do it")
    else:
        advice.append("return fewer or smaller metrics from train_batch")
    return evidence, advice


def _of_communication(facts: RunMeasurements, setting: Setting) -> Advised:
    parts = ("exchange_transfer", "average_training_metrics", "reduce_metrics")
    named = _notable(facts, parts)
    evidence = [_part_line(facts, name) for name in named]
    advice = []
    if setting.is_own_loop:
        return evidence, [
            "accumulate gradients over more batches (model.no_sync()), to exchange less often",
            "raise the batch size, for more compute per exchange",
            "register DDP's bf16_compress_hook, for half the bytes",
        ]
    if "exchange_transfer" in named or not named:
        more = 4 * setting.aggregation_frequency
        advice.append(f"set optimizations.aggregation_frequency: {more}, to exchange less often")
        advice.append("raise hyperparameters.global_batch_size, for more compute per exchange")
        if not setting.gradient_compression:
            advice.append("set optimizations.gradient_compression: true, for half the bytes")
        if not setting.has_tuned_fusion:
            advice.append("set optimizations.auto_tune_tensor_fusion: true")
    if "average_training_metrics" in named and setting.average_training_metrics:
        advice.append("set optimizations.average_training_metrics: false, or report more seldom")
    if "reduce_metrics" in named:
        advice.append("reduce custom metrics more seldom, by a larger scheduling_unit")
    return evidence, advice


def _of_uneven(facts: RunMeasurements, setting: Setting) -> Advised:
    least, *_, most = sorted(facts.ranks, key=lambda rank: rank.wait)
    waits = [f"rank {r.rank} waits {100 * r.wait:.0f} % of the time" for r in (least, most)]
    if full := [*_cpu_lines(facts, setting)]:
        return waits + full, [CPU_IS_FULL]
    more = f"optimizations.aggregation_frequency: {4 * setting.aggregation_frequency}"
    if setting.is_own_loop:
        more = "gradients that are accumulated over several batches (model.no_sync())"
    return waits, [
        "make batches cost the same (equal lengths, sorted or padded), or wait for more at a "
        f"time with {more}"
    ]


def _of_checkpoint(facts: RunMeasurements, setting: Setting) -> Advised:
    found = facts.periodic["checkpoint"]
    held = f"a checkpoint holds training for {brief(found.seconds)}, every {brief(found.every_s)}"
    if setting.is_own_loop:
        return [held], ["save less often"]
    now = f" (now {setting.min_checkpoint_period})" if setting.min_checkpoint_period else ""
    advice = [f"raise min_checkpoint_period{now}, to save less often"]
    if setting.checkpoint_policy == "all":
        advice.insert(0, "set checkpoint_policy: best or none, to save after fewer validations")
    return [held], advice


def _of_validation(facts: RunMeasurements, setting: Setting) -> Advised:
    found = facts.periodic["validation"]
    now = f" (now {setting.min_validation_period})" if setting.min_validation_period else ""
    less = "validate less often"
    if not setting.is_own_loop:
        less = f"raise min_validation_period{now}, to {less}"
    return [f"a validation takes {brief(found.seconds)}, every {brief(found.every_s)}"], [
        less,
        "validate on fewer data, or in larger batches",
    ]


def _of_residual(facts: RunMeasurements, setting: Setting) -> Advised:
    evidence = [_part_line(facts, name) for name in _notable(facts, ("callbacks", "rest"))]
    if facts.part("callbacks") > facts.part("rest"):
        return evidence, ["do less in callbacks that are called for each batch"]
    advice = [
        'name the parts of train_batch: with context.profiler.section("name"), or record a trace '
        "with torch.profiler"
    ]
    if setting.is_own_loop:
        advice = [
            "look at what the loop does besides its forward and backward passes: data that come "
            "from no DataLoader of torch, collectives of its own, logging, a file written without "
            "torch.save or a trainer's saver. Name it with "
            'context.profiler.section("name") of the Core API'
        ]
    if facts.batch_s < SMALL_BATCH_S:
        evidence.append(f"a batch takes only {brief(facts.batch_s)}")
        advice.insert(0, f"raise {_batch_size(setting)}: each batch has a fixed cost")
    return evidence, advice


def _batch_size(setting: Setting) -> str:
    return "the batch size" if setting.is_own_loop else "hyperparameters.global_batch_size"


_DOES: Mapping[CauseKind, str] = {
    "input": "waits for data",
    "compute": "computes",
    "transfer": "moves data",
    "residual": "does what is in no part",
}
_ADVISED: Mapping[CauseKind, Callable[[RunMeasurements, Setting], Advised]] = {
    "compute": compute_gains,
    "input": _of_input,
    "transfer": _of_transfer,
    "communication": _of_communication,
    "uneven": _of_uneven,
    "checkpoint": _of_checkpoint,
    "validation": _of_validation,
    "residual": _of_residual,
}


def _of_straggler(facts: RunMeasurements, setting: Setting, straggler: Straggler) -> Advised:
    slow = facts.ranks[straggler.ranks[0]]
    others = [rank for rank in facts.ranks if rank.rank not in straggler.ranks]
    evidence = list(straggler.evidence)
    for kind, words in _DOES.items():
        own = slow.share(kind) * slow.batch_s
        rest = median(rank.share(kind) * rank.batch_s for rank in others)
        if own - rest > NOTABLE_PART * slow.batch_s:
            evidence.append(
                f"rank {slow.rank} {words} {brief(own)} a batch, the others {brief(rest)}"
            )
    if more := straggler.ranks[1:]:
        evidence.append(f"as slow: rank {', '.join(map(str, more))}")
    agent_id = setting.places[slow.rank].agent_id
    advice = {
        "data": f"look at what rank {slow.rank} loads: larger records, a slower disk, or work "
        "that only this rank does in its dataset",
        "machine": f"free or exclude that slot (`slot disable {agent_id} SLOT`)",
        "compute": f"look for work that only rank {slow.rank} does, and give all ranks batches "
        "of equal cost",
    }
    return evidence, [advice[straggler.because]]


def advise_memory(creep: Creep) -> Cause:
    """Return growing memory as a cause, whose share of the time is 0."""
    growth, evidence = creep.growth, [creep.sentence]
    if growth.free_bytes is not None:
        evidence.append(f"{size(growth.free_bytes)} are left")
    advice = (
        "look for lists and caches that the dataset adds to"
        if growth.of == "workers"
        else "look for what is kept of each batch: a loss without .item() or .detach(), a list of "
        "metrics, a cache"
    )
    return Cause(kind="memory", share=0.0, rank=growth.rank, evidence=evidence, advice=[advice])


def _cpu_lines(facts: RunMeasurements, setting: Setting) -> Iterable[str]:
    for agent_id in setting.agents():
        cpu = facts.host(agent_id, "cpu_util_simple")
        if cpu is not None and cpu >= CPU_FULL:
            yield f"the CPU of {agent_id} is full ({cpu:.0f} %)"


def _notable(facts: RunMeasurements, names: Iterable[str]) -> list[str]:
    return [name for name in names if facts.part(name) >= NOTABLE_PART]


def _part_line(facts: RunMeasurements, name: str) -> str:
    return f"{PARTS[name].title}: {brief(facts.part_s(name))} of {brief(facts.batch_s)} a batch"
