"""Requests that change the master: where each is posted, and what its body is."""

from __future__ import annotations

import re
from typing import get_args

from det_jupyter.contract.messages import (
    LIFE,
    AnyChange,
    ChangeRequest,
    ChangeResources,
    ChangeSearch,
    Pause,
    SetPools,
)
from det_jupyter.contract.values.lengths import Length

REQUESTS: list[type[ChangeRequest]] = list(get_args(AnyChange))


def test_each_request_has_a_route_and_a_kind_of_its_own() -> None:
    assert len({request.path for request in REQUESTS}) == len(REQUESTS)
    assert len({request.model_fields["kind"].default for request in REQUESTS}) == len(REQUESTS)


def test_what_a_path_names_are_fields_and_not_in_the_body() -> None:
    for request in REQUESTS:
        assert request.in_path() == set(re.findall(r"{(\w+)}", request.path)), request
    assert ChangeSearch(experiment_id=3, max_length=Length("epochs", 9)).given() == {
        "max_length": {"epochs": 9}
    }
    assert ChangeResources(experiment_id=3).given() == {}
    assert SetPools(pools=[]).given() == {"pools": []}


def test_the_verbs_of_an_experiments_life_are_the_kinds_of_their_requests() -> None:
    assert {verb: kind.model_fields["kind"].default for verb, kind in LIFE.items()} == {
        verb: verb for verb in LIFE
    }
    assert LIFE["pause"] is Pause
