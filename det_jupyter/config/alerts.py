"""The user's own alerts, of all experiments: `alerts.yaml` in the data folder.

    alerts:
      - name: phone
        ntfy: https://ntfy.sh/a-topic-of-mine
        on: [failed, hang, nan, disk]
      - name: desk
        command: [notify-send, det_jupyter]
        pools: [night]

An experiment's own `alerts` are added to them. If an entry there has one of these names and no
address, it changes the subjects for this experiment: `{name: phone, on: [ended]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from det_jupyter.config.sections import Alert
from det_jupyter.config.user_files import parse_entries, read_file
from det_jupyter.contract.schema.fields import Section, Text
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.errors import Problem

_MOST = 20


class UserAlert(Alert):
    """An entry of alerts.yaml."""

    command: Annotated[list[Text], Field(min_length=1)] | None = None
    """A program and its arguments; it gets the alert as JSON on its standard input."""
    pools: list[Text] | None = None
    """Only experiments in these pools; all if not given."""

    WAYS: ClassVar[tuple[str, ...]] = (*Alert.WAYS, "command")


class AlertsFile(Section):
    """The content of alerts.yaml."""

    alerts: Annotated[list[UserAlert], Field(max_length=_MOST)] = []
    """The destinations of alerts, and the subjects that each gets."""


def read_alerts(text: str) -> AlertsFile:
    """Parse the text of alerts.yaml; one of comments only has no entries.

    Raises:
        ConfigError: All problems; none contains an address.
    """
    return read_file(text, "alerts", parse_alerts) or AlertsFile()


def parse_alerts(document: Mapping[str, Any]) -> AlertsFile:
    """Parse the document of alerts.yaml.

    Raises:
        ConfigError: All problems.
    """
    return parse_entries(AlertsFile, "alerts", document, _find_without_address(document))


def _find_without_address(document: Mapping[str, Any]) -> Iterator[Problem]:
    entries = document.get("alerts")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if (
            isinstance(entry, Mapping)
            and "name" in entry
            and not any(map(entry.get, UserAlert.WAYS))
        ):
            expected = ", ".join(UserAlert.WAYS)
            yield Problem(f"alerts[{index}]", f"missing its address; expected one of {expected}")


def destinations(
    kind: AlertKind | None, own: Sequence[UserAlert], of_experiment: Sequence[Alert], pool: str
) -> tuple[list[UserAlert], list[UserAlert]]:
    """Return the destinations of an alert, each once: the user's, and the experiment's.

    Args:
        kind: The subject of the alert; None: all destinations are returned.
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
