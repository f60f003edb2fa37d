"""`trackers` of an experiment, and trackers.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import merge, parse_config, read_yaml, to_yaml
from det_jupyter.config.tracker_section import Tracker
from det_jupyter.config.trackers import TrackersFile, read_trackers, trackers_of
from det_jupyter.errors import ConfigError

BASE: dict[str, Any] = {
    "entrypoint": "T",
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 1}},
    "reproducibility": {"experiment_seed": 1},
}
MLFLOW = {"type": "mlflow", "tracking_uri": "http://localhost:5000"}
WANDB = {"type": "wandb", "mode": "offline"}
URL = "https://ann:SECRET@mlflow.example.org/x"


def problems_of(trackers: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_config({**BASE, "trackers": trackers})
    return [str(problem) for problem in raised.value.problems]


def test_trackers_are_parsed_as_they_are_written() -> None:
    text = """
trackers:
  - {type: mlflow, tracking_uri: "${URI}", experiment: mine}
  - {type: mlflow}
  - {type: wandb, project: digits, mode: offline, folder: /tmp/w}
  - {name: team, type: mlflow, tracking_uri: "file:~/address"}
"""
    config = parse_config({**BASE, **read_yaml(text).document})
    assert [(each.label, each.group, each.address) for each in config.trackers or ()] == [
        ("mlflow ${URI}", "mine", "${URI}"),
        ("mlflow ${MLFLOW_TRACKING_URI}", "det_jupyter",
         "${MLFLOW_TRACKING_URI}"),
        ("wandb digits (offline)", "digits", None),
        ("team", "det_jupyter", "file:~/address"),
    ]  # fmt: skip
    assert parse_config(config.to_document()) == config


@pytest.mark.parametrize(
    ("trackers", "expected"),
    [
        ([{"type": "mlfow"}], ["trackers[0].type: got 'mlfow', expected mlflow or wandb"]),
        ([{"tracking_uri": "http://x"}], ["trackers[0].type: missing (trackers[0] is given)"]),
        (
            [MLFLOW, {"type": "wandb", "mode": "online", "experiment": "x"}, {"type": "wandb"}],
            [
                "trackers[1].experiment: wandb does not have it; mlflow has",
                "trackers[1].mode: got 'online', expected offline: this version writes files, "
                "which `wandb sync` sends",
                "trackers[2].mode: missing; write offline: this version writes files, which "
                "`wandb sync` sends",
            ],
        ),
        (
            [{"type": "mlflow", "tracking_uri": "ftp://ann:SECRET@x"}],
            [
                "trackers[0].tracking_uri: got '********', expected "
                "http(s)://HOST:PORT/PATH (without ?...) or sqlite:////PATH, ${NAME} or "
                "file:/PATH of a file that has it"
            ],
        ),
        (
            [{"type": "mlflow", "tracking_uri": "https://x/?token=SECRET"}],
            [
                "trackers[0].tracking_uri: got 'https://x/********', expected "
                "http(s)://HOST:PORT/PATH (without ?...) or sqlite:////PATH, ${NAME} or "
                "file:/PATH of a file that has it"
            ],
        ),
        ([URL], ["trackers[0]: got 'https://mlflow.example.org/********', expected a mapping "
                 "(`key: value` lines)"]),
        (URL, ["trackers: got 'https://mlflow.example.org/********', expected a list"]),
        ([{"type": "mlflow", "name": URL}], [
            "trackers[0].name: got 'https://mlflow.example.org/********', expected a name; an "
            "address goes below tracking_uri"
        ]),
        ([{**MLFLOW, "pools": []}], ["trackers[0].pools: unknown key; only trackers.yaml has it: "
                                     "these are trackers of one experiment"]),
    ],
)  # fmt: skip
def test_problems_are_named_without_secrets(trackers: Any, expected: list[str]) -> None:
    assert problems_of(trackers) == expected


def test_an_address_is_shown_unless_it_has_more_than_host_and_port() -> None:
    def written(address: str) -> str:
        trackers = [{"type": "mlflow", "tracking_uri": address}]
        return to_yaml(parse_config({**BASE, "trackers": trackers}).to_document())

    assert '"http://localhost:5000"' in written("http://localhost:5000")
    assert '"sqlite:////data/m.db"' in written("sqlite:////data/m.db")
    for address in (URL, "https://mlflow.example.org/t/SECRET"):
        assert "SECRET" not in written(address)


def test_an_entry_replaces_the_one_of_its_name_in_the_template() -> None:
    template = {"trackers": [{**MLFLOW, "name": "team"}, WANDB]}
    mine = {**WANDB, "name": "team"}
    assert merge(template, {"trackers": [mine]})["trackers"] == [WANDB, mine]


def test_an_experiment_goes_to_each_place_once() -> None:
    file = read_trackers(
        "trackers:\n- {type: mlflow, tracking_uri: 'http://localhost:5000', name: team}\n"
        "- {type: wandb, mode: offline, pools: [night]}\n"
        "- {type: wandb, mode: offline, project: p}\n"
    )
    own = [Tracker.model_validate(MLFLOW)]
    mine, theirs = trackers_of(file.trackers, own, "day")
    assert [each.label for each in mine] == ["wandb p (offline)"]
    assert theirs == own
    mine, _ = trackers_of(file.trackers, [], "night")
    assert [each.label for each in mine] == [
        "team",
        "wandb det_jupyter (offline)",
        "wandb p (offline)",
    ]


def test_all_problems_of_the_file_are_named() -> None:
    assert read_trackers("# nothing\n") == TrackersFile()
    text = (
        "trackers:\n- {type: mlflow, name: a, mode: offline}\n"
        "- {type: wandb, mode: offline, name: a, x: 1}\n"
    )
    with pytest.raises(ConfigError) as raised:
        read_trackers(text)
    assert [problem.path for problem in raised.value.problems] == [
        "trackers[0].mode",
        "trackers[1].x",
    ]
    twice = "trackers:\n- {type: mlflow, name: a}\n- {type: mlflow, name: a}\n"
    with pytest.raises(ConfigError, match="'a' once more"):
        read_trackers(twice)
    with pytest.raises(ConfigError) as raised:
        read_trackers(URL)
    assert "SECRET" not in str(raised.value)
