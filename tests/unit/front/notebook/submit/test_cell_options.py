"""Options of the cell magic that change the configuration."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from det_jupyter.front.notebook.submit.submitting import read_draft

OPTIONS = {"name": None, "slots": None, "template": None, "checkpoint_storage": None}
CELL = """
entrypoint: model_def:Trial
searcher: {name: single, metric: e, max_length: {epochs: 1}}
checkpoint_storage: {type: s3, bucket: b, save_trial_best: 3}
"""


def test_a_folder_has_the_place_of_the_storage_and_its_numbers_stay() -> None:
    options = Namespace(**OPTIONS | {"checkpoint_storage": "~/checkpoints"})
    config, problems = read_draft(CELL, options).parse(default_seed=1)
    assert problems == []
    assert config is not None
    assert config.checkpoint_storage.location == str(Path.home() / "checkpoints")
    assert config.checkpoint_storage.save_trial_best == 3


def test_a_folder_is_relative_to_that_of_the_notebook() -> None:
    options = Namespace(**OPTIONS | {"checkpoint_storage": "c/d"})
    found = read_draft(CELL, options).document["checkpoint_storage"]
    assert found["container_path"] == str(Path.cwd() / "c/d")
