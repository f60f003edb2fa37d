"""The user's own trackers, of all experiments: `trackers.yaml` in the data folder.

    trackers:
      - type: mlflow
        tracking_uri: http://localhost:5000
      - {type: wandb, project: digits, mode: offline, pools: [night]}

An experiment's own `trackers` are added to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from det_jupyter.config.tracker_section import Tracker, find_tracker_contradictions
from det_jupyter.config.user_files import parse_entries, read_file
from det_jupyter.contract.schema.fields import Section, Text

_MOST = 20


class UserTracker(Tracker):
    """An entry of trackers.yaml."""

    pools: list[Text] | None = None
    """Only experiments in these pools; all if not given."""

    @property
    def tracker(self) -> Tracker:
        """The tracker, without the pools."""
        return Tracker.model_validate(self.model_dump(exclude={"pools"}))


class TrackersFile(Section):
    """The content of trackers.yaml."""

    trackers: Annotated[list[UserTracker], Field(max_length=_MOST)] = []
    """Services that get what experiments report."""


def read_trackers(text: str) -> TrackersFile:
    """Parse the text of trackers.yaml; one of comments only has no entries.

    Raises:
        ConfigError: All problems; none contains a secret.
    """
    return read_file(text, "trackers", parse_trackers) or TrackersFile()


def parse_trackers(document: Mapping[str, Any]) -> TrackersFile:
    """Parse the document of trackers.yaml.

    Raises:
        ConfigError: All problems.
    """
    others = find_tracker_contradictions(document)
    return parse_entries(TrackersFile, "trackers", document, others)


def trackers_of(
    own: Sequence[UserTracker], of_experiment: Sequence[Tracker], pool: str
) -> tuple[list[Tracker], list[Tracker]]:
    """Return the trackers of an experiment, each once: the user's, and its own.

    Args:
        own: The user's, from trackers.yaml.
        of_experiment: The experiment's own.
        pool: The pool of the experiment.
    """
    mine = [each.tracker for each in own if each.pools is None or pool in each.pools]
    theirs = list(of_experiment)
    places = {each.place for each in theirs}
    return [each for each in mine if each.place not in places], theirs
