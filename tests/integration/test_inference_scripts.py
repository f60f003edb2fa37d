"""Batch inference in scripts that a launcher starts as several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.experimental import (
    TorchBatchProcessor,
    output_files,
    torch_batch_process,
)
from tests.integration.parallel_ranks import RankRunner


class Writing(TorchBatchProcessor):
    """Writes each batch to a file, and counts the records."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.count = context.wrap_reducer(sum, "count")

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        self.count.update(len(batch))
        with self.context.upload_path() as path:
            (path / str(batch_idx)).write_text(" ".join(map(str, batch.tolist())))


def infer(_: core.DistributedContext, folder: Path) -> str:
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed, checkpoint_storage=folder):
        outcome = torch_batch_process(
            Writing,
            list(range(23)),
            batch_size=2,
            checkpoint_interval=2,
            distributed_context=distributed,
        )
    assert outcome.metrics == {"count": 23}
    return str(outcome.path)


def test_ranks_of_a_launcher_share_the_records(run: RankRunner, tmp_path: Path) -> None:
    checkpoint, _ = run(infer, 2, tmp_path)
    files = output_files(Path(checkpoint))
    assert sorted(int(n) for file in files for n in file.read_text().split()) == list(range(23))
    by_rank = {rank: {int(f.name) for f in files if f.parent.name == rank}
               for rank in ("rank_0", "rank_1")}  # fmt: skip
    assert by_rank == {"rank_0": {0, 2, 4, 6, 8, 10}, "rank_1": {1, 3, 5, 7, 9, 11}}


def infer_alone(_: core.DistributedContext, folder: Path) -> str:
    with core.init(checkpoint_storage=folder), pytest.raises(ConfigError) as refused:
        torch_batch_process(Writing, list(range(23)), batch_size=2)
    return str(refused.value)


def test_ranks_that_do_not_say_their_place_are_refused_before_a_record(
    run: RankRunner, tmp_path: Path
) -> None:
    """Each would process every record."""
    for said in run(infer_alone, 2, tmp_path):
        assert "WORLD_SIZE is 2, but `core.init()` around it got no distributed" in said
        assert "pass distributed=core.DistributedContext.from_torch_distributed() there" in said
    assert output_files_below(tmp_path) == []


def output_files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
