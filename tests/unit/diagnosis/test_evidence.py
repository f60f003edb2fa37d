"""The numbers and the advice that a cause comes with, at each of their thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from det_jupyter.contract.messages.verdicts import CauseKind, Verdict
from det_jupyter.diagnosis import RunVerdict
from det_jupyter.diagnosis.advice import advise, compute_gains
from det_jupyter.diagnosis.memory import Creep, find_creep
from det_jupyter.diagnosis.run_facts import (
    MemoryGrowth,
    Periodic,
    RankFacts,
    RankSite,
    RunMeasurements,
    Setting,
)
from det_jupyter.diagnosis.sentences import about, to_sentences
from det_jupyter.diagnosis.stragglers import Straggler, find_straggler, has_too_few_slices
from det_jupyter.diagnosis.verdict_rules import divide, find_causes
from tests.unit.diagnosis.samples import RUN, creep_rate, gpus, setting

HOST = ("local", "host")
Means = dict[tuple[str, str], dict[str, float]]


def facts(
    *parts: Mapping[str, float], batch_s: float = 0.1, means: Means | None = None, **more: Any
) -> RunMeasurements:
    """Return facts of ranks whose batches all take the same time, in parts of these shares."""
    ranks = tuple(
        RankFacts(
            rank=rank,
            batches=100,
            batch_s=batch_s,
            parts=own,
            waits=(own.get("exchange_wait", 0.0),) * 8,
        )
        for rank, own in enumerate(parts)
    )
    return RunMeasurements(ranks=ranks, means=means or {}, **more)


def host(cpu: float) -> Means:
    return {HOST: {"cpu_util_simple": cpu}}


def rank(num: int, of: str = "rank", **values: float) -> Means:
    return {("local", f"{of}:{RUN}:{num}"): values}


def gpu(num: int, **values: float) -> Means:
    return {("local", f"gpu:G{num}"): values}


def said(kind: CauseKind, found: RunMeasurements, about: Setting | None = None) -> tuple[Any, Any]:
    cause = advise(kind, 0.5, found, about or setting(len(found.ranks)))
    return cause.evidence, cause.advice


MORE_WORK = "raise hyperparameters.global_batch_size, to give the GPU more at once"
COMPILE = "set optimizations.compile: true, for fewer and larger kernels"
CAST = "set optimizations.mixed_precision: bf16, unless the trial casts by itself"


@pytest.mark.parametrize(
    ("measured", "about", "evidence", "advice"),
    [
        ({"gpu_util": 59.0}, {}, ["GPUs are busy 59 % of the time"], [MORE_WORK, COMPILE, CAST]),
        (
            {"gpu_util": 59.0},
            {"is_compiled": True, "mixed_precision": True},
            ["GPUs are busy 59 % of the time"],
            [MORE_WORK],
        ),
        ({"gpu_util": 60.0}, {"mixed_precision": True}, ["GPUs are busy 60 % of the time"], []),
        ({"gpu_throttled_thermal": 0.2}, {"mixed_precision": True}, [], []),
        (
            {"gpu_throttled_thermal": 0.21},
            {"mixed_precision": True},
            ["GPU clocks are lowered 21% of the time, because of heat"],
            ["cool the machine better"],
        ),
    ],
)
def test_what_a_gpu_that_computes_could_gain(
    measured: dict[str, float], about: dict[str, Any], evidence: list[str], advice: list[str]
) -> None:
    found = compute_gains(
        facts({"forward": 1.0}, means=gpu(0, **measured)), setting(places=gpus(1), **about)
    )
    assert found == (["100 ms a batch", *evidence], advice)


def test_others_on_a_gpu_are_named_three_at_most() -> None:
    place = replace(gpus(1)[0], other_processes=("a", "b", "c", "d"))
    evidence, _ = compute_gains(facts({"forward": 1.0}), setting(places=[place]))
    assert evidence[-1] == "other processes use its GPUs: a, b, c"


@pytest.mark.parametrize(("wait", "is_said"), [(14.9, False), (15.0, True)])
def test_a_rank_that_waits_for_a_core_is_said_so(wait: float, is_said: bool) -> None:
    means = {**rank(0, cpu_wait=1.0), **rank(1, cpu_wait=wait)}
    evidence, advice = compute_gains(facts({}, {}, means=means), setting(2))
    assert evidence[1:] == (["rank 1 waits for a core 15 % of the time"] if is_said else [])
    assert bool(advice) is is_said


WORKERS = "set num_workers of the DataLoader to 2 or more, so that data load meanwhile"
ONCE = "do the work of loading once and store its result"
FULL = (
    "do the work of loading once and store its result; more workers will not help, as the CPU is "
    "full"
)
DISK = "copy the data to a faster disk or keep them in memory"
BATCHES = (
    "raise hyperparameters.global_batch_size, or load whole batches at once: a TensorDataset of "
    "tensors"
)


@pytest.mark.parametrize(
    ("means", "advice"),
    [
        ({}, [WORKERS, ONCE]),
        (host(89.9), [WORKERS, ONCE]),
        (host(90.0), [FULL]),
        (host(90.0) | rank(0, cpu_util=24.9), [WORKERS]),
        (host(90.0) | rank(0, cpu_util=25.0), [FULL]),
        ({("other", "host"): {"cpu_util_simple": 95.0}} | host(5.0), [FULL]),
        (rank(0, cpu_util=49.9, disk_read=20e6), [DISK, ONCE]),
        (rank(0, cpu_util=50.0, disk_read=20e6), [WORKERS, ONCE]),
        (rank(0, cpu_util=49.9, disk_read=19.9e6), [WORKERS, ONCE]),
        (
            rank(0, "workers", num_processes=3.0, cpu_util=160.0, disk_read=90e6),
            ["raise num_workers of the DataLoader to 6", ONCE],
        ),
        (
            rank(0, "workers", num_processes=3.0, cpu_util=140.0, disk_read=90e6),
            [DISK, ONCE],
        ),
    ],
)
def test_what_to_do_about_input(means: Means, advice: list[str]) -> None:
    parts = {"dataloader_next": 0.5, "forward": 0.5}
    found = facts(parts, means=means)
    both = setting(places=[RankSite(agent_id="local"), RankSite(agent_id="other")])
    assert said("input", facts(parts, parts, means=means), both)[1] == advice
    pinned = said("input", found, setting(places=gpus(1)))[1]
    assert "set pin_memory=True in the DataLoader" in pinned


def test_evidence_of_input_has_part_cpu_and_workers() -> None:
    means = {**host(95.0), **rank(0, cpu_util=70.0)}
    assert said("input", facts({"dataloader_next": 0.5}, means=means))[0] == [
        "waiting for data: 50 ms of 100 ms a batch",
        "the CPU of local is full (95 %)",
        "no loader workers: each rank loads its data itself",
    ]
    means = rank(0, "workers", num_processes=2.0)
    assert said("input", facts({"dataloader_next": 0.5}, means=means))[0][1:] == [
        "2 loader workers a rank"
    ]


def test_loads_below_a_millisecond_are_a_matter_of_batches() -> None:
    for batch_s, is_small in ((0.00199, True), (0.002, False)):
        advice = said("input", facts({"dataloader_next": 0.5}, batch_s=batch_s))[1]
        assert (advice == [BATCHES]) is is_small


@pytest.mark.parametrize(
    ("to", "back", "places", "advice"),
    [
        (0.2, 0.2, None, ["move the work of to_device into the dataset, where workers do it"]),
        (0.1, 0.2, None, ["return fewer or smaller metrics from train_batch"]),
        (
            0.2,
            0.1,
            gpus(1),
            [
                "set pin_memory=True in the DataLoader, so that copies are asynchronous",
                "send smaller types (uint8 images) and convert them on the device",
            ],
        ),
    ],
)
def test_what_to_do_about_transfer(to: float, back: float, places: Any, advice: Any) -> None:
    found = facts({"to_device": to, "from_device": back})
    assert said("transfer", found, setting(places=places))[1] == advice


def test_only_parts_of_five_percent_are_evidence() -> None:
    evidence, _ = said("transfer", facts({"to_device": 0.05, "from_device": 0.049}))
    assert len(evidence) == 1
    assert evidence[0].endswith(": 5 ms of 100 ms a batch")


def test_what_to_do_about_exchanges() -> None:
    frequency = "set optimizations.aggregation_frequency: 8, to exchange less often"
    larger = "raise hyperparameters.global_batch_size, for more compute per exchange"
    half = "set optimizations.gradient_compression: true, for half the bytes"
    tune = "set optimizations.auto_tune_tensor_fusion: true"
    about = setting(2, aggregation_frequency=2)
    sends: Mapping[str, float] = {"exchange_transfer": 0.4}
    assert said("communication", facts(sends, sends), about)[1] == [frequency, larger, half, tune]
    done = replace(about, gradient_compression=True, has_tuned_fusion=True)
    assert said("communication", facts(sends, sends), done)[1] == [frequency, larger]
    means = {"average_training_metrics": 0.3, "reduce_metrics": 0.2}
    assert said("communication", facts(means, means), done)[1] == [
        "set optimizations.average_training_metrics: false, or report more seldom",
        "reduce custom metrics more seldom, by a larger scheduling_unit",
    ]
    own = replace(done, average_training_metrics=False)
    assert len(said("communication", facts(means, means), own)[1]) == 1


def test_uneven_ranks_are_told_least_and_most() -> None:
    waits = [{"exchange_wait": wait} for wait in (0.7, 0.1, 0.2)]
    evidence, advice = said("uneven", facts(*waits), setting(3, aggregation_frequency=3))
    assert evidence == ["rank 1 waits 10 % of the time", "rank 0 waits 70 % of the time"]
    assert advice[0].endswith("time with optimizations.aggregation_frequency: 12")
    evidence, advice = said("uneven", facts(*waits, means=host(90.0)))
    assert evidence[2] == "the CPU of local is full (90 %)"
    assert advice == ["The CPU is full. Close other programs or use fewer slots."]


def test_what_is_periodic_is_told_with_its_period() -> None:
    periodic = Periodic(share=0.3, seconds=1.5, every_s=180.0)
    found = facts({}, periodic={"checkpoint": periodic, "validation": periodic})
    longer = "raise min_checkpoint_period, to save less often"
    assert said("checkpoint", found) == (
        ["a checkpoint holds training for 1.5 s, every 3 min"], [longer],
    )  # fmt: skip
    about = setting(checkpoint_policy="all", min_checkpoint_period="5 batches")
    assert said("checkpoint", found, about)[1] == [
        "set checkpoint_policy: best or none, to save after fewer validations",
        "raise min_checkpoint_period (now 5 batches), to save less often",
    ]
    assert said("validation", found) == (
        ["a validation takes 1.5 s, every 3 min"],
        [
            "raise min_validation_period, to validate less often",
            "validate on fewer data, or in larger batches",
        ],
    )


def test_what_to_do_about_the_rest() -> None:
    callbacks = said("residual", facts({"callbacks": 0.3, "rest": 0.2}))[1]
    assert callbacks == ["do less in callbacks that are called for each batch"]
    assert said("residual", facts({"callbacks": 0.2, "rest": 0.2}))[1] != callbacks
    for batch_s, num in ((0.005, 1), (0.0049, 2)):
        evidence, advice = said("residual", facts({"rest": 0.3}, batch_s=batch_s))
        assert (len(evidence), len(advice)) == (num, num)
        assert advice[-1].startswith("name the parts of train_batch")
    assert evidence[-1] == "a batch takes only 4.9 ms"
    assert advice[0] == "raise hyperparameters.global_batch_size: each batch has a fixed cost"


def slow_rank(**means: Mapping[str, float]) -> list[Mapping[str, float]]:
    quick: Mapping[str, float] = {"forward": 0.6, "exchange_wait": 0.4}
    return [quick, {"forward": 1.0}, quick]


def test_how_a_straggler_differs_is_evidence() -> None:
    found = facts(*slow_rank())
    straggler = Straggler((1, 2), 0.4, "compute")
    cause = advise("straggler", 0.4, found, setting(3), straggler)
    assert (cause.rank, cause.because, cause.share) == (1, "compute", 0.4)
    assert cause.evidence == [
        "rank 1 computes 100 ms a batch, the others 60 ms",
        "as slow: rank 2",
    ]
    assert cause.advice == [
        "look for work that only rank 1 does, and give all ranks batches of equal cost"
    ]
    cause = advise("straggler", 0.4, found, setting(3), Straggler((1,), 0.4, "data"))
    assert cause.advice[0].startswith("look at what rank 1 loads: larger records")
    about = setting(places=[RankSite(agent_id=name) for name in "abc"])
    cause = advise("straggler", 0.4, found, about, Straggler((1,), 0.4, "machine", ("hot",)))
    assert cause.advice == ["free or exclude that slot (`slot disable b SLOT`)"]
    assert cause.evidence[0] == "hot"


def test_another_cause_beside_a_straggler_keeps_its_own_words() -> None:
    found = facts(*[{**parts, "dataloader_next": 0.3} for parts in slow_rank()])
    alone = advise("input", 0.3, found, setting(3))
    beside = advise("input", 0.3, found, setting(3), Straggler((1,), 0.4, "compute"))
    assert beside == alone
    assert (beside.rank, beside.because) == (None, None)
    assert beside.advice == [WORKERS, ONCE]


@pytest.mark.parametrize(
    ("own", "others", "evidence"),
    [
        ({"gpu_throttled_power": 0.3}, {"gpu_throttled_power": 0.1}, None),
        (
            {"gpu_throttled_power": 0.31},
            {"gpu_throttled_power": 0.1},
            "its GPU's clock is lowered 31% of the time, because of its power limit",
        ),
        (
            {"gpu_throttled_hardware": 0.2},
            {},
            None,
        ),
        (
            {"gpu_throttled_hardware": 0.21},
            {},
            "its GPU's clock is lowered 21% of the time, because of the hardware",
        ),
        ({"gpu_clock": 900.0}, {"gpu_clock": 1000.0}, None),
        (
            {"gpu_clock": 899.0},
            {"gpu_clock": 1000.0},
            "its GPU's clock is 899 MHz, that of the others 1000 MHz",
        ),
    ],
)
def test_what_makes_a_machine_slow(own: Any, others: Any, evidence: str | None) -> None:
    means = {**gpu(0, **others), **gpu(1, **own), **gpu(2, **others)}
    found = find_straggler(facts(*slow_rank(), means=means), setting(places=gpus(3)))
    assert found is not None
    assert found.evidence == (() if evidence is None else (evidence,))
    assert found.because == ("compute" if evidence is None else "machine")


def test_strangers_explain_only_where_no_other_gpu_has_any() -> None:
    busy = [replace(place, other_processes=("jupyter",)) for place in gpus(3)]
    free = gpus(3)
    found = find_straggler(facts(*slow_rank()), setting(places=[free[0], busy[1], free[2]]))
    assert found is not None
    assert found.evidence == ("other processes use its GPU: jupyter",)
    crowded = replace(busy[1], other_processes=("a", "b", "c", "d"))
    found = find_straggler(facts(*slow_rank()), setting(places=[free[0], crowded, free[2]]))
    assert found is not None
    assert found.evidence == ("other processes use its GPU: a, b, c",)
    found = find_straggler(facts(*slow_rank()), setting(places=[busy[0], busy[1], free[2]]))
    assert found is not None
    assert found.because == "compute"


def test_another_kind_or_a_full_computer_explain_a_straggler() -> None:
    about = setting(places=[RankSite(agent_id=name, gpu=name) for name in "abc"])
    first, second, third = about.places
    other = replace(about, places=(first, replace(second, kind="K80"), third))
    found = find_straggler(facts(*slow_rank()), other)
    assert found is not None
    assert found.evidence == ("it runs on K80, the others on cpu",)
    for own, rest, is_full in ((90.0, 89.0, True), (89.9, 50.0, False), (95.0, 90.0, False)):
        means = {
            (name, "host"): {"cpu_util_simple": own if name == "b" else rest} for name in "abc"
        }
        found = find_straggler(facts(*slow_rank(), means=means), about)
        assert found is not None
        assert (found.because == "machine") is is_full


@pytest.mark.parametrize(("input_share", "because"), [(0.19, "compute"), (0.2, "data")])
def test_data_explain_a_straggler_from_half_on(input_share: float, because: str) -> None:
    slow = {"forward": 1 - input_share, "dataloader_next": input_share}
    quick, _, _ = slow_rank()
    found = find_straggler(facts(quick, slow, quick), setting(3))
    assert found is not None
    assert found.because == because


def test_a_rank_that_waits_two_fifths_of_the_longest_wait_is_not_slow() -> None:
    for wait, slow in ((0.2, None), (0.199, (1,))):
        waits = [{"exchange_wait": each} for each in (0.5, wait, 0.5)]
        found = find_straggler(facts(*waits), setting(3))
        assert (found.ranks if found else None) == slow


@pytest.mark.parametrize(
    ("cpu", "own", "others", "is_slow"),
    [
        (90.0, 77.9, 60.0, False),
        (90.0, 78.1, 60.0, True),
        (90.0, 12.9, 10.0, False),
        (90.0, 13.0, 10.0, True),
        (90.0, 0.0, 0.0, False),
        (89.9, 10.0, 10.0, True),  # the CPU is not full
    ],
)
def test_a_rank_that_uses_more_of_a_full_cpu_is_slow(
    cpu: float, own: float, others: float, is_slow: bool
) -> None:
    means = host(cpu)
    for num in range(3):
        means |= rank(num, cpu_util=own if num == 1 else others)
    assert (find_straggler(facts(*slow_rank(), means=means), setting(3)) is not None) is is_slow
    for num in range(3):  # a rank that does more waits for a core more, too
        means[("local", f"rank:{RUN}:{num}")]["cpu_wait"] = 70.0 if num == 1 else 42.0
    assert (find_straggler(facts(*slow_rank(), means=means), setting(3)) is not None) is is_slow


def test_data_that_all_ranks_wait_for_explain_no_straggler() -> None:
    quick = {"forward": 0.3, "dataloader_next": 0.3, "exchange_wait": 0.4}
    found = find_straggler(
        facts(quick, {"forward": 0.7, "dataloader_next": 0.3}, quick), setting(3)
    )
    assert found is not None
    assert found.because == "compute"


def test_on_a_full_computer_without_measures_of_each_rank_none_is_blamed() -> None:
    assert find_straggler(facts(*slow_rank(), means=host(95.0)), setting(3)) is None
    only_its_own = host(95.0) | rank(1, cpu_wait=5.0)
    assert find_straggler(facts(*slow_rank(), means=only_its_own), setting(3)) is None


def test_several_slow_ranks_are_half_of_all_at_most_the_slowest_first() -> None:
    waits = [{"exchange_wait": wait} for wait in (0.4, 0.1, 0.05, 0.4)]
    found = find_straggler(facts(*waits), setting(4))
    assert found is not None
    assert found.ranks == (2, 1)
    assert found.share == pytest.approx(0.35)
    assert find_straggler(facts(*waits[:3]), setting(3)) is None
    assert find_straggler(facts(*waits[:1]), setting(1)) is None


@pytest.mark.parametrize(
    ("slices", "slow"),
    [
        ((0.1, 0.1, 0.2, 0.6), (0, 1)),
        ((0.1, 0.1, 0.05, 0.6), ()),  # the last one is another rank, of which it is not said
        ((0.0, 0.6, 0.2, 0.2), ()),  # the last one is of them, but they wait longer than the rest
    ],
)
def test_in_each_slice_a_slow_rank_is_the_last_one_and_the_slow_ones_wait_less(
    slices: tuple[float, ...], slow: tuple[int, ...]
) -> None:
    found = facts(*({"exchange_wait": wait} for wait in (0.1, 0.1, 0.4, 0.4)))
    ranks = tuple(
        replace(each, waits=(wait,) * 8) for each, wait in zip(found.ranks, slices, strict=True)
    )
    straggler = find_straggler(replace(found, ranks=ranks), setting(4))
    assert (() if straggler is None else straggler.ranks) == slow


def test_too_few_slices_matter_only_where_ranks_wait() -> None:
    def sliced(num: int, wait: float) -> RunMeasurements:
        found = facts({"exchange_wait": wait}, {})
        ranks = tuple(replace(each, waits=each.waits[:num]) for each in found.ranks)
        return replace(found, ranks=ranks)

    assert has_too_few_slices(sliced(4, 0.1))
    assert not has_too_few_slices(sliced(5, 0.1))
    assert not has_too_few_slices(sliced(4, 0.09))


def grown(rate: float, free: float | None, **changes: Any) -> MemoryGrowth:
    at = tuple(5.0 * i for i in range(100))
    fields: dict[str, Any] = {
        "rank": 2,
        "of": "rank",
        "name": "memory_pss",
        "memory": "local host",
    }
    num_bytes = tuple(1e9 + rate * t for t in at)
    return MemoryGrowth(at=at, num_bytes=num_bytes, free=(free,) * len(at), **(fields | changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Memory of rank 2 grows by 3.6 GB an hour"),
        ({"name": "gpu_memory"}, "GPU memory of rank 2 grows by 3.6 GB an hour"),
        ({"of": "workers"}, "Memory of the loader workers of rank 2 grows by 3.6 GB an hour"),
    ],
)
def test_memory_that_creeps_is_said_with_whose_it_is(changes: Any, sentence: str) -> None:
    found = find_causes(
        facts({"forward": 1.0}, growths=(grown(1e6, None, **changes),)), setting(3)
    )
    assert to_sentences(found).startswith(f"{sentence}. Next: look for ")
    assert [line.lower() for line in found.causes[0].evidence] == [sentence.lower()]
    assert ("dataset adds to" in found.causes[0].advice[0]) is ("of" in changes)


@pytest.mark.parametrize(
    ("free", "kinds"),
    [
        (1e6 * 1790, ["memory", "input"]),
        (1e6 * 1810, ["input", "memory"]),
        (1e6 * 6.9 * 86_400, ["input", "memory"]),
        (1e6 * 7.1 * 86_400, ["input"]),
    ],
)  # fmt: skip
def test_memory_comes_first_where_it_is_full_soon(free: float, kinds: list[str]) -> None:
    parts = {"forward": 0.5, "dataloader_next": 0.5}
    found = find_causes(facts(parts, growths=(grown(1e6, free),)), setting(3))
    assert [cause.kind for cause in found.causes] == kinds
    if "memory" in kinds:
        [cause] = [cause for cause in found.causes if cause.kind == "memory"]
        assert cause.evidence[1].endswith(" are left")
        assert (cause.share, cause.rank) == (0.0, 2)


def test_how_fast_memory_grows_is_said_by_the_hour() -> None:
    for bytes_an_hour, words in ((9.949e9, "9.9 GB"), (9.951e9, "10 GB")):
        creep = Creep(grown(1e6, None), bytes_an_hour / 3600, None)
        assert creep.sentence == f"memory of rank 2 grows by {words} an hour"


def test_the_memory_that_grows_fastest_is_found() -> None:
    assert find_creep(()) is None
    found = find_creep((grown(1e6, 3e9), grown(2e6, 3e9, rank=1)))
    assert isinstance(found, Creep)
    assert found.growth.rank == 1
    assert found.full_in_s == pytest.approx(1000, rel=0.02), "both of them fill it"
    apart = find_creep((grown(1e6, 3e9), grown(2e6, 4e9, rank=1, memory="other host")))
    assert apart is not None
    assert apart.full_in_s == pytest.approx(2000, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "kinds"),
    [
        (1799.0, ["memory", "input"]),
        (1800.0, ["input", "memory"]),
        (7 * 86_400.0, ["input", "memory"]),
        (7 * 86_400.0 + 1, ["input"]),
    ],
)
def test_soon_is_half_an_hour_and_after_a_week_memory_is_no_cause(
    seconds: float, kinds: list[str]
) -> None:
    creeping = grown(1e6, None)
    free = creep_rate(creeping) * seconds
    parts = {"forward": 0.5, "dataloader_next": 0.5}
    found = find_causes(facts(parts, growths=(replace(creeping, free=(free,)),)), setting(3))
    assert [cause.kind for cause in found.causes] == kinds


@pytest.mark.parametrize(
    ("parts", "shown", "kinds"),
    [
        ({"forward": 0.9, "dataloader_next": 0.1}, (), ["compute", "input"]),
        ({"forward": 0.901, "dataloader_next": 0.099}, (), []),
        ({"forward": 0.93, "dataloader_next": 0.07}, ("input",), ["compute", "input"]),
        ({"forward": 0.93, "dataloader_next": 0.07}, ("transfer",), []),
        ({"forward": 0.931, "dataloader_next": 0.069}, ("input",), []),
        ({"forward": 0.75, "dataloader_next": 0.25}, (), ["input"]),
        ({"forward": 0.751, "dataloader_next": 0.249}, (), ["compute", "input"]),
        ({"forward": 0.78, "dataloader_next": 0.22}, ("input",), ["input"]),
        ({"forward": 0.8, "rest": 0.2}, (), ["compute", "residual"]),
        ({"forward": 0.801, "rest": 0.199}, (), []),
        ({"forward": 0.65, "rest": 0.35}, (), ["residual"]),
        ({"forward": 0.651, "rest": 0.349}, (), ["compute", "residual"]),
        # several, together as much as compute, and more
        (
            {"forward": 0.4375, "dataloader_next": 0.21875, "to_device": 0.21875, "rest": 0.125},
            (),
            ["compute", "input", "transfer"],
        ),
        (
            {"forward": 0.4375, "dataloader_next": 0.21875, "to_device": 0.25, "rest": 0.09375},
            (),
            ["transfer", "input"],
        ),
    ],
)
def test_a_share_at_its_threshold_is_a_cause_and_one_below_is_none(
    parts: dict[str, float], shown: tuple[CauseKind, ...], kinds: list[str]
) -> None:
    found = find_causes(facts(parts), setting(), shown)
    assert [cause.kind for cause in found.causes if found.kind != "healthy"] == kinds
    assert found.kind == (kinds[0] if kinds else "healthy")


def test_a_cause_without_advice_is_said_alone() -> None:
    parts = {"forward": 0.5, "average_training_metrics": 0.5}
    found = find_causes(facts(parts, parts), setting(2, average_training_metrics=False))
    assert to_sentences(found) == (
        "Communication-bound: 50 % of the time goes to exchanges between ranks."
    )
    parts = {"forward": 0.5, "average_training_metrics": 0.3, "dataloader_next": 0.2}
    found = find_causes(facts(parts, parts), setting(2, average_training_metrics=False))
    assert to_sentences(found) == (
        "Communication-bound: 30 % of the time goes to exchanges between ranks; 20 % goes to "
        f"waiting for data. Next: {WORKERS}; experiment.diagnose() measures what that gains."
    )


def test_shares_sum_to_one_and_a_straggler_takes_from_uneven() -> None:
    periodic: Any = {"validation": Periodic(share=0.2, seconds=1.0, every_s=5.0)}
    halves = {"forward": 0.5, "exchange_wait": 0.5}
    found = facts(halves, {"forward": 1.0}, periodic=periodic)
    shares = divide(found, Straggler((1,), 0.3, "compute"))
    assert shares == {
        "compute": pytest.approx(0.4),
        "straggler": pytest.approx(0.24),
        "uneven": pytest.approx(0.16),
        "validation": pytest.approx(0.2),
    }
    assert divide(facts({"forward": 0.3, "dataloader_next": 0.1}), None) == {
        "compute": pytest.approx(0.75), "input": pytest.approx(0.25),
    }  # fmt: skip
    everything = {"checkpoint": Periodic(share=0.9, seconds=1.0, every_s=1.0),
                  "validation": Periodic(share=0.6, seconds=1.0, every_s=1.0)}  # fmt: skip
    shares = divide(facts({"forward": 1.0}, periodic=everything), None)
    assert shares == {
        "compute": 0.0, "checkpoint": pytest.approx(0.6), "validation": pytest.approx(0.4),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("share", "start"),
    [(0.849, "Little to gain here: 85 %"), (0.85, "Nothing to gain here: 85 %")],
)
def test_from_85_percent_of_compute_on_nothing_is_to_be_gained(share: float, start: str) -> None:
    parts = {"forward": share, "dataloader_next": (1 - share) / 2, "to_device": (1 - share) / 2}
    assert to_sentences(find_causes(facts(parts), setting())).startswith(start)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.049, "5 %"), (0.05, "5 %"), (0.074, "5 %"), (0.076, "10 %"), (0.95, "95 %"),
     (0.951, "95 %"), (0.97, "97 %"), (1.0, "99 %")],
)  # fmt: skip
def test_shares_are_rounded(share: float, text: str) -> None:
    assert about(share) == text


def test_what_a_straggler_does_as_long_as_the_others_is_no_evidence() -> None:
    quick: Mapping[str, float] = {"forward": 0.6, "exchange_wait": 0.4}
    found = facts(quick, {"forward": 0.6, "dataloader_next": 0.4}, quick)
    cause = advise("straggler", 0.4, found, setting(3), Straggler((1,), 0.4, "data"))
    assert cause.evidence == ["rank 1 waits for data 40 ms a batch, the others 0 ms"]


@pytest.mark.parametrize(
    ("share", "evidence"),
    [(0.05, []), (0.06, ["rank 1 waits for data 60 ms a batch, the others 0 ms"])],
)
def test_what_a_straggler_does_longer_is_evidence_above_five_percent(
    share: float, evidence: list[str]
) -> None:
    quick = {"exchange_wait": 1.0}
    found = facts(quick, {"dataloader_next": share}, quick, batch_s=1.0)
    straggler = Straggler((1,), 0.4, "compute")
    assert advise("straggler", 0.4, found, setting(3), straggler).evidence == evidence


@pytest.mark.parametrize(("num", "is_found"), [(2, False), (3, True)])
def test_a_straggler_is_slow_in_three_slices_at_least(num: int, is_found: bool) -> None:
    found = facts(*slow_rank())
    ranks = tuple(replace(each, waits=each.waits[:num]) for each in found.ranks)
    assert (find_straggler(replace(found, ranks=ranks), setting(3)) is not None) is is_found


@pytest.mark.parametrize(
    ("num", "slow_in", "is_found"),
    [(16, 14, True), (16, 13, False), (5, 5, True), (5, 4, False)],
)
def test_a_straggler_is_slow_in_nearly_all_slices_and_in_all_of_few(
    num: int, slow_in: int, is_found: bool
) -> None:
    found = facts(*slow_rank())
    first, slow, third = (replace(each, waits=(0.4,) * num) for each in found.ranks)
    slow = replace(slow, waits=(0.0,) * slow_in + (0.9,) * (num - slow_in))
    straggler = find_straggler(replace(found, ranks=(first, slow, third)), setting(3))
    assert (straggler is not None) is is_found


def test_the_rank_with_fewest_slices_decides_whether_they_are_enough() -> None:
    found = facts({"exchange_wait": 0.4}, {})
    first, second = found.ranks
    assert has_too_few_slices(replace(found, ranks=(first, replace(second, waits=(0.0,) * 4))))


@pytest.mark.parametrize(
    ("wait", "rest", "because"),
    [(20.0, 0.0, None), (19.9, 0.0, "compute"), (50.0, 30.0, None), (49.9, 30.0, "compute")],
)
def test_a_rank_whose_lateness_is_its_wait_for_a_core_is_no_straggler(
    wait: float, rest: float, because: str | None
) -> None:
    waits = {**rank(0, cpu_wait=rest), **rank(1, cpu_wait=wait), **rank(2, cpu_wait=rest)}
    means = {**host(95.0), **waits}
    found = find_straggler(facts(*slow_rank(), means=means), setting(3))
    assert (None if found is None else found.because) == because


def test_a_share_that_moves_by_four_percent_is_news() -> None:
    def said_of(share: float) -> Verdict:
        shares = {"input": share}
        return Verdict(kind="input", sentence="s", shares=shares, at=1.0, batches=9)  # type: ignore[arg-type]  # kinds are strings

    current = RunVerdict(setting(), said_of(0.0))
    assert [current._is_settled(said_of(share)) for share in (0.039, 0.04)] == [False, True]


def test_another_verdict_is_settled_when_it_comes_again() -> None:
    one, other, third = (
        Verdict(kind=kind, sentence=kind, at=1.0, batches=9)
        for kind in ("healthy", "input", "transfer")
    )
    current = RunVerdict(setting())
    assert current._is_settled(one)
    current.verdict = one
    assert [current._is_settled(each) for each in (other, third, other, other)] == [
        False, False, False, True,
    ]  # fmt: skip
    assert [current._is_settled(each) for each in (other, one, other, other)] == [
        False, False, False, True,
    ]  # fmt: skip
    current.verdict = one.model_copy(update={"kind": "unknown"})
    assert current._is_settled(other)
