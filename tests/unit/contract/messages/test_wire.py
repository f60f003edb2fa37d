"""The base class of messages: what it refuses, and how messages are made of others."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from det_jupyter.contract.messages import CheckpointRef, CheckpointView, Wire
from det_jupyter.contract.run.journal import CheckpointSaved


class Numbers(Wire):
    value: float
    others: list[float] = []


def test_numbers_that_are_not_finite_survive_json() -> None:
    text = Numbers(value=math.inf, others=[math.nan]).model_dump_json()
    assert text == '{"value":"Infinity","others":["NaN"]}'
    read = Numbers.model_validate_json(text)
    assert read.value == math.inf
    assert math.isnan(read.others[0])


def test_a_field_of_another_version_is_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Numbers.model_validate({"value": 1.0, "more": 2})


def test_a_message_is_built_from_the_fields_that_it_shares_with_a_record_or_a_message() -> None:
    saved = CheckpointSaved(
        at=5.0, uuid="u", steps_completed=7, path="/c", size_bytes=9, metadata={}
    )
    view = CheckpointView.built_from(saved, experiment_id=1, trial_id=2, created_at=saved.at)
    assert view == CheckpointView(
        uuid="u", experiment_id=1, trial_id=2, steps_completed=7, path="/c", size_bytes=9,
        created_at=5.0,
    )  # fmt: skip
    assert CheckpointRef.built_from(view, path="/other") == CheckpointRef(
        uuid="u", path="/other", steps_completed=7
    )
