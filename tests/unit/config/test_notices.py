"""Configurations that are allowed and probably not meant: notices, and no false alarms."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import notices, parse_yaml

SINGLE = "{name: single, metric: e, max_length: 5}"
GRID = "{name: grid, metric: e, max_length: 5}"
RANDOM = "{name: random, metric: e, max_length: 5, max_trials: 4}"
DRAWN = "drawn: {type: int, minval: 1, maxval: 2, count: 2}"


def test_alerts_that_could_be_read_on_the_way_are_noticed() -> None:
    urls = ("http://ntfy.lan/topic", "https://ntfy.lan/topic", "http://localhost/topic", "${URL}")
    entries = ", ".join(f"{{ntfy: '{url}'}}" for url in urls)
    (notice,) = notices(parse_yaml(f"entrypoint: T\nsearcher: {SINGLE}\nalerts: [{entries}]"))
    assert notice.startswith("alerts[0].ntfy: over http, others on the way can read the alerts")


def traps_in(hparams: str, searcher: str) -> list[str]:
    text = f"entrypoint: T\nhyperparameters: {{{hparams}}}\nsearcher: {searcher}"
    return notices(parse_yaml(text))


@pytest.mark.parametrize(
    ("hparams", "searcher", "parts"),
    [
        ("lr: {minval: 0.1, maxval: 1}", SINGLE, ["hyperparameters.lr: without a type", "double"]),
        ("n: {minval: 1, maxval: 8}", SINGLE, ["hyperparameters.n: without a type", "type: int"]),
        ("net: {act: {vals: [relu, gelu]}}", SINGLE, ["hyperparameters.net.act", "categorical"]),
        ("lr: {base: 10, minval: -4, maxval: -1}", SINGLE, ["add type: log"]),
        (f"width: [32, 64], {DRAWN}", GRID, ["hyperparameters.width: a list is one", "[32, 64]"]),
        (f"d: [32, 64], {DRAWN}", RANDOM, ["hyperparameters.d: a list is one", "vals: [32, 64]}"]),
        (f"net: {{act: [relu, gelu]}}, {DRAWN}", RANDOM, ["hyperparameters.net.act: a list is"]),
        (f"betas: [0.9, 0.999], {DRAWN}", GRID, ["hyperparameters.betas: a list is one"]),
        (f"d: '32, 6.4e1', {DRAWN}", RANDOM, ["is the text '32, 6.4e1'", "vals: [32, 6.4e1]}"]),
        (
            "lr: {type: log, base: 10, minval: 0.0001, maxval: 0.1}",
            RANDOM,
            ["are exponents", "10^0.0001 = 1", "write minval: -4, maxval: -1"],
        ),
        (
            "lr: {type: log, base: 10, minval: 1e-5, maxval: 3}",
            RANDOM,
            ["write minval: -5, maxval: 0.4771"],
        ),
        (
            f"layers: [{{n: {{type: int, minval: 1, maxval: 8}}}}], {DRAWN}",
            RANDOM,
            ["hyperparameters.layers[0].n: a range inside a list", "a key of its own"],
        ),
        (
            f"opt: None, lrs: {{type: categorical, vals: [None, 1]}}, {DRAWN}",
            RANDOM,
            ["hyperparameters.opt: None is the text", "as in 1 other place", "write null"],
        ),
        ("lr: 0.1", RANDOM, ["none is a range, so all 4 trials of searcher random"]),
        ("lr: 0.1", GRID, ["none is a range, so the grid has one trial"]),
        (
            "lr: 0.1",
            SINGLE.replace("metric: e", "metric: val_acc"),
            [
                "searcher.smaller_is_better: not given, so true: the smallest val_acc counts as "
                "the best; if larger is better, write smaller_is_better: false."
            ],
        ),
        (
            "lr: 0.1",
            SINGLE.replace("metric: e", "metric: F1, smaller_is_better: true"),
            ["searcher.smaller_is_better: true: the smallest F1 counts"],
        ),
        (
            "lr: 0.1",
            SINGLE.replace("metric: e", "metric: valLoss, smaller_is_better: false"),
            ["smaller_is_better: false: the largest valLoss", "write smaller_is_better: true."],
        ),
    ],
)
def test_a_trap_is_told_with_what_to_write(hparams: str, searcher: str, parts: list[str]) -> None:
    (told,) = traps_in(hparams, searcher)
    assert [part for part in parts if part not in told] == [], told


@pytest.mark.parametrize(
    ("hparams", "searcher"),
    [
        ("lr: 0.1, betas: [0.9, 0.999]", SINGLE),
        (f"betas: [0.9, 0.999], {DRAWN}", RANDOM),
        (f"hidden_sizes: [32, 64], input_shape: [3, 32, 32], {DRAWN}", RANDOM),
        (f"classes: [], note: 'a, b', {DRAWN}", RANDOM),
        ("d: [32, 64], t: '1, 2'", SINGLE),
        (f"optimizer: {{lr: 0.1, minval: 3}}, {DRAWN}", GRID),
        (f"clip: {{minval: -1, maxval: 1, hard: true}}, {DRAWN}", RANDOM),
        ("lr: {type: log, base: 10, minval: -4, maxval: -1}", RANDOM),
        ("lr: {type: log, base: 10, minval: 0, maxval: 1}", RANDOM),
        ("lr: {type: log, base: 2, minval: 0.5, maxval: 5}", RANDOM),
        ("n: {type: log, base: 2, minval: 3, maxval: 8}", RANDOM),
        (
            "c: {type: const, val: {minval: 0.1, maxval: 1}}, x: {type: categorical, vals: [1]}",
            GRID,
        ),
        ("lr: 0.1", RANDOM.replace("4", "1")),
        ("lr: 0.1", SINGLE.replace("metric: e", "metric: auc, smaller_is_better: false")),
        ("lr: 0.1", SINGLE.replace("metric: e", "metric: accuracy_loss")),
        ("lr: 0.1", SINGLE.replace("metric: e", "metric: tokens_per_s")),
        ("net: {depth: {type: int, minval: 1, maxval: 3}}", RANDOM),
    ],
)
def test_what_may_well_be_meant_is_no_trap(hparams: str, searcher: str) -> None:
    assert traps_in(hparams, searcher) == []


@pytest.mark.parametrize(
    "hparams",
    [None, 3, {"a": {"minval": None, "maxval": []}}, {"a": {"type": "log", "minval": True}}],
)
def test_what_is_wrong_anyway_is_passed_over(hparams: Any) -> None:
    document = {"hyperparameters": hparams, "searcher": {"name": "single"}}
    assert all("without a type" in told for told in notices(document))
