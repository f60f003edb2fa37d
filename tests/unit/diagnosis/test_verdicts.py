from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.contract.messages import Verdict
from det_jupyter.diagnosis import RankSite
from tests.unit.diagnosis.samples import (
    HEALTHY,
    RUN,
    Parts,
    gpus,
    noisy,
    run,
    setting,
    together,
    verdict_of,
)

INPUT: Parts = {**HEALTHY, "dataloader_next": 12.0}
TRANSFER: Parts = {**HEALTHY, "to_device": 9.0}
RESIDUAL: Parts = {**HEALTHY, "rest": 8.0}
COMMUNICATION: Parts = {**HEALTHY, "exchange_transfer": 14.0, "exchange_wait": 0.2}


def alone(parts: Parts, **options: Any) -> Verdict:
    return verdict_of(run([parts], **options))


def every(num: int, **once: float) -> Any:
    """Return what happens once in each `num`-th interval, on one rank."""
    return lambda index: [dict(once) if index % num == 0 else {}]


def test_a_trial_that_computes_all_the_time_has_nothing_to_gain() -> None:
    verdict = alone(HEALTHY)
    assert (verdict.kind, verdict.causes) == ("healthy", [])
    assert verdict.sentence == "Nothing to gain here: 96 % of the time is compute."
    assert sum(verdict.shares.values()) == pytest.approx(1)


def test_several_parts_that_take_little_each_leave_little_to_gain() -> None:
    verdict = alone({"forward": 7.6, "dataloader_next": 0.8, "to_device": 0.6, "rest": 1.0})
    assert (verdict.kind, verdict.sentence) == (
        "healthy",
        "Little to gain here: 75 % of the time is compute, and no other part takes much.",
    )


@pytest.mark.parametrize(
    ("parts", "kind", "begin"),
    [
        (
            INPUT,
            "input",
            "Input-bound: 55 % of the time goes to waiting for data. Next: set num_w",
        ),
        (TRANSFER, "transfer", "Transfer-bound: 45 % of the time goes to moving data"),
        (RESIDUAL, "residual", "45 % of the time is in no part that is measured. Next: name the"),
    ],
)
def test_what_takes_most_of_the_time_names_the_verdict(
    parts: Parts, kind: str, begin: str
) -> None:
    verdict = alone(parts)
    assert verdict.kind == kind == verdict.causes[0].kind
    assert verdict.sentence.startswith(begin)
    assert verdict.causes[0].advice
    assert verdict.causes[0].evidence


def test_less_than_a_quarter_is_mentioned_after_compute() -> None:
    verdict = alone({**HEALTHY, "dataloader_next": 2.0})
    assert [cause.kind for cause in verdict.causes] == ["compute", "input"]
    assert verdict.sentence.startswith(
        "Compute-bound: 80 % of the time is compute; 15 % goes to waiting for data. Next: "
    )


def test_two_causes_that_mix_are_named_with_both_shares() -> None:
    verdict = alone({**HEALTHY, "dataloader_next": 8.0, "to_device": 5.0})
    assert [cause.kind for cause in verdict.causes] == ["input", "transfer"]
    assert verdict.sentence.startswith(
        "Input-bound: 35 % of the time goes to waiting for data; "
        "20 % goes to moving data to and from the device. Next: "
    )


def test_what_two_causes_have_in_common_is_said_once() -> None:
    host = {"host": {"cpu_util_simple": 97.0}}
    busy = {**HEALTHY, "dataloader_next": 2.0}
    causes = alone(busy, samples=lambda _: host).causes
    assert [cause.kind for cause in causes] == ["compute", "input"]
    evidence = [line for cause in causes for line in cause.evidence]
    assert evidence.count("the CPU of local is full (97 %)") == 1


def test_the_cpu_is_full_and_the_ranks_that_wait_are_named() -> None:
    """On a full CPU a rank that is always the last one may only get less of it."""
    slow: Parts = {**HEALTHY, "forward": 18.0}
    host = {"host": {"cpu_util_simple": 97.0}}
    verdict = verdict_of(run(together([HEALTHY, slow]), samples=lambda _: host))
    assert verdict.sentence == (
        "Uneven steps: ranks wait for each other 30 % of the time. The CPU is full. Close other "
        "programs or use fewer slots; experiment.diagnose() measures what that gains."
    )
    assert verdict.causes[0].evidence == [
        "rank 1 waits 0 % of the time",
        "rank 0 waits 60 % of the time",
        "the CPU of local is full (97 %)",
    ]


def test_several_smaller_causes_outweigh_compute() -> None:
    half = {"forward": 5.0, "dataloader_next": 2.2, "to_device": 2.1, "callbacks": 2.4}
    assert alone(half).kind == "residual"


@pytest.mark.parametrize("num_ranks", [1, 2, 8])
def test_checkpoints_and_validations_count_by_whole_cycles(num_ranks: int) -> None:
    def once(index: int) -> list[Parts]:
        chief: Parts = {"checkpoint": 800.0} if index % 3 == 0 else {}
        wait: Parts = {"exchange_wait": 800.0} if index % 3 == 0 else {}
        return [chief, *[wait] * (num_ranks - 1)]

    parts = together([HEALTHY] * num_ranks) if num_ranks > 1 else [HEALTHY]
    verdict = verdict_of(run(parts, once=once, num_intervals=16))
    assert verdict.kind == "checkpoint"
    assert verdict.causes[0].share == pytest.approx(0.8 / 3, abs=0.01)
    assert verdict.sentence.startswith(
        "Checkpoint-bound: 25 % of the time goes to saving checkpoints. Next: raise "
        "min_checkpoint_period"
    )
    assert "straggler" not in verdict.shares  # the others wait for the chief, which saves


def test_validation_names_the_period_to_raise() -> None:
    about = setting(min_validation_period="10 batches")
    verdict = alone(HEALTHY, once=every(2, validation=700.0), about=about)
    assert verdict.kind == "validation"
    assert "raise min_validation_period (now 10 batches)" in verdict.sentence


def test_one_long_validation_is_no_cause_until_its_cycle_is_known() -> None:
    verdict = alone(HEALTHY, once=every(9, validation=600.0), num_intervals=14)
    assert verdict.kind == "healthy"


def test_a_validation_that_is_reported_in_parts_happened_once() -> None:
    def once(index: int) -> list[Parts]:
        return [{"validation": 900.0} if 8 <= index < 10 else {}]

    assert verdict_of(run([HEALTHY], once=once, num_intervals=14)).kind == "healthy"


def test_long_validations_that_are_reported_in_parts_count_by_cycles() -> None:
    def once(index: int) -> list[Parts]:
        return [{"validation": 990.0} if index % 30 in (28, 29) else {}]

    verdict = verdict_of(run([HEALTHY], once=once, num_intervals=95))
    assert verdict.shares["validation"] == pytest.approx(2 / 30, abs=0.02)


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_communication_is_told_from_waiting(num_ranks: int) -> None:
    verdict = verdict_of(run([COMMUNICATION] * num_ranks))
    assert verdict.kind == "communication"
    assert "optimizations.aggregation_frequency: 4" in verdict.causes[0].advice[0]
    assert verdict.sentence.endswith("experiment.diagnose() measures what that gains.")


def test_an_exchange_that_is_not_told_apart_is_divided_by_the_rank_that_waits_least() -> None:
    own = [dict(parts) for parts in together([HEALTHY, {**HEALTHY, "forward": 12.0}], 4.0)]
    for parts in own:
        parts["exchange"] = parts.pop("exchange_wait") + parts.pop("exchange_transfer")
    verdict = verdict_of(run(list(own)))
    assert verdict.shares["communication"] == pytest.approx(4 / 23, abs=0.01)
    assert verdict.shares["straggler"] == pytest.approx(9 / 23, abs=0.01)


def test_one_rank_has_no_communication() -> None:
    kinds = alone({**HEALTHY}).shares.keys()
    assert not kinds & {"communication", "straggler", "uneven"}


@pytest.mark.parametrize("num_ranks", [2, 8])
@pytest.mark.parametrize(
    ("slow", "because"), [(INPUT, "data"), ({**HEALTHY, "backward": 16.0}, "compute")]
)
def test_a_straggler_is_named_with_its_reason(num_ranks: int, slow: Parts, because: str) -> None:
    own = [HEALTHY] * (num_ranks - 1) + [slow]
    verdict = verdict_of(run(together(own)))
    cause = verdict.causes[0]
    assert (cause.kind, cause.rank, cause.because) == ("straggler", num_ranks - 1, because)
    assert verdict.sentence.startswith(
        f"Rank {num_ranks - 1} is a straggler because of its {because}: the others wait for it "
    )


def test_several_slow_ranks_of_one_machine_are_named_together() -> None:
    slow: Parts = {**HEALTHY, "forward": 9.0, "backward": 12.0}
    places = [RankSite(agent_id="a")] * 4 + [RankSite(agent_id="b")] * 4
    about = setting(places=places)
    verdict = verdict_of(run(together([HEALTHY] * 5 + [slow] * 3), about=about))
    assert verdict.causes[0].kind == "straggler"
    assert any("as slow: rank" in line for line in verdict.causes[0].evidence)


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({"gpu_throttled_thermal": 0.8}, "lowered 80% of the time, because of its temperature"),
        ({"gpu_clock": 900.0}, "its GPU's clock is 900 MHz, that of the others 1800 MHz"),
    ],
)
def test_a_straggler_with_a_slower_gpu_is_slow_because_of_its_machine(
    gpu: dict[str, float], words: str
) -> None:
    fine = {"gpu_util": 90.0, "gpu_clock": 1800.0, "gpu_throttled_thermal": 0.0}
    verdict = verdict_of(
        run(
            together([HEALTHY, {**HEALTHY, "backward": 16.0}]),
            about=setting(places=gpus(2)),
            samples=lambda _: {"gpu:G0": fine, "gpu:G1": {**fine, **gpu}},
        )
    )
    assert verdict.causes[0].because == "machine"
    assert any(words in line for line in verdict.causes[0].evidence)


def test_strangers_on_a_gpu_make_a_straggler_the_machines_fault() -> None:
    places = [
        *gpus(1),
        RankSite(agent_id="local", gpu="G1", kind="H100", other_processes=("python x.py",)),
    ]
    own = together([HEALTHY, {**HEALTHY, "backward": 16.0}])
    verdict = verdict_of(run(own, about=setting(places=places)))
    assert verdict.causes[0].because == "machine"
    assert "other processes use its GPU: python x.py" in verdict.causes[0].evidence


@pytest.mark.parametrize(
    ("others", "cpu", "kind"),
    [(68.0, 70.0, "uneven"), (68.0, 100.0, "straggler"), (15.0, 24.0, "straggler")],
)
def test_on_a_full_machine_only_a_rank_that_uses_more_cpu_is_a_straggler(
    others: float, cpu: float, kind: str
) -> None:
    samples = {
        "host": {"cpu_util_simple": 99.0},
        f"rank:{RUN}:0": {"cpu_util": others},
        f"rank:{RUN}:1": {"cpu_util": cpu},
    }
    own = together([HEALTHY, {**HEALTHY, "backward": 16.0}])
    verdict = verdict_of(run(own, samples=lambda _: samples))
    cause = verdict.causes[-1]
    assert cause.kind == kind
    if kind == "uneven":
        assert "the CPU of local is full (99 %)" in str(verdict.causes)


@pytest.mark.parametrize(("wait", "kind"), [(40.0, "uneven"), (8.0, "straggler")])
def test_on_a_full_machine_a_late_rank_that_does_not_wait_for_a_core_is_a_straggler(
    wait: float, kind: str
) -> None:
    """It may sleep, and use less of the CPU than the others."""
    samples = {
        "host": {"cpu_util_simple": 99.0},
        f"rank:{RUN}:0": {"cpu_util": 60.0, "cpu_wait": 6.0},
        f"rank:{RUN}:1": {"cpu_util": 20.0, "cpu_wait": wait},
    }
    own = together([HEALTHY, {**HEALTHY, "forward": 18.0}])
    verdict = verdict_of(run(own, samples=lambda _: samples))
    assert verdict.causes[0].kind == kind


def test_on_a_full_machine_a_rank_that_does_more_waits_for_a_core_more_and_is_named() -> None:
    """Measured: rank 1 computes twice as much, while two other programs use both cores."""
    samples = {
        "host": {"cpu_util_simple": 100.0},
        f"rank:{RUN}:0": {"cpu_util": 11.0, "cpu_wait": 42.0},
        f"rank:{RUN}:1": {"cpu_util": 23.0, "cpu_wait": 70.0},
    }
    own = together([HEALTHY, {**HEALTHY, "forward": 18.0}])
    cause = verdict_of(run(own, samples=lambda _: samples)).causes[0]
    assert (cause.kind, cause.rank, cause.because) == ("straggler", 1, "compute")


def test_programs_that_keep_a_computing_rank_off_the_cpu_are_something_to_gain() -> None:
    samples = {"host": {"cpu_util_simple": 99.0}, f"rank:{RUN}:0": {"cpu_wait": 45.0}}
    verdict = alone(HEALTHY, samples=lambda _: samples)
    assert verdict.kind == "compute"
    assert "rank 0 waits for a core 45 % of the time" in verdict.causes[0].evidence
    told = "The CPU is full. Close other programs or use fewer slots."
    assert verdict.sentence.endswith(f"is compute. {told}")
    assert told in verdict.causes[0].advice


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_ranks_that_are_slow_in_turns_are_uneven(num_ranks: int) -> None:
    def jitter(index: int) -> list[Parts]:
        slow = index % num_ranks
        return together(
            [{**HEALTHY, "forward": 14.0 if rank == slow else 3.0} for rank in range(num_ranks)]
        )

    verdict = verdict_of(run(jitter, num_intervals=34))
    assert verdict.causes[-1].kind == "uneven"
    assert "straggler" not in verdict.shares


def test_a_full_cpu_changes_the_advice_on_input() -> None:
    verdict = alone(INPUT, samples=lambda _: {"host": {"cpu_util_simple": 98.0}})
    assert "more workers will not help" in verdict.sentence


def test_input_from_a_slow_disk_is_said_so() -> None:
    samples = {
        "host": {"cpu_util_simple": 20.0},
        f"rank:{RUN}:0": {"cpu_util": 40.0, "disk_read": 0.0},
        f"workers:{RUN}:0": {"cpu_util": 10.0, "disk_read": 80e6, "num_processes": 2.0},
    }
    cause = alone(INPUT, samples=lambda _: samples).causes[0]
    assert "copy the data to a faster disk" in cause.advice[0]
    assert "2 loader workers a rank" in cause.evidence


def test_busy_workers_should_be_more() -> None:
    samples = {f"workers:{RUN}:0": {"cpu_util": 190.0, "num_processes": 2.0}}
    cause = alone(INPUT, samples=lambda _: samples).causes[0]
    assert cause.advice[0] == "raise num_workers of the DataLoader to 4"


def test_workers_are_no_advice_for_what_loads_quicker_than_their_queue() -> None:
    verdict = alone({"forward": 0.5, "backward": 0.7, "dataloader_next": 0.5})
    assert verdict.kind == "input"
    assert "num_workers" not in verdict.sentence
    assert "TensorDataset" in verdict.sentence


def test_a_gpu_without_mixed_precision_has_something_to_gain() -> None:
    verdict = alone(HEALTHY, about=setting(places=gpus(1)))
    assert verdict.kind == "compute"
    assert "optimizations.mixed_precision: bf16" in verdict.sentence
    about = setting(places=gpus(1), mixed_precision=True)
    assert alone(HEALTHY, about=about).kind == "healthy"


def test_a_gpu_that_is_idle_half_of_the_time_has_too_little_to_do() -> None:
    about = setting(places=gpus(1), mixed_precision=True)
    verdict = alone(HEALTHY, about=about, samples=lambda _: {"gpu:G0": {"gpu_util": 35.0}})
    assert verdict.kind == "compute"
    assert "GPUs are busy 35 % of the time" in verdict.causes[0].evidence


@pytest.mark.parametrize("intervals", [1, 2])
def test_a_start_is_not_enough(intervals: int) -> None:
    verdict = alone(INPUT, num_intervals=intervals)
    assert verdict.kind == "unknown"
    assert verdict.sentence.startswith("Too early to judge: ")
    assert (verdict.batches, verdict.causes, verdict.shares) == (0, [], {})


def test_compiling_at_the_start_is_left_out() -> None:
    current = run(lambda index: [{"forward": 900.0, "rest": 800.0} if index == 0 else HEALTHY])
    assert verdict_of(current).kind == "healthy"


def test_a_part_of_a_newer_program_is_residual() -> None:
    assert alone({**HEALTHY, "teleporting": 9.0}).kind == "residual"


def test_sections_lie_within_parts_and_count_once() -> None:
    verdict = alone({**HEALTHY, "section.augment": 50.0})
    assert verdict.shares["compute"] == pytest.approx(0.96, abs=0.01)


@given(percent=st.floats(0, 25), seed=st.integers(0, 2**31))
@pytest.mark.parametrize("parts", [HEALTHY, INPUT, TRANSFER, RESIDUAL])
def test_noise_does_not_change_the_kind(parts: Parts, percent: float, seed: int) -> None:
    random = Random(seed)
    verdict = verdict_of(run(lambda _: [noisy(parts, percent, random)]))
    assert verdict.kind == alone(parts).kind


# From 14 % on, chance alone makes one of two ranks the slower one in about 1 of 10,000 runs.
@given(percent=st.floats(0, 12), seed=st.integers(0, 2**31), num_ranks=st.sampled_from([2, 3, 8]))
def test_noise_makes_no_straggler(percent: float, seed: int, num_ranks: int) -> None:
    random = Random(seed)
    verdict = verdict_of(
        run(lambda _: together([noisy(HEALTHY, percent, random) for _ in range(num_ranks)]))
    )
    assert verdict.kind in ("healthy", "compute")
    assert not {cause.kind for cause in verdict.causes} & {"straggler"}


@given(st.permutations(range(4)))
def test_permuted_ranks_permute_the_straggler(order: list[int]) -> None:
    own = [HEALTHY, HEALTHY, INPUT, HEALTHY]
    verdict = verdict_of(run(together([own[i] for i in order])))
    assert verdict.causes[0].rank == order.index(2)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), num_ranks=st.sampled_from([2, 3, 8]))
def test_a_load_that_slows_any_rank_for_a_while_makes_no_straggler(
    seed: int, num_ranks: int
) -> None:
    random = Random(seed)

    def loaded(_: int) -> list[Parts]:
        return together(
            [{**HEALTHY, "forward": random.choice([3.0, 3.0, 12.0])} for _ in range(num_ranks)]
        )

    verdict = verdict_of(run(loaded, num_intervals=30))
    assert "straggler" not in {cause.kind for cause in verdict.causes}
