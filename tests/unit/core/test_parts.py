"""Parts of several ranks that make one checkpoint, and where they contradict each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.core.folders import FolderListing
from det_jupyter.core.parts import (
    Part,
    files_of_several_ranks,
    files_to_store,
    find_conflicts,
    merge_metadata,
    without_duplicates,
)
from det_jupyter.core.sharded import find_owners


def part(rank: int, files: str = "", folders: str = "", **given: Any) -> Part:
    found = FolderListing(frozenset(files.split()), frozenset(folders.split()))
    return Part(rank=rank, found=found, **given)


def test_a_folder_that_several_ranks_name_is_the_lowest_ones() -> None:
    here, there = ("host", 1, 2), ("host", 1, 3)
    parts = [
        part(0, "a", source=here, size_bytes=5),
        part(1, "b", source=there, size_bytes=6),
        part(2, "a", source=here, size_bytes=5, metadata={"x": 1}),
        part(3, "c"),
        part(4, "c"),  # only the rank has it
    ]
    kept = without_duplicates(parts)
    assert kept[:2] + kept[3:] == parts[:2] + parts[3:]
    assert kept[2] == part(2, metadata={"x": 1})


def test_each_file_is_stored_by_the_lowest_rank_that_has_it() -> None:
    parts = [part(0, "a b"), part(1, "b c", "d"), part(2, "a c e", "d")]
    assert files_of_several_ranks(parts) == {"a", "b", "c"}
    stored = [files_to_store(parts, rank) for rank in range(3)]
    assert [sorted(each.files) for each in stored] == [["a", "b"], ["c"], ["e"]]
    assert [sorted(each.folders) for each in stored] == [[], ["d"], ["d"]]


@pytest.mark.parametrize(
    ("parts", "digests", "problems"),
    [
        ([part(0, "a/b"), part(1, "a/b", "a")], [{"a/b": "1"}, {"a/b": "1"}], []),
        ([part(0, "a"), part(1, "a"), part(2)], [{"a": "1"}, {"a": "2"}, {}],
         ["a: different files of ranks 0 and 1"]),
        ([part(0, "a"), part(1, "a"), part(2, "a")], [{"a": "1"}, {"a": "1"}, {"a": "2"}],
         ["a: different files of ranks 0, 1 and 2"]),
        ([part(0, "a"), part(1, "a/b/c"), part(2, "", "a")], [{}, {}, {}],
         ["a: a file of rank 0, and a folder of ranks 1 and 2"]),
        ([part(0, "", "a/b"), part(1, "a/b")], [{}, {}],
         ["a/b: a file of rank 1, and a folder of rank 0"]),
    ],
)  # fmt: skip
def test_paths_at_which_ranks_contradict_each_other_are_named(
    parts: list[Part], digests: list[dict[str, str]], problems: list[str]
) -> None:
    assert find_conflicts(parts, digests) == problems


@pytest.mark.parametrize(
    ("given", "merged", "problems"),
    [
        ([{"a": 1}, {}, {"b": 2}], {"a": 1, "b": 2}, []),
        ([{"a": {"x": 1}}, {"a": {"y": 2, "x": 1}}], {"a": {"x": 1, "y": 2}}, []),
        ([{"a": 1}, {"b": 5}, {"b": 6}], {"a": 1, "b": 5},
         ["metadata b: 5 of rank 1, 6 of rank 2"]),
        ([{"a": {"x": 1}}, {"a": {"x": 2}}, {"a": {"x": 1}}], {"a": {"x": 1}},
         ["metadata a.x: 1 of rank 0, 2 of rank 1"]),
        ([{"a": {"x": 1}}, {"a": 3}], {"a": {"x": 1}},
         ["metadata a: {'x': 1} of rank 0, 3 of rank 1"]),
        ([{}, {"a": 3}, {"a": {"x": 1}}], {"a": 3},
         ["metadata a: 3 of rank 1, {'x': 1} of rank 2"]),
    ],
)  # fmt: skip
def test_metadata_of_all_ranks_are_one_unless_they_contradict_each_other(
    given: list[dict[str, Any]], merged: dict[str, Any], problems: list[str]
) -> None:
    parts = [part(rank, metadata=metadata) for rank, metadata in enumerate(given)]
    assert merge_metadata(parts) == (merged, problems)
    assert given == [dict(each.metadata) for each in parts], "they stay as they were"


def test_ranks_that_do_not_see_the_chiefs_folder_write_into_that_of_their_computer() -> None:
    places: Any = [
        SimpleNamespace(computer=computer, sees=sees, writes=writes)
        for computer, sees, writes in [
            (0, True, True), (0, True, True), (1, False, False), (1, False, True),
            (1, False, True), (2, True, True), (3, False, True), (1, True, False),
        ]
    ]  # fmt: skip
    assert find_owners(places) == [0, 0, 0, 3, 3, 0, 6, 0]
