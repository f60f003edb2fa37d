"""The configuration that a class or function gets is one that its submission accepts."""

from __future__ import annotations

import importlib
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from det_jupyter.config import parse_config
from det_jupyter.config.first_configuration import draft
from det_jupyter.contract.trial.source_needs import UNKNOWN, Needs, needs_of
from det_jupyter.front.notebook.submit.checks import (
    find_batch_size_problems,
    find_class_problems,
    find_metric_problems,
)
from tests.trials import TRIAL_SOURCE

TEMPLATE = (
    "entrypoint: MyTrial  # mine\nhyperparameters:\n  global_batch_size: 64\nsearcher:\n"
    "  name: single\n  metric: validation_loss\n  max_length: {batches: 1000}\n"
    "resources:\n  slots_per_trial: 1\n"
)
FLOW = "hyperparameters: {a: 1}\nsearcher: {name: single, metric: x, max_length: {batches: 9}}\n"
BASE = """
from det_jupyter.pytorch import PyTorchTrial
from tests.problems import said
class Base(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.hp = AttrDict(context.get_hparams())
        self.opt = Adam(lr=self.hp.lr, betas=self.hp["optimizer"]["betas"])
        self.kind = 1 if context.get_hparam("mode") == "fast" else 2
    def train_batch(self, batch, epoch_idx, batch_idx):
        return make(batch, self.hp)
    def build_training_data_loader(self):
        return DataLoader(DATA, batch_size=self.context.get_per_slot_batch_size())
    def build_validation_data_loader(self):
        return DataLoader(DATA)
def make(batch, hparams):
    return hparams.get("dropout", 0.25), hparams["use_bias"]
"""
LOSS = """
class T(Base):
    def evaluate_batch(self, batch, batch_idx):
        metrics = {"accuracy": 1}
        metrics["val_loss"] = 2
        return metrics
"""
ACCURACY = """
class T(Base):
    def evaluate_batch(self, batch, batch_idx):
        return {"n": 1, "val_accuracy": 2}
"""
READ = {
    "lr": 0.001, "optimizer": {"betas": [0.9, 0.999]}, "mode": "fast", "dropout": 0.25,
    "use_bias": False,
}  # fmt: skip


@pytest.fixture
def notebook(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return what runs cells, as a notebook does, and returns its names."""
    module = types.ModuleType("a_notebook")
    sys.modules[module.__name__] = module
    importlib.import_module("det_jupyter.pytorch")

    def run(*cells: str) -> dict[str, Any]:
        for number, cell in enumerate(cells):
            file = f"<{request.node.name} {number}>"
            linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
            exec(compile(cell, file, "exec"), vars(module))
        return vars(module)

    yield run
    del sys.modules[module.__name__]


@pytest.mark.parametrize(
    ("cells", "name", "template", "metric", "smaller", "read"),
    [
        ([BASE, LOSS], "T", TEMPLATE, "val_loss", True, READ),
        ([BASE, ACCURACY], "T", TEMPLATE, "val_accuracy", False, READ),
        ([BASE, LOSS], "T", FLOW, "val_loss", True, READ | {"a": 1}),
        ([TRIAL_SOURCE], "SmallTrial", TEMPLATE, "error", True, {"pause_s": 1}),
    ],
)
def test_a_class_gets_a_configuration_that_can_be_submitted(
    notebook: Any, cells: list[str], name: str, template: str, metric: str, smaller: bool,
    read: dict[str, Any],
) -> None:  # fmt: skip
    names = notebook(*cells)
    written = draft(template, name, needs_of([*cells, "%magic\nbroken("], name))
    document = yaml.safe_load(written)
    assert document["entrypoint"] == name
    assert document["searcher"]["metric"] == metric
    assert document["searcher"]["smaller_is_better"] is smaller
    assert document["hyperparameters"] == {"global_batch_size": 64} | read
    config = parse_config(document, default_seed=0)
    assert find_class_problems(name, names) == []
    assert find_metric_problems(config, names) == []
    assert find_batch_size_problems(document, names[name]) == []


ADDED = """  lr: 0.001  # guessed from the names: change them
  optimizer: {betas: [0.9, 0.999]}
  mode: fast
"""
REST = """  dropout: 0.25
  use_bias: false
searcher:
  name: single
  metric: val_loss  # it also reports accuracy
"""


@pytest.mark.parametrize(
    ("template", "written"),
    [
        (
            TEMPLATE,
            f"entrypoint: T\nhyperparameters:\n  global_batch_size: 64\n{ADDED}{REST}"
            "  smaller_is_better: true\n  max_length: {batches: 1000}\n"
            "resources:\n  slots_per_trial: 1\n",
        ),
        (
            FLOW,
            f"entrypoint: T\nhyperparameters:\n  a: 1\n{ADDED}  global_batch_size: 64\n{REST}"
            "  max_length: {batches: 9}\n  smaller_is_better: true\n",
        ),
    ],
)
def test_lines_are_added_where_they_belong_and_a_guess_is_said_once(
    template: str, written: str
) -> None:
    assert draft(template, "T", needs_of([BASE, LOSS], "T")) == written


@pytest.mark.parametrize(
    ("hparams", "is_guess"),
    [
        ({"lr": 0.1}, False),
        ({"lr": UNKNOWN}, True),
        ({"net": {"depth": 1, "act": {"kind": UNKNOWN}}}, True),
        ({"net": {"depth": 1}, "lr": 0.1}, False),
    ],
)
def test_a_value_that_the_code_does_not_have_is_said_to_be_a_guess(
    hparams: dict[str, Any], is_guess: bool
) -> None:
    written = draft(TEMPLATE, "T", Needs(hparams=hparams, metrics=[]))
    assert ("# guessed from the names" in written) is is_guess


def test_what_the_users_own_template_says_stays() -> None:
    own = TEMPLATE.replace("validation_loss", "accuracy  # ours").replace("64", "8\n  lr: 0.5")
    written = draft(own, "T", needs_of([BASE, LOSS], "T"))
    document = yaml.safe_load(written)
    assert "metric: accuracy  # ours\n" in written
    assert document["hyperparameters"] == {"global_batch_size": 8} | READ | {"lr": 0.5}
    assert draft("- no\n- mapping\n", "T", needs_of([BASE, LOSS], "T")).startswith("entrypoint: T")
    assert needs_of([BASE], "T") is None


def test_a_cell_with_a_template_repeats_nothing_that_the_template_gives() -> None:
    given = {
        "resources": {"slots_per_trial": 2, "priority": 1},
        "hyperparameters": {"lr": 0.5, "global_batch_size": 8},
        "searcher": {"name": "random", "metric": "accuracy"},
    }
    written = draft(TEMPLATE, "T", needs_of([BASE, LOSS], "T"), given)
    assert yaml.safe_load(written) == {
        "entrypoint": "T",
        "searcher": {"max_length": {"batches": 1000}},
        "hyperparameters": {name: READ[name] for name in READ if name != "lr"},
    }
    given["searcher"] = {"name": "single", "metric": "other", "max_length": 5}
    searcher = yaml.safe_load(draft(TEMPLATE, "T", needs_of([BASE, LOSS], "T"), given))["searcher"]
    assert searcher == {"metric": "val_loss", "smaller_is_better": True}
    assert draft(FLOW, "", None, {"searcher": {"name": "grid"}}) == FLOW, "it says more"
    assert draft(FLOW, "", None, {"hyperparameters": {"a": 2}}) == FLOW.partition("\n")[2]
    assert draft(TEMPLATE, "", None) == TEMPLATE


def test_names_with_annotations_and_those_within_an_expression_are_followed() -> None:
    cell = """
class T:
    def __init__(self, context):
        hp: dict = context.get_hparams()
        self.rate, self.note = hp["lr"], hp.get("note", b"no text")
        if (more := context.get_hparams())["mode"] == b"x" and (own := more).get("dropout", 0.5):
            self.far = own.get("limit", 1e999)
    def evaluate_batch(self, batch):
        metrics: dict[str, float] = {"n": 1}
        metrics.update({"mae": 1}, val_accuracy=2)
        return metrics
"""
    needs = needs_of([cell], "T")
    assert needs is not None
    assert needs.metrics == ["n", "mae", "val_accuracy"]
    document = yaml.safe_load(draft(TEMPLATE, "T", needs))
    read = {"lr": 0.001, "note": 1, "mode": 1, "dropout": 0.5, "limit": 1}
    assert document["hyperparameters"] == {"global_batch_size": 64} | read
    assert document["searcher"]["metric"] == "mae"


def test_a_function_gets_what_it_reads_and_reports() -> None:
    cell = (
        "def train(core_context, hparams):\n  width = hparams['n_hidden']\n"
        "  core_context.train.report_validation_metrics(1, {'top5': 1})\n"
    )
    document = yaml.safe_load(draft(TEMPLATE, "train", needs_of([cell], "train")))
    assert document["hyperparameters"] == {"global_batch_size": 64, "n_hidden": 32}
    searcher = document["searcher"]
    assert (searcher["metric"], searcher["smaller_is_better"]) == ("top5", False)


@pytest.mark.parametrize(
    ("body", "is_needed"),
    [
        ("return self.context.get_per_slot_batch_size()", True),
        ("return self.helper()\n  def helper(self): return self.context.get_global_batch_size()",
         True),
        ("return self.context.get_hparam('global_batch_size')", True),
        ("c = self.context; return c.get_global_batch_size() if c.has_batch_size else 1", False),
        ("return 8\n  def unused(self): return self.context.get_per_slot_batch_size()", False),
    ],
)  # fmt: skip
def test_a_batch_size_that_the_trial_asks_for_is_refused_if_it_is_missing(
    notebook: Any, body: str, is_needed: bool
) -> None:
    cell = f"class T(Base):\n  def build_training_data_loader(self):\n    {body}"
    trial = notebook(BASE, cell)["T"]
    problem = (
        "hyperparameters.global_batch_size: missing; T.build_training_data_loader requires it: "
        "give the batch size of all slots together"
    )
    found = find_batch_size_problems({"hyperparameters": {"lr": 1}}, trial)
    if "helper" in body:
        problem = problem.replace("build_training_data_loader", "helper")
    assert [str(each) for each in found] == ([problem] if is_needed else [])
    given = {"hyperparameters": {"global_batch_size": 4}}
    assert find_batch_size_problems(given, trial) == []
