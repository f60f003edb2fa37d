"""Documents and their changes: a version is what the version before becomes by its patch."""

from __future__ import annotations

import copy
import itertools
import json
import math
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from det_jupyter.contract.documents.patches import apply_changes, changes, plain, size_of
from det_jupyter.contract.messages import Curve
from det_jupyter.view import build_view_state
from tests.unit.view.view_samples import CREATED_AT, experiment, trial

FIXTURE = Path(__file__).parents[3] / "fixtures" / "patches.json"  # labextension/test reads it

numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.25, 1e300]))
leaves = st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(["", "a", "b/c", "~"]))
names = st.sampled_from(["", "a", "b/c", "~1", "rows", "0", "-"])
values = st.recursive(
    st.one_of(leaves, st.lists(numbers, max_size=50)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(names, inner, max_size=4)
    ),
    max_leaves=15,
)
documents = st.dictionaries(names, values, max_size=5)


@given(documents, documents)
def test_a_version_is_the_one_before_with_its_patch_applied(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = changes(before, after)
    sent, kept = json.loads(json.dumps(patch)), copy.deepcopy(before)
    assert json.dumps(apply_changes(before, sent), sort_keys=True) == json.dumps(
        after, sort_keys=True
    )
    assert before == kept
    assert sent == patch


@given(documents)
def test_equal_versions_have_an_empty_patch(document: dict[str, Any]) -> None:
    assert changes(document, copy.deepcopy(document)) == []


@given(st.lists(documents, min_size=2, max_size=6))
def test_patches_one_after_the_other_are_a_patch(versions: list[dict[str, Any]]) -> None:
    patches = [changes(one, other) for one, other in itertools.pairwise(versions)]
    whole = [operation for patch in patches for operation in copy.deepcopy(patch)]
    assert apply_changes(versions[0], whole) == versions[-1]


def test_parts_that_have_not_changed_are_shared_by_versions() -> None:
    before = {"rows": {"1": {"best": 1}, "2": {"best": 2}}}
    after = apply_changes(before, [{"op": "replace", "path": "/rows/1/best", "value": 3}])
    assert after["rows"]["2"] is before["rows"]["2"]
    assert after["rows"]["1"] == {"best": 3}


def test_a_curve_that_has_grown_is_sent_its_new_points() -> None:
    before = {"charts": [{"x": [1, 2], "y": [0.5, 0.25]}]}
    after = {"charts": [{"x": [1, 2, 3], "y": [0.5, 0.25, None]}]}
    assert changes(before, after) == [
        {"op": "add", "path": "/charts/0/x/-", "value": 3},
        {"op": "add", "path": "/charts/0/y/-", "value": None},
    ]


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ([1, 2, 3], [2, 3, 4], [{"op": "replace", "path": "/a", "value": [2, 3, 4]}]),
        ([], [0.5] * 33, [{"op": "replace", "path": "/a", "value": [0.5] * 33}]),
        (1, True, [{"op": "replace", "path": "/a", "value": True}]),
        ([1], [True], [{"op": "replace", "path": "/a", "value": [True]}]),
        (None, 0, [{"op": "replace", "path": "/a", "value": 0}]),
        ([{"b": 1}], [], [{"op": "remove", "path": "/a/0"}]),
    ],
)
def test_other_values_are_replaced(before: Any, after: Any, operations: list[Any]) -> None:
    assert changes({"a": before}, {"a": after}) == operations


def test_a_list_whose_elements_have_moved_is_sent_whole() -> None:
    before = {"rows": [{"id": i, "a": i, "b": i} for i in range(20)]}
    after = {"rows": [{"id": 99, "a": 99, "b": 99}, *before["rows"]]}
    (operation,) = changes(before, after)
    assert (operation["op"], operation["path"]) == ("replace", "/rows")


def test_of_several_charts_the_new_points_are_sent() -> None:
    def state(num: int) -> dict[str, Any]:
        curves = [
            Curve(trial_id=1, group="training", name=name, steps=[*range(num)],
                  values=[1 / (i + 1) for i in range(num)],
                  times=[CREATED_AT + i for i in range(num)])
            for name in ("loss", "error", "accuracy", "reach", "width")
        ]  # fmt: skip
        document: dict[str, Any] = plain(
            build_view_state(experiment(trial()), curves, [], CREATED_AT)
        )
        return document

    for more in (1, 5):
        patch = changes(state(300), state(300 + more))
        assert {each["op"] for each in patch if "/charts" in each["path"]} <= {"add", "replace"}
        assert size_of(patch) < size_of(state(300)) / 4


def test_lists_of_values_and_objects_are_compared_to_their_last_element() -> None:
    before, after = {"a": ["x", {"b": 1}]}, {"a": ["x", {"b": True}]}
    assert changes(before, after) == [{"op": "replace", "path": "/a/1/b", "value": True}]


def test_parts_that_are_the_same_objects_are_not_looked_into() -> None:
    class Untouched(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("it was looked into")

    line = Untouched(id=1)
    assert changes({"rows": {"1": line}, "n": 1}, {"rows": {"1": line}, "n": 2}) == [
        {"op": "replace", "path": "/n", "value": 2}
    ]


def test_a_patch_of_another_version_is_refused() -> None:
    patch = changes({"rows": {"1": {"best": 1}}}, {"rows": {"1": {"best": 2}}})
    with pytest.raises((jsonpatch.JsonPatchException, jsonpatch.JsonPointerException)):
        apply_changes({"rows": {}}, patch)


def test_a_document_is_plain_json() -> None:
    class Line(BaseModel):
        at: float
        parts: tuple[int, ...]

    line = Line(at=math.nan, parts=(1, 2))
    assert plain({"lines": [line], "best": math.inf}) == {
        "lines": [{"at": None, "parts": [1, 2]}],
        "best": None,
    }


@pytest.mark.parametrize("case", json.loads(FIXTURE.read_text("utf-8")))
def test_patches_are_those_of_the_fixture_which_pages_apply(case: dict[str, Any]) -> None:
    assert changes(case["before"], case["after"]) == case["patch"]
