"""Places of ranks: what constructors and launchers' variables may say."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.core import DistributedContext
from det_jupyter.core.ranks import (
    DEEPSPEED,
    TORCHRUN,
    RankInfo,
    choose_meeting,
    find_mpi_info,
    read_horovod,
    read_rank_info,
)
from det_jupyter.core.ranks.meeting import Exchanged, Job, find_job
from det_jupyter.core.ranks.rank_info import find_conflicts

TWO = {"rank": 1, "size": 4, "local_rank": 1, "local_size": 2, "cross_rank": 0, "cross_size": 2}


def test_arguments_that_are_missing_are_all_named() -> None:
    with pytest.raises(ValueError, match="local_rank, cross_rank, cross_size are missing"):
        DistributedContext(rank=0, size=2, local_size=2)
    with pytest.raises(ValueError, match="cross_size is missing"):
        DistributedContext(rank=0, size=2, local_rank=0, local_size=2, cross_rank=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 4}, "rank: got 4, expected 0 to 3, since size is 4"),
        ({"size": 0}, "size: got 0, expected at least 1"),
        ({"rank": "1"}, "rank: got '1', expected an integer"),
        ({"local_size": 5}, "local_size: got 5, expected at most size, 4"),
        ({"rank": -1, "cross_rank": 2}, "expected 0 to 3, since size is 4; cross_rank: got 2"),
    ],
)
def test_arguments_that_do_not_fit_are_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        DistributedContext(**TWO | given)


def test_several_computers_need_the_address_of_the_chief() -> None:
    with pytest.raises(ValueError, match="chief_ip is missing: 4 ranks, of which 2 are on this"):
        DistributedContext(**TWO)  # type: ignore[arg-type]  # six integers


def test_ranks_of_an_experiment_meet_beside_its_store() -> None:
    variables = {"DET_JUPYTER_STORE": "/private/store-1", "DET_JUPYTER_SECRET": "ff00"}
    meeting = choose_meeting(RankInfo(**TWO), variables)
    assert (str(meeting), meeting.secret) == ("/private/store-1-ranks", b"\xff\x00")


TWO_HERE = RankInfo(rank=0, size=2, local_rank=0, local_size=2)


def test_jobs_of_one_computer_meet_at_places_of_their_own() -> None:
    jobs: list[dict[str, str]] = [{}, {"MASTER_PORT": "1"}, {"PMIX_NAMESPACE": "7"}]
    places = {str(choose_meeting(TWO_HERE, job)) for job in jobs}
    places |= {str(choose_meeting(TWO_HERE, {}, port=port)) for port in (12360, 12361)}
    places |= {str(choose_meeting(TWO_HERE, {}, secret=secret)) for secret in (b"a", b"b")}
    places |= {
        str(choose_meeting(TWO_HERE, {}, exchanged=Exchanged(b"c", port))) for port in (1, 2)
    }
    assert len(places) == 8


RUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "key"),
    [
        (RUN | {"WORLD_SIZE": "2"}, "torchrun none a 29500 -"),
        (RUN | {"WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "1"}, "torchrun none a 29500 1"),
        (RUN | {"WORLD_SIZE": "8"}, ""),  # a rank of torchrun's has started a job by hand
        ({"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "srun 0 5"),
        ({"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, ""),
        ({"SLURM_JOB_ID": "5"}, ""),  # of a script in which jobs are started by hand
        ({"PMIX_NAMESPACE": "9"}, "PMIx 9"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "29500"}, ""),
    ],
)
def test_a_launchers_run_names_the_job_and_else_the_parent(
    variables: dict[str, str], key: str
) -> None:
    job = find_job(TWO_HERE, variables)
    if key:
        assert (job.key, job.is_by_parent) == (key, False)
        return
    assert f" {os.getppid()} " in job.key
    assert f" {os.getpid()} " in job.key_of_children
    assert f"started by pid {os.getppid()} (" in job.origin
    assert [job.includes(known) for known in (job.key, job.key_of_children, "")] == [1, 1, 0]
    assert find_job(RankInfo(**TWO), variables) == Job(), "computers have no parent in common"


TORCHRUNS = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}


def test_launchers_variables_give_the_place() -> None:
    expected = RankInfo(rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, cross_size=2)
    assert read_rank_info(TORCHRUNS, TORCHRUN, "torchrun") == expected
    assert read_rank_info(TORCHRUNS, DEEPSPEED, "deepspeed") == expected
    own = {"LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "2"}
    given = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "GROUP_RANK": "9"} | own
    assert read_rank_info(given, DEEPSPEED, "deepspeed") == RankInfo(**TWO)


def test_variables_that_are_missing_or_wrong_are_told_at_once() -> None:
    given = {"RANK": "one", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    with pytest.raises(ValueError, match="RANK: got 'one', expected an integer; not set: LOCAL_R"):
        read_rank_info(given, TORCHRUN, "torchrun")
    with pytest.raises(ValueError, match="not set: WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE or LOCAL_W"):
        read_rank_info({"RANK": "0"}, DEEPSPEED, "deepspeed")
    with pytest.raises(ValueError, match="RANK: got 4, expected 0 to 3, since WORLD_SIZE is 4"):
        read_rank_info(TORCHRUNS | {"RANK": "4"}, TORCHRUN, "torchrun")


@pytest.mark.parametrize(
    ("names", "values", "cross"),
    [
        ("OMPI_COMM_WORLD_{}", ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"), 1),
        ("{}", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), 1),
    ],
)
def test_mpiruns_variables_give_the_place(names: str, values: Any, cross: int) -> None:
    numbers = dict(zip(values, ("3", "4", "1", "2"), strict=True))
    variables = {names.format(name): value for name, value in numbers.items()}
    assert find_mpi_info(variables) == RankInfo(
        rank=3, size=4, local_rank=1, local_size=2, cross_rank=cross, cross_size=2
    )
    assert find_mpi_info({}) is None


def test_horovods_module_gives_the_place() -> None:
    hvd = SimpleNamespace(**{name: (lambda value=value: value) for name, value in TWO.items()})
    assert read_horovod(hvd) == RankInfo(**TWO)
    with pytest.raises(ValueError, match="has no rank, size"):
        read_horovod(re)


def member(**given: int) -> tuple[RankInfo, str]:
    place = RankInfo(**TWO | given)
    return place, f"pid {100 + place.rank}"


def test_ranks_that_do_not_fit_together_are_named() -> None:
    twice = [member(), (RankInfo(**TWO), "pid 7")]
    assert find_conflicts(twice) == ["rank 1 was given to 2 processes: pid 101 and pid 7"]
    (sizes,) = find_conflicts([member(rank=0), member(size=5)])
    assert sizes.endswith("different sizes: rank 0 (pid 100) 4, rank 1 (pid 101) 5")
    homes = [(0, 0), (0, 1), (1, 0), (1, 0)]
    everyone = [
        member(rank=rank, cross_rank=cross, local_rank=local)
        for rank, (cross, local) in enumerate(homes)
    ]
    assert find_conflicts(everyone[:3]) == []  # not all are there yet
    assert find_conflicts(everyone) == [
        "rank 2 (pid 102) shares local_rank 0 with another rank of cross_rank 1",
        "rank 3 (pid 103) shares local_rank 0 with another rank of cross_rank 1",
    ]


def test_each_misfit_of_local_places_is_named_alone() -> None:
    def places(**second: int) -> list[tuple[RankInfo, str]]:
        first = {"rank": 0, "size": 2, "local_rank": 0, "local_size": 2}
        other = {"rank": 1, "size": 2, "local_rank": 1, "local_size": 2, **second}
        return [(RankInfo(**first), "a"), (RankInfo(**other), "b")]

    assert find_conflicts(places()) == []
    assert find_conflicts(places(local_size=1)) == [
        "rank 1 (b) was given local_size 1, but 2 have cross_rank 0"
    ]
    assert find_conflicts(places(cross_size=2)) == [
        "rank 1 (b) was given cross_size 2, but the ranks have 1 different values of cross_rank"
    ]
    assert find_conflicts(places(local_rank=0)) == [
        "rank 0 (a) shares local_rank 0 with another rank of cross_rank 0",
        "rank 1 (b) shares local_rank 0 with another rank of cross_rank 0",
    ]
    assert find_conflicts(places(size=3)) == [
        "the processes were given different sizes: rank 0 (a) 2, rank 1 (b) 3"
    ]
    assert find_conflicts(places(rank=0)) == ["rank 0 was given to 2 processes: a and b"]


def test_a_variable_that_is_missing_hides_no_later_mistake() -> None:
    with pytest.raises(ValueError, match=r"LOCAL_WORLD_SIZE: got 'two'.*not set: RANK, "):
        read_rank_info({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "two"}, TORCHRUN, "torchrun")
