"""The user's own alerts, of all experiments: `alerts.yaml` in the data folder.

    alerts:
      - name: phone
        ntfy: https://ntfy.sh/a-topic-of-mine
        on: [failed, hang, nan, disk]
      - name: desk
        command: [notify-send, det_jupyter]
        pools: [night]

An experiment's own `alerts` are added to them. An entry of one of these names, without an address,
changes what it is about for this experiment: `{name: phone, on: [ended]}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError

from det_jupyter.config.parsing import without_nulls
from det_jupyter.config.problems import describe
from det_jupyter.config.sections import Alert
from det_jupyter.config.yaml_text import read_yaml, with_lines
from det_jupyter.contract.schema.fields import Section, Text
from det_jupyter.contract.schema.key_paths import join_all, sort_problems
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.errors import ConfigError, Problem

_MOST = 20


class UserAlert(Alert):
    """An entry of alerts.yaml."""

    command: Annotated[list[Text], Field(min_length=1)] | None = None
    """A program and its arguments; it gets the alert as JSON on its standard input."""
    pools: list[Text] | None = None
    """Only experiments in these pools; all if not given."""

    WAYS: ClassVar[tuple[str, ...]] = (*Alert.WAYS, "command")


class AlertsFile(Section):
    """The whole file."""

    alerts: Annotated[list[UserAlert], Field(max_length=_MOST)] = []
    """Where alerts go, and about what."""


def read_alerts(text: str) -> AlertsFile:
    """Parse the text of alerts.yaml; one of comments only has no entries.

    Raises:
        ConfigError: All problems; none contains an address.
    """
    if all(line.lstrip()[:1] in ("", "#") for line in text.splitlines()):
        return AlertsFile()
    reading = read_yaml(text)
    problems = with_lines(reading.problems, reading.lines)
    if not reading.is_document:  # a problem without a line quotes all of the text
        problems = [each for each in problems if each.line]
        raise ConfigError(problems or [Problem("", "expected `alerts:`, and a list below it")])
    if problems:
        raise ConfigError(problems)
    return parse_alerts(reading.document)


def parse_alerts(document: Mapping[str, Any]) -> AlertsFile:
    """Parse the document of alerts.yaml.

    Raises:
        ConfigError: All problems.
    """
    filled = without_nulls(document)
    try:
        parsed = AlertsFile.model_validate(filled)
    except ValidationError as error:
        found = describe(error, filled, explain=_explain_unknown)
        raise ConfigError(sort_problems(found)) from None
    if problems := list(_find_problems(parsed)):
        raise ConfigError(problems)
    return parsed


def _explain_unknown(keys: Sequence[int | str]) -> Problem:
    section: type[Section] = AlertsFile if len(keys) == 1 else UserAlert
    return Problem(join_all(keys), f"unknown key; there are {', '.join(section.model_fields)}")


def _find_problems(parsed: AlertsFile) -> list[Problem]:
    names = [alert.name for alert in parsed.alerts]
    double = [
        Problem(f"alerts[{i}].name", f"got {name!r} once more; every one needs a name of its own")
        for i, name in enumerate(names)
        if name is not None and name in names[:i]
    ]
    without = [
        Problem(f"alerts[{i}]", f"missing its address; expected one of {', '.join(alert.WAYS)}")
        for i, alert in enumerate(parsed.alerts)
        if not alert.way
    ]
    return sort_problems([*double, *without])


def destinations(
    kind: AlertKind | None, own: Sequence[UserAlert], of_experiment: Sequence[Alert], pool: str
) -> tuple[list[UserAlert], list[UserAlert]]:
    """Return where an alert goes, each place once: of the user's, and of the experiment's.

    Args:
        kind: What it is about; None: all places.
        own: The user's, from alerts.yaml.
        of_experiment: The experiment's own.
        pool: The pool of the experiment.
    """
    changed = {each.name: each for each in of_experiment if each.name and not each.way}
    mine = [
        each.model_copy(update={"on": changed[each.name].on}) if each.name in changed else each
        for each in own
        if each.pools is None or pool in each.pools
    ]
    theirs = [UserAlert(**dict(each)) for each in of_experiment if each.way]
    chosen: dict[tuple[str, str], UserAlert] = {}
    for each in [*mine, *theirs]:
        if kind is None or each.on is None or kind in each.on:
            chosen.setdefault((each.way, str(getattr(each, each.way))), each)
    is_mine = {id(each) for each in mine}
    found = chosen.values()
    return (
        [each for each in found if id(each) in is_mine],
        [each for each in found if id(each) not in is_mine],
    )
