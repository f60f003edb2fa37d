"""What the ranks agree on when they open their data, and preparing it on one rank first."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
Answers = dict[str, list[Any]]


TASKS = [
    "unequal_batch_sizes",
    "different_lengths",
    "different_kinds",
    "different_generators",
    "an_empty_plain_loader",
    "uneven_plain_loaders",
    "validations",
    "prepared",
    "preparation_fails",
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Return what both ranks answer to each task."""
    printed = run(TASKS, tmp_path_factory.mktemp("ranks"))
    return dict(zip(TASKS, map(list, zip(*printed, strict=True)), strict=True))


def run(tasks: list[str], folder: Path) -> list[list[Any]]:
    """Run the tasks on two ranks, one after another, and return what each rank printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-m", "tests.integration.data_rank"]
    ranks = [
        subprocess.Popen(
            [*argv, str(rank), str(port), *tasks],
            cwd=folder,
            env={"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        printed = [rank.communicate(timeout=90)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [[json.loads(line) for line in text.splitlines()] for text in printed]


def test_the_global_batch_is_the_sum_of_the_ranks_batch_sizes(
    answers: Answers,
) -> None:
    assert answers["unequal_batch_sizes"] == [
        {"returned": [[[0, 1, 2], 3, 5], [[5, 6, 7], 3, 5]] * 2},
        {"returned": [[[3, 4], 2, 5], [[8, 9], 2, 5]] * 2},
    ]


@pytest.mark.parametrize(
    ("task", "problems"),
    [
        ("different_lengths", ["the number of records is 10 on rank 0 and 11 on rank 1"]),
        (
            "different_kinds",
            [
                "the loader is builtins.NoneType on rank 0 and "
                "det_jupyter.pytorch.data.loader.DataLoader of a TensorDataset on rank 1"
            ],
        ),
        (
            "different_generators",
            [
                "the order is shuffle=True, drop_last=False on rank 0 and "
                "shuffle=False, drop_last=False on rank 1",
                "the seed of the order is 0 on rank 0 and 1 on rank 1",
            ],
        ),
        ("an_empty_plain_loader", ["the loader of rank 0 has no batches, expected at least one"]),
    ],
)
def test_every_rank_learns_what_does_not_fit(
    answers: Answers, task: str, problems: list[str]
) -> None:
    for answer in answers[task]:
        lines = answer["raised"].removeprefix("ConfigError: ").splitlines()
        for line, problem in zip(lines, problems, strict=True):
            assert line.startswith(f"build_training_data_loader: {problem}")


def test_loaders_of_different_lengths_stay_in_step(answers: Answers) -> None:
    told = []
    for answer in answers["uneven_plain_loaders"]:
        batches, warned = answer["returned"]
        assert batches == [[[0, 1], 2, 4], [[2, 3], 2, 4], [[0, 1], 2, 4]]
        told += warned
    assert told == [  # once, by the chief
        "build_training_data_loader: the ranks' loaders differ in length: rank 0 has 2, "
        "rank 1 has 4; every pass ends with the shortest, and what the others have beyond it "
        "is not trained"
    ]


def test_ranks_validate_their_rows_with_workers_that_live_on(
    answers: Answers,
) -> None:
    assert answers["validations"] == [
        {"returned": [[[0, 1], [4]]] * 2},
        {"returned": [[[2, 3]]] * 2},
    ]


def test_one_rank_prepares_before_the_others(answers: Answers) -> None:
    assert answers["prepared"] == [{"returned": False}, {"returned": True}]


def test_a_preparation_that_fails_is_told_to_the_others_at_once(
    answers: Answers,
) -> None:
    assert answers["preparation_fails"] == [
        {"raised": "OSError: no network on rank 0"},
        {
            "raised": "RuntimeError: local_chief_first: rank 0, which goes first, "
            "raised OSError: no network on rank 0"
        },
    ]


def test_nobody_waits_for_a_rank_that_died_preparing(tmp_path: Path) -> None:
    began = time.monotonic()
    first, second = run(["preparation_dies"], tmp_path)
    assert first == []
    assert "raised" in second[0]
    assert time.monotonic() - began < 45
