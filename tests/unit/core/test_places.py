"""Places of ranks: what constructors and launchers' variables may say."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.core import DistributedContext
from det_jupyter.core.ranks import (
    DEEPSPEED,
    TORCHRUN,
    Place,
    choose_meeting,
    find_mpi_place,
    read_horovod,
    read_place,
)
from det_jupyter.core.ranks.place import find_conflicts

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
    meeting = choose_meeting(Place(**TWO), variables)
    assert (str(meeting), meeting.secret) == ("/private/store-1-ranks", b"\xff\x00")


def test_jobs_of_one_computer_meet_at_places_of_their_own() -> None:
    place = Place(rank=0, size=2, local_rank=0, local_size=2)
    jobs: list[dict[str, str]] = [{}, {"MASTER_PORT": "1"}, {"PMIX_NAMESPACE": "7"}]
    places = {str(choose_meeting(place, job)) for job in jobs}
    places |= {str(choose_meeting(place, {}, port=port)) for port in (12360, 12361)}
    assert len(places) == 4


TORCHRUNS = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}


def test_launchers_variables_give_the_place() -> None:
    expected = Place(rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, cross_size=2)
    assert read_place(TORCHRUNS, TORCHRUN, "torchrun") == expected
    assert read_place(TORCHRUNS, DEEPSPEED, "deepspeed") == expected
    own = {"LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "2"}
    given = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "GROUP_RANK": "9"} | own
    assert read_place(given, DEEPSPEED, "deepspeed") == Place(**TWO)


def test_variables_that_are_missing_or_wrong_are_told_at_once() -> None:
    given = {"RANK": "one", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    with pytest.raises(ValueError, match="RANK: got 'one', expected an integer; not set: LOCAL_R"):
        read_place(given, TORCHRUN, "torchrun")
    with pytest.raises(ValueError, match="not set: WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE or LOCAL_W"):
        read_place({"RANK": "0"}, DEEPSPEED, "deepspeed")
    with pytest.raises(ValueError, match="RANK: got 4, expected 0 to 3, since WORLD_SIZE is 4"):
        read_place(TORCHRUNS | {"RANK": "4"}, TORCHRUN, "torchrun")


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
    assert find_mpi_place(variables) == Place(
        rank=3, size=4, local_rank=1, local_size=2, cross_rank=cross, cross_size=2
    )
    assert find_mpi_place({}) is None


def test_horovods_module_gives_the_place() -> None:
    hvd = SimpleNamespace(**{name: (lambda value=value: value) for name, value in TWO.items()})
    assert read_horovod(hvd) == Place(**TWO)
    with pytest.raises(ValueError, match="has no rank, size"):
        read_horovod(re)


def member(**given: int) -> tuple[Place, str]:
    place = Place(**TWO | given)
    return place, f"pid {100 + place.rank}"


def test_ranks_that_do_not_fit_together_are_named() -> None:
    twice = [member(), (Place(**TWO), "pid 7")]
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
    def places(**second: int) -> list[tuple[Place, str]]:
        first = {"rank": 0, "size": 2, "local_rank": 0, "local_size": 2}
        other = {"rank": 1, "size": 2, "local_rank": 1, "local_size": 2, **second}
        return [(Place(**first), "a"), (Place(**other), "b")]

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
        read_place({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "two"}, TORCHRUN, "torchrun")
