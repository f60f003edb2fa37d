"""What is stored of an engine of DeepSpeed, and when; the engine is played."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core.journal import RecordList
from det_jupyter.errors import DetError
from det_jupyter.storage.directory import DirectoryStorage
from tests.unit.integrations.contexts import new_context, runs_of, saved
from tests.unit.pytorch.thread_ranks import ThreadRank, results

pytestmark = pytest.mark.filterwarnings("ignore")  # of deepspeed


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    yield from runs_of("deepspeed")


def test_an_engine_continues_from_its_checkpoint(runs: Any, tmp_path: Path) -> None:
    with new_context(tmp_path) as first:
        engine = runs.Engine()
        assert runs.load_engine(engine) is None
        engine.train(6)
        random.seed(3)
        uuid = runs.save_engine(engine, {"epoch": 4})
        drawn = random.random()
    (record,) = saved(first)
    assert (record.uuid, record.steps_completed) == (uuid, 2)
    assert Origin.read(tmp_path / uuid).library == "deepspeed"
    with new_context(tmp_path, uuid):
        again = runs.Engine()
        assert runs.load_engine(again) == {"epoch": 4}  # not what DeepSpeed adds
        assert (again.weight, again.global_steps, again.micro_steps) == (6, 2, 6)
        assert random.random() == drawn


def test_a_trial_that_stores_nothing_beside_the_engine_continues_with_nothing(
    runs: Any, tmp_path: Path
) -> None:
    with new_context(tmp_path):
        uuid = runs.save_engine(runs.Engine())
    with new_context(tmp_path, uuid):
        assert runs.load_engine(runs.Engine()) == {}


def test_outside_of_experiments_training_begins(runs: Any, tmp_path: Path) -> None:
    with replace(new_context(tmp_path), info=None):
        engine = runs.Engine()
        assert runs.load_engine(engine) is None
        assert Origin.read(tmp_path / runs.save_engine(engine)).trial_id is None


def test_each_rank_has_its_part_and_its_random_numbers(runs: Any, tmp_path: Path) -> None:
    sink = RecordList()
    context = new_context(tmp_path)

    def of(rank: ThreadRank, latest: str | None) -> core.Context:
        checkpoint = core.CheckpointContext(DirectoryStorage(tmp_path), sink, rank, {})
        info: Any = SimpleNamespace(**{**vars(context.info), "latest_checkpoint": latest})
        return replace(context, distributed=rank, checkpoint=checkpoint, info=info)

    def save(rank: ThreadRank) -> str:
        engine = runs.Engine(rank.rank, window=1)
        engine.train(5)
        engine.weight += rank.rank
        uuid: str = runs.save_engine(engine, {"rank": rank.rank}, of(rank, None))
        return uuid

    def load(rank: ThreadRank) -> tuple[dict[str, Any], int]:
        engine = runs.Engine(rank.rank, window=1)
        return runs.load_engine(engine, of(rank, uuid)), engine.weight

    uuid, _ = results(2, save)
    files = {path.name for path in (tmp_path / uuid).iterdir()}
    assert {"generators-0.pt", "generators-1.pt"} <= files
    assert results(2, load) == [({"rank": 0}, 5), ({"rank": 0}, 6)]


def batches(num: int) -> Callable[[Any], None]:
    return lambda engine: engine.train(num)


def chosen(is_boundary: bool, num: int) -> Callable[[Any], None]:
    def act(engine: Any) -> None:
        engine.set_gradient_accumulation_boundary(is_boundary)
        engine.train(num)

    return act


def stepped(engine: Any) -> None:
    engine.train(2)
    engine.step()


@pytest.mark.parametrize(
    ("kind", "act", "is_within"),
    [
        ("Engine", batches(2), True),
        ("Engine", batches(3), False),
        ("Engine", batches(4), True),
        ("OldEngine", batches(2), True),
        ("OldEngine", batches(3), False),
        ("Engine", chosen(False, 3), True),  # whatever the configuration says
        ("Engine", chosen(True, 2), False),
        ("UnmanagedEngine", batches(3), True),
        ("UnmanagedEngine", batches(1), True),
        ("UnmanagedEngine", batches(0), False),
        ("UnmanagedEngine", stepped, False),
    ],
)
def test_within_a_window_nothing_is_saved_and_a_pause_waits(
    runs: Any, tmp_path: Path, kind: str, act: Callable[[Any], None], is_within: bool
) -> None:
    page: Any = SimpleNamespace(check=lambda name: True, acknowledge=bool, note_saving=bool)
    context = new_context(tmp_path)
    with replace(context, preempt=core.PreemptContext(page, context.distributed)) as asked:
        engine = getattr(runs, kind)()
        runs.load_engine(engine)
        act(engine)
        assert asked.preempt.should_preempt() is not is_within
        if is_within:
            with pytest.raises(DetError, match=r"save_engine: gradients .* that no step has used"):
                runs.save_engine(engine)
        else:
            runs.save_engine(engine)
    assert len(saved(context)) == (0 if is_within else 1)


def test_an_engine_needs_a_context(runs: Any) -> None:
    core.set_current(None)
    with pytest.raises(DetError, match=r"save_engine: .* inside of `with core\.init\(\)"):
        runs.save_engine(runs.Engine())
    with pytest.raises(DetError, match=r"load_engine: .* inside of `with core\.init\(\)"):
        runs.load_engine(runs.Engine())
