"""`alerts` of an experiment, and alerts.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import check_sanity, merge, parse_config, read_yaml, to_yaml
from det_jupyter.config.alerts import AlertsFile, destinations, parse_alerts, read_alerts
from det_jupyter.config.sections import Alert
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.errors import ConfigError

BASE: dict[str, Any] = {
    "entrypoint": "T",
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 1}},
    "reproducibility": {"experiment_seed": 1},
}
SECRET = "https://hooks.example.org/SECRET"


def problems_of(alerts: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_config({**BASE, "alerts": alerts})
    return [str(problem) for problem in raised.value.problems]


def test_alerts_are_parsed_as_they_are_written() -> None:
    text = """
alerts:
  - slack: ${SLACK_WEBHOOK}
  - ntfy: https://ntfy.sh/topic
    on: [failed, hang, nan, disk, ended]
  - {webhook: "file:~/hook", on: []}
  - {name: phone, on: [ended]}
"""
    document = {**BASE, **read_yaml(text).document}
    config = parse_config(document)
    assert [(alert.way, alert.name, alert.on) for alert in config.alerts or ()] == [
        ("slack", None, None),
        ("ntfy", None, ["failed", "hang", "nan", "disk", "ended"]),
        ("webhook", None, []),
        ("", "phone", ["ended"]),
    ]
    assert parse_config(config.to_document()) == config


@pytest.mark.parametrize(
    ("alerts", "expected"),
    [
        ([{"on": ["failed"]}], "alerts[0]: got '********', expected one of slack, ntfy, webhook"),
        ([{"slack": SECRET, "ntfy": SECRET}], "alerts[0]: got '********', expected one of"),
        ([{"slack": "ftp://SECRET"}], "alerts[0].slack: got '********', expected ${NAME}"),
        ([{"slack": {"url": SECRET}}], "alerts[0].slack: got '********', expected ${NAME}"),
        ([{"slack": [SECRET]}], "alerts[0].slack: got '********', expected ${NAME}"),
        ([SECRET], "alerts[0]: got 'https://hooks.example.org/********', expected a mapping"),
        (SECRET, "alerts: got 'https://hooks.example.org/********', expected a list"),
        ({"slack": SECRET}, "alerts: got '********', expected a list"),
        ([{"ntfy": "https://SECRET@ntfy.sh/"}], "alerts[0].ntfy: got 'https://ntfy.sh/********'"),
        ([{"slack": "${X}", "on": ["fail"]}], "alerts[0].on[0]: got 'fail', expected failed"),
        ([{"command": ["x"]}], "alerts[0].command: unknown key; only alerts.yaml has commands"),
        (
            [{"slack": "${X}", "on": [SECRET]}],
            "alerts[0].on[0]: got 'https://hooks.example.org/**",
        ),
        ([{"slack": "${X}", "on": SECRET}], "alerts[0].on: got 'https://hooks.example.org/**"),
        ([{"slack": "${X}", "on": ["T0/SECRET"]}], "alerts[0].on[0]: got '********', expected"),
        (
            [{"slack": "${X}", "on": {"a": SECRET}}],
            "alerts[0].on: got '********', expected a list",
        ),
        ([{"slack": "${X}", "on": [[SECRET]]}], "alerts[0].on[0]: got '********', expected fail"),
        ([{"name": SECRET, "on": []}], "alerts[0].name: got 'https://hooks.example.org/********'"),
        ([{SECRET: None}, {SECRET: 1}], "alerts[1].********: unknown key"),
        ([{"slak": SECRET}], "alerts[0].slak: unknown key; did you mean slack?"),
    ],
)
def test_problems_are_named_without_the_address(alerts: Any, expected: str) -> None:
    found = problems_of(alerts)
    assert any(problem.startswith(expected) for problem in found), found
    assert "SECRET" not in "\n".join(found)
    assert "SECRET" not in "\n".join(map(str, check_sanity({"alerts": alerts})))


def test_a_configuration_is_written_without_the_address() -> None:
    written = to_yaml({"alerts": [{"slack": SECRET}, {"webhook": "${HOOK}"}]})
    assert written == (
        'alerts:\n- {slack: "https://hooks.example.org/********"}\n- {webhook: "${HOOK}"}\n'
    )


def test_entries_of_one_name_are_one() -> None:
    template = {"alerts": [{"name": "a", "slack": "${A}", "on": ["nan"]}, {"ntfy": "${B}"}]}
    assert merge(template, {"alerts": [{"name": "a", "on": ["ended"]}]})["alerts"] == [
        {"ntfy": "${B}"},
        {"name": "a", "slack": "${A}", "on": ["ended"]},
    ]
    assert merge(template, {"alerts": [{"name": "a", "webhook": "${C}"}]})["alerts"] == [
        {"ntfy": "${B}"},
        {"name": "a", "webhook": "${C}", "on": ["nan"]},
    ]


def test_an_entry_that_is_none_is_left_for_the_problem_that_it_is() -> None:
    template = {"alerts": [{"name": "a", "slack": "${A}"}]}
    assert merge(template, {"alerts": ["text", {"name": "b", "ntfy": "${B}"}]})["alerts"] == [
        {"name": "a", "slack": "${A}"},
        "text",
        {"name": "b", "ntfy": "${B}"},
    ]


@pytest.mark.parametrize("text", ["", "\n", "# alerts:\n  # - slack: x\n"])
def test_an_alerts_yaml_without_entries_is_no_problem(text: str) -> None:
    assert read_alerts(text) == AlertsFile()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"- slack: {SECRET}\n", "expected `alerts:`, and a list below it"),
        (f"{SECRET}\n", "expected `alerts:`, and a list below it"),
        (
            f'- slack: "{SECRET}\n',
            "line 1: [0].slack: this is not YAML: the quotation mark that begins here is "
            "not closed",
        ),
        (
            f"alerts: [{{slack: {SECRET}, to: x}}]",
            "alerts[0].to: unknown key; there are name, slack, ntfy, webhook, on, command, pools",
        ),
    ],
)
def test_problems_of_the_text_of_alerts_yaml_contain_no_address(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_alerts(text)
    assert str(raised.value) == problem
    assert read_alerts(f"alerts: [{{slack: {SECRET}}}]").alerts[0].slack == SECRET


def test_problems_of_alerts_yaml_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_alerts({"alerts": [{"name": "a"}, {"slack": SECRET, "to": 1}], "pools": []})
    paths = [problem.path for problem in raised.value.problems]
    assert paths == ["alerts[0]", "alerts[1].to", "pools"]
    with pytest.raises(ConfigError) as raised:
        parse_alerts({"alerts": [{"name": "a", "command": ["x"]}, {"name": "a"}]})
    assert [problem.path for problem in raised.value.problems] == ["alerts[1]", "alerts[1].name"]


def own() -> AlertsFile:
    return parse_alerts(
        {
            "alerts": [
                {"name": "phone", "ntfy": "${PHONE}", "on": ["failed"]},
                {"name": "desk", "command": ["notify-send"]},
                {"webhook": "${NIGHT}", "pools": ["night"]},
            ]
        }
    )


def found(kind: AlertKind | None, alerts: list[dict[str, Any]], pool: str) -> list[str]:
    parsed = [Alert(**alert) for alert in alerts]
    mine, theirs = destinations(kind, own().alerts, parsed, pool)
    return [str(getattr(each, each.way)) for each in [*mine, *theirs]]


def test_an_alert_goes_to_the_users_destinations_and_to_the_experiments_own() -> None:
    assert found(AlertKind.FAILED, [], "default") == ["${PHONE}", "['notify-send']"]
    assert found(AlertKind.ENDED, [], "night") == ["['notify-send']", "${NIGHT}"]
    own_one = {"slack": "${OURS}", "on": ["ended"]}
    assert found(AlertKind.ENDED, [own_one], "default") == ["['notify-send']", "${OURS}"]
    assert found(AlertKind.NAN, [own_one], "default") == ["['notify-send']"]
    assert found(None, [own_one], "night") == [
        "${PHONE}",
        "['notify-send']",
        "${NIGHT}",
        "${OURS}",
    ]


def test_an_experiment_changes_what_a_named_destination_is_about() -> None:
    changed = [{"name": "phone", "on": ["ended"]}, {"name": "desk", "on": []}]
    assert found(AlertKind.ENDED, changed, "default") == ["${PHONE}"]
    assert found(AlertKind.FAILED, changed, "default") == []


def test_a_place_gets_an_alert_once() -> None:
    assert found(AlertKind.FAILED, [{"ntfy": "${PHONE}"}], "default") == [
        "${PHONE}",
        "['notify-send']",
    ]
