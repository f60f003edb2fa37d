"""Keys with too little or too much indent are named with the place where they belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.config import parse_config
from det_jupyter.config.__main__ import main
from det_jupyter.config.notices import notices
from det_jupyter.config.yaml_text import parse_yaml
from det_jupyter.errors import ConfigError
from tests.problems import said

SINGLE = "searcher: {name: single, metric: loss, max_length: {epochs: 1}}\n"
MISSING = "for one trial: {name: single, metric: ..., max_length: {epochs: 1}}"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        # Below hyperparameters: keys of a range.
        (
            f"{SINGLE}hyperparameters:\n  lr:\n  type: double\n  minval: 0.1\n  maxval: 1.0\n",
            ["line 4: hyperparameters.lr: has no value; type, minval, maxval belong below it: "
             "indent them"],
        ),
        (
            f"{SINGLE}hyperparameters:\n  opt:\n    lr:\n    type: log\n    minval: 2\n"
            "    maxval: 1\n    base: 10\n",
            ["line 5: hyperparameters.opt.lr: has no value; type, minval, maxval, base belong "
             "below it: indent them",
             "line 5: hyperparameters.opt.lr.minval: got 2, expected less than maxval (1)"],
        ),
        (
            f"{SINGLE}hyperparameters:\n  lr: {{type: double, minval: 0}}\n  maxval: 1\n",
            ["line 4: hyperparameters.lr: maxval belongs below it: indent it"],
        ),
        (
            f"{SINGLE}hyperparameters:\n  lr:\n    type: double\nminval: 0.1\nmaxval: 1.0\n",
            ["line 6: minval: unknown key; it belongs below hyperparameters.lr: indent it",
             "line 7: maxval: unknown key; it belongs below hyperparameters.lr: indent it"],
        ),
        (
            f"{SINGLE}hyperparameters:\n  lr:\ntype: int\nminval: 1\nmaxval: 8\n",
            [f"line {line}: {key}: unknown key; it belongs below hyperparameters.lr: indent it"
             for line, key in ((5, "type"), (6, "minval"), (7, "maxval"))],
        ),
        (  # a null is a value, and these names may be ones of hyperparameters
            f"{SINGLE}hyperparameters:\n  clip:\n  minval: -1\n  maxval: 1\n  optimizer:\n"
            "  name: adam\n",
            [],
        ),
        # Indented too much.
        (
            "hyperparameters:\n  lr: 0.1\n"
            "  searcher: {name: single, metric: loss, max_length: {epochs: 1}}\n",
            ["line 4: hyperparameters.searcher: it belongs at the top level: indent it less"],
        ),
        (
            f"{SINGLE}resources:\n  slots_per_trial: 2\n  max_restarts: 3\n  lr: 0.1\n"
            "  metric: loss\n",
            ["line 5: resources.max_restarts: unknown key; it belongs at the top level: indent "
             "it less",
             "line 6: resources.lr: unknown key; it belongs below hyperparameters",
             "line 7: resources.metric: unknown key; it belongs below searcher"],
        ),
        # Lengths.
        (
            "searcher:\n  name: single\n  metric: loss\n  max_length:\n  epochs: 1\n",
            ["line 6: searcher.epochs: unknown key; it belongs below searcher.max_length: "
             "indent it"],
        ),
        (
            "epochs: 3\nsearcher:\n  name: single\n  metric: loss\n",
            ["line 2: epochs: unknown key; it belongs below searcher.max_length: indent it"],
        ),
        (
            f"epochs: 3\n{SINGLE}",
            ["line 2: epochs: unknown key; it belongs below min_validation_period, "
             "min_checkpoint_period or optimizations.large_batch.warmup"],
        ),
        (
            f"{SINGLE}hyperparameters:\n  lr: 1\nepochs: 3\n",
            ["line 5: epochs: unknown key; it belongs below hyperparameters: indent it"],
        ),
        (  # a slip of the pen is no hyperparameter
            f"{SINGLE}hyperparameters:\n  lr: 1\nresorces: {{}}\nmax_trails: 3\nwidth: 2\n",
            ["line 5: resorces: unknown key; did you mean resources?",
             "line 6: max_trails: unknown key; did you mean searcher.max_trials?",
             "line 7: width: unknown key; it belongs below hyperparameters: indent it"],
        ),
        # Below their own section, whatever else their name is like.
        (
            f"{SINGLE}environment:\nenvironment_variables: [A=1]\n",
            ["line 4: environment_variables: unknown key; it belongs below environment: indent "
             "it"],
        ),
        (
            "searcher:\nname: single\nmetric: loss\nmax_length: 1\n",
            ["line 3: name: got 'single', a kind of searcher; it belongs below searcher: indent "
             "it",
             "line 4: metric: unknown key; it belongs below searcher: indent it",
             "line 5: max_length: unknown key; it belongs below searcher: indent it"],
        ),
        (  # an entry of a list has no place that a key could have
            f"{SINGLE}alerts: [{{slack: 'file:/x'}}]\non: [failed]\n",
            ["line 4: on: unknown key; did you mean alerts.on?"],
        ),
        # The cause comes before what is missing because of it.
        (
            "hyperparameters:\n\tlr: 0.1\n",
            ["line 3: this is not YAML: indent with spaces, not tabs",
             f"searcher: missing; {MISSING}"],
        ),
    ],
)  # fmt: skip
def test_key_is_named_with_the_place_where_it_belongs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problems: list[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"entrypoint: A\n{text}")
    assert main(["check", str(file)]) == (1 if problems else 0)
    output = capsys.readouterr().out.splitlines()
    assert (output if problems else output[:1]) == (problems or ["ok"])


def test_dict_is_answered_with_dotted_keys() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"entrypoint": "A", "max_length": 3, "width": 3, "hyperparameters": {
            "searcher": {}, "lr": None, "type": "int", "minval": 1, "maxval": 3, "width": 2,
        }}, default_seed=1)  # fmt: skip
    assert said(caught.value.problems) == [
        "hyperparameters.lr: has no value; type, minval, maxval belong below it",
        "hyperparameters.searcher: it belongs at the top level: write searcher",
        "max_length: unknown key; it belongs below searcher: write searcher.max_length",
        "width: unknown key; it belongs below hyperparameters: write hyperparameters.width",
    ]


def test_hyperparameters_with_names_of_keys_that_are_not_given_are_noticed() -> None:
    text = f"""{SINGLE}entrypoint: A
max_restarts: 2
hyperparameters:
  max_restarts: 3
  max_length: 512
  name: resnet
  data: {{path: x}}
  profiling: 3
  aggregation_frequency: {{type: int, minval: 1, maxval: 4}}
  slots_per_trial: 2
  scheduling_unit: 10
  resources: {{max_slots: 3}}
"""
    assert notices(parse_yaml(text)) == [
        "hyperparameters.resources: a hyperparameter here; if resources is meant, it belongs at "
        "the top level.",
        "hyperparameters.scheduling_unit: a hyperparameter here; if scheduling_unit is meant, it "
        "belongs at the top level.",
        "hyperparameters.slots_per_trial: a hyperparameter here; if resources.slots_per_trial is "
        "meant, it belongs below resources.",
    ]
